//! What a directory can do, as far as a store needs it: a seam below which tests lose what was not synced.

use super::tail::HELD_BYTES_MAX;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_base::{Error, Kind, Result};

/// A flat directory.
///
/// A name is safe from a power cut once [`Files::sync_names`] returned after it was made; bytes once [`Handle::sync`]
/// did.
pub trait Files: Send + Sync {
    /// Every name.
    fn names(&self) -> Result<Vec<String>>;
    /// Makes a file that was not there.
    fn create(&self, name: &str) -> Result<Arc<dyn Handle>>;
    /// Opens a file to read and to sync. A file that is not there is [`Kind::Corrupt`]: something counted on it.
    fn open(&self, name: &str) -> Result<Arc<dyn Handle>>;
    /// Removes a file. `Ok` if there is none.
    fn remove(&self, name: &str) -> Result<()>;
    /// Renames a file over another.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// Shortens a file to so many bytes, if it is longer, and gives back what room it has behind them.
    fn cut(&self, name: &str, bytes: u64) -> Result<()> {
        let _ = (name, bytes);
        Ok(())
    }
    /// Writes to a file that is there.
    fn write(&self, name: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        let _ = (offset, bytes);
        Err(Error::new(Kind::Unsupported, format!("{name} is not to be written to again")))
    }
    /// The first `bytes` of a file as memory; it is made if it is not there, and has its room. `None` if that cannot be
    /// done.
    fn memory(&self, name: &str, bytes: usize) -> Option<Box<dyn Memory>> {
        let _ = (name, bytes);
        None
    }
    /// Bytes that are appended to a log after a sync, at least, before more of it is held in memory.
    fn held_bytes_min(&self) -> u64 {
        HELD_BYTES_MAX as u64
    }
    /// Makes names safe.
    fn sync_names(&self) -> Result<()>;
    /// Its number in the file system, which a copy does not have, where that stays for as long as the directory does.
    fn number(&self) -> Option<u64> {
        None
    }
    /// Bytes that there is room for, where that can be told.
    fn room_bytes(&self) -> Option<u64> {
        None
    }
    /// Tries whether [`Handle::clone_range`] works here for so many bytes, from the file `source` if one is named.
    fn clones(&self, source: Option<&str>, unit_bytes: u64) -> Result<bool> {
        let _ = (source, unit_bytes);
        Ok(false)
    }
    /// Where the host has the file.
    fn path(&self, name: &str) -> Option<PathBuf> {
        let _ = name;
        None
    }
    /// Gives a file of the host a second name here. False if that cannot be done.
    fn link(&self, from: &Path, name: &str) -> Result<bool> {
        let _ = (from, name);
        Ok(false)
    }
}

/// An open file.
pub trait Handle: Send + Sync {
    /// Bytes.
    fn len(&self) -> Result<u64>;
    /// True if it has no bytes.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Reads exactly.
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()>;
    /// Writes all.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Makes the bytes safe.
    fn sync(&self) -> Result<()>;
    /// Has what is read from now on come from the device, unless it is yet to be written there. A sync that failed
    /// leaves bytes in memory that look like the file's, and no later one writes them, or says that it did not.
    fn forget_read(&self) {}
    /// Makes `bytes` at `offset` of this file those at `from_offset` of another of the same directory, without writing
    /// them. False if that cannot be done now, and [`Kind::Unsupported`] if it never can. Offsets and `bytes` are
    /// multiples of 4096.
    fn clone_range(&self, offset: u64, from: &dyn Handle, from_offset: u64, bytes: u64) -> Result<bool> {
        let _ = (offset, from, from_offset, bytes);
        Ok(false)
    }
    /// Has the file system keep room for `bytes` at `offset`, which is the end or behind it; the file is no longer for
    /// it. False if there is none, or it may turn out later that there is not.
    fn take_room(&self, offset: u64, bytes: u64) -> bool {
        let _ = (offset, bytes);
        false
    }
    /// Gives back what room was taken behind so many bytes, all that there are.
    fn cut(&self, bytes: u64) -> Result<()> {
        let _ = bytes;
        Ok(())
    }
    /// See [`TableReader::announce`](crate::TableReader::announce).
    fn announce(&self, offset: u64, bytes: u64) {
        let _ = (offset, bytes);
    }
    /// The file of the host, where it is one.
    fn host(&self) -> Option<&File> {
        None
    }
}

/// Bytes of a file that are memory, too: what is put there is the file's at once, whatever becomes of the process, and
/// no safer from a power cut than what was written and not synced.
pub trait Memory: Send {
    /// Puts `bytes` at `at`. False if that failed: then it is of no more use.
    fn put(&mut self, at: usize, bytes: &[u8]) -> bool;
    /// Puts eight bytes, little endian, at a multiple of eight: all at once, and behind what was put before.
    fn set(&mut self, at: usize, word: u64) -> bool;
}
