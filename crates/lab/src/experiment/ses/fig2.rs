//! Figure 2: the cost of SHA-256 without duplicates.

use super::bench::{Bench, Queue};
use super::sets::{self, DataSet, Origin};
use super::{CHIPS, NONE, PAPER, percent, span, synthetic_pages};
use crate::experiment::{Check, Experiment, Outcome, Setting, Table, each};
use crate::replay::Core;
use crate::report::{Chart, ChartKind};
use vellum_base::Result;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "ses-fig2",
    paper: PAPER,
    figure: "Figure 2 (section II)",
    claim: "Deduplication with SHA-256 costs performance where nothing is duplicate, up to 17.3 %, on every chip; with \
            up to 30.7 % of duplicates it improves random writes by up to 5.8 % only",
    small: "16 384 random writes of 8 KiB to a new drive of 128 MiB, 8 planes, with reads between them; the data sets of ses-table3",
    full: "524 288 random writes of 8 KiB to a new drive of 4 GiB, 64 planes",
    run,
};

/// Shares of reads among requests.
const READ_SHARES: [f64; 4] = [0.0, 0.3, 0.5, 0.7];
const SHA256: &str = "strong:sha256-verify+nvram";

/// Throughput with SHA-256 divided by that without, minus 1.
struct Point {
    chip: usize,
    read_share: f64,
    gain: f64,
}

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let one = points(setting, Queue::One, &READ_SHARES)?;
    let deep = points(setting, Queue::Deep, &[0.0])?;
    let sets = sets::all(setting)?;
    let gains = with_duplicates(setting, &sets)?;
    Ok(Outcome {
        tables: vec![table(&one, &deep), duplicates_table(&sets, &gains)],
        charts: vec![chart(&one)],
        checks: vec![costs(&one), most(&one), fewer_writes(&one), deep_queue(&deep), helps(&sets, &gains)],
        notes: vec![
            "One request at a time, a write ends when its page is programmed: times add up. The paper's largest loss is what \
             that gives for the slowest chip alone, 226.5 / (1084.4 + 226.5) us = 17.3 %"
                .into(),
        ],
    })
}

fn gain(setting: &Setting<'_>, chip: usize, queue: Queue, read_share: f64, set: &DataSet) -> Result<f64> {
    let core = Core::Controller400MHz;
    let bench = Bench { queue, read_share, core, ..Bench::new(setting, CHIPS[chip].1) };
    let cells = bench.run(set, &[NONE, SHA256])?;
    Ok(cells[1].throughput_bytes_per_second / cells[0].throughput_bytes_per_second - 1.0)
}

fn points(setting: &Setting<'_>, queue: Queue, read_shares: &[f64]) -> Result<Vec<Point>> {
    let set = DataSet::unique(synthetic_pages(setting));
    let jobs: Vec<(usize, f64)> =
        (0..CHIPS.len()).flat_map(|chip| read_shares.iter().map(move |share| (chip, *share))).collect();
    each("SHA-256 without duplicates", &jobs, setting, |(chip, read_share)| {
        let gain = gain(setting, *chip, queue, *read_share, &set)?;
        Ok(Point { chip: *chip, read_share: *read_share, gain })
    })
}

fn with_duplicates(setting: &Setting<'_>, sets: &[DataSet]) -> Result<Vec<f64>> {
    each("SHA-256 with duplicates", sets, setting, |set| gain(setting, CHIPS.len() - 1, Queue::One, 0.0, set))
}

fn mix(read_share: f64) -> String {
    format!("{:.0}/{:.0}", (1.0 - read_share) * 100.0, read_share * 100.0)
}

fn table(one: &[Point], deep: &[Point]) -> Table {
    let columns = ["writes/reads", "requests at a time", "SLC, %", "MLC-1, %", "MLC-2, %"];
    let mut table = Table::new("Throughput with SHA-256 over that without", columns);
    for (points, depth) in [(one, "1"), (deep, "32")] {
        for read_share in READ_SHARES {
            let at: Vec<&Point> = points.iter().filter(|p| p.read_share == read_share).collect();
            if !at.is_empty() {
                let cells = at.iter().map(|p| format!("{:+.1}", p.gain * 100.0));
                table.rows.push([mix(read_share), depth.into()].into_iter().chain(cells).collect());
            }
        }
    }
    table
}

