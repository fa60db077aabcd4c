//! Files in memory, as the kernel's page cache has them: a finished table or a log that tables point into, to read; the
//! end of the open log, to write.
//!
//! This module is the only one of the crate with `unsafe`, because the compiler cannot know who else has the file.
//! Invariants
//! 1. A table is mapped to be read when it is finished, a log when it is closed: no store writes to it any more, and
//!    the directory is locked against others. It may be unlinked; its bytes stay until the map goes.
//! 2. Whatever is read is decoded anew, with all its bounds: whoever writes to the file past the lock makes readers
//!    fail, or believe it where they have compared a checksum before. Whoever cuts it can end the process (SIGBUS), as
//!    can a device that cannot be read. That is the price of [`crate::Options::map_files`].
//! 3. A window is of a file to which only its owner writes, on a file system that writes in place and has given it
//!    blocks for all of it: a lack of room is known before. Nothing is put where the kernel was not asked for the
//!    memory first, so that it says no instead of ending the process, unless the file system fails after that.
#![allow(unsafe_code)]

use super::files::Window;
use memmap2::{Advice, Mmap, MmapMut, MmapOptions};
use rustix::fs::{FallocateFlags, fallocate, fstatfs};
use std::fs::File;
use std::ops::Deref;

/// Bytes for which the kernel is asked for memory at a time: by page, in faults, took up to a fifth longer, and more at
/// a time is a longer wait for one put.
pub(super) const READY_BYTES: usize = 32 << 10;
/// File systems, by what `statfs` calls them, that write in place where they were told to allocate: ext2 to ext4, XFS,
/// tmpfs.
const IN_PLACE: [u64; 3] = [0xEF53, 0x5846_5342, 0x0102_1994];

/// See the module.
pub struct Map(Mmap);

impl Map {
    /// Maps all of `file`; `None` where the system does not.
    pub(super) fn of(file: &File) -> Option<Map> {
        // SAFETY: see the module.
        let map = unsafe { Mmap::map(file) }.ok()?;
        // Advice: what it changes is speed.
        let _ = map.advise(Advice::Random);
        Some(Map(map))
    }
}

impl Deref for Map {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// See the module.
pub(super) struct HostWindow {
    map: MmapMut,
    /// Where it begins in the file.
    begin: u64,
    /// Of it, the kernel has the memory.
    ready: usize,
}

impl HostWindow {
    /// Behind what was written; `None` where the system does not, or there is no room.
    pub(super) fn behind(file: &File, offset: u64, bytes: u64) -> Option<HostWindow> {
        let kind = fstatfs(file).ok()?.f_type as u64;
        IN_PLACE.contains(&kind).then_some(())?;
        let begin = offset - offset % READY_BYTES as u64;
        let bytes = bytes.max(1).next_multiple_of(READY_BYTES as u64);
        fallocate(file, FallocateFlags::empty(), begin, bytes).ok()?;
        // SAFETY: see the module.
        let map = unsafe { MmapOptions::new().offset(begin).len(bytes as usize).map_mut(file) }.ok()?;
        let mut window = HostWindow { map, begin, ready: 0 };
        window.make_ready(1).then_some(window)
    }

    /// Asks for memory for so many bytes; false if there is none.
    fn make_ready(&mut self, bytes: usize) -> bool {
        while self.ready < bytes {
            if self.map.advise_range(Advice::PopulateWrite, self.ready, READY_BYTES).is_err() {
                return false;
            }
            self.ready += READY_BYTES;
        }
        true
    }
}

impl Window for HostWindow {
    fn put(&mut self, offset: u64, bytes: &[u8]) -> usize {
        let Some(at) = offset.checked_sub(self.begin).map(|at| at as usize).filter(|at| *at < self.map.len())
        else {
            return 0;
        };
        let end = self.map.len().min(at + bytes.len());
        if !self.make_ready(end) {
            return 0;
        }
        self.map[at..end].copy_from_slice(&bytes[..end - at]);
        end - at
    }
}
