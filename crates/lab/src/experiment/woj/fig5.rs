//! Figure 5: random writes on the fast SSD.

use super::sweep::{Order, Sweep, WINDOWS, sweep};
use super::{DMDEDUP, NONE, PAPER, VELLUM, WOJ, fast, span};
use crate::experiment::{Check, Experiment, Outcome, Setting};
use vellum_base::Result;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "woj-fig5",
    paper: PAPER,
    figure: "Figure 5 (section 3.2)",
    claim: "Random writes on the fast SSD: the same order as for sequential ones, slower (WOJ_xxh64 at window 1000: 165 \
            instead of 290 MB/s), with a higher write amplification",
    small: "8192 writes to a 256 MiB file, 32 MiB journal, 1 GiB ext3; windows 1, 10, 100, 1000",
    full: "256 Ki writes to an 8 GiB file, 256 MiB journal, 32 GiB ext3; windows 1, 10, 100, 1000",
    run,
};

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let configurations = [NONE, DMDEDUP, WOJ, VELLUM];
    let random = sweep(setting, "fast SSD", fast()?, &configurations, Order::Random)?;
    let sequential =
        sweep(setting, "fast SSD, sequential for comparison", fast()?, &[WOJ, NONE], Order::Sequential)?;
    Ok(Outcome {
        tables: vec![random.table(), sequential.table()],
        charts: vec![random.throughput_chart(), random.amplification_chart()],
        checks: vec![slower(&random, &sequential), amplified(&random, &sequential), ahead(&random)],
        notes: vec![
            "The file begins empty: ext3 cannot preallocate, so a random write also allocates. The paper does not say how many \
             writes there were; here there are an eighth as many as the file has blocks.".into(),
        ],
    })
}

fn slower(random: &Sweep, sequential: &Sweep) -> Check {
    let at = WINDOWS.len() - 1;
    let (r, s) = (random.throughput(WOJ.0)[at], sequential.throughput(WOJ.0)[at]);
    Check::new(
        "Random writes are slower than sequential ones",
        "165 instead of 290 MB/s (0.57 times) for WOJ_xxh64 at window 1000",
        format!("{r:.0} instead of {s:.0} MB/s ({:.2} times)", super::ratio(r, s)),
        r < 0.9 * s,
        (
            "shape: under 0.9 times",
            "shape: under 0.9 times. Here random access costs its additional metadata blocks and no more: the file \
             system's own work on the host has no cost",
        ),
    )
}

fn amplified(random: &Sweep, sequential: &Sweep) -> Check {
    let (r, s) = (random.amplification(NONE.0), sequential.amplification(NONE.0));
    let (low, _, text) = span(r.iter().zip(&s).skip(1).map(|(r, s)| super::ratio(*r, *s)));
    Check::new(
        "Write amplification is higher for random access: metadata is scattered",
        "higher (Figures 2d and 5b)",
        format!("{text} times the sequential one at windows 10 to 1000, without dedup"),
        low > 1.0,
        ("shape: more than 1", "shape: more than 1"),
    )
}

fn ahead(random: &Sweep) -> Check {
    let (low, high, text) = span(random.speedup(WOJ.0, DMDEDUP.0));
    Check::new(
        "WOJ_xxh64 is faster than Dmdedup_sha1",
        "similar to sequential writes",
        format!("{text} times"),
        low >= 1.0 && high > 1.2,
        (
            "shape: never slower, and over 1.2 times at some window",
            "shape: never slower, over 1.2 times at some window",
        ),
    )
}
