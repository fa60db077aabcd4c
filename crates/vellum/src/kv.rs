//! Key-value stores in directories and flash images of this machine: [`Store::open`] takes a path, and all of
//! `vellum_kv` is here.
//!
//! ```
//! use vellum::kv::{Batch, Bounds, Durability, Map, Options, Store};
//!
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("store");
//! let store = Store::open(&path, Options::default())?;
//! store.put(b"quire/1", b"four sheets")?;
//! let mut batch = Batch::new();
//! batch.put(b"quire/2", b"five sheets")?;
//! batch.delete(b"quire/1")?;
//! store.write(&batch, Durability::Sync)?; // both or none, and safe from a power cut
//!
//! assert_eq!(store.get(b"quire/2")?.as_deref(), Some(&b"five sheets"[..]));
//! let mut iter = store.iter(Bounds::prefix(b"quire/"))?;
//! iter.seek_to_first()?;
//! while iter.is_valid() {
//!     println!("{:?} = {:?}", iter.key(), iter.value());
//!     iter.next()?;
//! }
//! drop(iter);
//! store.close()?;
//! # Ok::<(), vellum::base::Error>(())
//! ```

pub use vellum_kv::*;

mod any;
mod building;
mod debubble;
mod fresh;
mod named;
mod new_image;

pub use any::AnyStore;
pub use building::{
    Building, awaits_device, has_remains, is_being_built, is_store, is_unfinished, lacks_current,
};
pub use debubble::{Compared, check_debubble, compare, debubble};
pub use named::named;
pub use new_image::NewImage;

use crate::reason::{NO_STORE_ON_IMAGE, STORE_UNFINISHED};
use fresh::Fresh;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use vellum_base::{BlockDevice, Env, Error, Geometry, Kind, RealEnv, Result, SECTOR_BYTES};
use vellum_disk::tools;
use vellum_kv::media::{Rehearsal, Tables, ZoneHome};
use vellum_media::nand::Nand;
use vellum_media::zones::open_device;
use vellum_media::{Coded, FileDisk, Image, ImageParams, Mended};

/// Channels of a flash image that is created for a store, and the size of its pages.
const CHANNELS: u32 = 4;
const PAGE_BYTES: u32 = 4096;
/// Number of tables for which such an image has room, unless they would be larger than this.
const TABLES: u64 = 256;
const TABLE_BYTES_MAX: u64 = 16 << 20;
/// Pages of an erase block that identify the table to which it belongs.
const TAG_PAGES: u32 = 2;

/// A [`vellum_kv::Store`] in a directory, with this machine's clock and threads. Share it between threads in an `Arc`.
/// Functions that take any [`Map`] accept `&*store`.
#[derive(Debug)]
pub struct Store(vellum_kv::Store);

