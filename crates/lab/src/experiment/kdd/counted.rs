//! Figures 5 to 8: hit ratios and flash writes, by cache size.

use super::workloads::{Row, TABLE_I};
use super::{NOTE, PAPER, counted, divisor, pages, percent, range};
use crate::array_cache::{Mode, Totals};
use crate::experiment::{Check, Experiment, Outcome, Setting, Table, each};
use crate::report::{Chart, ChartKind};
use vellum_base::{Result, SECTOR_BYTES};

const SMALL: &str = "two workloads after Table I at a 20th of its size, caches of 5 to 50 % of the pages";
const FULL: &str = "the same at Table I's size";

pub(crate) const FIG5: Experiment = Experiment {
    name: "kdd-fig5",
    paper: PAPER,
    figure: "Figure 5 (section IV.A)",
    claim: "Under write-dominant workloads KDD hits more often than LeavO and less often than WT, the more often the smaller deltas are",
    small: SMALL,
    full: FULL,
    run: |setting| hits(setting, &TABLE_I[..2]),
};

pub(crate) const FIG6: Experiment = Experiment {
    name: "kdd-fig6",
    paper: PAPER,
    figure: "Figure 6 (section IV.A)",
    claim: "Under write-dominant workloads KDD writes up to 37.6, 57.6 and 67.6 % (Fin1), 45.7, 67.7 and 78.6 % (Hm0) less to flash than WT, and up to 5.1 times less than LeavO",
    small: SMALL,
    full: FULL,
    run: |setting| flash(setting, &TABLE_I[..2], &["37.6, 57.6, 67.6 %", "45.7, 67.7, 78.6 %"]),
};

pub(crate) const FIG7: Experiment = Experiment {
    name: "kdd-fig7",
    paper: PAPER,
    figure: "Figure 7 (section IV.A)",
    claim: "Under read-dominant workloads KDD's hit ratios are between LeavO's and WT's, with Web0 and a small cache above WT's",
    small: SMALL,
    full: FULL,
    run: |setting| hits(setting, &TABLE_I[2..]),
};

pub(crate) const FIG8: Experiment = Experiment {
    name: "kdd-fig8",
    paper: PAPER,
    figure: "Figure 8 (section IV.A)",
    claim: "Under read-dominant workloads KDD writes up to 57.5 % (Fin2) and 50.6 % (Web0) less to flash than WT",
    small: SMALL,
    full: FULL,
    run: |setting| flash(setting, &TABLE_I[2..], &["up to 57.5 %", "up to 50.6 %"]),
};

const MODES: [&str; 7] = ["wa", "wt", "leavo", "kdd-50", "kdd-25", "kdd-12", "kdd"];
/// Up to half of the pages: the paper goes to more than 200,000 of Fin2's 405,000 (IV.A3).
const CACHES: [f64; 4] = [0.05, 0.1, 0.2, 0.5];
/// Hit ratios that differ by no more than this count as equal.
const ALIKE: f64 = 0.002;

/// By workload, mode and cache.
type Found = Vec<Vec<Vec<Totals>>>;

fn find(setting: &Setting<'_>, rows: &[Row]) -> Result<Found> {
    let workloads: Vec<_> =
        rows.iter().map(|row| row.workload(divisor(setting), setting.seed)).collect::<Result<_>>()?;
    let jobs: Vec<_> = workloads.iter().flat_map(|workload| MODES.map(|mode| (workload, mode))).collect();
    let found = each("Policies", &jobs, setting, |(workload, mode)| {
        let mode = Mode::by_name(mode)?;
        let of = |cache: f64| counted(&mode, workload, pages(workload, cache), setting.seed);
        CACHES.into_iter().map(of).collect::<Result<Vec<_>>>()
    })?;
    Ok(found.chunks(MODES.len()).map(<[_]>::to_vec).collect())
}

fn outcome(
    rows: &[Row],
    found: &Found,
    what: &str,
    value: impl Fn(&Totals) -> f64,
    checks: Vec<Check>,
) -> Outcome {
    let mut outcome = Outcome { checks, notes: vec![NOTE.into()], ..Outcome::default() };
    for (row, by_mode) in rows.iter().zip(found) {
        let columns = CACHES.map(|cache| format!("cache {:.0} %", cache * 100.0));
        let title = format!("{what} ({})", row.name);
        let mut table = Table::new(title.clone(), std::iter::once("policy".to_string()).chain(columns));
        let mut series = Vec::new();
        for (mode, totals) in MODES.iter().zip(by_mode) {
            let values: Vec<f64> = totals.iter().map(&value).collect();
            let cells = values.iter().map(|value| format!("{value:.1}"));
            table.rows.push(std::iter::once(mode.to_string()).chain(cells).collect());
            series.push((mode.to_string(), CACHES.iter().map(|c| c * 100.0).zip(values).collect()));
        }
        outcome.tables.push(table);
        outcome.charts.push(Chart {
            title,
            x: "cache, % of the pages".into(),
            y: what.into(),
            kind: ChartKind::Lines { series },
        });
    }
    outcome
}

fn of<'a>(by_mode: &'a [Vec<Totals>], mode: &str) -> &'a [Totals] {
    let at = MODES.iter().position(|name| *name == mode).expect("a mode of this figure");
    &by_mode[at]
}

fn hits(setting: &Setting<'_>, rows: &[Row]) -> Result<Outcome> {
    let found = find(setting, rows)?;
    let checks = rows.iter().zip(&found).map(|(row, by_mode)| match row.small_caches_hit_more_often {
        true => crossing(row, by_mode),
        false => between(row, by_mode),
    });
    let checks = checks.collect();
    Ok(outcome(rows, &found, "hit ratio, %", |totals| totals.hit_ratio() * 100.0, checks))
}

