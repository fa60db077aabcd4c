//! FlashKV (Zhang et al.): common parts of its experiments.
//!
//! The set-up is that of flashkv.txt, section 4.1: the board of Table 1, YCSB's workloads on a store that is loaded
//! first, no pause between load and run. What the paper leaves open is in system.rs for the systems, and here:
//! 1. *Records* of 1000 bytes, as YCSB makes them; 8 clients, each with one request at a time; a cache of a fifth of
//!    the size of all records.
//! 2. *Scale.* Erase blocks have 16 pages at the small scale (a superblock of 32 channels: 4 MiB), 32 at the other (8
//!    MiB), instead of 256 on the board, so that a store with fewer records has enough tables. LevelDB's sizes shrink
//!    with the superblock. Tags take two pages of a block, whatever its size: 12.5 %, 6.2 %, 0.8 % on the board.

mod bench;
mod board;
pub(super) mod fig6;
pub(super) mod fig7;
pub(super) mod fig8;
mod fs;
mod system;
pub(super) mod tour;

use super::{Scale, Setting, Table, each};
use crate::report::{Chart, ChartKind};
pub(crate) use bench::run as measure;
pub(crate) use bench::{Load, Measured};
pub(crate) use board::Board;
pub(super) use fs::{FsKind, FsMedia, Layout};
pub(crate) use system::System;
pub(super) use system::as_leveldb;
use vellum_base::Result;
use vellum_trace::generate::kv::Workload;

const PAPER: &str = "FlashKV: Accelerating KV Performance with Open-Channel SSDs (Zhang, Lu, Shu, Qin; 2017)";

/// Explains much of what the run phase alone shows.
const RUN_FOLLOWS_LOAD: &str = "The run phase follows the load at once. A store that lets its clients wait while it is loaded has merged more when the run \
     begins, so by the run alone the slowest to load look best at reads; load and run together are given beside it";

const VALUE_BYTES: usize = 1000;
const CLIENTS: usize = 8;

/// One run of one system.
#[derive(Clone, Copy)]
struct Run {
    system: System,
    board: Board,
    load: Load,
}

/// Workloads of Table 2. At the small scale, three of the five: half updates, reads, latest.
fn workloads(setting: &Setting<'_>) -> &'static [Workload] {
    use Workload::{YcsbA, YcsbB, YcsbC, YcsbD, YcsbF};
    match setting.scale {
        Scale::Small => &[YcsbA, YcsbC, YcsbD],
        Scale::Paper => &[YcsbA, YcsbB, YcsbC, YcsbD, YcsbF],
    }
}

/// YCSB's letter for a workload.
fn letter(workload: Workload) -> String {
    workload.name().trim_start_matches("ycsb-").to_uppercase()
}

fn records(setting: &Setting<'_>) -> u64 {
    match setting.scale {
        Scale::Small => 80_000,
        Scale::Paper => 200_000,
    }
}

fn pages_per_block(setting: &Setting<'_>) -> u32 {
    match setting.scale {
        Scale::Small => 16,
        Scale::Paper => 32,
    }
}

fn load(setting: &Setting<'_>, workload: Workload, requests: u64) -> Load {
    let records = records(setting);
    let cache_bytes = records as usize * VALUE_BYTES / 5;
    Load {
        workload,
        records,
        requests,
        value_bytes: VALUE_BYTES,
        clients: CLIENTS,
        cache_bytes,
        settle: false,
    }
}

/// A board of at least `times` the size of all records.
fn board(setting: &Setting<'_>, channels: u32, times: f64) -> Board {
    let board = Board { channels, pages_per_block: pages_per_block(setting), blocks_per_die: 0 };
    board.holding((records(setting) as f64 * VALUE_BYTES as f64 * times) as u64)
}

fn run_all(what: &str, runs: &[Run], setting: &Setting<'_>) -> Result<Vec<Measured>> {
    each(what, runs, setting, |run| bench::run(run.system, &run.board, &run.load, setting.seed))
}

fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) = values.into_iter().fold((0.0, 0u32), |(sum, n), v: f64| (sum + v.ln(), n + 1));
    if count == 0 { 0.0 } else { (sum / f64::from(count)).exp() }
}

fn least_and_most(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    values.into_iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, m), v| (l.min(v), m.max(v)))
}

/// A label, and the smallest and largest value: ours, and those in the paper's text.
type Compared<'a> = (&'a str, (f64, f64), (f64, f64));

/// A chart of our values beside those in the paper's text.
fn beside_the_paper(title: &str, y: &str, rows: &[Compared<'_>]) -> Chart {
    let series =
        |name: &str, value: fn(&Compared<'_>) -> f64| (name.to_string(), rows.iter().map(value).collect());
    Chart {
        title: title.into(),
        x: String::new(),
        y: y.into(),
        kind: ChartKind::Bars {
            groups: rows.iter().map(|row| row.0.to_string()).collect(),
            series: vec![
                series("ours, least", |row| row.1.0),
                series("ours, most", |row| row.1.1),
                series("paper, least", |row| row.2.0),
                series("paper, most", |row| row.2.1),
            ],
        },
    }
}

fn times((least, most): (f64, f64)) -> String {
    format!("{least:.2} to {most:.2} x")
}

/// What the run of each system wrote, and how long its clients waited. A point has a name and a run of each system.
fn accounts(systems: &[System], points: impl Iterator<Item = (String, Vec<Measured>)>) -> Table {
    let columns = [
        "run",
        "load, s",
        "run, s",
        "user, MB",
        "programmed, MB",
        "of it flush, MB",
        "compaction, MB",
        "tags and padding, MB",
        "moved by collectors, MB",
        "erased, MB",
        "GC efficiency, %",
        "cache hits, %",
        "compactions",
        "moves",
        "writers waited, s",
    ];
    let mut table = Table::new("Where bytes and time went", columns);
    for (name, cells) in points {
        let rows = systems.iter().zip(cells);
        table.rows.extend(rows.map(|(system, m)| row(format!("{name}{}", system.name()), &m)));
    }
    table
}

fn row(name: String, m: &Measured) -> Vec<String> {
    use vellum_base::Cause;
    let by = |causes: &[Cause]| causes.iter().map(|cause| m.stat.ledger.programmed_by(*cause)).sum::<u64>();
    let mb = |bytes: u64| format!("{:.0}", bytes as f64 / 1e6);
    let compactions = [
        Cause::Compaction1,
        Cause::Compaction2,
        Cause::Compaction3,
        Cause::Compaction4,
        Cause::Compaction5,
        Cause::Compaction6,
    ];
    vec![
        name,
        format!("{:.2}", m.load.as_secs_f64()),
        format!("{:.2}", m.run.as_secs_f64()),
        mb(m.stat.since_opened.user_bytes()),
        mb(m.programmed_bytes),
        mb(by(&[Cause::Flush])),
        mb(by(&compactions)),
        mb(by(&[Cause::StoreMetadata, Cause::Padding])),
        mb(m.moved_bytes),
        mb(m.erased_bytes),
        m.gc_efficiency().map_or("-".into(), |share| format!("{:.1}", share * 100.0)),
        format!("{:.1}", m.hit_share * 100.0),
        m.stat.since_opened.compactions().to_string(),
        m.stat.since_opened.moves().to_string(),
        format!("{:.2}", (m.stat.since_opened.stalls().1 + m.stat.since_opened.slowed_ns()) as f64 / 1e9),
    ]
}
