//! Figures 10 and 11: FIO with a Zipf distribution, closed loop.

use super::{CACHE_BYTES, PAPER, divisor, percent, range, timed};
use crate::array_cache::{Arrivals, Mode, PageKind, PageRequest, Times, Totals, Workload};
use crate::experiment::{Check, Experiment, Outcome, Setting, Table, each};
use crate::report::{Chart, ChartKind};
use vellum_base::{Lba, Nanos, Result, SECTOR_BYTES};
use vellum_trace::generate::{Seeded, Zipf};

const SMALL: &str = "a 20th of the paper's: 4 KiB requests over 80 MB by a Zipf distribution of exponent 1.0001, 200 MB in all, 16 clients, a cache of 50 MB";
const FULL: &str = "1.6 GB, 4 GB, 16 clients, 1 GB";

pub(crate) const FIG10: Experiment = Experiment {
    name: "kdd-fig10",
    paper: PAPER,
    figure: "Figure 10 (section IV.B)",
    claim: "KDD answers 42.1 to 43.3 % sooner than an array without SSD, and 32.3 to 42.8 % sooner than WT",
    small: SMALL,
    full: FULL,
    run: |setting| {
        let mut outcome = run(setting, "mean response time, ms", |_, times| times.all.mean_ms, response)?;
        outcome.checks.push(once_warm(setting)?);
        Ok(outcome)
    },
};

pub(crate) const FIG11: Experiment = Experiment {
    name: "kdd-fig11",
    paper: PAPER,
    figure: "Figure 11 (section IV.B)",
    claim: "KDD writes 44.0, 38.6, 31.0 and 19.4 % less to flash than WT, 46.4, 41.3, 34.0 and 22.6 % less than LeavO (read rates 0, 25, 50 and 75 %)",
    small: SMALL,
    full: FULL,
    run: |setting| run(setting, "written to flash, MB", |totals, _| totals.flash_bytes() as f64 / 1e6, flash),
};

const MODES: [&str; 6] = ["nossd", "wa", "wt", "leavo", "kdd-25", "kdd"];
const READ_SHARES: [f64; 4] = [0.0, 0.25, 0.5, 0.75];
pub(super) const CLIENTS: usize = 16;

/// How many times longer than the paper's a run is that ends with a warm cache.
const WARM_RUNS: u64 = 4;

/// Results of one read rate, in the order of the modes.
type AtRate = [(Totals, Times)];

/// Requests of the paper's run, times `runs`.
pub(super) fn workload(read_share: f64, divisor: u64, runs: u64, seed: u64) -> Result<Workload> {
    let sectors = 1_600_000_000 / 4096 / divisor;
    let requests = runs * 4_000_000_000 / 4096 / divisor;
    let (zipf, mut rng) = (Zipf::new(sectors, 1.0001)?, Seeded::new(seed));
    // Popular sectors are scattered, by a step coprime to the number of sectors.
    let step = (sectors * 5 / 8..).find(|step| gcd(*step, sectors) == 1).unwrap_or(1);
    let next = |_| {
        let lba = Lba((u128::from(zipf.sample(&mut rng)) * u128::from(step) % u128::from(sectors)) as u64);
        let kind = if rng.chance(read_share) { PageKind::Read } else { PageKind::Write };
        PageRequest { time: Nanos::ZERO, lba, sectors: 1, kind, ends: (4096, 4096) }
    };
    Ok(Workload { requests: (0..requests).map(next).collect(), sectors, ..Workload::default() })
}

