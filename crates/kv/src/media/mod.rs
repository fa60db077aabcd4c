//! Where a store keeps its bytes: the interface between an engine and flash, files or zones.
//!
//! A medium holds **tables**, which are large: written once from front to back, read at random, erased as a whole;
//! **areas** (logs and manifests), which are small: appended to, synced often, read when the store is opened, removed
//! as a whole; and CURRENT, a few bytes that are replaced atomically.
//!
//! Every implementation promises:
//! 1. When [`TableWriter::finish`] returns, the table is durable. A table that was not finished when the power failed
//!    is gone, or is listed and can be erased.
//! 2. What was appended to an area before [`AreaWriter::sync`] is durable. Of what was appended later any part may
//!    survive, possibly torn.
//! 3. [`Media::set_current`] is atomic with respect to power loss, and durable when it returns.
//! 4. Removals are not undone: once something after a removal was made durable, the removed thing stays removed, or
//!    reappears only under its old number.
//! 5. Numbers are assigned by the engine, which never uses one twice.
//! 6. A call that fails with [`vellum_base::Kind::NoSpace`] had no effect that counts: part of what was to be appended
//!    may lie behind the end, where the next append overwrites it. Syncs never fail with it.

mod dir;
mod flash;
mod patient;
mod readonly;
mod rehearsal;
mod zones;

pub(crate) use dir::ZONES;
pub(crate) use dir::fuzzed as fuzzed_tail;
pub use dir::{Directory, DirectoryOptions, Files, Handle, Mapping, Memory};
pub(crate) use flash::fuzzed as fuzzed_flash;
pub use flash::{FlashMedia, Relinking, Schedule};
pub(crate) use patient::Patient;
pub(crate) use readonly::{ReadOnly, refused};
pub use rehearsal::Rehearsal;
pub(crate) use zones::fuzzed as fuzzed_zones;
pub use zones::{ZoneHome, ZoneMedia};

use crate::journal::Area;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_base::{Cause, Env, Error, IoClass, LedgerSnapshot, Nanos, Result};

/// Least capacity of a table, in bytes.
const TABLE_BYTES_LEAST: u64 = 8 << 10;

/// An error unless the target of a copy is empty.
pub(crate) fn check_empty(media: &dyn Media) -> Result<()> {
    match media.current()?.is_none() && media.tables()?.is_empty() && media.areas()?.is_empty() {
        true => Ok(()),
        false => Err(Error::invalid("a copy goes where there is nothing yet")),
    }
}

/// An error if tables of this medium are too short to hold anything.
pub(crate) fn check_shape(shape: &MediaShape) -> Result<()> {
    match shape.table_bytes {
        bytes if bytes < TABLE_BYTES_LEAST => {
            Err(Error::invalid(format!("tables of {bytes} bytes: {TABLE_BYTES_LEAST} are the least")))
        }
        _ => Ok(()),
    }
}

/// An error if part of a table is known to be lost: a store that went on without it would lose more.
pub(crate) fn check_whole(table: &dyn TableReader) -> Result<()> {
    match table.lost_bytes() {
        0 => Ok(()),
        lost => {
            Err(Error::corrupt(format!("{lost} bytes of it are lost; `vellum kv repair` saves the rest")))
        }
    }
}

/// The number under which a medium lists remains that cannot be attributed to a table. The engine assigns it to no
/// table.
pub(crate) const NAMELESS: u64 = 0;

/// See the module.
pub trait Media: Send + Sync {
    /// Sizes and properties of the medium.
    fn shape(&self) -> MediaShape;

    /// How many tables can be created now; [`u64::MAX`] if that cannot be told in advance.
    fn tables_free(&self) -> u64;
    /// How many tables have room where these are, once they are erased. Fewer than these if others share with them.
    fn tables_in_place_of(&self, tables: &[u64]) -> u64 {
        tables.len() as u64
    }
    /// How many tables can be written concurrently.
    fn tables_written_max(&self) -> usize {
        usize::MAX
    }
    /// Free room in bytes, where a table takes only as many bytes as it has; else `None`.
    fn room_bytes(&self) -> Option<u64> {
        None
    }
    /// Free room plus what the existing tables take, in bytes: this stays the same as a store grows. `None` as for
    /// [`Media::room_bytes`].
    fn all_bytes(&self) -> Option<u64> {
        None
    }
    /// Begins to write a table.
    fn create_table(&self, number: u64, intent: Intent) -> Result<Box<dyn TableWriter>>;
    /// Opens a finished table for reading; an error of kind `Corrupt` if there is none.
    fn open_table(&self, number: u64) -> Result<Arc<dyn TableReader>>;
    /// Erases a table, finished or not. `Ok` if there is none.
    fn erase_table(&self, number: u64) -> Result<()>;
    /// The numbers of all tables of which there is any trace, finished or not; 0 stands for remains that cannot be
    /// attributed to one.
    fn tables(&self) -> Result<Vec<u64>>;

