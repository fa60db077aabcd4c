//! Figure 3: collecting the log store, with three distributions of keys.

use super::{Keys, Kind, PAPER, Pair, VALUE_BYTES, charts, notes_on_collecting, pairs, table};
use crate::experiment::{Check, Experiment, Outcome, Setting};
use vellum_base::Result;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "freewrite-fig3",
    paper: PAPER,
    figure: "Figure 3 (section 4.2)",
    claim: "With bubbles collecting a FAWN store writes up to 8.2 times less and is up to 4.5 times as fast where keys come in clusters; less where they are uniform",
    small: "64 MiB of 512-byte values under 8-byte keys, uniform, in clusters of 20, and mixed, 4 % of them twice; then all is collected",
    full: "1 GiB of 512-byte values under 8-byte keys, uniform, in clusters of 20, and mixed, 4 % of them twice; then all is collected",
    run,
};

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let points = Keys::PAPER.map(|keys| (keys, VALUE_BYTES));
    let pairs = pairs(Kind::Collect, "Log store, three ways to choose keys", &points, setting)?;
    let names = Keys::PAPER.map(|keys| keys.name().to_string());
    let [uniform, clustered, mixed] = &pairs[..] else { return Ok(Outcome::default()) };
    let order = [uniform, mixed, clustered].map(Pair::less);
    Ok(Outcome {
        tables: vec![table("Collecting with and without bubbles", "keys", &names, &pairs)],
        charts: charts("log store", "keys", &names, &pairs),
        checks: vec![
            Check::new(
                "Clustered keys: data written",
                "8.2 x less",
                format!("{:.1} x less", clustered.times_less()),
                clustered.times_less() >= 8.2,
                ("shape: at least 8.2 x less", "shape: at least 8.2 x less"),
            ),
            Check::new(
                "Clustered keys: throughput",
                "4.5 x",
                format!("{:.1} x", clustered.times_faster()),
                clustered.times_faster() >= 4.5,
                (
                    "shape: at least 4.5 x",
                    "shape: at least 4.5 x. So much less is written that what is left is reading the old log and hashing all of the new one, which bubbles do not spare",
                ),
            ),
            Check::new(
                "The more keys are clustered, the more is saved",
                "uniform, mixed, clustered in this order",
                format!("{:.1}, {:.1}, {:.1} % less", order[0], order[1], order[2]),
                order.is_sorted() && order[0] > 0.0,
                ("shape: in this order", "shape: in this order"),
            ),
        ],
        notes: notes_on_collecting(),
    })
}