fn cache_pages(divisor: u64) -> u32 {
    (CACHE_BYTES / SECTOR_BYTES as u64 / divisor) as u32
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn run(
    setting: &Setting<'_>,
    what: &str,
    value: impl Fn(&Totals, &Times) -> f64,
    checks: impl Fn(&[&AtRate]) -> Vec<Check>,
) -> Result<Outcome> {
    let divisor = divisor(setting);
    let pages = cache_pages(divisor);
    let jobs: Vec<_> = READ_SHARES.iter().flat_map(|share| MODES.map(|mode| (*share, mode))).collect();
    let found = each("FIO", &jobs, setting, |(read_share, mode)| {
        let workload = workload(*read_share, divisor, 1, setting.seed)?;
        let arrivals = Arrivals::Closed { clients: CLIENTS };
        timed(&Mode::by_name(mode)?, &workload, pages, arrivals, setting.seed)
    })?;
    let by_rate: Vec<&AtRate> = found.chunks(MODES.len()).collect();
    let rates = READ_SHARES.map(|share| format!("{:.0} % reads", share * 100.0));
    let mut table = Table::new(what, std::iter::once("policy".to_string()).chain(rates.clone()));
    let mut series = Vec::new();
    for (at, mode) in MODES.iter().enumerate() {
        let values: Vec<f64> = by_rate.iter().map(|row| value(&row[at].0, &row[at].1)).collect();
        let cells = values.iter().map(|value| format!("{value:.1}"));
        table.rows.push(std::iter::once(mode.to_string()).chain(cells).collect());
        series.push((mode.to_string(), values));
    }
    let chart = Chart {
        title: what.into(),
        x: "read rate".into(),
        y: what.into(),
        kind: ChartKind::Bars { groups: rates.to_vec(), series },
    };
    Ok(Outcome { tables: vec![table], charts: vec![chart], checks: checks(&by_rate), notes: Vec::new() })
}

/// By what share a mode has less of something than another, at every read rate.
fn less(by_rate: &[&AtRate], mode: &str, than: &str, of: impl Fn(&(Totals, Times)) -> f64) -> Vec<f64> {
    let at = |name: &str| MODES.iter().position(|mode| *mode == name).expect("a mode of this figure");
    by_rate.iter().map(|row| 1.0 - of(&row[at(mode)]) / of(&row[at(than)])).collect()
}

fn response(by_rate: &[&AtRate]) -> Vec<Check> {
    let mean = |found: &(Totals, Times)| found.1.all.mean_ms;
    let check = |than: &str, name: &str, paper: &str| {
        let (low, high) = range(less(by_rate, "kdd-25", than, mean));
        Check::new(
            &format!("KDD-25 % answers sooner than {name}"),
            paper,
            format!("{} to {}", percent(low), percent(high)),
            low >= 0.2,
            (
                "shape: at least a fifth sooner at every read rate",
                "shape: at least a fifth sooner at every read rate",
            ),
        )
    };
    let (low, high) = range(less(by_rate, "kdd", "kdd-25", mean));
    vec![
        check("nossd", "no SSD", "42.1 to 43.3 %"),
        check("wt", "WT", "32.3 to 42.8 %"),
        Check::new(
            "Vellum mode answers no more than 5 % later than KDD-25 %",
            "not in the paper",
            format!("{} to {} sooner", percent(low), percent(high)),
            low >= -0.05,
            (
                "shape: at most 5 % later",
                "shape: at most 5 % later. The cache begins empty, and what is missed once is not written to flash",
            ),
        ),
    ]
}

/// Vellum mode and KDD-25 % after the paper's run, in one that is `WARM_RUNS` times as long.
fn once_warm(setting: &Setting<'_>) -> Result<Check> {
    let divisor = divisor(setting);
    let jobs: Vec<_> =
        READ_SHARES.iter().flat_map(|share| ["kdd-25", "kdd"].map(|mode| (*share, mode))).collect();
    let means = each("FIO, once warm", &jobs, setting, |(read_share, mode)| {
        let sum_ms = |runs: u64| -> Result<f64> {
            let workload = workload(*read_share, divisor, runs, setting.seed)?;
            let arrivals = Arrivals::Closed { clients: CLIENTS };
            let (_, times) =
                timed(&Mode::by_name(mode)?, &workload, cache_pages(divisor), arrivals, setting.seed)?;
            Ok(times.all.mean_ms * runs as f64)
        };
        Ok(sum_ms(WARM_RUNS)? - sum_ms(1)?)
    })?;
    let (low, high) = range(means.chunks(2).map(|pair| 1.0 - pair[1] / pair[0]));
    Ok(Check::new(
        "Vellum mode answers no more than 5 % later than KDD-25 % once the cache is warm",
        "not in the paper",
        format!("{} to {} sooner", percent(low), percent(high)),
        low >= -0.05,
        (
            "shape: at most 5 % later in the 12 GB that follow the paper's 4",
            "shape: at most 5 % later in the 12 GB that follow the paper's 4. Rows are cleaned sooner, and a ring keeps less than lists of least recent use",
        ),
    ))
}

fn flash(by_rate: &[&AtRate]) -> Vec<Check> {
    let pages = |found: &(Totals, Times)| found.0.flash_pages() as f64;
    let text = |shares: &[f64]| shares.iter().map(|share| percent(*share)).collect::<Vec<_>>().join(", ");
    let falls =
        |shares: &[f64]| shares.windows(2).all(|pair| pair[1] < pair[0]) && shares.iter().all(|s| *s > 0.0);
    let check = |than: &str, name: &str, paper: &str| {
        let shares = less(by_rate, "kdd-25", than, pages);
        Check::new(
            &format!("KDD-25 % writes less to flash than {name}, the more so the more writes there are"),
            paper,
            text(&shares),
            falls(&shares),
            ("shape: less at every read rate, and falling", "shape: less at every read rate, and falling"),
        )
    };
    let shares = less(by_rate, "kdd", "kdd-25", pages);
    vec![
        check("wt", "WT", "44.0, 38.6, 31.0, 19.4 %"),
        check("leavo", "LeavO", "46.4, 41.3, 34.0, 22.6 %"),
        Check::new(
            "Vellum mode writes half of KDD-25 % or less",
            "not in the paper",
            format!("{} less", text(&shares)),
            shares.iter().all(|share| *share >= 0.5),
            ("shape: half or less at every read rate", "shape: half or less at every read rate"),
        ),
    ]
}
