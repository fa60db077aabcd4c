//! Where a store's bytes live: the seam between the engine and flash, files, zones.
//!
//! Two things live here. **Tables** are big: written once from front to back, read at random, erased whole. **Areas**
//! are small: appended to, made safe often, read at opening, removed whole. And there is CURRENT, a few bytes
//! replaced atomically.
//!
//! What every implementation promises
//! 1. [`TableWriter::finish`] returns when the table is safe from a power cut; a table that was not finished when the
//!    power went is gone, or is listed and can be erased.
//! 2. What was appended to an area before [`AreaWriter::sync`] survives. Of what was appended later any part may
//!    survive, torn.
//! 3. [`Media::set_current`] has happened whole or not at all when the power goes, and is safe when it returns.
//! 4. Removing is not undone later: once a removal returned and something after it was made safe, it stays removed, or
//!    what comes back is under its old number.
//! 5. Numbers are the engine's, who uses none twice.
//! 6. What fails with [`vellum_base::Kind::NoSpace`] changed nothing that counts: a part of what was appended may be
//!    there, behind the end, and the next append goes over it. Syncs never fail so.

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

/// Fewest bytes of a table.
const TABLE_BYTES_LEAST: u64 = 8 << 10;

/// An error unless there is nothing on a medium that a copy is to go to.
pub(crate) fn check_empty(media: &dyn Media) -> Result<()> {
    match media.current()?.is_none() && media.tables()?.is_empty() && media.areas()?.is_empty() {
        true => Ok(()),
        false => Err(Error::invalid("a copy goes where there is nothing yet")),
    }
}

/// An error if tables are so short that none holds anything.
pub(crate) fn check_shape(shape: &MediaShape) -> Result<()> {
    match shape.table_bytes {
        bytes if bytes < TABLE_BYTES_LEAST => {
            Err(Error::invalid(format!("tables of {bytes} bytes: {TABLE_BYTES_LEAST} are the least")))
        }
        _ => Ok(()),
    }
}

/// An error if a part of a table is known to be lost: a store that went on without would lose more.
pub(crate) fn check_whole(table: &dyn TableReader) -> Result<()> {
    match table.lost_bytes() {
        0 => Ok(()),
        lost => {
            Err(Error::corrupt(format!("{lost} bytes of it are lost; `vellum kv repair` saves the rest")))
        }
    }
}

/// The number under which a medium lists what may have been any table, or none. The engine gives it to none.
pub(crate) const NAMELESS: u64 = 0;

/// See the module.
pub trait Media: Send + Sync {
    /// What the engine must know of its medium.
    fn shape(&self) -> MediaShape;

    /// How many tables can be created now; [`u64::MAX`] where that cannot be told beforehand.
    fn tables_free(&self) -> u64;
    /// How many tables can be written at a time.
    fn tables_written_max(&self) -> usize {
        usize::MAX
    }
    /// Where tables take as many bytes as they have: how many more there is room for.
    fn room_bytes(&self) -> Option<u64> {
        None
    }
    /// The same, and what the tables that are there take: what does not change as a store grows.
    fn all_bytes(&self) -> Option<u64> {
        None
    }
    /// Begins a table.
    fn create_table(&self, number: u64, intent: Intent) -> Result<Box<dyn TableWriter>>;
    /// A finished table.
    fn open_table(&self, number: u64) -> Result<Arc<dyn TableReader>>;
    /// Gives up a table, finished or not. `Ok` if there is none.
    fn erase_table(&self, number: u64) -> Result<()>;
    /// Every table there is any trace of; 0 is what may have been any, or none.
    fn tables(&self) -> Result<Vec<u64>>;

    /// Where a finished table is a file of the host, which file. Nobody writes to it.
    fn table_path(&self, number: u64) -> Option<PathBuf> {
        let _ = number;
        None
    }
    /// Takes a finished table over from a file of the host without copying it. False if that cannot be done. Safe when
    /// an area that was made later is synced.
    fn adopt_table(&self, number: u64, from: &Path) -> Result<bool> {
        let _ = (number, from);
        Ok(false)
    }

    /// How two tables can have the same bytes without their being written twice, in units of so many. May try it out.
    fn sharing(&self, unit_bytes: u64) -> Result<Sharing> {
        let _ = unit_bytes;
        Ok(Sharing::None)
    }
    /// True once the medium has said, against what [`Media::sharing`] found, that it never can.
    fn sharing_refused(&self) -> bool {
        false
    }

    /// The highest number of a table of which there is any trace, though it may be listed no more.
    fn highest_table(&self) -> u64 {
        0
    }
    /// How tables lie on superblocks, where they do.
    fn placement(&self) -> Option<Placement> {
        None
    }
    /// What is wrong with what the medium knows of its tables, in words.
    fn problems(&self) -> Vec<String> {
        Vec::new()
    }

