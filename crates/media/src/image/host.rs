//! The host's file of an image: positioned reads and writes, holes, and `fdatasync`.
//!
//! Invariant: all writes to an image go through here. (In tests, it keeps what each write replaced since the last sync,
//! to simulate a crash of the host: see `power_loss`.)

use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
use std::fs::File;
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Maximum number of buffers of one call to the host.
const BUFFERS_MAX: usize = 1024;

/// A host file; see the module.
pub(super) struct HostFile {
    file: File,
    /// The file system has refused to punch a hole.
    no_holes: AtomicBool,
    /// The file may be shorter than the image.
    zeros_behind_end: bool,
    #[cfg(test)]
    pub unsynced: std::sync::Arc<super::power_loss::Unsynced>,
}

impl HostFile {
    pub fn new(file: File) -> HostFile {
        HostFile {
            file,
            no_holes: AtomicBool::new(false),
            zeros_behind_end: false,
            #[cfg(test)]
            unsynced: Default::default(),
        }
    }

    /// From now on bytes beyond the end of the file read as zeros.
    pub fn with_zeros_behind_end(mut self) -> HostFile {
        self.zeros_behind_end = true;
        self
    }

    pub fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        let there = match self.zeros_behind_end {
            true => (self.file.metadata()?.len().saturating_sub(offset)).min(out.len() as u64) as usize,
            false => out.len(),
        };
        out[there..].fill(0);
        self.file.read_exact_at(&mut out[..there], offset)
    }

    /// Drops clean cached pages of a range, so that reads come from the device: an earlier process may have failed to
    /// sync them, and no later sync writes them or reports that.
    pub fn forget_read(&self, from: u64, bytes: u64) {
        if let Some(bytes) = NonZeroU64::new(bytes) {
            // If a file system has no page cache, or cannot drop it, nothing else can be done.
            let _ = fadvise(&self.file, from, Some(bytes), Advice::DontNeed);
        }
    }

    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_parts_at(&[bytes], offset)
    }

    /// Writes `parts`, concatenated.
    pub fn write_parts_at(&self, parts: &[&[u8]], mut offset: u64) -> io::Result<()> {
        #[cfg(test)]
        self.unsynced.before_write(&self.file, offset, parts.iter().map(|part| part.len()).sum())?;
        let mut slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut rest = slices.as_mut_slice();
        while !rest.is_empty() {
            match rustix::io::pwritev(&self.file, &rest[..rest.len().min(BUFFERS_MAX)], offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    offset += written as u64;
                    IoSlice::advance_slices(&mut rest, written);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Punches a hole, which reads as zeros. False if the file system does not support it.
    pub fn punch(&self, from: u64, to: u64) -> io::Result<bool> {
        if from == to {
            return Ok(true);
        }
        if self.no_holes.load(Relaxed) {
            return Ok(false);
        }
        #[cfg(test)]
        self.unsynced.before_write(&self.file, from, (to - from) as usize)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, flags, from, to - from) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                self.no_holes.store(true, Relaxed);
                Ok(false)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Makes everything written before survive a crash of the host.
    pub fn sync_data(&self) -> io::Result<()> {
        #[cfg(test)]
        return self.unsynced.sync();
        #[cfg(not(test))]
        self.file.sync_data()
    }
}
