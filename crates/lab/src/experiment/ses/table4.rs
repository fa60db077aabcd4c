//! Table IV: duplicates found in-line and off-line, in the host.

use super::bench::{self, Bench, found};
use super::sets::{self, DataSet, Origin};
use super::{CHIPS, PAPER, PAPERS, percent, span};
use crate::experiment::{Check, Experiment, Outcome, Setting, Table, each};
use crate::replay::Search;
use crate::report::{Chart, ChartKind};
use vellum_base::Result;
use vellum_disk::DedupWhen;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "ses-table4",
    paper: PAPER,
    figure: "Table IV (section V.C)",
    claim: "Host-side, random writes: 52.9 to 59.8 % of duplicates are found in-line on SLC, fewer on the slower MLC chips, and the \
            rest off-line; in-line alone saves 6.5 to 18.2 % of writes on SLC",
    small: "random writes of 8 KiB to a new drive of 8 planes as large as the set; the paper's table for 15 % of pages; six sets of \
            real files of 110 to 512 MiB, and six made up after the paper's machines of 128 MiB each",
    full: "the same with 64 planes and 4 GiB for each machine of the paper",
    run,
};

/// Results of a data set on the chips.
struct Row<'a> {
    set: &'a DataSet,
    /// Shares of pages found in-line and off-line, by chip.
    found: Vec<(f64, f64)>,
}

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let sets = sets::all(setting)?;
    let jobs: Vec<(&DataSet, &str)> =
        sets.iter().flat_map(|set| CHIPS.iter().map(move |(_, chip)| (set, *chip))).collect();
    let cells = each("In-line and off-line", &jobs, setting, |(set, chip)| {
        let search = Search { when: DedupWhen::Both, scan_after: true, ..bench::search() };
        let cells = Bench { search, ..Bench::new(setting, chip) }.run(set, &[PAPERS])?;
        Ok(found(&cells[0]))
    })?;
    let rows: Vec<Row<'_>> = sets
        .iter()
        .zip(cells.chunks(CHIPS.len()))
        .map(|(set, found)| Row { set, found: found.to_vec() })
        .collect();
    Ok(Outcome {
        tables: vec![table(&rows)],
        charts: vec![chart(&rows)],
        checks: vec![inline(&rows), saves(&rows), all_found(&rows), slower(&rows), skew(&rows)],
        notes: vec![
            "In-line: not programmed. Off-line: found after the workload by comparing all slots of equal checksum, and set free"
                .into(),
            "Sets named laptop and desktop are made up after the paper's Tables III and IV, in random order; the others are \
             surveys of real files (ses-fig1), in the order of their names"
                .into(),
        ],
    })
}

impl Row<'_> {
    /// Share of duplicates that is found in-line.
    fn inline_of_duplicates(&self, chip: usize) -> f64 {
        self.found[chip].0 / self.set.duplicate_share().max(f64::MIN_POSITIVE)
    }
}