    /// Begins an area.
    fn create_area(&self, area: Area) -> Result<Arc<dyn AreaWriter>>;
    /// Everything in an area, and what may follow its end: stale or torn bytes.
    fn read_area(&self, area: Area) -> Result<Vec<u8>>;
    /// Makes safe what an area of an earlier life holds.
    fn sync_area(&self, area: Area) -> Result<()>;
    /// What an area of an earlier life has behind so many bytes is of no use, and need not be kept.
    fn trim_area(&self, area: Area, bytes: u64) -> Result<()> {
        let _ = (area, bytes);
        Ok(())
    }
    /// Gives up an area. `Ok` if there is none.
    fn remove_area(&self, area: Area) -> Result<()>;
    /// Makes removals of areas safe, so that none is undone while a later one is not.
    fn sync_removals(&self) -> Result<()>;
    /// True if areas that were written may stay for long, beside tables, and be read at random.
    fn keeps_areas(&self) -> bool {
        false
    }
    /// An area that nobody writes to any more.
    fn open_area(&self, area: Area) -> Result<Arc<dyn AreaReader>> {
        Err(Error::corrupt(format!("{area} cannot be read at random here")))
    }
    /// Where an area is a file of the host, which file.
    fn area_path(&self, area: Area) -> Option<PathBuf> {
        let _ = area;
        None
    }
    /// [`Media::adopt_table`], of an area.
    fn adopt_area(&self, area: Area, from: &Path) -> Result<bool> {
        let _ = (area, from);
        Ok(false)
    }
    /// Every area there is any trace of.
    fn areas(&self) -> Result<Vec<Area>>;

    /// CURRENT, as last set. `None` before the first time. An error if it was set and cannot be read.
    fn current(&self) -> Result<Option<Vec<u8>>>;
    /// Replaces CURRENT, at most 64 bytes.
    fn set_current(&self, bytes: &[u8]) -> Result<()>;

    /// Bytes written by cause: what was programmed to flash, or handed to the file system.
    fn ledger(&self) -> LedgerSnapshot;
}

/// [`MediaShape::unit_bytes`], unless a medium can have what is smaller in two tables at once.
pub(crate) const UNIT_BYTES: u64 = 4096;

/// What the engine must know of its medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaShape {
    /// Most bytes of a table, as a rule. A writer may have less ([`TableWriter::capacity`]).
    pub table_bytes: u64,
    /// What a table is made of begins at multiples of so many bytes; what two tables have once is whole units of so
    /// many.
    pub unit_bytes: u64,
    /// Most bytes of a log.
    pub log_bytes: u64,
    /// Most logs at a time; at least six.
    pub logs_max: usize,
    /// Most bytes of a manifest.
    pub manifest_bytes: u64,
    /// True if a table takes the room of a full one, however short it is.
    pub whole_tables: bool,
    /// True if areas are files: the ledger has the bytes of manifests and of CURRENT then, and of what is removed
    /// nothing comes back.
    pub areas_are_files: bool,
}

/// How two tables have the same bytes once (docs/decisions/0021).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// Not at all, as far as the medium knows.
    #[default]
    None,
    /// The file system clones ranges of files.
    Reflink,
    /// The device shows sectors at a second place.
    Remap,
    /// Leaves stay where they are on flash, and tables list where that is.
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

    /// Bytes of an island below which sharing costs more time than it is worth. A clone is a transaction of the file
    /// system, however short; a remap is a record in a log.
    pub(crate) fn island_bytes_min(self) -> u64 {
        match self {
            Sharing::Reflink => 32 << 10,
            Sharing::None | Sharing::Remap | Sharing::Relink => 0,
        }
    }
}

/// How tables lie on the superblocks of flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Superblocks of the device.
    pub superblocks: u64,
    /// Of these, with nothing on them.
    pub free: u64,
    /// Of these, kept by tables that count on some of their leaves, though their own table is gone.
    pub pinned: u64,
    /// Bytes that these could hold.
    pub pinned_bytes: u64,
    /// Of these, counted on.
    pub pinned_live_bytes: u64,
    /// Runs that tables are made of ([`Relinking::runs_max`]).
    pub runs: u64,
    /// Superblocks written to collect others, since the flash was opened.
    pub collections: u64,
    /// Bytes copied for that.
    pub collected_bytes: u64,
}

/// What a table is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Who pays.
    pub cause: Cause,
    /// How urgent it is.
    pub class: IoClass,
    /// How much of the medium it may keep busy.
    pub parallelism: Parallelism,
}

impl Intent {
    /// Of a table of a checkpoint.
    pub(crate) const COPY: Intent =
        Intent { cause: Cause::Flush, class: IoClass::Background, parallelism: Parallelism::Full };
}

