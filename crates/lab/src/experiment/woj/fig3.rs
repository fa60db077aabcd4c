//! Figure 3: WOJ with strong hashes instead of its weak hash.

use super::sweep::{Sweep, WINDOWS, sequential_on_ssds};
use super::{DMDEDUP, PAPER, WOJ, WOJ_MD5, WOJ_SHA1, ratio, span};
use crate::experiment::{Check, Experiment, Outcome, Setting};
use vellum_base::Result;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "woj-fig3",
    paper: PAPER,
    figure: "Figure 3 (section 3.2)",
    claim: "WOJ gains from its weak hash: xxHash over 64 bytes is up to 2.24 times as fast as SHA-1, and the difference \
            is largest on the fast SSD",
    small: "32 MiB file, 32 MiB journal, 1 GiB ext3; windows 1, 10, 100, 1000; three SSDs",
    full: "8 GiB file, 256 MiB journal, 32 GiB ext3; windows 1, 10, 100, 1000; three SSDs",
    run,
};

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let sweeps = sequential_on_ssds(setting, &[WOJ, WOJ_MD5, WOJ_SHA1, DMDEDUP])?;
    let charts = sweeps.iter().map(Sweep::throughput_chart).chain([sweeps[0].amplification_chart()]);
    Ok(Outcome {
        tables: sweeps.iter().map(Sweep::table).collect(),
        charts: charts.collect(),
        checks: vec![
            gain(&sweeps[0]),
            largest_on_fast(&sweeps),
            order(&sweeps[0]),
            level(&sweeps),
            writes(&sweeps[0]),
        ],
        notes: vec!["Dmdedup_sha1 is repeated from Figure 2 for comparison.".into()],
    })
}

fn at_1000(sweep: &Sweep, name: &str) -> f64 {
    sweep.throughput(name)[WINDOWS.len() - 1]
}

fn gain(fast: &Sweep) -> Check {
    let (_, high, text) = span(fast.speedup(WOJ.0, WOJ_SHA1.0));
    Check::new(
        "xxHash gives up to 2.24 times the throughput of SHA-1",
        "up to 2.24",
        text,
        high >= 1.9,
        (
            "shape: at least 1.9 at some window",
            "shape: at least 1.9 at some window; flushes hide the rest of the hashing",
        ),
    )
}

fn largest_on_fast(sweeps: &[Sweep]) -> Check {
    let gains: Vec<f64> = sweeps.iter().map(|s| ratio(at_1000(s, WOJ.0), at_1000(s, WOJ_SHA1.0))).collect();
    Check::new(
        "The difference between the hashes is largest on the fast SSD",
        "fast > moderate > slow",
        format!("{:.2}, {:.2}, {:.2} times SHA-1 at window 1000", gains[0], gains[1], gains[2]),
        gains.windows(2).all(|g| g[0] >= g[1] * 0.99),
        ("shape: falls from SSD to SSD", "shape: falls from SSD to SSD"),
    )
}

fn order(fast: &Sweep) -> Check {
    let [xxh, md5, sha1] = [WOJ.0, WOJ_MD5.0, WOJ_SHA1.0].map(|name| at_1000(fast, name));
    Check::new(
        "xxHash before MD5 before SHA-1",
        "in this order",
        format!("{xxh:.0}, {md5:.0}, {sha1:.0} MB/s on the fast SSD at window 1000"),
        xxh > md5 && md5 > sha1,
        ("shape: in this order", "shape: in this order"),
    )
}

fn level(sweeps: &[Sweep]) -> Check {
    let gap = ratio(at_1000(&sweeps[0], WOJ_SHA1.0), at_1000(&sweeps[1], WOJ_SHA1.0));
    Check::new(
        "With a strong hash the fast and the moderate SSD do not differ much at large windows: hashing is the brake",
        "no significant difference",
        format!("{gap:.2} times at window 1000"),
        gap < 1.35,
        (
            "shape: less than 1.35 times",
            "shape: less than 1.35 times; raw write bandwidth differs 1.73 times",
        ),
    )
}

fn writes(fast: &Sweep) -> Check {
    let (_, high, text) = span(
        fast.amplification(WOJ_SHA1.0).iter().zip(fast.amplification(DMDEDUP.0)).map(|(w, d)| ratio(*w, d)),
    );
    Check::new(
        "Dmdedup_sha1 removes a little more than WOJ_sha1, which looks at home writes only",
        "a little more",
        format!("WOJ_sha1 programs {text} times what Dmdedup_sha1 does"),
        (0.98..1.15).contains(&high),
        ("shape: 0.98 to 1.15", "shape: 0.98 to 1.15"),
    )
}