impl Store {
    /// Opens the store in the directory or on the flash image `path`, exclusively for this process; creates one in a
    /// directory if there is none and the options say so. With [`Options::read_only`] nothing there is changed, and
    /// others may read it concurrently. If opening fails, nothing is left where there was nothing, and the error names
    /// the store.
    ///
    /// If the store was made with [`Store::format_on`], its tables are on the device named there.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Store> {
        let (path, env) = (path.as_ref(), RealEnv::new());
        let fresh = Fresh::at(path, options.read_only);
        let media = media_at(path, options.read_only);
        let opened = media.and_then(|media| vellum_kv::Store::open(media, env, options));
        opened.map(Store).inspect_err(|_| fresh.undo()).map_err(|e| named(e, path))
    }

    /// Prepares the directory `path` for a store with tables on a separate device: a partition or a file, divided into
    /// zones of `zone_bytes`, or a host-managed zoned device, with its own zones. A device that is not blank is refused
    /// unless `force`d; its contents are then lost.
    pub fn format_on(path: impl AsRef<Path>, device: &Path, zone_bytes: u64, force: bool) -> Result<()> {
        let path = path.as_ref();
        format_at(path, device, zone_bytes, force).map_err(|e| named(e, path))
    }

    /// Notes that the tables of the store in `path`, made with [`Store::format_on`], are now on `device` and belong to
    /// this directory: both were copied, or restored from a backup, or the device was renamed. If it is a copy, and the
    /// original uses the same device, what the original has written since is lost.
    ///
    /// Does the same if the file ZONES is lost, by which the directory knows its device: all tables of the store have
    /// to be there.
    pub fn move_to(path: impl AsRef<Path>, device: &Path) -> Result<()> {
        let path = path.as_ref();
        move_at(path, device).map_err(|e| named(e, path))
    }

    /// The device with the tables of the store in `path`; None if they are in its directory or image.
    pub fn device_of(path: impl AsRef<Path>) -> Option<String> {
        home_of(path.as_ref()).map(|home| home.device)
    }

    /// Bytes of a zone on that device.
    pub fn zone_bytes_of(path: impl AsRef<Path>) -> Option<u64> {
        home_of(path.as_ref()).map(|home| home.zone_bytes)
    }

    /// Creates a flash image at `path`, where nothing may exist yet, with room for this many bytes of tables: what
    /// [`FlashMedia`] needs, in one file, with the NVRAM for log and manifest. Whole, or not at all ([`NewImage`]).
    pub fn format_flash(path: impl AsRef<Path>, bytes: u64) -> Result<()> {
        NewImage::begin(path, bytes)?.finish()
    }

    /// Makes a store in the directory `path`, which must be empty or not exist, with the current contents of this one
    /// ([`Map::checkpoint`]): whole, or not at all ([`Building`]).
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        checkpoint(&self.0, path.as_ref())
    }

    /// Makes a store from the remains of the one in the directory or on the flash image `path`, which must not be open.
    /// Changes nothing if nothing is wrong. Returns what was wrong with the image, if it is one, and with the store.
    pub fn repair(path: impl AsRef<Path>) -> Result<(Mended, Repaired)> {
        let path = path.as_ref();
        repair_at(path, false, Ok).map_err(|e| named(e, path))
    }

    /// Returns what [`Store::repair`] would, without changing anything: rewritten data goes to the directory for
    /// temporary files meanwhile. It does not check that there is room for the repair.
    pub fn rehearse_repair(path: impl AsRef<Path>) -> Result<(Mended, Repaired)> {
        let path = path.as_ref();
        let aside = tempfile::tempdir().map_err(|e| Error::io("make a directory for temporary files", e))?;
        let rehearsed = |media| {
            let into = Directory::open(aside.path(), DirectoryOptions::default())?;
            Ok(Rehearsal::over(media, into) as Arc<dyn Media>)
        };
        repair_at(path, true, rehearsed).map_err(|e| named(e, path))
    }

    /// What is wrong with the flash image `path`, apart from the store on it; nothing for a directory.
    pub fn image_problems(path: impl AsRef<Path>) -> Result<Mended> {
        match path.as_ref().is_file() {
            true => Image::problems(path.as_ref()).map_err(|e| named(e, path.as_ref())),
            false => Ok(Mended::default()),
        }
    }

    /// Contents and statistics of the store in the directory or on the flash image `path`, as of the last edit of its
    /// manifest, even if it is open elsewhere. Nothing is locked, and nothing is written. `None` if there is no store.
    pub fn glance(path: impl AsRef<Path>) -> Result<Option<Glance>> {
        let path = path.as_ref();
        let glance = match path.is_dir() {
            true => Directory::look(path).and_then(|look| Glance::of(&*look)),
            false if path.is_file() => Image::nvram(path).and_then(|nvram| Glance::of_nvram(&nvram)),
            false => Ok(None),
        };
        glance.map_err(|e| named(e, path))
    }

    /// See [`vellum_kv::Store::close`].
    pub fn close(self) -> Result<()> {
        self.0.close()
    }
}

fn checkpoint(store: &dyn Map, path: &Path) -> Result<()> {
    let building = Building::begin(path)?;
    let into: Arc<dyn Media> = Directory::open(&building.path(), DirectoryOptions::default())?;
    store.checkpoint(&into)?;
    drop(into);
    building.finish()
}