/// How much higher KDD's hit ratio is than that of a mode, by cache size.
fn above(by_mode: &[Vec<Totals>], mode: &str) -> Vec<f64> {
    let pairs = of(by_mode, "kdd-25").iter().zip(of(by_mode, mode));
    pairs.map(|(kdd, other)| kdd.hit_ratio() - other.hit_ratio()).collect()
}

fn between(row: &Row, by_mode: &[Vec<Totals>]) -> Check {
    let [leavo, wt] = ["leavo", "wt"].map(|mode| above(by_mode, mode));
    let count = leavo.iter().zip(&wt).filter(|(leavo, wt)| **leavo >= -ALIKE && **wt <= ALIKE).count();
    Check::new(
        &format!("{}: KDD hits more often than LeavO and less often than WT", row.name),
        "yes",
        format!(
            "KDD-25 % at {count} of {} cache sizes, {:+.1} points from LeavO and {:+.1} from WT with the smallest",
            CACHES.len(),
            leavo[0] * 100.0,
            wt[0] * 100.0
        ),
        count == CACHES.len(),
        (
            "shape: between them at every size (within 0.2 points)",
            "shape: between them at every size (within 0.2 points). What cleaning drops of KDD's it keeps of LeavO's",
        ),
    )
}

fn crossing(row: &Row, by_mode: &[Vec<Totals>]) -> Check {
    let [leavo, wt] = ["leavo", "wt"].map(|mode| above(by_mode, mode));
    let count = leavo.iter().filter(|above| **above >= -ALIKE).count();
    let (smallest, largest) = (wt[0], wt[wt.len() - 1]);
    let shape = "shape: nowhere below LeavO (within 0.2 points), above WT with the smallest cache, below with the largest";
    Check::new(
        &format!("{}: KDD hits more often than LeavO, and than WT if the cache is small", row.name),
        "yes",
        format!(
            "KDD-25 % above LeavO at {count} of {} cache sizes, {:+.1} points from WT with the smallest, {:+.1} with the largest",
            CACHES.len(),
            smallest * 100.0,
            largest * 100.0
        ),
        count == CACHES.len() && smallest > 0.0 && largest < 0.0,
        (shape, shape),
    )
}

fn flash(setting: &Setting<'_>, rows: &[Row], paper: &[&str]) -> Result<Outcome> {
    let found = find(setting, rows)?;
    let each = rows.iter().zip(&found).zip(paper);
    let checks = each.flat_map(|((row, by_mode), paper)| {
        [than_wt(row, by_mode, paper), than_leavo(row, by_mode), vellum_mode(row, by_mode)]
    });
    let checks = checks.collect();
    let what = "written to flash, thousands of pages";
    Ok(outcome(rows, &found, what, |totals| totals.flash_pages() as f64 / 1e3, checks))
}

/// By what share a mode writes less than another, minimum and maximum.
fn less(by_mode: &[Vec<Totals>], mode: &str, than: &str, pages: fn(&Totals) -> f64) -> (f64, f64) {
    let pairs = of(by_mode, mode).iter().zip(of(by_mode, than));
    range(pairs.map(|(mode, than)| 1.0 - pages(mode) / pages(than)))
}

fn written(totals: &Totals) -> f64 {
    totals.flash_pages() as f64
}

/// Pages written if every delta page were completely filled with deltas.
fn written_if_full(totals: &Totals) -> f64 {
    let full = totals.delta_bytes as f64 / SECTOR_BYTES as f64;
    (totals.flash_pages() - totals.delta_pages) as f64 + full
}

fn than_wt(row: &Row, by_mode: &[Vec<Totals>], paper: &str) -> Check {
    let modes = ["kdd-50", "kdd-25", "kdd-12"];
    let all = modes.map(|mode| less(by_mode, mode, "wt", written));
    let most = |all: [(f64, f64); 3]| all.map(|(_, most)| percent(most)).join(", ");
    let if_full = most(modes.map(|mode| less(by_mode, mode, "wt", written_if_full)));
    Check::new(
        &format!("{}: less flash than WT, the less the smaller deltas are", row.name),
        paper,
        format!("up to {}; {if_full} were delta pages full to the last byte", most(all)),
        all[0].1 < all[1].1 && all[1].1 < all[2].1 && all[0].0 > 0.0,
        (
            "shape: always less, in that order",
            "shape: always less, in that order. With large deltas and few writes, what cleaning drops is filled again, and costs more than deltas save",
        ),
    )
}

fn than_leavo(row: &Row, by_mode: &[Vec<Totals>]) -> Check {
    let (_, most) = less(by_mode, "kdd-12", "leavo", written);
    Check::new(
        &format!("{}: less flash than LeavO", row.name),
        "up to 5.1 times less on write-dominant workloads",
        format!("up to {:.1} times less", 1.0 / (1.0 - most)),
        most > less(by_mode, "kdd-12", "wt", written).1 - 0.01,
        ("shape: more is saved than against WT", "shape: more is saved than against WT"),
    )
}

fn vellum_mode(row: &Row, by_mode: &[Vec<Totals>]) -> Check {
    let (least, most) = less(by_mode, "kdd", "kdd-12", written);
    Check::new(
        &format!("{}: vellum mode writes a third of KDD-12 % or less", row.name),
        "not in the paper",
        format!("{} to {} less", percent(least), percent(most)),
        least >= 2.0 / 3.0,
        (
            "shape: at most a third at every size",
            "shape: at most a third at every size. Here every second new page comes again at once, and is worth flash by that; in the trace itself \
             most of those come twice and never again (`crates/vellum/benches/array_traces.sh`)",
        ),
    )
}
