//! Memory-mapped files: finished tables and logs that tables point into, for reading; TAIL, for writing.
//!
//! This module uses `unsafe`, as the compiler cannot know who else accesses the file. Invariants
//! 1. A table is mapped for reading once it is finished, a log once it is closed: no store writes to it any more, and
//!    the directory is locked against others. It may be unlinked; its bytes stay until it is unmapped.
//! 2. Bytes are decoded with all bounds checks each time they are read. If somebody writes to the file despite the
//!    lock, readers fail, or believe the new bytes where they verified a checksum before.
//! 3. Where the device cannot be read, or the file was truncated, the mapping shows zeros, and is no longer sound
//!    (`fault.rs`). Bytes must not be used or lent out before [`Mapping::is_sound`] was checked after reading them.
//! 4. TAIL is mapped for writing only by the owner of the store, on a file system that writes in place and has
//!    allocated all its blocks, so that lack of room shows beforehand. Bytes put there are in the file if the mapping
//!    is sound afterwards.
#![allow(unsafe_code)]

use super::fault::Guarded;
use super::files::Memory;
use super::host_file::writes_in_place;
use super::waits;
use memmap2::{Advice, Mmap, MmapMut, MmapOptions};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

const ERA_SECONDS: u64 = 10;
/// How old the answer of [`Mapping::was_resident`] may be.
const RESIDENCY_MILLIS: u64 = 500;

/// See the module.
pub struct Mapping {
    guard: Guarded,
    map: Mmap,
    /// Whether all of it was in the page cache, and from bit 1 on when the kernel was asked, in milliseconds. 0: never.
    residency: AtomicU64,
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
        Some(Mapping { guard: guard(&map)?, map, residency: AtomicU64::new(0) })
    }

    /// True if all of `range` is in the page cache.
    pub(crate) fn is_resident(&self, range: Range<usize>) -> bool {
        let begin = range.start - range.start % Mapping::PAGE_BYTES;
        let Some(bytes) = self.map.get(begin..range.end) else { return false };
        let mut pages = vec![0; bytes.len().div_ceil(Mapping::PAGE_BYTES)];
        // SAFETY: `pages` has a byte for each page of what is mapped there.
        let result = unsafe { libc::mincore(bytes.as_ptr() as *mut _, bytes.len(), pages.as_mut_ptr()) };
        result == 0 && pages.iter().all(|page| page & 1 == 1)
    }

    /// True if reading `range` would wait for the device, as far as asking that is worth its time.
    pub(crate) fn would_wait(&self, range: Range<usize>) -> bool {
        if !waits::is_asked_about() {
            return false;
        }
        let would_wait = !self.is_resident(range);
        waits::note(would_wait);
        would_wait
    }

    /// True if memory is short, so that what was read may have been evicted and read again, however lately that was.
    /// Asks about `range` now and then.
    pub(crate) fn is_evicting(&self, range: Range<usize>) -> bool {
        self.would_wait(range) || waits::are_likely()
    }

    /// True if all of it is in the page cache, or was a moment ago: the kernel is asked now and then.
    pub(crate) fn was_resident(&self) -> bool {
        let (known, now) = (self.residency.load(Ordering::Relaxed), millis());
        if known != 0 && now.saturating_sub(known >> 1) < RESIDENCY_MILLIS {
            return known & 1 == 1;
        }
        let is_resident = self.is_resident(0..self.len());
        self.residency.store(now << 1 | is_resident as u64, Ordering::Relaxed);
        is_resident
    }

    /// The current era, a period of `ERA_SECONDS`. Pages read in an earlier era may have been evicted and read from the
    /// device again; in this one only where memory is short, which is seen unless hardly any read waits
    /// ([`Mapping::is_evicting`]). Verifying what is read all the time once per era costs nothing measurable.
    pub(crate) fn era() -> u64 {
        millis() / (1000 * ERA_SECONDS)
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

/// The time, in milliseconds, to within a tick of the clock.
fn millis() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

fn guard(map: &[u8]) -> Option<Guarded> {
    let Range { start, end } = map.as_ptr_range();
    Guarded::new(start as usize..end as usize)
}

/// See the module.
pub(super) struct HostMemory {
    guard: Guarded,
    map: MmapMut,
}

impl HostMemory {
    /// Maps the first `bytes` of `file`, after allocating them. `None` if there is no room, or the system does not map.
    pub(super) fn of(file: &File, bytes: usize) -> Option<HostMemory> {
        writes_in_place(file).then_some(())?;
        fallocate(file, FallocateFlags::empty(), 0, bytes as u64).ok()?;
        // SAFETY: see the module.
        let map = unsafe { MmapOptions::new().len(bytes).map_mut(file) }.ok()?;
        map.advise(Advice::PopulateWrite).ok()?;
        Some(HostMemory { guard: guard(&map)?, map })
    }
}

impl Memory for HostMemory {
    fn put(&mut self, at: usize, bytes: &[u8]) -> bool {
        self.map[at..at + bytes.len()].copy_from_slice(bytes);
        self.guard.is_sound()
    }

    fn set(&mut self, at: usize, word: u64) -> bool {
        let bytes = &mut self.map[at..at + size_of::<u64>()];
        // SAFETY: these are eight bytes, a map begins with a page, and the place is a multiple of eight.
        let shared = unsafe { AtomicU64::from_ptr(bytes.as_mut_ptr().cast()) };
        shared.store(word.to_le(), Ordering::Release);
        self.guard.is_sound()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::fadvise;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_mapping_knows_what_is_in_memory() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 16 << 10], 0).unwrap();
        let map = Mapping::of(&file).unwrap();
        assert!(map.was_resident() && map.is_resident(4000..9000) && !map.would_wait(4000..9000));
        file.sync_data().unwrap();
        fadvise(&file, 4096, std::num::NonZeroU64::new(4096), rustix::fs::Advice::DontNeed).unwrap();
        if map.is_resident(4096..8192) {
            return println!("skipped: the file system keeps all it has in memory");
        }
        assert!(map.is_resident(0..4096) && !map.is_resident(4000..4100) && map.is_resident(8192..16384));
        // A sample of reads is asked about, and more once one of them waits.
        assert!((0..1000).any(|_| map.would_wait(4000..9000)));
        assert!(!Mapping::of(&file).unwrap().was_resident());
        assert_eq!(map.get(4095..4097).unwrap(), [7; 2]);
        assert!(map.is_resident(0..8192));
    }
}
