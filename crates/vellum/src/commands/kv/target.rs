//! How commands open stores, and what to do if that fails.

use super::advice::{advise, has_no_order, missing, other_engine};
use super::compressing::Compressing;
use super::notation::Notation;
use super::reusing::Reusing;
use super::space::Space;
use crate::failure::Failure;
use clap::ValueEnum;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use vellum::Size;
use vellum::base::{BlockDevice, Error, Kind, Result};
use vellum::kv::{
    AnyStore, Batch, Bounds, Building, Engine, NewImage, Options, Store, ZoneMedia, awaits_device,
    has_remains, is_store, is_unfinished, lacks_current, reason as kv,
};
use vellum::media::zones::is_zoned;
use vellum::media::{FileDisk, reason as media};
use vellum::reason::OTHER_ENGINE;

/// Size of a zone, unless the device is small.
const ZONE_BYTES: u64 = 64 << 20;

/// A store that is there.
#[derive(clap::Args)]
pub struct Target {
    /// The store: a directory, or a flash image
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

/// A store that is made if it is not there, and how it is opened.
#[derive(Clone, clap::Args)]
pub struct WriteTarget {
    /// The store: a directory, made if it is not there, or a flash image
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// How keys are kept in a new store; one that is there knows [default: lsm]
    #[arg(long, value_name = "HOW")]
    engine: Option<EngineArg>,
    /// Memory for what is not yet in tables; segments of a log store are half as large
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    memtable: Size,
    /// Memory for what is read again and again
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    cache: Size,
    #[command(flatten)]
    compressing: Compressing,
    #[command(flatten)]
    reusing: Reusing,
}

/// How keys are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EngineArg {
    /// In order: an LSM tree
    Lsm,
    /// Without order, for less writing and one read a get: a log and an index in memory, 8 bytes a key
    Log,
}

impl EngineArg {
    pub fn engine(self) -> Engine {
        match self {
            EngineArg::Lsm => Engine::Lsm,
            EngineArg::Log => Engine::Log,
        }
    }
}

/// Whether a log may be damaged in its middle.
#[derive(Clone, Copy, Default, clap::Args)]
pub struct Strict {
    /// Refuse a log in which records follow damage, though none was synced; else it ends there
    #[arg(long)]
    pub strict: bool,
}

/// A part of a store that is there.
#[derive(clap::Args)]
pub struct Part {
    #[command(flatten)]
    pub target: Target,
    #[command(flatten)]
    pub space: Space,
    #[command(flatten)]
    pub range: Range,
}

/// Which keys, and in which notation.
#[derive(clap::Args)]
pub struct Range {
    /// Keys from this one on
    #[arg(long, value_name = "KEY")]
    from: Option<String>,
    /// Keys below this one
    #[arg(long, value_name = "KEY")]
    to: Option<String>,
    /// Keys that begin with this, and are within the other bounds, if there are any
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<String>,
    #[command(flatten)]
    hex: Hex,
}

/// How keys and values are written.
#[derive(Clone, Copy, clap::Args)]
pub struct Hex {
    /// Keys and values are hexadecimal
    #[arg(long)]
    hex: bool,
}

impl Target {
    /// The store at `path`.
    pub fn at(path: &Path) -> Target {
        Target { path: path.to_path_buf() }
    }

    /// Opens it read-only: nothing of it is changed.
    pub fn open(&self) -> Result<AnyStore, Failure> {
        self.open_with(Options { read_only: true, ..Options::default() })
    }

    /// The same, but refuses a log that is damaged in its middle if requested.
    pub fn open_if_strict(&self, strict: Strict) -> Result<AnyStore, Failure> {
        self.open_with(Options { read_only: true, strict_log: strict.strict, ..Options::default() })
    }

    /// The same, for operations that need ordered keys.
    pub fn open_ordered(&self) -> Result<Store, Failure> {
        ordered(self.open()?, &self.path)
    }

    /// Opens it with these options; it is not made.
    pub fn open_with(&self, options: Options) -> Result<AnyStore, Failure> {
        let options = Options { create_if_missing: false, ..options };
        if let Some(error) = lacks_current(&self.path) {
            return Err(self.advise(error));
        }
        if !is_store(&self.path) {
            return Err(missing(&self.path));
        }
        AnyStore::open(&self.path, None, options).map_err(|e| self.advise(e))
    }

    /// The same, for operations that need ordered keys.
    pub fn open_ordered_with(&self, options: Options) -> Result<Store, Failure> {
        ordered(self.open_with(options)?, &self.path)
    }