    /// The path of a finished table, where it is a file of the host. Nobody writes to it any more.
    fn table_path(&self, number: u64) -> Option<PathBuf> {
        let _ = number;
        None
    }
    /// Takes over a finished table from a file of the host without copying it (by a hard link). False if that is not
    /// possible. Durable once an area that was created later is synced.
    fn adopt_table(&self, number: u64, from: &Path) -> Result<bool> {
        let _ = (number, from);
        Ok(false)
    }

    /// How two tables can share bytes that are written once, in units of `unit_bytes`. May write to the medium to try
    /// it out.
    fn sharing(&self, unit_bytes: u64) -> Result<Sharing> {
        let _ = unit_bytes;
        Ok(Sharing::None)
    }
    /// True once the medium has refused sharing for good, contrary to what [`Media::sharing`] found.
    fn sharing_refused(&self) -> bool {
        false
    }

    /// The highest number of any table of which there is a trace, even of one that is no longer listed.
    fn highest_table(&self) -> u64 {
        0
    }
    /// How tables are placed on superblocks; `None` except on flash.
    fn placement(&self) -> Option<Placement> {
        None
    }
    /// Inconsistencies in the medium's own accounts of tables, as messages; empty if there are none.
    fn problems(&self) -> Vec<String> {
        Vec::new()
    }

    /// Creates an area.
    fn create_area(&self, area: Area) -> Result<Arc<dyn AreaWriter>>;
    /// Reads an area as a whole. Stale or torn bytes may follow its end.
    fn read_area(&self, area: Area) -> Result<Vec<u8>>;
    /// Makes durable what an area from before this opening holds.
    fn sync_area(&self, area: Area) -> Result<()>;
    /// Allows the medium to discard what an area from before this opening holds beyond `bytes`.
    fn trim_area(&self, area: Area, bytes: u64) -> Result<()> {
        let _ = (area, bytes);
        Ok(())
    }
    /// Removes an area. `Ok` if there is none.
    fn remove_area(&self, area: Area) -> Result<()>;
    /// Makes removals of areas durable, so that none is undone while a later one persists.
    fn sync_removals(&self) -> Result<()>;
    /// True if areas may be kept beside tables for long, and be read at random.
    fn keeps_areas(&self) -> bool {
        false
    }
    /// Opens an area for random reads; nobody writes to it any more.
    fn open_area(&self, area: Area) -> Result<Arc<dyn AreaReader>> {
        Err(Error::corrupt(format!("{area} cannot be read at random here")))
    }
    /// The path of an area, where it is a file of the host.
    fn area_path(&self, area: Area) -> Option<PathBuf> {
        let _ = area;
        None
    }
    /// [`Media::adopt_table`] for an area.
    fn adopt_area(&self, area: Area, from: &Path) -> Result<bool> {
        let _ = (area, from);
        Ok(false)
    }
    /// All areas of which there is any trace.
    fn areas(&self) -> Result<Vec<Area>>;

    /// CURRENT as it was last set; `None` if it never was. An error if it cannot be read.
    fn current(&self) -> Result<Option<Vec<u8>>>;
    /// Replaces CURRENT by `bytes`, at most 64.
    fn set_current(&self, bytes: &[u8]) -> Result<()>;

    /// Bytes written since the medium was opened, by cause: programmed to flash, or handed to the file system.
    fn ledger(&self) -> LedgerSnapshot;
}

/// The usual [`MediaShape::unit_bytes`]. Media that can share smaller pieces have a smaller one.
pub(crate) const UNIT_BYTES: u64 = 4096;

