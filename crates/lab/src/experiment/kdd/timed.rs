//! Figure 9: response times of open-loop replays.

use super::workloads::TABLE_I;
use super::{CACHE_BYTES, NOTE, PAPER, divisor, percent, range, timed};
use crate::array_cache::{Arrivals, Mode};
use crate::experiment::{Check, Experiment, Outcome, Setting, Table, each};
use crate::report::{Chart, ChartKind};
use vellum_base::{Result, SECTOR_BYTES};

pub(crate) const FIG9: Experiment = Experiment {
    name: "kdd-fig9",
    paper: PAPER,
    figure: "Figure 9 (section IV.B)",
    claim: "KDD answers 41.7, 61.2, 28.0 and 30.1 % sooner than an array without SSD (Fin1, Fin2, Hm0, Web0), and as soon as LeavO",
    small: "the first 90 seconds of workloads after Table I at a 20th of its size, 8 to 39 requests a second with exponential gaps, a cache of 50 MB, empty, \
            five modelled SATA disks, look-ahead and write cache off",
    full: "the first 30 minutes at Table I's size, a cache of 1 GB",
    run,
};

const MODES: [&str; 6] = ["nossd", "wa", "wt", "leavo", "kdd-25", "kdd"];
const PAPER_LESS: [(&str, f64); 4] = [("Fin1", 0.417), ("Hm0", 0.280), ("Fin2", 0.612), ("Web0", 0.301)];

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let jobs: Vec<_> = TABLE_I.iter().flat_map(|row| MODES.map(|mode| (*row, mode))).collect();
    let found = each("Replays", &jobs, setting, |(row, mode)| {
        let workload = row.head(divisor(setting), setting.seed)?;
        let pages = (CACHE_BYTES / SECTOR_BYTES as u64 / divisor(setting)) as u32;
        Ok(timed(&Mode::by_name(mode)?, &workload, pages, Arrivals::Open { speed: 1.0 }, setting.seed)?.1)
    })?;
    let by_row: Vec<_> = found.chunks(MODES.len()).collect();
    let columns = ["policy".to_string()].into_iter().chain(TABLE_I.map(|row| format!("{}, ms", row.name)));
    let mut table = Table::new("Mean response time", columns);
    let mut series = Vec::new();
    for (at, mode) in MODES.iter().enumerate() {
        let means: Vec<f64> = by_row.iter().map(|row| row[at].all.mean_ms).collect();
        let cells = means.iter().map(|mean| format!("{mean:.2}"));
        table.rows.push(std::iter::once(mode.to_string()).chain(cells).collect());
        series.push((mode.to_string(), means));
    }
    let groups = TABLE_I.iter().map(|row| row.name.to_string()).collect();
    let chart = Chart {
        title: "Mean response time".into(),
        x: "workload".into(),
        y: "ms".into(),
        kind: ChartKind::Bars { groups, series },
    };
    let mut checks = Vec::new();
    for ((name, paper), row) in PAPER_LESS.into_iter().zip(&by_row) {
        let less = 1.0 - row[4].all.mean_ms / row[0].all.mean_ms;
        checks.push(Check::new(
            &format!("{name}: KDD-25 % answers sooner than no SSD"),
            &percent(paper),
            percent(less),
            less >= 0.2,
            ("shape: at least a fifth sooner", "shape: at least a fifth sooner"),
        ));
    }
    let (low, high) = range(by_row.iter().map(|row| row[4].all.mean_ms / row[3].all.mean_ms));
    checks.push(Check::new(
        "KDD-25 % answers as soon as LeavO",
        "similar",
        format!("{low:.2} to {high:.2} times LeavO's time"),
        high < 1.1,
        ("shape: at most a tenth later", "shape: at most a tenth later"),
    ));
    let (low, high) = range(by_row.iter().map(|row| row[5].reads.mean_ms / row[4].reads.mean_ms));
    checks.push(Check::new(
        "Vellum mode's reads are no more than 5 % slower than KDD-25 %'s",
        "not in the paper",
        format!("{low:.2} to {high:.2} times as long"),
        high <= 1.05,
        (
            "shape: at most 1.05",
            "shape: at most 1.05. Admission at the second miss costs hits of pages that come again late",
        ),
    ));
    Ok(Outcome { tables: vec![table], charts: vec![chart], checks, notes: vec![NOTE.into()] })
}
