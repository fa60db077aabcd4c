//! Tables of a medium: large, written once from front to back, read at random, erased as a whole.

use super::Mapping;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_base::{Cause, Env, Error, IoClass, Nanos, Result};

/// The number under which a medium lists remains that cannot be attributed to a table. The engine assigns it to no
/// table.
pub(crate) const NAMELESS: u64 = 0;

/// An error if part of a table is known to be lost: a store that went on without it would lose more.
pub(crate) fn check_whole(table: &dyn TableReader) -> Result<()> {
    match table.lost_bytes() {
        0 => Ok(()),
        lost => {
            Err(Error::corrupt(format!("{lost} bytes of it are lost; `vellum kv repair` saves the rest")))
        }
    }
}

/// The tables of a [`Media`](super::Media).
pub trait Tables: Send + Sync {
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

    /// Begins to write a table.
    fn create_table(&self, number: u64, intent: Intent) -> Result<Box<dyn TableWriter>>;

    /// Opens a finished table for reading; an error of kind `Corrupt` if there is none.
    fn open_table(&self, number: u64) -> Result<Arc<dyn TableReader>>;

    /// Erases a table, finished or not. `Ok` if there is none.
    fn erase_table(&self, number: u64) -> Result<()>;

    /// The numbers of all tables of which there is any trace, finished or not; 0 stands for remains that cannot be
    /// attributed to one.
    fn tables(&self) -> Result<Vec<u64>>;

    /// A path by which to link a finished table now, where it is a file of the host: it may be one of this process's
    /// open directory, which others do not have, nor this one later. Nobody writes to the table any more.
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

    /// True once the medium has refused sharing for good, contrary to what [`Tables::sharing`] found.
    fn sharing_refused(&self) -> bool {
        false
    }

    /// The highest number of any table of which there is a trace, even of one that is no longer listed.
    fn highest_table(&self) -> u64 {
        0
    }
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
pub enum PendingRead {
    /// The bytes, and when modelled flash would deliver them (0: at once).
    Ready(Vec<u8>, Nanos),
    /// A read in progress; the closure waits for it.
    InFlight(Box<dyn FnOnce() -> Result<Vec<u8>> + Send>),
}

impl PendingRead {
    /// Waits for the bytes.
    pub fn wait(self, env: &dyn Env) -> Result<Vec<u8>> {
        match self {
            PendingRead::Ready(bytes, at) => {
                env.sleep_until(at);
                Ok(bytes)
            }
            PendingRead::InFlight(wait) => wait(),
        }
    }
}

/// Where whole units are stored: an offset in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// A finished table that exists.
    pub table: u64,
    /// In bytes; a multiple of [`MediaShape::unit_bytes`](super::MediaShape::unit_bytes).
    pub offset: u64,
}

/// Writes one table. If it is dropped without [`TableWriter::finish`], the table is erased.
pub trait TableWriter: Send {
    /// Capacity of this table in bytes. It may grow as units are shared.
    fn capacity(&self) -> u64;
    /// Promises that nothing stored will be appended: the capacity may grow.
    fn links_nothing(&mut self) {}
    /// Appends whole units ([`MediaShape::unit_bytes`](super::MediaShape::unit_bytes)).
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
    /// Reads at `offset`, a multiple of [`MediaShape::unit_bytes`](super::MediaShape::unit_bytes). The bytes are in
    /// `out` when this returns. The result is when modelled flash would deliver them: the caller sleeps until then.
    fn read(&self, offset: u64, out: &mut [u8], class: IoClass) -> Result<Nanos>;

    /// Bytes of the table, or an upper limit where that is not known. Some media read all of it to find out.
    fn bytes(&self) -> Result<u64>;

    /// Bytes of a table that has `listed` bytes according to the manifest: `listed`, unless the medium knows its length
    /// without reading it.
    fn bytes_given(&self, listed: u64) -> Result<u64> {
        let _ = listed;
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

    /// True if reads have waited for the device lately: even a leaf is worth being announced then.
    fn waits(&self) -> bool {
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
    fn ask(&self, offset: u64, bytes: usize, class: IoClass) -> Result<PendingRead> {
        let mut out = vec![0; bytes];
        let at = self.read(offset, &mut out, class)?;
        Ok(PendingRead::Ready(out, at))
    }
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

/// A table bounded to the length that the manifest states: a medium that does not know where a table ends might read
/// past its end.
pub(crate) struct BoundedReader {
    reader: Arc<dyn TableReader>,
    bytes: u64,
}

impl BoundedReader {
    pub(crate) fn on(reader: Arc<dyn TableReader>, listed_bytes: u64) -> Result<Arc<dyn TableReader>> {
        let bytes = reader.bytes_given(listed_bytes)?;
        Ok(Arc::new(BoundedReader { reader, bytes }))
    }
}

impl TableReader for BoundedReader {
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