/// Sizes and properties of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaShape {
    /// Nominal capacity of a table in bytes. That of a particular one may be lower ([`TableWriter::capacity`]).
    pub table_bytes: u64,
    /// Bytes of a unit: objects in a table begin at multiples of it, and tables share whole units.
    pub unit_bytes: u64,
    /// Capacity of a log in bytes.
    pub log_bytes: u64,
    /// Most logs that exist at a time; at least six.
    pub logs_max: usize,
    /// Capacity of a manifest in bytes.
    pub manifest_bytes: u64,
    /// True if every table takes the room of a full one, however short it is (superblocks, zones).
    pub whole_tables: bool,
    /// True if areas are files. Manifests and CURRENT are in the ledger then, and what was removed never reappears.
    pub areas_are_files: bool,
}

/// How two tables share bytes that are stored once (docs/decisions/0021).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// They do not, as far as the medium knows.
    #[default]
    None,
    /// The file system clones ranges of files.
    Reflink,
    /// The device maps the same sectors at a second address.
    Remap,
    /// Leaves stay where they are on flash, and tables list what they consist of.
    Relink,
}

impl Sharing {
    /// Stable name, as in `--json`.
    pub const fn name(self) -> &'static str {
        match self {
            Sharing::None => "none",
            Sharing::Reflink => "reflink",
            Sharing::Remap => "remap",
            Sharing::Relink => "relink",
        }
    }

    /// Islands of fewer bytes are not worth the time that sharing takes: a clone is a transaction of the file system,
    /// however short; a remap is only a record in a log.
    pub(crate) fn island_bytes_min(self) -> u64 {
        match self {
            Sharing::Reflink => 32 << 10,
            Sharing::None | Sharing::Remap | Sharing::Relink => 0,
        }
    }
}

/// How tables are placed on the superblocks of flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Superblocks of the device.
    pub superblocks: u64,
    /// Of these, erased or about to be.
    pub free: u64,
    /// Superblocks whose own table is gone, but which other tables still use in part.
    pub pinned: u64,
    /// Capacity of the pinned ones in bytes.
    pub pinned_bytes: u64,
    /// Of that capacity, bytes that tables use.
    pub pinned_live_bytes: u64,
    /// Runs (extents) that all tables consist of ([`Relinking::runs_max`]).
    pub runs: u64,
    /// Superblocks written by collection since the flash was opened.
    pub collections: u64,
    /// Bytes that collection copied.
    pub collected_bytes: u64,
}

/// Why and how a table is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intent {
    /// The cause that its bytes are booked under.
    pub cause: Cause,
    /// Priority of its requests.
    pub class: IoClass,
    /// How many channels it may keep busy.
    pub parallelism: Parallelism,
}

impl Intent {
    /// For tables of a checkpoint.
    pub(crate) const COPY: Intent =
        Intent { cause: Cause::Flush, class: IoClass::Background, parallelism: Parallelism::Full };
}

/// How many of the channels are written to at a time. Ignored by media without channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parallelism {
    /// All.
    #[default]
    Full,
    /// One half, then the other: clients' reads from the idle half do not wait for programs (FlashKV, section 3.3).
    Half,
}

/// The result of [`TableReader::ask`].
pub enum Asked {
    /// The bytes, and when modelled flash would deliver them (0: at once).
    There(Vec<u8>, Nanos),
    /// A read in progress; the closure waits for it.
    Coming(Box<dyn FnOnce() -> Result<Vec<u8>> + Send>),
}

impl Asked {
    /// Waits for the bytes.
    pub fn wait(self, env: &dyn Env) -> Result<Vec<u8>> {
        match self {
            Asked::There(bytes, at) => {
                env.sleep_until(at);
                Ok(bytes)
            }
            Asked::Coming(wait) => wait(),
        }
    }
}

/// Where whole units are stored: an offset in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// A finished table that exists.
    pub table: u64,
    /// In bytes; a multiple of [`MediaShape::unit_bytes`].
    pub offset: u64,
}

/// Writes one table. If it is dropped without [`TableWriter::finish`], the table is erased.
pub trait TableWriter: Send {
    /// Capacity of this table in bytes. It may grow as units are shared.
    fn capacity(&self) -> u64;
    /// Promises that nothing stored will be appended: the capacity may grow.
    fn links_nothing(&mut self) {}
    /// Appends whole units ([`MediaShape::unit_bytes`]).
    fn append(&mut self, bytes: &[u8]) -> Result<()>;
    /// Appends whole units that are also stored at `from`. A medium that can share them does not write them. Returns
    /// how many bytes it did not write.
    fn append_stored(&mut self, bytes: &[u8], from: Stored) -> Result<u64> {
        let _ = from;
        self.append(bytes).map(|()| 0)
    }
    /// False if [`TableWriter::append_stored`] would write these `bytes` at `from` all the same; the caller then packs
    /// them instead of writing a bubble. Called once for all unchanged bytes, before they are appended in either way.
    fn would_share(&mut self, bytes: u64, from: Stored) -> bool {
        let _ = (bytes, from);
        true
    }
    /// Notes that `bytes` of values are left in a log and not written to the table, for the ledger.
    fn leaves_in_log(&mut self, bytes: u64) {
        let _ = bytes;
    }
    /// Ends the table and makes it durable. `bubbles` of its bytes are booked as bubbles.
    fn finish(self: Box<Self>, bubbles: u64) -> Result<()>;
}

