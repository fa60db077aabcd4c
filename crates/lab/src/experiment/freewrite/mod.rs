//! Freewrite (Liu et al.): common parts of its experiments on the LSM store (Figures 2, 4, 5) and on the log store (3,
//! 6, 7, 8).
//!
//! *Scale.* The paper's store has 1 GB of keys and values, tables of 2 MB, memtables of 4 MB and 10 MB in level 1. For
//! a smaller store these shrink in proportion, which preserves the number of levels and the width of merges. Leaves and
//! blocks stay 4 KiB, so as many survive a merge. What a table has beyond its leaves does not shrink (a branch and a
//! root, two or three blocks); it is written at each merge: 1 % of the paper's tables, 9 % at the small scale.

mod bench;
pub(super) mod caps;
mod collect;
pub(super) mod fig2;
pub(super) mod fig3;
pub(super) mod fig4;
pub(super) mod fig5;
pub(super) mod fig6;
pub(super) mod flash;
pub(super) mod grid;
mod keys;
mod machine;
mod memory;
pub(super) mod separation;
pub(super) mod tour;

use super::{Scale, Setting, Table, each};
use crate::report::{Chart, ChartKind};
use bench::{Measured, Run};
use keys::Keys;
use machine::Kind;
use vellum_base::Result;
use vellum_kv::Reuse;

const PAPER: &str =
    "Freewrite: Creating (Almost) Zero-Cost Writes to SSD in Applications (Liu et al.; SYSTOR 2017)";
/// The paper's value size, unless it says otherwise.
const VALUE_BYTES: usize = 512;

fn store_bytes(setting: &Setting<'_>) -> u64 {
    match setting.scale {
        Scale::Small => 64 << 20,
        Scale::Paper => 1 << 30,
    }
}

/// A point with and without freewrite.
struct Pair {
    off: Measured,
    on: Measured,
}

impl Pair {
    /// Reduction of bytes written, in percent.
    fn less(&self) -> f64 {
        100.0 * (1.0 - self.on.stored_bytes() as f64 / self.off.stored_bytes() as f64)
    }

    /// Bytes written without freewrite, relative to those with it.
    fn times_less(&self) -> f64 {
        self.off.stored_bytes() as f64 / self.on.stored_bytes() as f64
    }

    /// Throughput with freewrite, relative to that without.
    fn times_faster(&self) -> f64 {
        self.on.puts_per_second() / self.off.puts_per_second()
    }

    /// Gain of throughput, in percent.
    fn faster(&self) -> f64 {
        100.0 * (self.times_faster() - 1.0)
    }
}

/// One of the paper's stores with and without bubbles.
fn pairs(kind: Kind, what: &str, points: &[(Keys, usize)], setting: &Setting<'_>) -> Result<Vec<Pair>> {
    let run = |(keys, value_bytes): (Keys, usize), reuse: Reuse| Run {
        kind,
        keys,
        value_bytes,
        bytes: store_bytes(setting),
        reuse: reuse.into(),
    };
    let runs: Vec<Run> =
        points.iter().flat_map(|point| [run(*point, Reuse::Off), run(*point, Reuse::Bubbles)]).collect();
    let mut measured = each(what, &runs, setting, |run| bench::run(run, setting.seed))?.into_iter();
    Ok(std::iter::from_fn(|| Some(Pair { off: measured.next()?, on: measured.next()? })).collect())
}

fn mb(bytes: u64) -> String {
    format!("{:.0}", bytes as f64 / 1e6)
}

/// Figures of all points, one row per point.
fn table(title: &str, first: &str, names: &[String], pairs: &[Pair]) -> Table {
    let columns = [
        first,
        "records/s",
        "with bubbles",
        "faster, %",
        "written, MB",
        "with bubbles",
        "less, %",
        "x of keys and values",
        "programmed, MB",
        "with bubbles",
        "kept, % of what was emitted",
        "bubbles, %",
    ];
    let mut table = Table::new(title, columns);
    for (name, pair) in names.iter().zip(pairs) {
        let (off, on) = (&pair.off, &pair.on);
        table.rows.push(vec![
            name.clone(),
            format!("{:.0}", off.puts_per_second()),
            format!("{:.0}", on.puts_per_second()),
            format!("{:.1}", pair.faster()),
            mb(off.stored_bytes()),
            mb(on.stored_bytes()),
            format!("{:.1}", pair.less()),
            format!("{:.1}", off.stored_bytes() as f64 / off.user_bytes as f64),
            mb(off.programmed_bytes),
            mb(on.programmed_bytes),
            format!("{:.1}", on.kept_percent()),
            format!("{:.2}", on.padding_percent()),
        ]);
    }
    table
}

/// Throughput and bytes written, as in Figures 2, 3, 5 and 6.
fn charts(store: &str, x: &str, names: &[String], pairs: &[Pair]) -> Vec<Chart> {
    let chart = |title: &str, y: &str, value: fn(&Measured) -> f64| {
        let series = |name: &str, side: fn(&Pair) -> &Measured| {
            (name.to_string(), pairs.iter().map(|pair| value(side(pair))).collect())
        };
        let series = vec![series(store, |pair| &pair.off), series("with freewrite", |pair| &pair.on)];
        Chart {
            title: title.into(),
            x: x.into(),
            y: y.into(),
            kind: ChartKind::Bars { groups: names.to_vec(), series },
        }
    };
    vec![
        chart("Throughput", "1000 records/s", |m| m.puts_per_second() / 1e3),
        chart("Data written to the disk", "MB", |m| m.stored_bytes() as f64 / 1e6),
    ]
}

/// Notes on collecting the log store.
fn notes_on_collecting() -> Vec<String> {
    let own = "Measured is collecting alone, after the store was filled, as in the paper: records copied in a second, and sectors stored meanwhile. The log is in segments, a \
               thirty-second of the store each, all collected at once";
    notes().into_iter().chain([own.into()]).collect()
}

/// A note for every experiment on the paper's machine.
fn notes() -> Vec<String> {
    vec![
        "The device stands for dmdedup on the paper's SSD: `strong` dedup on flash so fast that LevelDB without bubbles takes the 683 s of Figure 4 (two dies, 1.19 ms a page); \
         nothing else is fitted. Merging costs twice what LevelDB 1.23 takes on a processor nine years younger (`crates/vellum/benches/leveldb_merge.py 256`)"
            .into(),
        "Written: sectors that the disk had to store, as dmdedup counts them; its own map and collection come on top".into(),
    ]
}
