//! `disk create`: creates a disk in a new image.

use super::target::{CONSENT, Code, Risk, wants_consent};
use crate::endurance::parse_tbw;
use crate::failure::{Failure, Outcome, Verdict};
use crate::text;
use crate::ui::Ui;
use clap::ValueEnum;
use serde::Serialize;
use std::fs::File;
use std::path::{Path, PathBuf};
use vellum::base::size::SIZE_FORMS;
use vellum::base::{Error, Flash, Geometry, Kind, RealEnv, Result};
use vellum::config::{dedup_text, parse_dedup};
use vellum::disk::DedupMode;
use vellum::disk::tools::inspect;
use vellum::{Config, OpenMode, Share, Size, Stack, coding};

/// Make a disk in a new image file
#[derive(clap::Args)]
#[command(after_help = "\
The image is sparse: it takes room as the disk is written to.

Example:
  vellum disk create d.vellum --size 16GiB --op 12%
  vellum disk create fast.vellum --size 64GiB --page 16KiB --channels 8 --dies 4 --tbw 300TB

Exit codes: 0 made, 2 impossible shape, bad option or the file exists, 3 I/O or no room, 5 the file
is in use")]
pub struct Args {
    /// The image to make
    #[arg(value_name = "IMG")]
    image: PathBuf,
    /// Size that a host sees
    #[arg(long, value_name = "SIZE")]
    size: Size,
    /// Flash beyond that (over-provisioning)
    #[arg(long, value_name = "SHARE", default_value = "12%")]
    op: Share,
    /// How duplicate writes are found: journal, ecc, none, strong[:sha1|md5|sha256|blake3], woj-paper[:HASH] or
    /// ecc-paper
    #[arg(long, value_name = "MODE", default_value = "journal", value_parser = parse_dedup)]
    dedup: DedupMode,
    /// Never let superblocks and group descriptors of ext4 (and ext2, ext3) share flash with their backups: ext4 or
    /// none
    #[arg(long, value_name = "KIND", default_value = "none")]
    keep_copies: KeepCopies,
    /// Bytes in a flash page
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    page: Size,
    /// Independent channels
    #[arg(long, value_name = "N", default_value_t = 4)]
    channels: u32,
    /// Dies on each channel
    #[arg(long, value_name = "N", default_value_t = 2)]
    dies: u32,
    /// Pages in an erase block [default: 256, fewer for small disks]
    #[arg(long, value_name = "N")]
    pages_per_block: Option<u32>,
    /// Power-loss-protected memory, or `none` [default: 64KiB, more for large pages]
    #[arg(long, value_name = "SIZE", value_parser = size_or_none)]
    nvram: Option<Size>,
    /// Rated endurance in bytes the host writes, such as 300TB [default: life is counted in erases]
    #[arg(long, value_name = "BYTES", value_parser = parse_tbw)]
    tbw: Option<u64>,
    /// Erases an erase block is rated for
    #[arg(long, value_name = "N", default_value_t = 3000, value_parser = clap::value_parser!(u32).range(1..))]
    endurance: u32,
    #[command(flatten)]
    code: Code,
    /// Replace the file if it exists: what is in it is lost
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    risk: Risk,
}

const CODE_ADVICE: &str = "leave out --ecc, --codeword and --scrambler: then bits that rot are put right";

/// Whose copies stay copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KeepCopies {
    /// Nobody's.
    None,
    /// Those of ext2, ext3 and ext4.
    Ext4,
}