/// Where the tables of the store in `path` are, if it says so.
fn home_of(path: &Path) -> Option<ZoneHome> {
    ZoneMedia::home_of(&*Directory::look(path).ok()?).ok()?
}

fn format_at(path: &Path, device: &Path, zone_bytes: u64, force: bool) -> Result<()> {
    let text = &real_name(device)?;
    let zones = open_device(Path::new(text), zone_bytes, false)?;
    let env = RealEnv::new();
    let id = (u128::from(env.random()) << 64 | u128::from(env.random())).to_be_bytes();
    let fresh = Fresh::at(path, false);
    let directory = Directory::open(path, DirectoryOptions::default())?;
    ZoneMedia::format(&directory, &*zones, text, id, force).inspect_err(|_| {
        drop(directory);
        // Once the directory names the device, that may have its label: the next try needs the name.
        if !awaits_device(path) {
            fresh.undo();
        }
    })
}

fn move_at(path: &Path, device: &Path) -> Result<()> {
    let text = &real_name(device)?;
    let directory = Directory::open(path, DirectoryOptions::default())?;
    match ZoneMedia::home_of(&directory) {
        Ok(Some(home)) => {
            let zones = open_device(Path::new(text), home.zone_bytes, true)?;
            ZoneMedia::move_to(&directory, &*zones, text)
        }
        Ok(None) => {
            let (tables, there) = (tables_of(&directory)?, directory.tables()?);
            match tables.is_empty() || tables.iter().any(|(number, _)| there.contains(number)) {
                true => Err(Error::invalid("the store has its tables in its directory")),
                false => restore_at(&directory, text, &tables),
            }
        }
        Err(error) if error.kind() == Kind::Corrupt => restore_at(&directory, text, &tables_of(&directory)?),
        Err(error) => Err(error),
    }
}

/// For a directory that does not say any more where its tables are.
fn restore_at(directory: &Directory, device: &str, tables: &[(u64, u64)]) -> Result<()> {
    let path = Path::new(device);
    // The label is at the front, however large zones are. All of the device as one zone is opened at once.
    let sectors = FileDisk::look(path)?.info().sectors.max(1);
    let zone_bytes =
        ZoneMedia::zone_bytes_on(&*open_device(path, sectors * SECTOR_BYTES as u64, true)?, device)?;
    ZoneMedia::restore(directory, &*open_device(path, zone_bytes, true)?, device, tables)
}

/// Number and bytes of each table that the manifest in a directory names.
fn tables_of(directory: &Directory) -> Result<Vec<(u64, u64)>> {
    Ok(Glance::of(directory)?.map_or_else(Vec::new, |glance| glance.tables))
}

/// A flash image with room for this many bytes of tables.
fn params_of(bytes: u64) -> Result<ImageParams> {
    let geometry = geometry_of(bytes)?;
    let table_bytes = u64::from(CHANNELS * (geometry.pages_per_block - TAG_PAGES) * PAGE_BYTES);
    // A log for each memtable that may be pending, as large as a table, and some more for manifests.
    let nvram_bytes = (10 * table_bytes).max(1 << 20) as usize;
    let label = "vellum kv".to_string();
    Ok(ImageParams { nvram_bytes, label, ..ImageParams::new(geometry) })
}

/// The path of a device in the form that is recorded.
fn real_name(device: &Path) -> Result<String> {
    let name = device.canonicalize().map_err(|e| Error::io(format!("open {}", device.display()), e))?;
    name.into_os_string().into_string().map_err(|_| Error::invalid("the device's path is not UTF-8"))
}

fn geometry_of(bytes: u64) -> Result<Geometry> {
    let page_row = u64::from(CHANNELS * PAGE_BYTES);
    let rows = (bytes / TABLES / page_row).clamp(16, TABLE_BYTES_MAX / page_row);
    let blocks = u32::try_from(bytes / (rows * page_row)).unwrap_or(u32::MAX);
    if blocks < 32 {
        return Err(Error::invalid(format!(
            "{bytes} bytes of flash are too few for a store: 8 MiB is the least"
        )));
    }
    Ok(Geometry {
        channels: CHANNELS,
        dies_per_channel: 1,
        blocks_per_die: blocks,
        pages_per_block: rows as u32 + TAG_PAGES,
        page_bytes: PAGE_BYTES,
        oob_bytes: 0,
    })
}

