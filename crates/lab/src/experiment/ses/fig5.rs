//! Figure 5: duplicates found in-line in the device, with different fingerprints.

use super::bench::{self, Bench, found};
use super::sets::{self, DataSet, Origin};
use super::{CHIPS, PAPER, PAPERS, percent, span};
use crate::experiment::{Check, Experiment, Outcome, Setting, Table, each};
use crate::replay::{Core, Search};
use crate::report::{Chart, ChartKind};
use vellum_base::{Nanos, Result};
use vellum_disk::DedupWhen;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "ses-fig5",
    paper: PAPER,
    figure: "Figure 5 (section V.C)",
    claim: "Device-side, with fingerprints by ECC (14.5 us a page) 19.9 to 42.8 % more duplicates are found in-line than with SHA-256 \
            (226.5 us), whatever the mix of reads and writes; most are found in-line",
    small: "three real data sets of ses-table4 (headers, pythons, state) and the paper's machines on SLC and MLC-2, 8 planes, \
            a quarter of a core of 400 MHz for looking in-line; fingerprints differ in the time they take and in nothing else",
    full: "all data sets of ses-table4, with 64 planes and 4 GiB for each machine of the paper",
    run,
};

/// Shares of reads among requests.
const READ_SHARES: [f64; 3] = [0.0, 0.3, 0.7];
/// Chips of [`CHIPS`] that are shown, and the number of mixes for each.
const SHOWN: [(usize, usize); 2] = [(0, READ_SHARES.len()), (2, 1)];
/// Fingerprints, and their time per sector: half of that per page.
const FINGERPRINTS: [(&str, Nanos); 2] = [("ECC", Nanos(14_500 / 2)), ("SHA-256", Nanos(226_500 / 2))];

/// A chip and a mix: the share of duplicates found in-line with each fingerprint, by data set.
struct Point {
    chip: usize,
    read_share: f64,
    inline: [Vec<f64>; FINGERPRINTS.len()],
}

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let sets = sets::fewer(setting)?;
    let mut jobs: Vec<(usize, f64, usize, &DataSet)> = Vec::new();
    for (chip, mixes) in SHOWN {
        for read_share in READ_SHARES.into_iter().take(mixes) {
            for print in 0..FINGERPRINTS.len() {
                jobs.extend(sets.iter().map(|set| (chip, read_share, print, set)));
            }
        }
    }
    let cells = each("Fingerprints", &jobs, setting, |(chip, read_share, print, set)| {
        let search =
            Search { when: DedupWhen::Both, fingerprint: Some(FINGERPRINTS[*print].1), ..bench::search() };
        let bench = Bench {
            search,
            read_share: *read_share,
            core: Core::Controller400MHz,
            ..Bench::new(setting, CHIPS[*chip].1)
        };
        let cells = bench.run(set, &[PAPERS])?;
        Ok(found(&cells[0]).0 / set.duplicate_share().max(f64::MIN_POSITIVE))
    })?;
    let mut by_print = cells.chunks(sets.len());
    let mut points = Vec::new();
    for (chip, mixes) in SHOWN {
        for read_share in READ_SHARES.into_iter().take(mixes) {
            let inline = [(); FINGERPRINTS.len()].map(|()| by_print.next().unwrap_or_default().to_vec());
            points.push(Point { chip, read_share, inline });
        }
    }
    Ok(Outcome {
        tables: vec![table(&points, &sets)],
        charts: vec![chart(&points)],
        checks: vec![more(&points), real_too(&points, &sets), most(&points), slow_chip(&points)],
        notes: vec![
            "Geometric means over the data sets. More: duplicates found with ECC over those found with SHA-256, less 1".into(),
            "One request at a time: a page is looked for in-line while the work of looking stays within a quarter of the \
             core; what the paper's limit is it does not say"
                .into(),
        ],
    })
}

fn mean(shares: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) =
        shares.into_iter().fold((0.0, 0u32), |(sum, n), share| (sum + share.max(1e-6).ln(), n + 1));
    if count == 0 { 0.0 } else { (sum / f64::from(count)).exp() }
}