    /// Failure of an operation that needs ordered keys.
    pub fn has_no_order(&self) -> Failure {
        has_no_order(&self.path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of its remains: the directory, whatever it lacks, or the image.
    pub fn remains(&self) -> Result<&Path, Failure> {
        match has_remains(&self.path) && !awaits_device(&self.path) {
            true => Ok(&self.path),
            false => Err(missing(&self.path)),
        }
    }

    /// A failure of the store, with advice.
    pub fn advise(&self, error: Error) -> Failure {
        advise(error, &self.path)
    }
}

impl WriteTarget {
    /// The same at another path.
    pub fn at(&self, path: PathBuf) -> WriteTarget {
        WriteTarget { path, ..self.clone() }
    }

    /// Begins to build a store with ordered keys, if there is none yet; among other files one is made in place.
    pub fn begin_ordered(&self) -> Result<Option<Building>, Failure> {
        if self.is_new_log() {
            let error = Error::invalid("a log store (--engine log) has no order of keys, which this needs");
            return Err(Failure::with_next(error, "leave --engine out, or use `vellum kv load`"));
        }
        self.check_finished()?;
        if has_remains(&self.path) && !is_unfinished(&self.path) {
            return Ok(None);
        }
        match Building::begin(&self.path) {
            Err(error) if error.kind() == Kind::Invalid => Ok(None),
            begun => begun.map(Some).map_err(|e| self.advise(e)),
        }
    }

    /// Opens it for operations that need ordered keys, creating it if necessary.
    pub fn open_ordered(&self, space: &Space) -> Result<Store, Failure> {
        let next = "use `vellum kv load`, which takes records in any order";
        let store = self.open_for(space, &Batch::new())?;
        ordered(store, &self.path).map_err(|failure| failure.instead_next(next))
    }

    /// The same, but refuses a log that is damaged in its middle if requested.
    pub fn open_if_strict(&self, strict: Strict) -> Result<AnyStore, Failure> {
        self.open_as(&Batch::new(), strict)
    }

    /// Opens it, creating it if necessary, for a batch that goes to a keyspace: a new store that could not take it is
    /// not created.
    pub fn open_for(&self, space: &Space, batch: &Batch) -> Result<AnyStore, Failure> {
        space.check()?;
        if self.is_new_log() && !space.is_default() {
            return Err(space.not_in_a_log());
        }
        self.check_finished()?;
        self.open_as(batch, Strict::default())
    }

    /// Fails if a store on a device was begun here, and not finished: that is done with the options of before.
    pub fn check_finished(&self) -> Result<(), Failure> {
        if awaits_device(&self.path) { Err(missing(&self.path)) } else { Ok(()) }
    }

    fn open_as(&self, batch: &Batch, strict: Strict) -> Result<AnyStore, Failure> {
        let wanted = self.engine.map(EngineArg::engine);
        let opened = AnyStore::open_for(&self.path, wanted, self.options(strict), batch);
        opened.map_err(|error| match wanted {
            Some(wanted) if error.is_because(OTHER_ENGINE) => {
                Failure::with_next(error, other_engine(&self.path, wanted))
            }
            _ => self.advise(error),
        })
    }

    fn options(&self, strict: Strict) -> Options {
        let bytes = |size: Size| usize::try_from(size.0).unwrap_or(usize::MAX);
        let options = self.compressing.put_into(self.reusing.put_into(Options::default()));
        Options {
            memtable_bytes: bytes(self.memtable),
            cache_bytes: bytes(self.cache),
            strict_log: strict.strict,
            ..options
        }
    }

    fn is_new_log(&self) -> bool {
        self.engine == Some(EngineArg::Log) && self.is_new()
    }

    /// Places the tables of a new store on `device`, in zones of this size; the default depends on the device. Returns
    /// number and bytes of zones; for a zoned device these are not its own.
    pub fn format_on(&self, device: &Path, zone: Option<Size>, force: bool) -> Result<(u64, u64), Failure> {
        let bytes = FileDisk::look(device).map_or(0, |device| device.info().bytes());
        let zone_bytes = zone.map_or_else(|| zone_bytes_for(bytes), |zone| zone.0);
        let formatted = Store::format_on(&self.path, device, zone_bytes, force);
        formatted.map(|()| (bytes / zone_bytes, zone_bytes)).map_err(|error| match error.reason() {
            Some(kv::DEVICE_NOT_BLANK) => Failure::with_next(
                error,
                "look at what it holds (blkid, vellum kv); if that may be LOST, run it again with --force",
            ),
            Some(kv::DEVICE_OTHER) => Failure::with_next(
                error,
                "name that device; or, if what is there may be LOST, run it again with --force",
            ),
            Some(kv::STORE_EXISTS) => {
                Failure::with_next(error, "open it without --device: it knows where its tables are to be")
            }
            Some(kv::ZONES_UNFIT | media::ZONES_UNFIT) if !is_zoned(device) => {
                Failure::with_next(error, better_zones(bytes, zone_bytes))
            }
            _ => self.advise(error),
        })
    }

    /// Fails if the tables of an existing store are known to be in zones of another size.
    pub fn check_zone(&self, zone: Size) -> Result<(), Failure> {
        match Store::zone_bytes_of(&self.path) {
            Some(bytes) if bytes != zone.0 => {
                let what = format!("{} has zones of {}, and keeps them", self.name(), Size(bytes));
                Err(Failure::with_next(Error::invalid(what), "leave --zone out"))
            }
            _ => Ok(()),
        }
    }

    /// Notes that the tables of an existing store are now on `device`.
    pub fn move_to(&self, device: &Path) -> Result<(), Failure> {
        if self.path.is_file() {
            let error =
                Error::invalid(format!("{} is a file, which has all of its store in it", self.name()));
            return Err(Failure::with_next(error, "leave --device out, or name a directory"));
        }
        Store::move_to(&self.path, device).map_err(|error| match error.kind() {
            Kind::Invalid => Failure::with_next(
                error,
                "open it without --device: it is a store already, and knows where its tables are",
            ),
            Kind::Corrupt => {
                Failure::with_next(error, "name the device that the tables are on, or a copy of it")
            }
            _ => self.advise(error),
        })
    }

    /// Its name, for messages.
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// A failure of the store, with advice.
    pub fn advise(&self, error: Error) -> Failure {
        advise(error, &self.path)
    }

    /// True if there is no store yet.
    pub fn is_new(&self) -> bool {
        !is_store(&self.path)
    }

    /// Begins a flash image with this much room, and creates a store on it.
    pub fn begin_image(&self, room: Size, strict: Strict) -> Result<(NewImage, AnyStore), Failure> {
        if self.path.exists() {
            return Err(self.is_there());
        }
        let begun = || {
            let image = NewImage::begin(&self.path, room.0)?;
            let store = image.create(self.engine.map(EngineArg::engine), self.options(strict))?;
            Ok((image, store))
        };
        begun().map_err(|e| self.advise(e))
    }

    /// Gives a flash image whose store is closed its name.
    pub fn finish_image(&self, image: NewImage) -> Result<(), Failure> {
        image.finish().map_err(|error| match error.kind() {
            Kind::Invalid => self.is_there(),
            _ => self.advise(error),
        })
    }

    fn is_there(&self) -> Failure {
        let error = Error::invalid(format!("{} is there already", self.name()));
        Failure::with_next(error, "choose another path: nothing is replaced")
    }
}

/// The store, if its keys are ordered.
fn ordered(store: AnyStore, path: &Path) -> Result<Store, Failure> {
    match store {
        AnyStore::Lsm(store) => Ok(store),
        AnyStore::Log(_) => Err(has_no_order(path)),
    }
}

impl Range {
    /// True if it is unbounded.
    pub fn is_all(&self) -> bool {
        self.from.is_none() && self.to.is_none() && self.prefix.is_none()
    }

    /// As bounds of the store.
    pub fn bounds(&self) -> Result<Bounds> {
        let notation = self.hex.notation();
        let read = |text: &String| notation.read(text.as_bytes());
        let mut bounds = Bounds::all();
        if let Some(prefix) = &self.prefix {
            bounds = bounds.and(Bounds::prefix(&read(prefix)?));
        }
        if let Some(from) = &self.from {
            bounds = bounds.and(Bounds::from(&read(from)?));
        }
        if let Some(to) = &self.to {
            bounds = bounds.and(Bounds::all().until(&read(to)?));
        }
        Ok(bounds)
    }

    /// True if a bound is empty, which makes it no bound: an unset variable of a script, perhaps.
    pub fn has_empty(&self) -> bool {
        [&self.from, &self.to, &self.prefix].into_iter().flatten().any(String::is_empty)
    }

    /// Notation of keys and values.
    pub fn notation(&self) -> Notation {
        self.hex.notation()
    }
}

impl Hex {
    /// The notation.
    pub fn notation(self) -> Notation {
        Notation::of(self.hex)
    }

    /// The bytes of an argument of the command line.
    pub fn read(self, word: &OsStr) -> Result<Vec<u8>> {
        self.notation().read(word.as_bytes())
    }
}

/// A 128th of a device, so that merging has enough zones to work with.
fn zone_bytes_for(device_bytes: u64) -> u64 {
    let share = (device_bytes / 128).clamp(ZoneMedia::ZONE_BYTES_MIN, ZONE_BYTES);
    1 << share.ilog2()
}

/// What to do if zones of this size are refused on a device.
fn better_zones(device_bytes: u64, zone_bytes: u64) -> String {
    let (bytes_min, zones_min) = (ZoneMedia::ZONE_BYTES_MIN, u64::from(ZoneMedia::ZONES_MIN));
    let least = zones_min * bytes_min;
    let most = (device_bytes / zones_min).checked_ilog2().map_or(0, |log| 1 << log);
    match zone_bytes / bytes_min * bytes_min {
        _ if device_bytes < least => format!("take a device of {} or more", Size(least)),
        rounded if (bytes_min..=most).contains(&rounded) => format!("--zone {} would do", Size(rounded)),
        _ => format!("choose other zones: {} to {}", Size(bytes_min), Size(most)),
    }
}
