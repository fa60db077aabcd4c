//! The disk that a command works on: an image, or a temporary one in memory.

use super::ses::SesArgs;
use crate::failure::Failure;
use crate::host_memory;
use crate::ui::Ui;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum::base::{Error, Kind, RealEnv, Reason};
use vellum::coding::{Ecc, Scrambler};
use vellum::config::{dedup_text, parse_dedup};
use vellum::disk::{DedupMode, DedupWhen};
use vellum::journal_range::{self, JournalRange};
use vellum::media::reason::IMAGE_HEADERS;
use vellum::media::{Coded, Image, Nand};
use vellum::reason;
use vellum::{Config, DedupTuning, FlashConfig, OpenMode, Share, Size, Stack};

const UNSAFE_WARNING: &str = "\
WARNING: dedup mode woj-paper maps sectors to what others wrote without comparing a byte, as the paper does. It WILL
corrupt data that did not pass a journal. Keep nothing on this disk that you need.";

/// An image or memory.
#[derive(clap::Args)]
pub struct Target {
    /// The disk's image
    #[arg(value_name = "IMG", required_unless_present = "ram", conflicts_with = "ram")]
    pub image: Option<PathBuf>,
    /// Make a disk of this size in memory instead; it is gone afterwards
    #[arg(long, value_name = "SIZE")]
    pub ram: Option<Size>,
    /// How duplicate writes are found on the disk in memory: journal, ecc, none, strong[:HASH], woj-paper[:HASH] or
    /// ecc-paper
    #[arg(long, value_name = "MODE", value_parser = parse_dedup)]
    pub dedup: Option<DedupMode>,
    #[command(flatten)]
    tuning: TuningArgs,
    #[command(flatten)]
    pub code: Code,
    #[command(flatten)]
    pub ses: SesArgs,
    #[command(flatten)]
    pub risk: Risk,
}

/// How a disk with dedup mode `ecc` looks for copies, while it is open.
#[derive(clap::Args)]
struct TuningArgs {
    /// When copies are looked for (ecc): inline, offline (when idle), or both [default: both]
    #[arg(long, value_name = "WHEN", value_parser = parse_when)]
    dedup_when: Option<DedupWhen>,
    /// Sectors that have an entry in the fingerprint table (ecc) [default: 15%]
    #[arg(long, value_name = "SHARE")]
    dedup_table: Option<Share>,
    /// Share of a core that looking while writing may take (ecc) [default: 50%]
    #[arg(long, value_name = "SHARE")]
    dedup_budget: Option<Share>,
}

fn parse_when(text: &str) -> Result<DedupWhen, Error> {
    DedupWhen::by_name(text)
        .ok_or_else(|| Error::invalid(format!("'{text}' is no time for dedup: inline, offline or both")))
}

/// How pages of flash are coded.
#[derive(clap::Args)]
pub struct Code {
    /// Error-correcting code on each page, by its rate: 32/33, 16/17, 8/9 or none [default: 32/33; in memory none]
    #[arg(long, value_name = "RATE")]
    pub ecc: Option<Ecc>,
    /// Data bytes that are corrected together: 1KiB, 2KiB or 4KiB [default: 1KiB]
    #[arg(long, value_name = "SIZE")]
    pub codeword: Option<Size>,
    /// Store data as noise, begun anew from each sector's address (lba, or on) or each page's number (page, or
    /// page:PERIOD); or off [default: off]
    #[arg(long, value_name = "FROM")]
    pub scrambler: Option<Scrambler>,
}

impl Code {
    /// Sets the given options in a configuration.
    pub fn set(&self, flash: &mut FlashConfig) {
        flash.ecc = self.ecc;
        flash.codeword = self.codeword;
        flash.scrambler = self.scrambler.unwrap_or_default();
    }

    /// The first of these options that is given.
    fn given(&self) -> Option<&'static str> {
        let given = [
            ("--ecc", self.ecc.is_some()),
            ("--codeword", self.codeword.is_some()),
            ("--scrambler", self.scrambler.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
    }
}

/// The consent that `woj-paper` needs.
#[derive(clap::Args)]
pub struct Risk {
    /// Let a disk with dedup mode woj-paper be written to
    #[arg(long)]
    pub i_know_this_can_corrupt: bool,
}

impl TuningArgs {
    fn get(&self) -> DedupTuning {
        DedupTuning { when: self.dedup_when, table: self.dedup_table, budget: self.dedup_budget }
    }
}

impl Target {
    /// Opens the disk. If `journals` is empty, it finds its journals itself.
    pub fn open(&self, read_only: bool, journals: &[JournalRange], ui: &Ui) -> Result<Stack, Failure> {
        let mut mode = OpenMode {
            read_only,
            accept_corruption: self.risk.i_know_this_can_corrupt,
            tuning: self.tuning.get(),
            host_scrambler: self.ses.scrambler()?,
            ..OpenMode::default()
        };
        mode.options.journals = journal_range::named(journals);
        if let Some(image) = &self.image {
            self.refuse_dedup_of(image)?;
            self.refuse_code_of(image)?;
            return open_as(image, mode, ui);
        }
        let size = self.ram.expect("there is an image or a size: clap sees to it");
        let mut config = Config::ram(size.0);
        config.disk.dedup = self.dedup.unwrap_or_default();
        self.code.set(&mut config.flash);
        if let Some(remark) = host_memory::remark_on(size) {
            ui.remark(remark);
        }
        let stack =
            Stack::create_in(&config, RealEnv::new(), mode).map_err(|e| refused(e, config.disk.dedup))?;
        warn(&stack, ui);
        Ok(stack)
    }

