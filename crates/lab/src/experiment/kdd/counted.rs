//! Figures 5 to 8: hit ratios and what is written to flash, by the size of the cache.

use super::workloads::{Row, TABLE_I};
use super::{NOTE, PAPER, counted, divisor, pages, percent, range};
use crate::array_cache::{Mode, Totals};
use crate::experiment::{Check, Experiment, Outcome, Setting, Table, each};
use crate::report::{Chart, ChartKind};
use vellum_base::Result;

const SMALL: &str = "two workloads after Table I at a 20th of its size, caches of 5 to 40 % of the pages";
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
const CACHES: [f64; 4] = [0.05, 0.1, 0.2, 0.4];
/// Hit ratios that are as near as this are alike.
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

/// How much more often KDD hits than a mode, by the size of the cache.
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
            "shape: between them at every size (within 0.2 points). With the smallest cache KDD hits more often than \
             WT, as it does in the paper under Web0, and so does LeavO: what WT keeps of each write is too much there",
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
    let mut checks = Vec::new();
    for ((row, by_mode), paper) in rows.iter().zip(&found).zip(paper) {
        let less = |mode: &str, than: &str| {
            let shares = of(by_mode, mode).iter().zip(of(by_mode, than));
            range(shares.map(|(a, b)| 1.0 - a.flash_pages() as f64 / b.flash_pages() as f64))
        };
        let all = ["kdd-50", "kdd-25", "kdd-12"].map(|mode| less(mode, "wt"));
        let in_order = all[0].1 < all[1].1 && all[1].1 < all[2].1 && all[0].0 > 0.0;
        checks.push(Check::new(
            &format!("{}: less flash than WT, the less the smaller deltas are", row.name),
            paper,
            format!("up to {}, {}, {}", percent(all[0].1), percent(all[1].1), percent(all[2].1)),
            in_order,
            (
                "shape: always less, in that order",
                "shape: always less, in that order. With large deltas and few writes, what cleaning drops is filled again, and costs more than deltas save",
            ),
        ));
        let (_, most) = less("kdd-12", "leavo");
        checks.push(Check::new(
            &format!("{}: less flash than LeavO", row.name),
            "up to 5.1 times less on write-dominant workloads",
            format!("up to {:.1} times less", 1.0 / (1.0 - most)),
            most > all[2].1 - 0.01,
            ("shape: more is saved than against WT", "shape: more is saved than against WT"),
        ));
        let (least, most) = less("kdd", "kdd-12");
        checks.push(Check::new(
            &format!("{}: vellum mode writes a third of KDD-12 % or less", row.name),
            "not in the paper",
            format!("{} to {} less", percent(least), percent(most)),
            least >= 2.0 / 3.0,
            (
                "shape: at most a third at every size",
                "shape: at most a third at every size. Pages that come again and again after a while are worth flash, and are most of this workload",
            ),
        ));
    }
    let what = "written to flash, thousands of pages";
    Ok(outcome(rows, &found, what, |totals| totals.flash_pages() as f64 / 1e3, checks))
}
