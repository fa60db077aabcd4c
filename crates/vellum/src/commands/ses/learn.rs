//! `ses learn`: learns a scrambler from raw dumps.

use crate::commands::disk;
use crate::failure::{Failure, Outcome, Verdict};
use crate::report_file;
use crate::text;
use crate::ui::Ui;
use clap::ValueEnum;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use vellum::base::{Error, Kind};
use vellum::codes::scrambler::Limits;
use vellum::config::Share;
use vellum::ses::{AddressKind, LearnOptions, Learned, Pieces, learn};

/// Recover the scrambler of a drive from raw dumps of known patterns
#[derive(clap::Args)]
#[command(after_help = "\
A dump is a manifest beside a file of raw bytes (docs/formats/ses-dump.md). Sector 0, every power
of two and two dozen sums of them tell everything about a drive that seeds by sector. Wrong bits
are no matter up to a limit; the same sectors may be dumped several times, and vote. What was
learned must foretell pieces from which nothing was learned: those of --verify, those marked fresh,
or some of the others.

Example:
  vellum ses learn d.toml --to learned.toml
  vellum ses learn zeros.toml text.toml --verify fresh.toml --to learned.toml --json

Exit codes: 0 learned and proven, 2 usage, 3 I/O, 4 no scrambler that fits, or a damaged manifest")]
pub struct Args {
    /// Manifests of raw dumps
    #[arg(value_name = "MANIFEST", required = true)]
    manifests: Vec<PathBuf>,
    /// The scrambler file to write (docs/formats/scrambler.md)
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long, requires = "to")]
    force: bool,
    /// A dump to prove it on, from which nothing is learned; may be repeated
    #[arg(long, value_name = "MANIFEST")]
    verify: Vec<PathBuf>,
    /// What keystreams depend on [default: whatever fits, if it is the only one]
    #[arg(long, value_name = "ADDRESS")]
    by: Option<By>,
    /// Most wrong bits in the dumps
    #[arg(long, value_name = "SHARE", default_value = "1%")]
    max_error_rate: Share,
    /// Fresh addresses on which it must be proven, at least
    #[arg(long, value_name = "N", default_value_t = Limits::default().fresh_min)]
    fresh_min: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    /// The sector's address
    Lba,
    /// The page's number in the device
    Page,
    /// The page's number in its erase block
    PageInBlock,
}

/// docs/json/ses-learn.md
#[derive(Serialize)]
struct Answer {
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    address: AddressKind,
    piece_bytes: usize,
    degree: u32,
    feedback: String,
    polynomial: String,
    bit_order: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    period: Option<u64>,
    known_below: u64,
    pieces: usize,
    patterns: usize,
    learned: usize,
    checks: usize,
    fresh: usize,
    fresh_out_of_reach: usize,
    bits: u64,
    bits_wrong: u64,
    bits_wrong_max: u64,
    error_rate: f64,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        if let Some(path) = &self.to {
            report_file::check(path, self.force)?;
        }
        let mut pieces = Pieces::default();
        let read = |pieces: &mut Pieces, path: &Path, fresh| pieces.add(path, fresh).map_err(advise_reading);
        self.manifests.iter().try_for_each(|path| read(&mut pieces, path, false))?;
        self.verify.iter().try_for_each(|path| read(&mut pieces, path, true))?;
        let learned = learn(&pieces, &self.options()).map_err(advise)?;
        if let Some(path) = &self.to {
            let mut file = disk::create_file(path, self.force)?;
            let written = file.write_all(learned.file.to_text().as_bytes()).and_then(|()| file.sync_all());
            written.map_err(|e| Error::io(format!("write {}", path.display()), e))?;
        }
        let answer = self.answer(&pieces, &learned);
        ui.result(&answer, || render(&answer));
        if answer.patterns == 1 {
            ui.remark("one pattern only: had another been written than was said, it could not be told from the scrambler");
        }
        Ok(Verdict::Fine)
    }

    fn options(&self) -> LearnOptions {
        let by = self.by.map(|by| match by {
            By::Lba => AddressKind::Lba,
            By::Page => AddressKind::Page,
            By::PageInBlock => AddressKind::PageInBlock,
        });
        let limits = Limits { error_rate_max: self.max_error_rate.0, fresh_min: self.fresh_min };
        LearnOptions { by, limits }
    }

    fn answer(&self, pieces: &Pieces, learned: &Learned) -> Answer {
        let (survey, scrambler) = (&learned.survey, &learned.file.scrambler);
        Answer {
            file: self.to.as_ref().map(|path| path.display().to_string()),
            address: learned.file.address,
            piece_bytes: learned.file.piece_bytes,
            degree: scrambler.lfsr().degree(),
            feedback: format!("{:#x}", scrambler.lfsr().feedback()),
            polynomial: scrambler.lfsr().to_string(),
            bit_order: match scrambler.order() {
                vellum::codes::scrambler::BitOrder::LsbFirst => "lsb-first",
                vellum::codes::scrambler::BitOrder::MsbFirst => "msb-first",
            },
            period: scrambler.map().period(),
            known_below: scrambler.map().first_unknown(u64::MAX).unwrap_or(u64::MAX),
            pieces: pieces.pieces.len(),
            patterns: pieces.patterns.len(),
            learned: survey.learned,
            checks: survey.checks,
            fresh: survey.fresh,
            fresh_out_of_reach: survey.out_of_reach,
            bits: survey.bits,
            bits_wrong: survey.bits_wrong,
            bits_wrong_max: survey.bits_wrong_max,
            error_rate: survey.error_rate(),
        }
    }
}

