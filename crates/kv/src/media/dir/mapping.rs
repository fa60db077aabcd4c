//! Memory-mapped files: finished tables and logs that tables point into, for reading; the end of the open log, for
//! writing.
//!
//! This module uses `unsafe`, as the compiler cannot know who else accesses the file. Invariants
//! 1. A table is mapped for reading once it is finished, a log once it is closed: no store writes to it any more, and
//!    the directory is locked against others. It may be unlinked; its bytes stay until it is unmapped.
//! 2. Bytes are decoded with all bounds checks each time they are read. If somebody writes to the file despite the
//!    lock, readers fail, or believe the new bytes where they verified a checksum before.
//! 3. Where the device cannot be read, or the file was truncated, the mapping shows zeros, and is no longer sound
//!    (`fault.rs`). Bytes must not be used or lent out before [`Mapping::is_sound`] was checked after reading them.
//! 4. A window maps a file that only its owner writes to, on a file system that writes in place and has allocated all
//!    its blocks, so that lack of room shows beforehand. Memory is requested from the kernel before it is written to.
//!    Bytes put there are in the file if the window is sound afterwards.
#![allow(unsafe_code)]

use super::fault::Guarded;
use super::files::Window;
use memmap2::{Advice, Mmap, MmapMut, MmapOptions};
use rustix::fs::{FallocateFlags, fallocate, fstatfs};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::ops::Range;

/// Bytes of memory requested from the kernel at a time. Page faults for single pages took up to a fifth longer; larger
/// requests delay a single put for longer.
pub(super) const READY_BYTES: usize = 32 << 10;
const ERA_SECONDS: u64 = 10;
/// File systems, by their `statfs` type, that write allocated blocks in place: ext2 to ext4, XFS, tmpfs.
const IN_PLACE: [u64; 3] = [0xEF53, 0x5846_5342, 0x0102_1994];

/// See the module.
pub struct Mapping {
    guard: Guarded,
    map: Mmap,
}

impl Mapping {
    /// Bytes of a page. On systems with larger pages queries about part of a page fail, and everything is read by
    /// system calls.
    pub(crate) const PAGE_BYTES: usize = 4096;

    /// Maps all of `file`; `None` if the system refuses.
    pub(crate) fn of(file: &File) -> Option<Mapping> {
        // SAFETY: see the module.
        let map = unsafe { Mmap::map(file) }.ok()?;
        // Only advice: a failure affects nothing but speed.
        let _ = map.advise(Advice::Random);
        Some(Mapping { guard: guard(&map)?, map })
    }

    /// True if all of `range`, which must be within the mapping, is in the page cache.
    pub(crate) fn is_resident(&self, range: Range<usize>) -> bool {
        let begin = range.start - range.start % Mapping::PAGE_BYTES;
        let bytes = &self.map[begin..range.end];
        let mut pages = vec![0; bytes.len().div_ceil(Mapping::PAGE_BYTES)];
        // SAFETY: `pages` has a byte for each page of what is mapped there.
        let result = unsafe { libc::mincore(bytes.as_ptr() as *mut _, bytes.len(), pages.as_mut_ptr()) };
        result == 0 && pages.iter().all(|page| page & 1 == 1)
    }

    /// The current era, a period of `ERA_SECONDS`. Pages read in an earlier era may have been evicted and read from the
    /// device again; those in use are evicted last. Verifying what is read all the time once per era costs nothing
    /// measurable.
    pub(crate) fn era() -> u64 {
        clock_gettime(ClockId::MonotonicCoarse).tv_sec as u64 / ERA_SECONDS
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// A part of the mapping, if it is sound.
    #[inline]
    pub(crate) fn get(&self, range: Range<usize>) -> Option<&[u8]> {
        self.map.get(range).filter(|_| self.is_sound())
    }

    /// The same, if at most one page has to be read from the device for it. Otherwise a system call is better, which
    /// waits once and not page by page.
    pub(crate) fn at_hand(&self, range: Range<usize>) -> Option<&[u8]> {
        let bytes = self.get(range.clone())?;
        (bytes.len() <= Mapping::PAGE_BYTES || self.is_resident(range)).then_some(bytes)
    }

    /// A part that was obtained before, sound or not. Must be within the mapping.
    #[inline]
    pub(crate) fn lent(&self, range: Range<usize>) -> &[u8] {
        &self.map[range]
    }

    /// True if everything read so far was what the file contains.
    #[inline]
    pub(crate) fn is_sound(&self) -> bool {
        self.guard.is_sound()
    }
}

fn guard(map: &[u8]) -> Option<Guarded> {
    let Range { start, end } = map.as_ptr_range();
    Guarded::new(start as usize..end as usize)
}

/// See the module.
pub(super) struct HostWindow {
    guard: Guarded,
    map: MmapMut,
    /// Offset in the file at which it begins.
    begin: u64,
    /// Bytes of it for which memory was requested.
    ready: usize,
}

impl HostWindow {
    /// A window after what was written; `None` if the system refuses, or there is no room.
    pub(super) fn behind(file: &File, offset: u64, bytes: u64) -> Option<HostWindow> {
        let kind = fstatfs(file).ok()?.f_type as u64;
        IN_PLACE.contains(&kind).then_some(())?;
        let begin = offset - offset % READY_BYTES as u64;
        let bytes = bytes.max(1).next_multiple_of(READY_BYTES as u64);
        fallocate(file, FallocateFlags::empty(), begin, bytes).ok()?;
        // SAFETY: see the module.
        let map = unsafe { MmapOptions::new().offset(begin).len(bytes as usize).map_mut(file) }.ok()?;
        let mut window = HostWindow { guard: guard(&map)?, map, begin, ready: 0 };
        window.make_ready(1).then_some(window)
    }

    /// Requests memory for so many bytes; false if there is none.
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
        if self.guard.is_sound() { end - at } else { 0 }
    }
}