fn duplicates_table(sets: &[DataSet], gains: &[f64]) -> Table {
    let mut table = Table::new(
        "Random writes with SHA-256 over those without, MLC-2",
        ["data set", "duplicate, %", "throughput, %"],
    );
    for (set, gain) in sets.iter().zip(gains) {
        let cells = [set.duplicate_share() * 100.0, gain * 100.0].map(|v| format!("{v:+.1}"));
        table.rows.push(std::iter::once(set.name.clone()).chain(cells).collect());
    }
    table
}

fn chart(one: &[Point]) -> Chart {
    let series = CHIPS.iter().enumerate().map(|(chip, (name, _))| {
        let lost = one.iter().filter(|p| p.chip == chip).map(|p| -p.gain * 100.0).collect();
        (name.to_string(), lost)
    });
    Chart {
        title: "Throughput lost to SHA-256 where nothing is duplicate".into(),
        x: "% of writes / % of reads".into(),
        y: "%".into(),
        kind: ChartKind::Bars { groups: READ_SHARES.map(mix).to_vec(), series: series.collect() },
    }
}

fn costs(one: &[Point]) -> Check {
    let (low, _, text) = span(one.iter().map(|p| -p.gain));
    Check::new(
        "SHA-256 costs performance on every chip at every mix of reads and writes",
        "drops everywhere",
        format!("{text} lost"),
        low > 0.0,
        ("shape: more than 0 everywhere", "shape: more than 0 everywhere"),
    )
}

fn most(one: &[Point]) -> Check {
    let (_, high, _) = span(one.iter().map(|p| -p.gain));
    let slowest = one.iter().filter(|p| p.chip == CHIPS.len() - 1).map(|p| -p.gain).fold(0.0, f64::max);
    Check::new(
        "It costs up to 17.3 %",
        "up to 17.3 %",
        format!("up to {}; up to {} on MLC-2", percent(high), percent(slowest)),
        (0.10..=0.20).contains(&slowest),
        (
            "shape: 10 to 20 % on MLC-2, whose program and hash give the paper's figure. On the others a program is shorter and the \
             hash is not: they must lose more, as nothing else is in a write's way. The paper's simulator hid some of that",
            "shape: 10 to 20 % on MLC-2, whose program and hash give the paper's figure",
        ),
    )
}

fn fewer_writes(one: &[Point]) -> Check {
    let of = |chip: usize| one.iter().filter(move |p| p.chip == chip).map(|p| -p.gain);
    let falls = (0..CHIPS.len()).all(|chip| of(chip).collect::<Vec<_>>().is_sorted_by(|a, b| a >= b));
    Check::new(
        "Hashing is on the path of writes: the more reads, the less it costs",
        "not said in figures",
        format!("SLC {}", of(0).map(percent).collect::<Vec<_>>().join(", ")),
        falls,
        (
            "shape: falls with the share of reads, on every chip",
            "shape: falls with the share of reads, on every chip",
        ),
    )
}

fn deep_queue(deep: &[Point]) -> Check {
    let lost: Vec<String> = deep.iter().map(|p| percent(-p.gain)).collect();
    Check::new(
        "With 32 requests at a time and a write buffer, a core that hashes 4415 pages a second is the drive's brake",
        "not in the paper",
        format!("SLC, MLC-1, MLC-2: {} lost", lost.join(", ")),
        deep.first().is_some_and(|p| -p.gain > 0.17),
        (
            "shape: more than 17 % on SLC. A drive of many planes programs side by side, one core hashes one page after another; what a \
             core would need is hashing in hardware",
            "shape: more than 17 % on SLC",
        ),
    )
}

fn helps(sets: &[DataSet], gains: &[f64]) -> Check {
    let of = |origin: Origin| {
        let (low, high) = sets
            .iter()
            .zip(gains)
            .filter(|(set, _)| set.origin == origin)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), (_, g)| (g.min(l), g.max(h)));
        (low, high)
    };
    let (papers, real) = (of(Origin::Papers), of(Origin::Real));
    let text = |(low, high): (f64, f64)| format!("{:+.1} to {:+.1} %", low * 100.0, high * 100.0);
    Check::new(
        "With up to 30.7 % of duplicates SHA-256 improves random writes slightly, by up to 5.8 %",
        "up to 5.8 %",
        format!("MLC-2: {} with the paper's machines, {} with real files", text(papers), text(real)),
        papers.0 < 0.0 && papers.1 > 0.0,
        (
            "shape: a loss with the least duplicates, a gain with the most. Ours is larger than the paper's, which leaves a \
             part of the duplicates to off-line processing: here all are found at once",
            "shape: a loss with the least duplicates, a gain with the most",
        ),
    )
}
