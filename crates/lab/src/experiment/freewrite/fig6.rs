//! Figure 6: collecting the log store, sizes of values.

use super::{Keys, Kind, PAPER, Pair, charts, notes_on_collecting, pairs, table};
use crate::experiment::{Check, Experiment, Outcome, Setting};
use vellum_base::Result;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "freewrite-fig6",
    paper: PAPER,
    figure: "Figure 6 (section 4.2)",
    claim: "The larger the values, the more is saved: with values of 1 KiB collecting a FAWN store writes more than 75 % less and is 2.5 times as fast",
    small: "64 MiB of values of 128 B to 1 KiB, mixed keys; then all is collected",
    full: "1 GiB of values of 128 B to 1 KiB, mixed keys; then all is collected",
    run,
};

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let points = super::fig5::VALUES.map(|bytes| (Keys::Mixed, bytes));
    let pairs = pairs(Kind::Collect, "Log store, sizes of values", &points, setting)?;
    let names = super::fig5::VALUES.map(|bytes| format!("{bytes} B"));
    let Some(large) = pairs.last() else { return Ok(Outcome::default()) };
    let less: Vec<f64> = pairs.iter().map(Pair::less).collect();
    Ok(Outcome {
        tables: vec![table("Collecting with and without bubbles", "values", &names, &pairs)],
        charts: charts("log store", "bytes of a value", &names, &pairs),
        checks: vec![
            Check::new(
                "Values of 1 KiB: data written",
                "more than 75 % less",
                format!("{:.1} % less", large.less()),
                large.less() > 75.0,
                ("shape: more than 75 % less", "shape: more than 75 % less"),
            ),
            Check::new(
                "Values of 1 KiB: throughput",
                "2.5 x",
                format!("{:.1} x", large.times_faster()),
                large.times_faster() >= 2.5,
                ("shape: at least 2.5 x", "shape: at least 2.5 x"),
            ),
            Check::new(
                "The larger the values, the more is saved",
                "in the order of sizes",
                less.iter().map(|less| format!("{less:.1}")).collect::<Vec<_>>().join(", ") + " % less",
                less.is_sorted(),
                ("shape: in the order of sizes", "shape: in the order of sizes"),
            ),
        ],
        notes: notes_on_collecting(),
    })
}
