//! Areas of a medium: logs and manifests, which are small, appended to, synced often, read when a store is opened, and
//! removed as a whole.

use super::Mapping;
use crate::journal::Area;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_base::{Error, Result};

/// The areas of a [`Media`](super::Media).
pub trait Areas: Send + Sync {
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

    /// [`Tables::table_path`](super::Tables::table_path) of an area.
    fn area_path(&self, area: Area) -> Option<PathBuf> {
        let _ = area;
        None
    }

    /// [`Tables::adopt_table`](super::Tables::adopt_table) for an area.
    fn adopt_area(&self, area: Area, from: &Path) -> Result<bool> {
        let _ = (area, from);
        Ok(false)
    }

    /// All areas of which there is any trace.
    fn areas(&self) -> Result<Vec<Area>>;
}

/// Random access to an area that nobody writes to any more.
pub trait AreaReader: Send + Sync {
    /// Length of the area in bytes.
    fn bytes(&self) -> Result<u64>;
    /// Reads at `offset`, which need not be aligned.
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()>;
    /// Reads at several offsets. Waits for all of these reads together, if the medium can.
    fn read_all(&self, reads: &mut [(u64, &mut [u8])]) -> Result<()> {
        reads.iter_mut().try_for_each(|(offset, out)| self.read(*offset, out))
    }

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
    /// Writes what is held, and frees what was allocated or written in advance. Further appends are possible, but none
    /// is held, and nothing is in advance of them.
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}