/// docs/json/create.md
#[derive(Serialize)]
struct Created {
    image: String,
    size_bytes: u64,
    flash_bytes: u64,
    nvram_bytes: u64,
    dedup: String,
    keep_copies: bool,
    endurance_erases: u32,
    tbw_bytes: u64,
    ecc: String,
    codeword_bytes: u32,
    scrambler: String,
    geometry: Geometry,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let config = self.config();
        check(&config)?;
        let coded = Config { image: Some(self.image.clone()), ..config.clone() };
        let coding = coding::of(&coded).map_err(|e| Failure::with_next(e, CODE_ADVICE))?;
        let replaced = self.replaced()?;
        let geometry = self.make(&config, replaced.is_some(), ui)?;
        drop(replaced);
        let (ecc, codeword_bytes, scrambler) = coding::text(coding.as_ref());
        let created = Created {
            image: self.image.display().to_string(),
            size_bytes: config.size.0,
            flash_bytes: geometry.capacity_bytes(),
            nvram_bytes: config.flash.nvram_bytes(),
            dedup: dedup_text(config.disk.dedup),
            keep_copies: config.disk.keep_copies,
            endurance_erases: config.flash.endurance,
            tbw_bytes: config.disk.tbw_bytes,
            ecc,
            codeword_bytes,
            scrambler,
            geometry,
        };
        ui.result(&created, || created.describe());
        Ok(Verdict::Fine)
    }

    fn config(&self) -> Config {
        let mut config = Config::ram(self.size.0);
        config.flash.over_provisioning = self.op;
        config.flash.channels = self.channels;
        config.flash.dies_per_channel = self.dies;
        config.flash.pages_per_block = self.pages_per_block;
        config.flash.page = self.page;
        config.flash.nvram = self.nvram;
        config.flash.endurance = self.endurance;
        self.code.set(&mut config.flash);
        config.disk.dedup = self.dedup;
        config.disk.keep_copies = self.keep_copies == KeepCopies::Ext4;
        config.disk.tbw_bytes = self.tbw.unwrap_or(0);
        config
    }

    /// At any moment there is a whole disk, or the old file, or nothing.
    fn make(&self, config: &Config, replaces: bool, ui: &Ui) -> Result<Geometry, Failure> {
        let config = Config { image: Some(self.image.clone()), ..config.clone() };
        let mode = OpenMode { accept_corruption: self.risk.i_know_this_can_corrupt, ..OpenMode::default() };
        let create = if replaces { Stack::replace_in } else { Stack::create_in };
        let stack = create(&config, RealEnv::new(), mode).map_err(|e| match wants_consent(&e) {
            true => Failure::with_next(e, CONSENT),
            false => e.into(),
        })?;
        let geometry = *stack.flash().geometry();
        let layout = inspect(&**stack.flash())?;
        if let Some(nvram) = layout.nvram.filter(|nvram| !nvram.is_used) {
            ui.remark(format!(
                "note: NVRAM of {} is too small to be used; {} let a flush program nothing",
                text::bytes(nvram.bytes),
                text::bytes(layout.limits.nvram_bytes_needed)
            ));
        }
        stack.close()?;
        Ok(geometry)
    }

    /// The file that is to be replaced, locked, so that no disk in use is lost; `None` if there is none.
    fn replaced(&self) -> Result<Option<File>, Failure> {
        if self.image.symlink_metadata().is_err() {
            return Ok(None);
        }
        if !self.force {
            return Err(Failure::with_next(
                Error::invalid(format!("{} exists already", self.image.display())),
                "choose another name, or say --force to replace it: what is in it is lost",
            ));
        }
        hold(&self.image).map(Some)
    }
}

impl Created {
    fn describe(&self) -> String {
        let g = &self.geometry;
        let rating = match self.tbw_bytes {
            0 => format!("{} erases a block", self.endurance_erases),
            tbw => format!("{} TB written by the host", tbw as f64 / 1e12),
        };
        let kept = if self.keep_copies { " but for what ext4 keeps in copies" } else { "" };
        let code = match (self.ecc.as_str(), self.scrambler.as_str()) {
            ("none", _) => "bits that rot stay wrong".to_string(),
            (rate, "off") => format!("{} codewords of rate {rate}", text::bytes(self.codeword_bytes.into())),
            (rate, scrambler) => format!(
                "{} codewords of rate {rate}, scrambled by {scrambler}",
                text::bytes(self.codeword_bytes.into())
            ),
        };
        format!(
            "{}: {} on {} of flash ({g}), NVRAM {}\n\
             dedup {}{kept}, {code}, rated for {rating}\n\
             next: vellum disk serve {} --nbd unix:/tmp/v.sock   or, as root: vellum disk mount {} ./mnt\n",
            self.image,
            text::bytes(self.size_bytes),
            text::bytes(self.flash_bytes),
            if self.nvram_bytes == 0 { "none".into() } else { text::bytes(self.nvram_bytes) },
            self.dedup,
            self.image,
            self.image,
        )
    }
}

/// Refuses an impossible size or shape.
fn check(config: &Config) -> Result<(), Failure> {
    vellum::shape::sectors(config)
        .map_err(|e| Failure::with_next(e, "choose a whole number of 4KiB sectors, such as --size 16GiB"))?;
    vellum::shape::geometry(config).map(drop).map_err(|e| {
        let next = "the defaults work for every size: leave out --op, --page, --channels, --dies and --pages-per-block";
        Failure::with_next(e, next)
    })
}

/// Locks a file that is to be replaced.
fn hold(path: &Path) -> Result<File, Failure> {
    let name = path.display();
    if !path.is_file() {
        return Err(Error::invalid(format!("{name} is not a regular file, so it is not replaced")).into());
    }
    let file = File::open(path).map_err(|e| Error::io(format!("open {name}"), e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => {
            Err(Error::new(Kind::Busy, format!("{name} is open somewhere and is not replaced")).into())
        }
        Err(std::fs::TryLockError::Error(e)) => Err(Error::io(format!("lock {name}"), e).into()),
    }
}

fn size_or_none(text: &str) -> Result<Size> {
    let or_none = |_| Error::invalid(format!("'{text}' is not a size; {SIZE_FORMS}; or none"));
    if text == "none" { Ok(Size(0)) } else { text.parse().map_err(or_none) }
}