/// The medium on a flash image. If no store is on it, the error says what is, as far as that is known: advice to format
/// it would cost a disk.
fn flash_media(path: &Path, flash: Coded<Nand>) -> Result<Arc<dyn Media>> {
    let flash = Arc::new(flash);
    match FlashMedia::open(flash.clone(), RealEnv::new()) {
        Err(error) if error.is_because(reason::NO_STORE_ON_FLASH) => {
            let is_disk = tools::inspect(&*flash).is_ok_and(|inspected| !inspected.roots.is_empty());
            let is = if is_disk { "a Vellum disk" } else { "a flash image" };
            let what = format!("{} is {is}, and holds no key-value store", path.display());
            Err(Error::new(Kind::Io, what).because(NO_STORE_ON_IMAGE))
        }
        opened => Ok(opened?),
    }
}

/// The medium of a store to be repaired, and what was wrong with its image.
fn media_to_repair(path: &Path, read_only: bool) -> Result<(Arc<dyn Media>, Mended)> {
    if !path.is_file() {
        return Ok((media_at(path, read_only)?, Mended::default()));
    }
    let (flash, mended) = Image::open_to_repair(path, read_only)?;
    Ok((flash_media(path, flash)?, mended))
}

/// Repairs the store at `path`, on the medium that `on` derives from its own.
fn repair_at(
    path: &Path,
    read_only: bool,
    on: impl FnOnce(Arc<dyn Media>) -> Result<Arc<dyn Media>>,
) -> Result<(Mended, Repaired)> {
    let fresh = Fresh::at(path, read_only);
    let repaired = media_to_repair(path, read_only).and_then(|(media, mended)| {
        match on(media).and_then(|media| repair_of_any(&media)) {
            Ok(repaired) => Ok((mended, repaired)),
            Err(error) => Err(mended.with(error)),
        }
    });
    repaired.inspect_err(|_| fresh.undo())
}

/// Repairs a store of either engine.
fn repair_of_any(media: &Arc<dyn Media>) -> Result<Repaired> {
    let env = RealEnv::new() as Arc<dyn Env>;
    match Engine::of_remains(&**media)? {
        Some(Engine::Log) => vellum_kv::log::repair(media, &env, &vellum_kv::log::Options::default()),
        _ => repair(media, &env, &Options::default()),
    }
}

/// The medium of the store at `path`: a directory, possibly with a device for its tables, or a flash image.
pub(crate) fn media_at(path: &Path, read_only: bool) -> Result<Arc<dyn Media>> {
    if path.is_file() {
        return flash_media(path, Image::open(path, read_only)?);
    }
    if is_being_built(path) {
        return Err(Error::new(Kind::Busy, format!("{} is being made by another process", path.display())));
    }
    let unfinished = || {
        let what = format!("{} holds a store that was not finished", path.display());
        Error::new(Kind::Io, what).because(STORE_UNFINISHED)
    };
    if is_unfinished(path) {
        return Err(unfinished());
    }
    let how = DirectoryOptions::default();
    let directory = match read_only {
        true => Directory::open_read_only(path, how)?,
        false => Directory::open(path, how)?,
    };
    Ok(match ZoneMedia::home_of(&directory)? {
        Some(home) => {
            let zones = open_device(Path::new(&home.device), home.zone_bytes, read_only)?;
            ZoneMedia::open(directory, zones).map_err(|e| match e.kind() {
                Kind::Corrupt if awaits_device(path) => unfinished(),
                _ => e,
            })?
        }
        None if awaits_device(path) => return Err(unfinished()),
        None => directory,
    })
}

impl Deref for Store {
    type Target = vellum_kv::Store;

    fn deref(&self) -> &vellum_kv::Store {
        &self.0
    }
}
