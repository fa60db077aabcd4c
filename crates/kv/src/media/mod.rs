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

mod areas;
mod dir;
mod flash;
mod patient;
mod readonly;
mod rehearsal;
mod tables;
mod zones;

pub use crate::journal::{Area, AreaKind};
pub use areas::{AreaReader, AreaWriter, Areas};
pub(crate) use dir::fuzzed as fuzzed_tail;
pub use dir::{Directory, DirectoryOptions, Files, Handle, Mapping, Memory};
pub(crate) use dir::{ZEROS_MAX, ZONES};
pub(crate) use flash::NvramLook;
pub(crate) use flash::fuzzed as fuzzed_flash;
pub use flash::{FlashMedia, Relinking, Schedule};
pub(crate) use patient::Patient;
pub(crate) use readonly::{ReadOnly, refused};
pub use rehearsal::Rehearsal;
pub(crate) use tables::{BoundedReader, NAMELESS, check_whole};
pub use tables::{Intent, Parallelism, PendingRead, Sharing, Stored, TableReader, TableWriter, Tables};
pub(crate) use zones::fuzzed as fuzzed_zones;
pub use zones::{ZoneHome, ZoneMedia};

use vellum_base::{Error, LedgerSnapshot, Result};

/// Least capacity of a table, in bytes.
const TABLE_BYTES_LEAST: u64 = 8 << 10;
/// Bytes that are copied at a time.
const COPY_BYTES: u64 = 1 << 20;

/// An error unless the target of a copy is empty.
pub(crate) fn check_empty(media: &dyn Media) -> Result<()> {
    match media.current()?.is_none() && media.tables()?.is_empty() && media.areas()?.is_empty() {
        true => Ok(()),
        false => Err(Error::invalid("a copy goes where there is nothing yet")),
    }
}

/// Copies `bytes` bytes: each piece is read, and then written, at its offset.
pub(crate) fn copy(
    bytes: u64,
    read: impl Fn(u64, &mut [u8]) -> Result<()>,
    mut write: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut piece = Vec::new();
    for at in (0..bytes).step_by(COPY_BYTES as usize) {
        piece.resize(COPY_BYTES.min(bytes - at) as usize, 0);
        read(at, &mut piece)?;
        write(at, &piece)?;
    }
    Ok(())
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

/// See the module.
pub trait Media: Tables + Areas {
    /// Sizes and properties of the medium.
    fn shape(&self) -> MediaShape;

    /// [`Kind::Invalid`](vellum_base::Kind::Invalid) if it was opened to read, and no store can write to it.
    fn check_writable(&self) -> Result<()> {
        Ok(())
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

    /// How tables are placed on superblocks; `None` except on flash.
    fn placement(&self) -> Option<Placement> {
        None
    }

    /// Inconsistencies in the medium's own accounts of tables, as messages; empty if there are none.
    fn problems(&self) -> Vec<String> {
        Vec::new()
    }

    /// CURRENT as it was last set; `None` if it never was. An error if it cannot be read.
    fn current(&self) -> Result<Option<Vec<u8>>>;

    /// Replaces CURRENT by `bytes`, at most 64.
    fn set_current(&self, bytes: &[u8]) -> Result<()>;

    /// Bytes written since the medium was opened, by cause: programmed to flash, or handed to the file system.
    fn ledger(&self) -> LedgerSnapshot;
}

/// The usual [`MediaShape::unit_bytes`]. Media that can share smaller pieces have a smaller one.
pub(crate) const MEDIA_UNIT_BYTES: u64 = 4096;

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
    /// Bytes of logs and manifests appended in NVRAM since the flash was opened. None of them are programmed, so the
    /// ledger does not have them.
    pub nvram_bytes: u64,
}