fn render(answer: &Answer) -> String {
    let by = match answer.address {
        AddressKind::Lba => "sector address",
        AddressKind::Page => "page number in the device",
        AddressKind::PageInBlock => "page number in its erase block",
    };
    let period = answer.period.map(|period| format!(", the same again every {period}")).unwrap_or_default();
    let order = answer.bit_order.replace('-', " bit ").replace("sb bit first", "sb first");
    let known = match answer.known_below {
        0 => "addresses that dumped ones add up to".to_string(),
        u64::MAX => "all addresses".to_string(),
        n => format!("all addresses below {n}, {}", text::bytes(n.saturating_mul(answer.piece_bytes as u64))),
    };
    let mut table = text::Table::new(&[text::Align::Left, text::Align::Left]);
    table.row(["register", &format!("{} bits: {} ({order})", answer.degree, answer.polynomial)]);
    table.row(["seeded by", &format!("{by}{period}")]);
    table.row(["known for", &known]);
    table.row([
        "learned from",
        &format!("{} addresses, {} of them foretold by others", answer.learned, answer.checks),
    ]);
    let reach = match answer.fresh_out_of_reach {
        0 => String::new(),
        n => format!("; {n} are out of reach"),
    };
    table.row(["proven on", &format!("{} fresh addresses, all foretold{reach}", answer.fresh)]);
    let share = answer.error_rate * 100.0;
    table.row([
        "wrong bits",
        &format!(
            "{} of {} ({share:.4}%), at most {} in a piece",
            answer.bits_wrong, answer.bits, answer.bits_wrong_max
        ),
    ]);
    if let Some(file) = &answer.file {
        table.row(["written to", file]);
    }
    table.render("")
}

fn advise(error: Error) -> Failure {
    match error.kind() {
        Kind::Corrupt => Failure::with_next(
            error,
            "look at the manifest: what was written, at which addresses, and whether the bytes are raw; take out what was not \
             the host's; several dumps of the same sectors help against noise",
        ),
        _ => error.into(),
    }
}

fn advise_reading(error: Error) -> Failure {
    match error.kind() {
        Kind::Corrupt | Kind::Invalid => {
            Failure::with_next(error, "docs/formats/ses-dump.md says what a manifest is, with an example")
        }
        Kind::Io => Failure::with_next(error, "look at the path, and whether you may read it"),
        _ => error.into(),
    }
}
