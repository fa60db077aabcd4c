//! An open disk with everything below it.
//!
//! States: open, closed. Invariants:
//! 1. A stack dropped without [`Stack::close`] loses nothing that was flushed; the next opening recovers.
//! 2. A disk whose dedup mode can corrupt is opened for writing only if the caller accepts that.

use crate::coding;
use crate::config::{Config, Share, dedup_text};
use crate::journal_range;
use crate::reason;
use crate::shape;
use crate::whole_file::{ORDINARY, WholeFile};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_base::{BlockDevice, Env, Error, Flash, Kind, RealEnv, Result};
use vellum_codes::scrambler::Scrambler;
use vellum_disk::{DedupMode, DedupWhen, Disk, Format, Options, ses};
use vellum_media::{Coded, Image, ImageParams, Nand, NandParams};

/// How an image is opened.
#[derive(Clone, Debug, Default)]
pub struct OpenMode {
    /// Refuse writes, and leave the image unchanged.
    pub read_only: bool,
    /// Open for writing even a disk whose dedup mode can corrupt data (`woj-paper`).
    pub accept_corruption: bool,
    /// How a disk that fingerprints by parity searches for copies: an error with any other disk.
    pub tuning: DedupTuning,
    /// The host undoes the device's scrambler with this one, which must be the same ([`vellum_disk::ses`]).
    pub host_scrambler: Option<Scrambler>,
    /// All other options of the disk.
    pub options: Options,
}

/// Deviations from the defaults of [`Options`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DedupTuning {
    /// Search while a sector is written, later, or both.
    pub when: Option<DedupWhen>,
    /// Entries of the fingerprint table, as a share of the number of sectors.
    pub table: Option<Share>,
    /// Share of a core that the search during writes may take.
    pub budget: Option<Share>,
}

impl DedupTuning {
    fn apply(&self, options: &mut Options) {
        options.dedup_when = self.when.unwrap_or(options.dedup_when);
        options.dedup_table_share = self.table.map_or(options.dedup_table_share, |share| share.0);
        options.dedup_core_share = self.budget.map_or(options.dedup_core_share, |share| share.0);
    }

    /// Refuses invalid shares, before a disk is opened and allocates a table of that share.
    fn check_shares(&self) -> Result<()> {
        let shares = [("--dedup-table", self.table), ("--dedup-budget", self.budget)];
        match shares.iter().find(|(_, share)| share.is_some_and(|s| !(s.0 > 0.0 && s.0 <= 1.0))) {
            Some((name, _)) => {
                let what = format!("{name} is a share of more than 0 and at most 100%");
                Err(Error::invalid(what).because(reason::SHARE_OUT_OF_RANGE))
            }
            None => Ok(()),
        }
    }

    /// Refuses options that have no effect on a disk of this mode.
    fn check(&self, dedup: DedupMode) -> Result<()> {
        if *self != DedupTuning::default() && !dedup.uses_parity() {
            let what = format!(
                "dedup mode {} has no fingerprints of parity to look up: --dedup-when, --dedup-table and --dedup-budget \
                 are for ecc",
                dedup_text(dedup)
            );
            return Err(Error::invalid(what).because(reason::TUNES_NOTHING));
        }
        Ok(())
    }
}

/// The error of giving a new image its name.
fn unnamed(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::AlreadyExists => Error::invalid(format!("{} exists already", path.display())),
        _ => Error::io(format!("create {}", path.display()), error),
    }
}

/// A disk that is open, its flash and its environment.
pub struct Stack {
    disk: Arc<Disk>,
    device: Arc<dyn BlockDevice>,
    flash: Arc<Coded<Nand>>,
    env: Arc<dyn Env>,
    image: Option<PathBuf>,
}

impl Stack {
    /// Creates the disk that `config` describes and opens it. [`vellum_base::Kind::Invalid`] if its image exists.
    pub fn create(config: &Config) -> Result<Stack> {
        Stack::create_in(config, RealEnv::new(), OpenMode::default())
    }

    /// The same in the caller's environment, with the caller's options. The image has its name once there is a disk on
    /// it: nothing is left of one that was cut short.
    pub fn create_in(config: &Config, env: Arc<dyn Env>, mode: OpenMode) -> Result<Stack> {
        Stack::create_as(config, env, mode, false)
    }

    /// The same; an image that is there is replaced, and stays until then.
    pub fn replace_in(config: &Config, env: Arc<dyn Env>, mode: OpenMode) -> Result<Stack> {
        Stack::create_as(config, env, mode, true)
    }

    fn create_as(config: &Config, env: Arc<dyn Env>, mut mode: OpenMode, replaces: bool) -> Result<Stack> {
        check_dedup(config.disk.dedup, &mode)?;
        mode.tuning.check_shares()?;
        mode.tuning.check(config.disk.dedup)?;
        mode.options.journals = mode.options.journals.or_else(|| journal_range::named(&config.disk.journals));
        let sectors = shape::sectors(config)?;
        let geometry = shape::geometry(config)?;
        let nvram_bytes = usize::try_from(config.flash.nvram_bytes())
            .map_err(|_| Error::invalid("NVRAM of this size cannot be had"))?;
        let endurance = config.flash.endurance;
        let coding = coding::of(config)?;
        let mut image = None;
        let flash = match &config.image {
            None => {
                let params =
                    NandParams { seed: env.random(), endurance, nvram_bytes, ..NandParams::default() };
                match coding {
                    None => Coded::plain(Nand::ram(geometry, params)?),
                    Some(coding) => {
                        let nand = Nand::ram(coding.geometry_below(&geometry)?, params)?;
                        Coded::new(nand, geometry.oob_bytes, coding)?
                    }
                }
            }
            Some(path) => {
                let file = image.insert(WholeFile::beside(path, replaces, ORDINARY)?);
                let seed = env.random();
                let params =
                    ImageParams { seed, endurance, nvram_bytes, coding, ..ImageParams::new(geometry) };
                Image::create_in(file.again()?, &params).map_err(|e| e.context(path.display()))?
            }
        };
        let flash = Arc::new(flash);
        let format = Format {
            dedup: config.disk.dedup,
            keep_copies: config.disk.keep_copies,
            tbw_bytes: config.disk.tbw_bytes,
            ..Format::new(sectors)
        };
        Disk::format(flash.clone(), env.clone(), &format)?;
        let stack = Stack::on(flash, env, config.image.clone(), mode, &mut |_, _| {})?;
        if let (Some(image), Some(path)) = (image, &config.image) {
            image.finish().map_err(|e| unnamed(path, e))?;
        }
        Ok(stack)
    }

