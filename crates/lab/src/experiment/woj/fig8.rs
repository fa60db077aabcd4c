//! Figure 8: copies of real files.

use super::{Bench, DMDEDUP, Measured, NONE, Operations, PAPER, SSDS, VELLUM, WOJ, file_system, ratio, span};
use crate::experiment::{Check, Experiment, Outcome, Scale, Setting, Table};
use crate::report::{Chart, ChartKind};
use std::path::{Path, PathBuf};
use vellum_base::{Error, Result};
use vellum_media::Preset;
use vellum_trace::generate::copy;
use vellum_trace::generate::ext::FileOperation as Op;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "woj-fig8",
    paper: PAPER,
    figure: "Figure 8 (section 3.5)",
    claim: "Copies of real data: WOJ_xxh64 removes about half of the writes, as Dmdedup_sha1 does, and takes 55 % less time \
            on the fast SSD and 5 to 9 % less on the slow one",
    small: "the first 12 MiB of files below each of /usr/include, /usr/share and /usr/lib (or below VELLUM_LAB_DATA)",
    full: "the first 3.5 GiB of files below each of /usr/include, /usr/share and /usr/lib (or below VELLUM_LAB_DATA)",
    run,
};

/// Environment variable that names a directory to copy instead.
const DIRECTORY_VARIABLE: &str = "VELLUM_LAB_DATA";
const DIRECTORIES: [&str; 3] = ["/usr/include", "/usr/share", "/usr/lib"];
const CONFIGURATIONS: [(&str, &str); 4] = [NONE, DMDEDUP, WOJ, VELLUM];

/// What was copied, and the results on each SSD.
struct Copied {
    name: String,
    bytes: u64,
    on: Vec<Measured>,
}

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let blocks = match setting.scale {
        Scale::Small => 3 << 10,
        Scale::Paper => 7 << 17,
    };
    let mut found = Vec::new();
    for directory in directories()? {
        let on = SSDS.map(|(_, preset)| {
            let file_system = file_system(setting);
            let bench = Bench {
                setting,
                preset: Preset::by_name(preset)?,
                file_system,
                configurations: &CONFIGURATIONS,
            };
            bench.run(&|| first_blocks(&directory, blocks))
        });
        let on = on.into_iter().collect::<Result<Vec<_>>>()?;
        let name = directory.file_name().unwrap_or(directory.as_os_str()).to_string_lossy().into_owned();
        found.push(Copied { name, bytes: on[0].written_bytes, on });
    }
    Ok(Outcome {
        tables: vec![table(&found)],
        charts: vec![time_chart(&found), writes_chart(&found)],
        checks: vec![halves(&found), saves_time(&found), less_on_slow(&found), safe(&found)],
        notes: vec![
            "What is copied are files of this machine: the figures differ from machine to machine. Contents are real in \
             what is equal to what, whole and in the first 64 bytes."
                .into(),
        ],
    })
}

fn directories() -> Result<Vec<PathBuf>> {
    let named = std::env::var_os(DIRECTORY_VARIABLE).map(PathBuf::from);
    let found: Vec<PathBuf> = match named {
        Some(directory) => vec![directory],
        None => DIRECTORIES.iter().map(PathBuf::from).filter(|d| d.is_dir()).collect(),
    };
    if found.is_empty() {
        return Err(Error::invalid(format!("no directory to copy: name one in {DIRECTORY_VARIABLE}")));
    }
    Ok(found)
}

fn first_blocks(directory: &Path, blocks: u64) -> Result<Operations> {
    let mut left = blocks;
    let within = move |op: &Op| {
        left -= u64::from(matches!(op, Op::Write(..)));
        left > 0
    };
    Ok(Box::new(copy::tree(directory)?.take_while(within)))
}

fn table(found: &[Copied]) -> Table {
    let columns = [
        "files",
        "MiB",
        "SSD",
        "configuration",
        "time, ms",
        "programmed, No_Dedup_DJ = 1",
        "home writes removed, %",
        "wrong sectors",
    ];
    let mut table = Table::new("Copies of real files", columns);
    for copied in found {
        for (m, (ssd, _)) in copied.on.iter().zip(SSDS) {
            for (c, (name, _)) in CONFIGURATIONS.iter().enumerate() {
                let cell = &m.cells[c];
                table.rows.push(vec![
                    copied.name.clone(),
                    format!("{:.0}", copied.bytes as f64 / f64::from(1 << 20)),
                    ssd.into(),
                    name.to_string(),
                    format!("{:.1}", cell.duration_ns as f64 / 1e6),
                    format!("{:.3}", programmed(m, c)),
                    format!("{:.1}", cell.home.removed_percent().unwrap_or(0.0)),
                    cell.wrong_sectors.to_string(),
                ]);
            }
        }
    }
    table
}

