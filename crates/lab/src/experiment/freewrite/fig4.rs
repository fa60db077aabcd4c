//! Figure 4: the course of building a store.

use super::{Keys, Kind, Measured, PAPER, VALUE_BYTES, notes, pairs};
use crate::experiment::{Check, Experiment, Outcome, Setting, Table};
use crate::report::{Chart, ChartKind};
use vellum_base::Result;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "freewrite-fig4",
    paper: PAPER,
    figure: "Figure 4 (section 4.2)",
    claim: "Building a store of 1 GB with mixed keys takes 21 % less time with bubbles, 539 s instead of 683; at the beginning there is little difference",
    small: "64 MiB of 512-byte values, mixed keys; sizes of LevelDB a sixteenth",
    full: "1 GiB of 512-byte values, mixed keys; sizes of LevelDB as in the paper",
    run,
};

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let pairs = pairs(Kind::Paper, "LevelDB in the course of time", &[(Keys::Mixed, VALUE_BYTES)], setting)?;
    let Some(pair) = pairs.first() else { return Ok(Outcome::default()) };
    let twentieth = |measured, at: usize| rate(measured, 5 * at, 5 * at + 5);
    let [off, on] = [&pair.off, &pair.on].map(|of| (0..20).map(|at| twentieth(of, at)).collect::<Vec<f64>>());
    let columns = ["share of the puts, %", "LevelDB, puts/s", "with bubbles, puts/s", "faster, %"];
    let mut table = Table::new("Throughput in each twentieth of the build", columns);
    table.rows.extend(off.iter().zip(&on).enumerate().map(|(at, (off, on))| {
        let faster = 100.0 * (on / off - 1.0);
        vec![((at + 1) * 5).to_string(), format!("{off:.0}"), format!("{on:.0}"), format!("{faster:.1}")]
    }));
    let points = |rates: &[f64]| {
        rates.iter().enumerate().map(|(at, rate)| ((at as f64 + 1.0) * 5.0, rate / 1e3)).collect()
    };
    let chart = Chart {
        title: "Throughput in the course of the build".into(),
        x: "share of the puts, %".into(),
        y: "1000 puts/s".into(),
        kind: ChartKind::Lines {
            series: vec![("LevelDB".into(), points(&off)), ("with freewrite".into(), points(&on))],
        },
    };
    let (before, after) = (pair.off.seconds, pair.on.seconds);
    let shorter = 100.0 * (1.0 - after / before);
    let faster = |from, to| 100.0 * (rate(&pair.on, from, to) / rate(&pair.off, from, to) - 1.0);
    let (early, late) = (faster(0, 2), faster(75, 100));
    Ok(Outcome {
        tables: vec![table],
        charts: vec![chart],
        checks: vec![
            Check::new(
                "Mixed keys: time to build the store",
                "21 % less (683 to 539 s)",
                format!("{shorter:.1} % less ({before:.1} to {after:.1} s)"),
                shorter >= 21.0,
                ("shape: at least 21 % less", "shape: at least 21 % less"),
            ),
            Check::new(
                "Little difference at the beginning, more when the store has grown",
                "from nearly none to the most",
                format!("{early:.1} % faster in the first fiftieth, {late:.1} % in the last quarter"),
                early.abs() < 5.0 && late > early,
                (
                    "shape: under 5 % in the first fiftieth, which is twice what level 1 holds, and more in the last quarter",
                    "shape: under 5 % in the first fiftieth, which is twice what level 1 holds, and more in the last quarter",
                ),
            ),
        ],
        notes: notes(),
    })
}

/// Puts per second between two points of a run; point 0 is its beginning.
fn rate(measured: &Measured, from: usize, to: usize) -> f64 {
    let reached =
        |at: usize| at.checked_sub(1).and_then(|at| measured.course.get(at)).copied().unwrap_or_default();
    let ((since, before), (until, puts)) = (reached(from), reached(to));
    (puts - before) as f64 / (until - since).max(1e-9)
}
