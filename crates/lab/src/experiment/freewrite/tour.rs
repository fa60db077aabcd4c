//! A few seconds of the grid, as an introduction to Vellum.

use super::bench;
use super::{Keys, Kind, PAPER, Run, mb};
use crate::experiment::{Experiment, Outcome, Setting, Table, each};
use crate::report::{Chart, ChartKind};
use vellum_base::Result;
use vellum_kv::Reuse;

pub(crate) const CHAPTER: Experiment = Experiment {
    name: "freewrite-tour",
    paper: PAPER,
    figure: "beyond section 4",
    claim: "A key-value store that says which leaves a merge need not change has them in two tables at once, and programs less flash",
    small: "12 MiB of records, then 24 MiB of updates, on a disk of ours, with and without remaps",
    full: "the same",
    run,
};

const POINTS: [(Keys, usize); 3] =
    [(Keys::UniformUpdates, 1024), (Keys::ClusteredUpdates, 256), (Keys::ClusteredUpdates, 1024)];

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let run = |(keys, value_bytes), reuse: Reuse| Run {
        kind: Kind::Disk,
        keys,
        value_bytes,
        bytes: 12 << 20,
        reuse: reuse.into(),
    };
    let runs: Vec<Run> =
        POINTS.iter().flat_map(|point| [Reuse::Off, Reuse::Relink].map(|reuse| run(*point, reuse))).collect();
    let measured = each("Merges that remap", &runs, setting, |run| bench::run(run, setting.seed))?;
    let columns = ["updates", "programmed, MB", "with remaps", "less, %"];
    let mut table = Table::new("The same updates with and without remaps, on the same flash", columns);
    let names = POINTS.map(|(keys, value_bytes)| format!("{}, {value_bytes} B", keys.name()));
    let programmed: Vec<u64> = measured.iter().map(|m| m.programmed_bytes).collect();
    for (name, pair) in names.iter().zip(programmed.chunks_exact(2)) {
        let less = 100.0 * (1.0 - pair[1] as f64 / pair[0] as f64);
        table.rows.push(vec![name.clone(), mb(pair[0]), mb(pair[1]), format!("{less:.1}")]);
    }
    let bars = |side| programmed.iter().skip(side).step_by(2).map(|bytes| *bytes as f64 / 1e6).collect();
    let chart = Chart {
        title: "Flash programmed".into(),
        x: "updates".into(),
        y: "MB".into(),
        kind: ChartKind::Bars {
            groups: names.into(),
            series: vec![("without".into(), bars(0)), ("with remaps".into(), bars(1))],
        },
    };
    Ok(Outcome { tables: vec![table], charts: vec![chart], ..Outcome::default() })
}