fn programmed(m: &Measured, cell: usize) -> f64 {
    ratio(m.write_amplification(cell), m.write_amplification(0))
}

/// Time of one configuration relative to another.
fn time(m: &Measured, a: usize, b: usize) -> f64 {
    ratio(m.cells[a].duration_ns as f64, m.cells[b].duration_ns as f64)
}

fn bars(title: &str, y: &str, groups: Vec<String>, of: impl Fn(usize) -> Vec<f64>) -> Chart {
    let series = CONFIGURATIONS.iter().enumerate().map(|(c, (name, _))| (name.to_string(), of(c)));
    let kind = ChartKind::Bars { groups, series: series.collect() };
    Chart { title: title.into(), x: "files".into(), y: y.into(), kind }
}

fn time_chart(found: &[Copied]) -> Chart {
    let cells =
        || found.iter().flat_map(|copied| copied.on.iter().zip(SSDS).map(move |(m, ssd)| (copied, m, ssd)));
    let groups = cells().map(|(copied, _, (ssd, _))| format!("{} ({ssd})", copied.name)).collect();
    bars("Time, as a share of No_Dedup_DJ's", "No_Dedup_DJ = 1", groups, |c| {
        cells().map(|(_, m, _)| time(m, c, 0)).collect()
    })
}

fn writes_chart(found: &[Copied]) -> Chart {
    let groups = found.iter().map(|copied| copied.name.clone()).collect();
    bars("Programmed, normalised, on the fast SSD", "No_Dedup_DJ = 1", groups, |c| {
        found.iter().map(|copied| programmed(&copied.on[0], c)).collect()
    })
}

fn halves(found: &[Copied]) -> Check {
    let (low, _, text) = span(found.iter().map(|copied| 100.0 * (1.0 - programmed(&copied.on[0], 2))));
    let (_, _, ours) = span(found.iter().map(|copied| 100.0 * (1.0 - programmed(&copied.on[0], 3))));
    Check::new(
        "WOJ_xxh64 removes about 50 % of the blocks written",
        "about 50 %",
        format!("WOJ_xxh64 {text} %; Vellum {ours} %"),
        low >= 40.0,
        (
            "shape: at least 40 % for every copy",
            "shape: at least 40 % for every copy. Real files often agree in their first 64 bytes, and two that do \
             invalidate the fingerprint; a whole-sector hash does not lose them",
        ),
    )
}

fn saves_time(found: &[Copied]) -> Check {
    let (low, _, text) = span(found.iter().map(|copied| 100.0 * (1.0 - time(&copied.on[0], 2, 1))));
    Check::new(
        "On the fast SSD WOJ_xxh64 takes 55 % less time than Dmdedup_sha1",
        "54.5 to 56.3 %",
        format!("{text} %"),
        low >= 40.0,
        (
            "shape: at least 40 %",
            "shape: at least 40 %; where fingerprints collide, WOJ writes what Dmdedup removes",
        ),
    )
}

fn less_on_slow(found: &[Copied]) -> Check {
    let saved = |copied: &Copied, ssd: usize| 100.0 * (1.0 - time(&copied.on[ssd], 2, 1));
    let (_, high, text) = span(found.iter().map(|copied| saved(copied, 2)));
    let smaller = found.iter().all(|copied| saved(copied, 2) < saved(copied, 0));
    Check::new(
        "The improvement is less significant on the slow SSD",
        "5.4 to 9.3 %",
        format!("{text} %"),
        smaller && high < 20.0,
        (
            "shape: less than on the fast one, and under 20 %",
            "shape: less than on the fast one, and under 20 %",
        ),
    )
}

fn safe(found: &[Copied]) -> Check {
    let wrong = |c: usize| found.iter().flat_map(|f| &f.on).map(|m| m.cells[c].wrong_sectors).sum::<u64>();
    Check::new(
        "Correctness is not compromised",
        "not compromised (section 2.2)",
        format!("{} wrong sectors in WOJ_xxh64, {} in Vellum", wrong(2), wrong(3)),
        wrong(2) == 0 && wrong(3) == 0,
        (
            "shape: no wrong sector. All writes here pass the journal; experiment woj-vs-vellum has some that do not",
            "shape: no wrong sector",
        ),
    )
}
