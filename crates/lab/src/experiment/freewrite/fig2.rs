//! Figure 2: three distributions of keys.

use super::{Keys, Kind, PAPER, Pair, VALUE_BYTES, charts, notes, pairs, table};
use crate::experiment::{Check, Experiment, Outcome, Setting};
use vellum_base::Result;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "freewrite-fig2",
    paper: PAPER,
    figure: "Figure 2 (section 4.2)",
    claim: "With bubbles LevelDB writes up to 24 % less and is up to 22 % faster where keys come in clusters; less where they are uniform; bubbles take less than 5 %",
    small: "64 MiB of 512-byte values under 8-byte keys, uniform, in clusters of 20, and mixed, 4 % of them twice; sizes of LevelDB a sixteenth",
    full: "1 GiB of 512-byte values under 8-byte keys, uniform, in clusters of 20, and mixed, 4 % of them twice; sizes of LevelDB as in the paper",
    run,
};

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let points = Keys::PAPER.map(|keys| (keys, VALUE_BYTES));
    let pairs = pairs(Kind::Paper, "LevelDB, three ways to choose keys", &points, setting)?;
    let names = Keys::PAPER.map(|keys| keys.name().to_string());
    let [uniform, clustered, mixed] = &pairs[..] else { return Ok(Outcome::default()) };
    Ok(Outcome {
        tables: vec![table("LevelDB with and without bubbles", "keys", &names, &pairs)],
        charts: charts("LevelDB", "keys", &names, &pairs),
        checks: vec![less(clustered), faster(clustered), order(uniform, mixed, clustered), space(&pairs)],
        notes: notes(),
    })
}

fn less(clustered: &Pair) -> Check {
    Check::new(
        "Clustered keys: data written",
        "24 % less",
        format!("{:.1} % less", clustered.less()),
        clustered.less() >= 24.0,
        (
            "shape: at least 24 % less",
            "shape: at least 24 % less. A third of what is merged is kept; but branches and roots, which are not, are a tenth of the small scale's tables, and a store that waits less \
             for its device merges more often",
        ),
    )
}

fn faster(clustered: &Pair) -> Check {
    Check::new(
        "Clustered keys: throughput",
        "22 % more",
        format!("{:.1} % more", clustered.faster()),
        clustered.faster() >= 22.0,
        (
            "shape: at least 22 % more",
            "shape: at least 22 % more. Less is saved (above), and it is merged more often",
        ),
    )
}

fn order(uniform: &Pair, mixed: &Pair, clustered: &Pair) -> Check {
    let less = [uniform, mixed, clustered].map(Pair::less);
    Check::new(
        "The more keys are clustered, the more is saved",
        "uniform, mixed, clustered in this order",
        format!("{:.1}, {:.1}, {:.1} % less", less[0], less[1], less[2]),
        less.is_sorted() && less[0] > 0.0,
        (
            "shape: in this order, and nothing is lost with uniform keys",
            "shape: in this order, and nothing is lost with uniform keys",
        ),
    )
}

fn space(pairs: &[Pair]) -> Check {
    let most = pairs.iter().map(|pair| pair.on.padding_percent()).fold(0.0, f64::max);
    Check::new(
        "Bubbles take less than 5 %",
        "less than 5 %",
        format!("{most:.2} % at most"),
        most < 5.0,
        ("shape: less than 5 % everywhere", "shape: less than 5 % everywhere"),
    )
}