impl Point {
    fn mean(&self, print: usize) -> f64 {
        mean(self.inline[print].iter().copied())
    }

    fn more(&self) -> f64 {
        self.mean(0) / self.mean(1) - 1.0
    }

    fn name(&self) -> String {
        format!(
            "{} {:.0}/{:.0}",
            CHIPS[self.chip].0,
            (1.0 - self.read_share) * 100.0,
            self.read_share * 100.0
        )
    }
}

fn table(points: &[Point], sets: &[DataSet]) -> Table {
    let heads = sets.iter().map(|set| format!("{}, %", set.name));
    let columns =
        ["chip, writes/reads", "fingerprint", "geometric mean, %"].map(String::from).into_iter().chain(heads);
    let mut table = Table::new("Duplicates found in-line", columns);
    for point in points {
        for (print, (name, _)) in FINGERPRINTS.iter().enumerate() {
            let cells = std::iter::once(point.mean(print)).chain(point.inline[print].iter().copied());
            let cells = cells.map(|share| format!("{:.1}", share * 100.0));
            table.rows.push([point.name(), name.to_string()].into_iter().chain(cells).collect());
        }
    }
    table
}

fn chart(points: &[Point]) -> Chart {
    let series = FINGERPRINTS.iter().enumerate().map(|(print, (name, _))| {
        (name.to_string(), points.iter().map(|point| point.mean(print) * 100.0).collect())
    });
    Chart {
        title: "Duplicates found in-line (geometric mean over data sets)".into(),
        x: "chip, % of writes / % of reads".into(),
        y: "% of duplicates".into(),
        kind: ChartKind::Bars { groups: points.iter().map(Point::name).collect(), series: series.collect() },
    }
}

fn on(points: &[Point], chip: usize) -> impl Iterator<Item = &Point> {
    points.iter().filter(move |point| point.chip == chip)
}

fn more(points: &[Point]) -> Check {
    let (low, _, text) = span(on(points, SHOWN[0].0).map(Point::more));
    Check::new(
        "With ECC 19.9 to 42.8 % more duplicates are found in-line than with SHA-256",
        "19.9 to 42.8 %",
        format!("{text} on SLC"),
        low >= 0.199,
        (
            "shape: at least 19.9 % at every mix on SLC. How much more depends on how much of the core in-line work may take: with all of it \
             none would be left, with a tenth SHA-256 would find next to nothing",
            "shape: at least 19.9 % at every mix on SLC. The more reads, the more time between writes: hashing gets along then",
        ),
    )
}

fn real_too(points: &[Point], sets: &[DataSet]) -> Check {
    let real = |print: usize, point: &Point| {
        mean(
            point.inline[print]
                .iter()
                .zip(sets)
                .filter(|(_, set)| set.origin == Origin::Real)
                .map(|(share, _)| *share),
        )
    };
    let (low, _, text) = span(on(points, SHOWN[0].0).map(|point| real(0, point) / real(1, point) - 1.0));
    Check::new(
        "The same with real files alone",
        "not in the paper",
        format!("{text} on SLC"),
        low >= 0.199,
        ("shape: at least 19.9 % at every mix on SLC", "shape: at least 19.9 % at every mix on SLC"),
    )
}

fn most(points: &[Point]) -> Check {
    let (low, _, text) = span(points.iter().map(|point| point.mean(0)));
    Check::new(
        "With ECC the majority of duplicates is found in-line",
        "the majority",
        text,
        low > 0.5,
        (
            "shape: more than half on every chip at every mix",
            "shape: more than half on every chip at every mix",
        ),
    )
}

fn slow_chip(points: &[Point]) -> Check {
    let [fast, slow] = SHOWN.map(|(chip, _)| on(points, chip).next().map_or(0.0, Point::more));
    Check::new(
        "On a slow chip the fingerprint matters less",
        "not said",
        format!("{} more on MLC-2, {} on SLC, writes only", percent(slow), percent(fast)),
        slow < fast,
        (
            "shape: less than on SLC. A program of 1084.4 us leaves a core more time for each page than one of 262.6 us",
            "shape: less than on SLC",
        ),
    )
}