fn table(rows: &[Row<'_>]) -> Table {
    let heads = |what: &'static str| CHIPS.iter().map(move |(name, _)| format!("{what} {name}, %"));
    let columns = std::iter::once("data set".to_string())
        .chain(heads("in-line"))
        .chain(heads("off-line"))
        .chain(["duplicate, %".into(), "SLC: of duplicates in-line, %".into()]);
    let mut table = Table::new("Duplicates found, of all pages", columns);
    for row in rows {
        let found = &row.found;
        let shares = found.iter().map(|f| f.0).chain(found.iter().map(|f| f.1));
        let shares = shares.chain([row.set.duplicate_share(), row.inline_of_duplicates(0)]);
        let cells = shares.map(|share| format!("{:.1}", share * 100.0));
        table.rows.push(std::iter::once(row.set.name.clone()).chain(cells).collect());
    }
    table
}

fn chart(rows: &[Row<'_>]) -> Chart {
    let part = |name: &str, of: fn(&(f64, f64)) -> f64| {
        (name.to_string(), rows.iter().map(|row| of(&row.found[0]) * 100.0).collect())
    };
    Chart {
        title: "Duplicates found on SLC".into(),
        x: "data set".into(),
        y: "% of pages".into(),
        kind: ChartKind::Stacked {
            groups: rows.iter().map(|row| row.set.name.clone()).collect(),
            series: vec![part("in-line", |f| f.0), part("off-line", |f| f.1)],
        },
    }
}

fn of<'a>(rows: &'a [Row<'a>], origin: Origin) -> impl Iterator<Item = &'a Row<'a>> {
    rows.iter().filter(move |row| row.set.origin == origin)
}

fn inline(rows: &[Row<'_>]) -> Check {
    let (low, _, papers) = span(of(rows, Origin::Papers).map(|row| row.inline_of_duplicates(0)));
    let (_, _, real) = span(of(rows, Origin::Real).map(|row| row.inline_of_duplicates(0)));
    Check::new(
        "On SLC 52.9 to 59.8 % of duplicates are found in-line",
        "52.9 to 59.8 %",
        format!("{papers} with the paper's machines, {real} with real files"),
        low >= 0.5,
        (
            "shape: at least half with the paper's machines. What is missed is what the table has forgotten: a page whose copy comes later \
             than the table's memory. Nothing else keeps the host-side design from a look, as it costs the drive nothing: \
             the paper's rule, which it does not give, leaves more to off-line work",
            "shape: at least half with the paper's machines. What is missed is what the table has forgotten: a page whose copy comes \
             later than the table's memory",
        ),
    )
}

fn saves(rows: &[Row<'_>]) -> Check {
    let (_, high, papers) = span(of(rows, Origin::Papers).map(|row| row.found[0].0));
    let (_, _, real) = span(of(rows, Origin::Real).map(|row| row.found[0].0));
    Check::new(
        "In-line deduplication saves 6.5 to 18.2 % of writes on SLC",
        "6.5 to 18.2 %",
        format!("{papers} with the paper's machines, {real} with real files"),
        high >= 0.182,
        (
            "shape: at least 18.2 % with one of the paper's machines",
            "shape: at least 18.2 % with one of the paper's machines",
        ),
    )
}

fn all_found(rows: &[Row<'_>]) -> Check {
    let missed = |row: &Row<'_>| {
        let found = row.found.iter().map(|f| f.0 + f.1);
        found.map(|found| (row.set.duplicate_share() - found).abs()).fold(0.0, f64::max)
    };
    let worst = rows.iter().map(missed).fold(0.0, f64::max);
    Check::new(
        "In-line and off-line together find all duplicates",
        "they add up to the duplicate ratio, to 0.1 %",
        format!("to {:.2} % of pages", worst * 100.0),
        worst <= 0.001,
        (
            "shape: to 0.1 %",
            "shape: to 0.1 %. A page has at most so many owners as the format allows: a content with more copies is stored again",
        ),
    )
}

fn slower(rows: &[Row<'_>]) -> Check {
    let mean = |chip: usize| {
        rows.iter().map(|row| row.inline_of_duplicates(chip)).sum::<f64>() / rows.len().max(1) as f64
    };
    let means = [0, 1, 2].map(mean);
    Check::new(
        "Slower chips leave more to be found off-line",
        "in-line on average 57, 53 and 43 % of duplicates",
        format!("SLC {}, MLC-1 {}, MLC-2 {}", percent(means[0]), percent(means[1]), percent(means[2])),
        means[0] > means[1] && means[1] > means[2],
        (
            "shape: falls from chip to chip",
            "shape: falls from chip to chip. The paper says longer latencies leave less time, but not by which rule. By ours (a share of a core) the \
             time to look does not depend on the chip: a comparison is a read, which goes before programs and suspends one",
        ),
    )
}

fn skew(rows: &[Row<'_>]) -> Check {
    let by = |name: &str| {
        rows.iter().find(|row| row.set.name == name).map_or(0.0, |row| row.inline_of_duplicates(0))
    };
    let (most, least) = (by("desktop4"), by("desktop3"));
    Check::new(
        "The more skewed the duplicates, the more of them are found in-line",
        "59.1 % of desktop4's (89.3 % of them hot), 52.8 % of desktop3's (72.1 %)",
        format!("{} and {}", percent(most), percent(least)),
        most > least,
        ("shape: more of desktop4's", "shape: more of desktop4's"),
    )
}