    /// Clap does not refuse this: it drops the requirement of an option that conflicts with what is given.
    fn refuse_dedup_of(&self, image: &Path) -> Result<(), Failure> {
        let Some(dedup) = self.dedup else { return Ok(()) };
        let (name, dedup) = (image.display(), dedup_text(dedup));
        Err(Failure::with_next(
            Error::invalid(format!(
                "--dedup is for a disk in memory (--ram); how {name} finds duplicates was settled when it was created"
            )),
            format!(
                "leave --dedup out; vellum disk stat {name} shows what the disk does, and \
                 vellum disk create NEW --size SIZE --dedup {dedup} makes another"
            ),
        ))
    }

    /// The same for the coding of pages.
    fn refuse_code_of(&self, image: &Path) -> Result<(), Failure> {
        let Some(option) = self.code.given() else { return Ok(()) };
        let name = image.display();
        Err(Failure::with_next(
            Error::invalid(format!(
                "{option} is for a disk in memory (--ram); how the pages of {name} are coded was settled when it was created"
            )),
            format!("leave {option} out; vellum disk inspect {name} shows how they are coded"),
        ))
    }

    /// Its name, for messages.
    pub fn name(&self) -> String {
        match &self.image {
            Some(image) => image.display().to_string(),
            None => "ram".into(),
        }
    }
}

/// Opens a disk read-only, leaving its image unchanged.
pub fn open_to_read(image: &Path, ui: &Ui) -> Result<Stack, Failure> {
    open_image(image, true, &Risk { i_know_this_can_corrupt: false }, ui)
}

/// Opens the flash in an image, without the disk on it.
pub fn open_flash(image: &Path, read_only: bool) -> Result<Arc<Coded<Nand>>, Failure> {
    Image::open(image, read_only).map(Arc::new).map_err(|e| advise(e, image))
}

/// Opens a disk, for writing unless `read_only`.
pub fn open_image(image: &Path, read_only: bool, risk: &Risk, ui: &Ui) -> Result<Stack, Failure> {
    let mode = OpenMode { read_only, accept_corruption: risk.i_know_this_can_corrupt, ..OpenMode::default() };
    open_as(image, mode, ui)
}

fn open_as(image: &Path, mode: OpenMode, ui: &Ui) -> Result<Stack, Failure> {
    let mut progress = ui.progress("open: reading all contents");
    let stack = Stack::open_with_progress(image, RealEnv::new(), mode, &mut progress)
        .map_err(|e| advise(e, image))?;
    drop(progress);
    warn(&stack, ui);
    Ok(stack)
}

/// Advice that names the image.
pub fn advise(error: Error, image: &Path) -> Failure {
    if let Some(next) = error.reason().and_then(|reason| next_of(reason, image)) {
        return Failure::with_next(error, next);
    }
    let name = image.display();
    let next = match error.kind() {
        Kind::Io if !image.exists() => format!("make a disk there: vellum disk create {name} --size 16GiB"),
        Kind::Invalid => {
            "the file is left as it is; vellum disk create makes a disk in a new one".to_string()
        }
        Kind::Busy => format!("end what has it open, or ask it: vellum disk stat {name}"),
        Kind::Corrupt => format!("keep a copy of {name}, then: vellum disk repair {name}"),
        _ => return error.into(),
    };
    Failure::with_next(error, next)
}

/// Advice for errors with a reason.
fn next_of(reason: Reason, image: &Path) -> Option<String> {
    let name = image.display();
    Some(match reason {
        reason::CAN_CORRUPT => CONSENT.into(),
        reason::SHARE_OUT_OF_RANGE => "leave the option out, or write it like 15%".into(),
        reason::HOST_SCRAMBLER => format!(
            "learn this disk's scrambler from sectors all over it: vellum ses write {name} --lba spread, then ses dump \
             and ses learn (vellum ses --help); or leave it to the device: --ses device"
        ),
        reason::TUNES_NOTHING => {
            "leave these options out, or make a disk with --dedup ecc: vellum disk create --help".into()
        }
        reason::NAMED_JOURNALS => {
            "name journals that lie on the disk, and apart; or none: the disk finds them itself".into()
        }
        IMAGE_HEADERS => format!(
            "a header holds what disk create was told: keep a copy of {name}, make an image with the same options \
             (vellum disk create like.vellum --size ...), then: \
             dd if=like.vellum of={name} bs=4096 count=2 conv=notrunc; vellum disk repair {name}"
        ),
        _ => return None,
    })
}

/// Advice for a disk that can corrupt data.
pub const CONSENT: &str =
    "use dedup mode journal, which saves more and compares every byte; or say --i-know-this-can-corrupt";

/// True if a disk was refused because `--i-know-this-can-corrupt` was not given.
pub fn wants_consent(error: &Error) -> bool {
    error.is_because(reason::CAN_CORRUPT)
}

fn refused(error: Error, dedup: DedupMode) -> Failure {
    match wants_consent(&error) {
        true => Failure::with_next(error, CONSENT),
        false => Failure::from(error.context(format!("a disk in memory with dedup {}", dedup_text(dedup)))),
    }
}

fn warn(stack: &Stack, ui: &Ui) {
    if matches!(stack.disk().dedup(), DedupMode::WojPaper(_)) {
        ui.remark(UNSAFE_WARNING);
    }
}