/// How many of the channels are written to at a time; means nothing where there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parallelism {
    /// All.
    #[default]
    Full,
    /// One half, then the other: clients' reads of the rest wait for no program (FlashKV, section 3.3).
    Half,
}

/// Bytes that were asked for.
pub enum Asked {
    /// There already; they would be at this time.
    There(Vec<u8>, Nanos),
    /// On their way.
    Coming(Box<dyn FnOnce() -> Result<Vec<u8>> + Send>),
}

impl Asked {
    /// Waits for them.
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

/// Where whole units are stored: a table, and a byte in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// A finished table that is not erased yet.
    pub table: u64,
    /// A multiple of the unit of tables on the medium.
    pub offset: u64,
}

/// Writes one table. Dropped without [`TableWriter::finish`], it gives the table up.
pub trait TableWriter: Send {
    /// Bytes that this table can have.
    fn capacity(&self) -> u64;
    /// Appends whole units ([`MediaShape::unit_bytes`]).
    fn append(&mut self, bytes: &[u8]) -> Result<()>;
    /// Appends whole units that are also at `from`. A medium that can have them in two tables at once does not write
    /// them. Returns the bytes that it did not write.
    fn append_stored(&mut self, bytes: &[u8], from: Stored) -> Result<u64> {
        let _ = from;
        self.append(bytes).map(|()| 0)
    }
    /// False if so many bytes that are also there would be written all the same, so that they had better be packed than
    /// come behind a bubble. Of what does not change this is asked once, before it is appended in either way.
    fn would_share(&mut self, bytes: u64, from: Stored) -> bool {
        let _ = (bytes, from);
        true
    }
    /// So many bytes of values are not in the table, because a log has them.
    fn leaves_in_log(&mut self, bytes: u64) {
        let _ = bytes;
    }
    /// Makes the table safe. So many of its bytes are bubbles, for the ledger.
    fn finish(self: Box<Self>, bubbles: u64) -> Result<()>;
}

/// Reads one finished table.
pub trait TableReader: Send + Sync {
    /// Reads at `offset`, where a unit begins ([`MediaShape::unit_bytes`]). The bytes are there at once; they would be
    /// at the time that is returned.
    fn read(&self, offset: u64, out: &mut [u8], class: IoClass) -> Result<Nanos>;

    /// Bytes of the table, or, where that is not known, that it can have at most. Some media read all of it for that.
    fn bytes(&self) -> Result<u64>;

    /// Bytes of a table that is told to have so many: these, unless the medium knows better without reading it.
    fn bytes_if_told(&self, told: u64) -> Result<u64> {
        let _ = told;
        self.bytes()
    }

    /// Bytes of it that are known to be lost; reads of these fail.
    fn lost_bytes(&self) -> u64 {
        0
    }

    /// The whole table in memory, where the medium can have it there.
    fn map(&self) -> Option<Arc<Mapping>> {
        None
    }

    /// True if [`TableReader::announce`] is of use.
    fn listens(&self) -> bool {
        false
    }

    /// What will be read soon, so that it is at hand then. The call itself may take a while.
    fn announce(&self, offset: u64, bytes: u64) {
        let _ = (offset, bytes);
    }

    /// True if [`TableReader::ask`] comes back only when a device has read: who wants to do something else meanwhile
    /// asks in a task of its own.
    fn asking_waits(&self) -> bool {
        false
    }

    /// Begins to read `bytes` at `offset`, to be waited for later. Reads at once where a medium cannot do better.
    fn ask(&self, offset: u64, bytes: usize, class: IoClass) -> Result<Asked> {
        let mut out = vec![0; bytes];
        let at = self.read(offset, &mut out, class)?;
        Ok(Asked::There(out, at))
    }
}

/// A table as far as a manifest tells of it: a medium that does not know where it ends may hand out what is behind it.
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

/// Reads one area that nobody writes to any more.
pub trait AreaReader: Send + Sync {
    /// Bytes of it.
    fn bytes(&self) -> Result<u64>;
    /// Reads at `offset`, any byte.
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()>;

    /// The whole area in memory, where the medium can have it there.
    fn map(&self) -> Option<Arc<Mapping>> {
        None
    }
}

/// Appends to one area. Appends come from one task at a time; syncs may come from others meanwhile.
pub trait AreaWriter: Send + Sync {
    /// Writes at `offset`, the end of what was written before.
    fn append(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Returns when all that was appended before is safe.
    fn sync(&self) -> Result<()>;
    /// What is appended from now on may be held in memory that survives the process, where the medium has such
    /// ([`crate::Options::map_files`]); room for so many bytes of it may be taken ahead.
    fn map(&self, ahead_bytes: u64) {
        let _ = ahead_bytes;
    }
    /// Nothing will be appended any more, as a rule: nothing is held, nor room taken ahead.
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}
