//! Caches of an array side by side, as an introduction to Vellum.

use super::workloads::TABLE_I;
use super::{NOTE, PAPER, pages, timed};
use crate::array_cache::{Arrivals, Mode};
use crate::experiment::{Experiment, Outcome, Setting, Table, each};
use crate::report::{Chart, ChartKind};
use vellum_base::Result;

pub(crate) const CHAPTER: Experiment = Experiment {
    name: "kdd-tour",
    paper: PAPER,
    figure: "beyond section IV",
    claim: "A cache of data and deltas takes the parity update out of small writes, and writes a fraction of the flash of other caches",
    small: "a workload after Fin1 of Table I at a 60th of its size, 39 requests a second, a cache of 20 % of its pages, RAID-5 of five modelled SATA disks",
    full: "the same",
    run,
};

const MODES: [&str; 6] = ["nossd", "wa", "wt", "leavo", "kdd-25", "kdd"];
const DIVISOR: u64 = 60;

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let workload = TABLE_I[0].workload(DIVISOR, setting.seed)?;
    let pages = pages(&workload, 0.2);
    let found = each("Caches of an array", &MODES, setting, |mode| {
        timed(&Mode::by_name(mode)?, &workload, pages, Arrivals::Open { speed: 1.0 }, setting.seed)
    })?;
    let columns = ["", "flash written, MB", "read hits, %", "read, ms", "write, ms", "disks at work, %"];
    let mut table = Table::new("The same requests through six caches", columns);
    for (mode, (totals, times)) in MODES.iter().zip(&found) {
        let figures = [
            totals.flash_bytes() as f64 / 1e6,
            100.0 * totals.read_hit_ratio(),
            times.reads.mean_ms,
            times.writes.mean_ms,
            100.0 * times.disks_busy,
        ];
        let cells = figures.iter().map(|figure| format!("{figure:.1}"));
        table.rows.push(std::iter::once(mode.to_string()).chain(cells).collect());
    }
    let bars = |title: &str, y: &str, series| Chart {
        title: title.into(),
        x: "cache".into(),
        y: y.into(),
        kind: ChartKind::Bars { groups: MODES.map(String::from).into(), series },
    };
    let flash = found.iter().map(|(totals, _)| totals.flash_bytes() as f64 / 1e6).collect();
    let reads = found.iter().map(|(_, times)| times.reads.mean_ms).collect();
    let writes = found.iter().map(|(_, times)| times.writes.mean_ms).collect();
    let charts = vec![
        bars("Flash written", "MB", vec![("written".into(), flash)]),
        bars("Mean response", "ms", vec![("reads".into(), reads), ("writes".into(), writes)]),
    ];
    Ok(Outcome { tables: vec![table], charts, notes: vec![NOTE.into()], ..Outcome::default() })
}
