//! Figure 1: redundancy by chunk size.

use super::{PAGE_SIZE, PAPER, percent, sets, span};
use crate::contents::Contents;
use crate::dedup_scan::{CHUNK_BYTES, ChunkFigures};
use crate::experiment::{Check, Experiment, Outcome, Setting, Table};
use crate::report::{Chart, ChartKind};
use vellum_base::Result;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "ses-fig1",
    paper: PAPER,
    figure: "Figure 1 (section II)",
    claim: "Two laptops and four desktops hold up to 37.0 % redundant data (12.3 to 30.8 % at 8 KiB), and chunks of 8 KiB, \
            an SSD's page, find most of what chunks of 4 KiB find",
    small: "surveys of eight sets of real files, 110 to 746 MiB each (or what VELLUM_LAB_DATA names, 512 MiB of it)",
    full: "the same (or 32 GiB of what VELLUM_LAB_DATA names)",
    run,
};

/// A data set, and the result of its scan.
struct Scanned {
    name: String,
    contents: Contents,
    figures: Vec<ChunkFigures>,
}

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let scanned: Vec<Scanned> = sets::surveys(setting)?
        .into_iter()
        .map(|(name, contents)| Scanned { name, figures: contents.figures(), contents })
        .collect();
    let about = scanned.iter().map(|s| format!("{}: {}", s.name, s.contents.about));
    let note = "A file begins a chunk, its last one is filled with zeros, and a chunk of zeros is no duplicate, as in \
                dedup-scan (docs/decisions/0009). Contents of real files, recorded as what is equal to what";
    Ok(Outcome {
        tables: vec![table(&scanned)],
        charts: vec![chart(&scanned)],
        checks: vec![redundant(&scanned), in_pages(&scanned), zeros(&scanned)],
        notes: about.chain([note.to_string()]).collect(),
    })
}

fn table(scanned: &[Scanned]) -> Table {
    let heads = CHUNK_BYTES.iter().map(|bytes| format!("{} KiB, % duplicate", bytes >> 10));
    let columns =
        ["files".into(), "number".into(), "MiB".into(), "8 KiB, % zeros".into()].into_iter().chain(heads);
    let mut table = Table::new("Duplicates by chunk size", columns);
    for Scanned { name, contents, figures } in scanned {
        let cells = figures.iter().map(|f| format!("{:.1}", f.duplicate_share * 100.0));
        let row = [
            name.clone(),
            contents.files.len().to_string(),
            (contents.bytes() >> 20).to_string(),
            format!("{:.1}", figures[PAGE_SIZE].zero_share * 100.0),
        ];
        table.rows.push(row.into_iter().chain(cells).collect());
    }
    table
}

fn chart(scanned: &[Scanned]) -> Chart {
    let series = CHUNK_BYTES.iter().enumerate().map(|(size, bytes)| {
        let shares = scanned.iter().map(|s| s.figures[size].duplicate_share * 100.0).collect();
        (format!("{} KiB", bytes >> 10), shares)
    });
    Chart {
        title: "Duplicates by chunk size".into(),
        x: "files".into(),
        y: "% of all chunks".into(),
        kind: ChartKind::Bars {
            groups: scanned.iter().map(|s| s.name.clone()).collect(),
            series: series.collect(),
        },
    }
}

fn redundant(scanned: &[Scanned]) -> Check {
    let (_, high, text) = span(scanned.iter().map(|s| s.figures[PAGE_SIZE].duplicate_share));
    Check::new(
        "There is much redundant data on people's machines: 12.3 to 30.8 % of pages of 8 KiB",
        "12.3 to 30.8 %",
        text,
        high >= 0.123,
        (
            "shape: at least 12.3 % in one set. Ours are parts of one machine and not whole machines, so they lie further apart: \
             archives are compressed, and build products differ from build to build",
            "shape: at least 12.3 % in one set; there is less in these files",
        ),
    )
}

fn in_pages(scanned: &[Scanned]) -> Check {
    let redundant = || scanned.iter().filter(|s| s.figures[1].duplicate_share >= 0.05);
    let kept = |s: &Scanned| s.figures[PAGE_SIZE].duplicate_share / s.figures[1].duplicate_share;
    let (low, _, text) = span(redundant().map(kept));
    let count = redundant().count();
    Check::new(
        "Chunks of 8 KiB find most of what chunks of 4 KiB find, so a page is the right size",
        "most (Figure 1)",
        format!("{text} of it in the {count} sets with at least 5 %"),
        count > 0 && low >= 0.6,
        (
            "shape: at least 60 % of it. It is more than all of it where files are longer than a chunk and copied whole, since a \
             larger chunk has a larger share of filling; it is least in a disk image, whose files begin at multiples of 4 KiB",
            "shape: at least 60 % of it. A disk image's files begin at multiples of 4 KiB, and half of them amid a page",
        ),
    )
}

fn zeros(scanned: &[Scanned]) -> Check {
    let (_, high, _) = span(scanned.iter().map(|s| s.figures[PAGE_SIZE].zero_share));
    Check::new(
        "Zeros are not what is redundant",
        "not in the paper, which does not tell them apart",
        format!("up to {} of pages, and none of the duplicates above", percent(high)),
        true,
        ("shown: counted apart, since no drive that trims stores them", ""),
    )
}
