//! The file operations that a store needs, as traits, so that tests can put a file system below that loses what was not
//! synced.

use super::tail::HELD_BYTES_MAX;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_base::{Error, Kind, Result};

/// A flat directory.
///
/// A name is durable once [`Files::sync_names`] returned after it was created; the bytes of a file are durable once
/// [`Handle::sync`] did.
pub trait Files: Send + Sync {
    /// An error if it was opened to read.
    fn check_writable(&self) -> Result<()> {
        Ok(())
    }
    /// The names of all files.
    fn names(&self) -> Result<Vec<String>>;
    /// Creates a file that does not exist yet.
    fn create(&self, name: &str) -> Result<Arc<dyn Handle>>;
    /// Opens a file for reading and syncing. If it is missing that is an error of [`Kind::Corrupt`]: something relied
    /// on it.
    fn open(&self, name: &str) -> Result<Arc<dyn Handle>>;
    /// Removes a file. `Ok` if there is none.
    fn remove(&self, name: &str) -> Result<()>;
    /// Renames a file, replacing any of the new name.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// Truncates a file to `bytes`, if it is longer, and frees blocks that were allocated behind them.
    fn cut(&self, name: &str, bytes: u64) -> Result<()> {
        let _ = (name, bytes);
        Ok(())
    }
    /// Writes all of `bytes` at `offset` of an existing file.
    fn write(&self, name: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        let _ = (offset, bytes);
        Err(Error::new(Kind::Unsupported, format!("{name} is not to be written to again")))
    }
    /// Maps the first `bytes` of a file, which is created if absent, with all its blocks allocated. `None` if that is
    /// not possible.
    fn memory(&self, name: &str, bytes: usize) -> Option<Box<dyn Memory>> {
        let _ = (name, bytes);
        None
    }
    /// Bytes that must have been appended to a log since its last sync before its end is held in memory.
    fn held_bytes_min(&self) -> u64 {
        HELD_BYTES_MAX as u64
    }
    /// Makes created, renamed and removed names durable.
    fn sync_names(&self) -> Result<()>;
    /// The inode number of the directory, which a copy does not share; `None` where the file system does not keep it
    /// stable.
    fn number(&self) -> Option<u64> {
        None
    }
    /// Free room in bytes, if that is known.
    fn room_bytes(&self) -> Option<u64> {
        None
    }
    /// Tries whether [`Handle::clone_range`] works for ranges of `unit_bytes`, with the file `source` to clone from if
    /// given.
    fn clones(&self, source: Option<&str>, unit_bytes: u64) -> Result<bool> {
        let _ = (source, unit_bytes);
        Ok(false)
    }
    /// A path by which this process can link a file of the host, if it is one.
    fn path(&self, name: &str) -> Option<PathBuf> {
        let _ = name;
        None
    }
    /// Hard-links a file of the host into this directory. False if that is not possible.
    fn link(&self, from: &Path, name: &str) -> Result<bool> {
        let _ = (from, name);
        Ok(false)
    }
}

/// An open file.
pub trait Handle: Send + Sync {
    /// Length in bytes.
    fn len(&self) -> Result<u64>;
    /// True if it has no bytes.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Reads exactly `out.len()` bytes.
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()>;
    /// See [`AreaReader::read_all`](crate::media::AreaReader::read_all).
    fn read_all(&self, reads: &mut [(u64, &mut [u8])]) -> Result<()> {
        reads.iter_mut().try_for_each(|(offset, out)| self.read(*offset, out))
    }
    /// Writes all of `bytes`.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Makes the bytes written so far durable.
    fn sync(&self) -> Result<()>;
    /// Drops cached pages that are not dirty, so that reads come from the device. After a failed sync the page cache
    /// holds bytes that look clean, and that no later sync writes or reports.
    fn forget_read(&self) {}
    /// Makes `bytes` at `offset` of this file those at `from_offset` of another of the same directory, without writing
    /// them. False if that cannot be done now, and [`Kind::Unsupported`] if it never can. Offsets and `bytes` are
    /// multiples of 4096.
    fn clone_range(&self, offset: u64, from: &dyn Handle, from_offset: u64, bytes: u64) -> Result<bool> {
        let _ = (offset, from, from_offset, bytes);
        Ok(false)
    }
    /// Allocates blocks for `bytes` at `offset`, at the end or behind it, without changing the length. False if there
    /// is no room, or if the file system does not guarantee it to later writes.
    fn take_room(&self, offset: u64, bytes: u64) -> bool {
        let _ = (offset, bytes);
        false
    }
    /// True if the file system writes bytes that are there already in place, so that a sync of such a write is one of
    /// data alone.
    fn writes_in_place(&self) -> bool {
        false
    }
    /// Truncates the file to `bytes`, its length or less, which frees blocks behind them.
    fn cut(&self, bytes: u64) -> Result<()> {
        let _ = bytes;
        Ok(())
    }
    /// See [`TableReader::announce`](crate::media::TableReader::announce).
    fn announce(&self, offset: u64, bytes: u64) {
        let _ = (offset, bytes);
    }
    /// The file of the host, where it is one.
    fn host(&self) -> Option<&File> {
        None
    }
}

/// A mapped file. What is put there is in the page cache at once: it survives the process, but not a power cut, like
/// any write that was not synced.
pub trait Memory: Send {
    /// Copies `bytes` to offset `at`. False if that failed; the mapping must not be used any more then.
    fn put(&mut self, at: usize, bytes: &[u8]) -> bool;
    /// Stores `word`, little endian, at offset `at`, a multiple of eight: atomically, and after all earlier puts.
    fn set(&mut self, at: usize, word: u64) -> bool;
}