/// Reads one finished table.
pub trait TableReader: Send + Sync {
    /// Reads at `offset`, a multiple of [`MediaShape::unit_bytes`]. The bytes are in `out` when this returns. The
    /// result is when modelled flash would deliver them: the caller sleeps until then.
    fn read(&self, offset: u64, out: &mut [u8], class: IoClass) -> Result<Nanos>;

    /// Bytes of the table, or an upper limit where that is not known. Some media read all of it to find out.
    fn bytes(&self) -> Result<u64>;

    /// Bytes of a table that has `told` bytes according to the manifest: `told`, unless the medium knows its length
    /// without reading it.
    fn bytes_if_told(&self, told: u64) -> Result<u64> {
        let _ = told;
        self.bytes()
    }

    /// Bytes of the table that are known to be lost; reading them fails.
    fn lost_bytes(&self) -> u64 {
        0
    }

    /// The whole table mapped into memory, if the medium can do that.
    fn map(&self) -> Option<Arc<Mapping>> {
        None
    }

    /// True if [`TableReader::announce`] has an effect.
    fn listens(&self) -> bool {
        false
    }

    /// Announces a range that will be read soon, so that it can be read ahead. The call itself may block for a while.
    fn announce(&self, offset: u64, bytes: u64) {
        let _ = (offset, bytes);
    }

    /// True if [`TableReader::ask`] blocks until the device has read. To do something else meanwhile, call it in a task
    /// of its own.
    fn asking_waits(&self) -> bool {
        false
    }

    /// Begins to read `bytes` at `offset`, to be waited for later. By default it reads at once.
    fn ask(&self, offset: u64, bytes: usize, class: IoClass) -> Result<Asked> {
        let mut out = vec![0; bytes];
        let at = self.read(offset, &mut out, class)?;
        Ok(Asked::There(out, at))
    }
}

/// A table bounded to the length that the manifest states: a medium that does not know where a table ends might read
/// past its end.
pub(crate) struct ToldReader {
    reader: Arc<dyn TableReader>,
    bytes: u64,
}

impl ToldReader {
    pub(crate) fn on(reader: Arc<dyn TableReader>, told_bytes: u64) -> Result<Arc<dyn TableReader>> {
        let bytes = reader.bytes_if_told(told_bytes)?;
        Ok(Arc::new(ToldReader { reader, bytes }))
    }
}

impl TableReader for ToldReader {
    fn read(&self, offset: u64, out: &mut [u8], class: IoClass) -> Result<Nanos> {
        self.reader.read(offset, out, class)
    }
    fn bytes(&self) -> Result<u64> {
        Ok(self.bytes)
    }
    fn lost_bytes(&self) -> u64 {
        self.reader.lost_bytes()
    }
}

/// Random access to an area that nobody writes to any more.
pub trait AreaReader: Send + Sync {
    /// Length of the area in bytes.
    fn bytes(&self) -> Result<u64>;
    /// Reads at `offset`, which need not be aligned.
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()>;

    /// The whole area mapped into memory, if the medium can do that.
    fn map(&self) -> Option<Arc<Mapping>> {
        None
    }
}

/// Appends to one area. Only one task appends at a time; others may sync concurrently.
pub trait AreaWriter: Send + Sync {
    /// Appends at `offset`, which is where the last successful append ended.
    fn append(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Makes everything appended before this call durable.
    fn sync(&self) -> Result<()>;
    /// Lets the end of the area be held in memory that survives the process, if the medium has such memory
    /// ([`crate::Options::map_files`]). It may allocate up to `ahead_bytes` of the file in advance.
    fn map(&self, ahead_bytes: u64) {
        let _ = ahead_bytes;
    }
    /// Writes what is held, and frees what was allocated in advance. Further appends are possible, but are not held.
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}