    /// Opens the disk in an image, after a crash as well as after a clean close.
    pub fn open(image: &Path, mode: OpenMode) -> Result<Stack> {
        Stack::open_in(image, RealEnv::new(), mode)
    }

    /// The same in the caller's environment.
    pub fn open_in(image: &Path, env: Arc<dyn Env>, mode: OpenMode) -> Result<Stack> {
        Stack::open_with_progress(image, env, mode, &mut |_, _| {})
    }

    /// The same, reporting long work to `progress` as [`Disk::open_with_progress`] does.
    pub fn open_with_progress(
        image: &Path,
        env: Arc<dyn Env>,
        mode: OpenMode,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Stack> {
        mode.tuning.check_shares()?;
        let flash = Arc::new(Image::open(image, mode.read_only)?);
        Stack::on(flash, env, Some(image.to_path_buf()), mode, progress)
    }

    fn on(
        flash: Arc<Coded<Nand>>,
        env: Arc<dyn Env>,
        image: Option<PathBuf>,
        mode: OpenMode,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Stack> {
        let rated_erases = flash.params().endurance;
        let host_scrambles = mode.host_scrambler.is_some();
        let mut options =
            Options { read_only: mode.read_only, rated_erases, host_scrambles, ..mode.options.clone() };
        mode.tuning.apply(&mut options);
        let disk =
            Disk::open_with_progress(flash.clone(), env.clone(), options, progress).map_err(
                |e| match &image {
                    Some(path) => e.context(path.display()),
                    None => e,
                },
            )?;
        let disk = Arc::new(disk);
        let mut stack = Stack { device: disk.clone(), disk, flash, env, image };
        match stack.check(&mode).and_then(|()| stack.scramble_for_host(mode.host_scrambler)) {
            Ok(()) => Ok(stack),
            Err(e) => stack.close().and(Err(e)),
        }
    }

    /// Refuses options that can only be checked once the disk is open.
    fn check(&self, mode: &OpenMode) -> Result<()> {
        check_dedup(self.disk.dedup(), mode)?;
        mode.tuning.check(self.disk.dedup())?;
        let Some(journals) = &mode.options.journals else { return Ok(()) };
        let checked = check_journals_count(self.disk.dedup())
            .and_then(|()| journal_range::check(journals, self.disk.info()));
        checked.map_err(|e| e.because(reason::NAMED_JOURNALS))
    }

    fn scramble_for_host(&mut self, scrambler: Option<Scrambler>) -> Result<()> {
        if let Some(scrambler) = scrambler {
            self.device = ses::host_side(self.disk.clone(), scrambler).map_err(|e| match e.kind() {
                Kind::Invalid => e.context("--scrambler-file").because(reason::HOST_SCRAMBLER),
                _ => e,
            })?;
        }
        Ok(())
    }

    /// The disk.
    pub fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    /// The disk as its host sees it, for serving it as a block device.
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        self.device.clone()
    }

    /// The flash below.
    pub fn flash(&self) -> &Arc<Coded<Nand>> {
        &self.flash
    }

    /// Its clock and tasks.
    pub fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    /// The image that holds it; `None` in memory.
    pub fn image(&self) -> Option<&Path> {
        self.image.as_deref()
    }

    /// Flushes and closes the disk, then the flash. Others who hold the disk can still read; writing is pointless.
    pub fn close(self) -> Result<()> {
        self.disk.close()?;
        drop((self.disk, self.device));
        close_flash(self.flash)
    }
}

/// Closes flash. If others still use it, what was written is made durable, and the last user closes it.
pub fn close_flash(flash: Arc<Coded<Nand>>) -> Result<()> {
    match Arc::try_unwrap(flash) {
        Ok(flash) => flash.close(),
        Err(shared) => Ok(shared.sync()?),
    }
}

/// Refuses a dedup mode that can corrupt, unless the caller accepts that.
fn check_dedup(dedup: DedupMode, mode: &OpenMode) -> Result<()> {
    if matches!(dedup, DedupMode::WojPaper(_)) && !mode.accept_corruption && !mode.read_only {
        let what = format!("dedup mode {} can corrupt data and is for experiments only", dedup_text(dedup));
        return Err(Error::invalid(what).because(reason::CAN_CORRUPT));
    }
    Ok(())
}

/// Refuses named journals if they have no effect.
fn check_journals_count(dedup: DedupMode) -> Result<()> {
    match dedup {
        DedupMode::Journal | DedupMode::WojPaper(_) => Ok(()),
        DedupMode::None | DedupMode::Strong(_) | DedupMode::Ecc | DedupMode::EccPaper => Err(Error::invalid(
            format!("dedup mode {} makes no use of a journal: name none", dedup_text(dedup)),
        )),
    }
}
