//! Files in memory, as the kernel's page cache has them: a finished table or a log that tables point into, to read;
//! TAIL, to write.
//!
//! This module has `unsafe`, because the compiler cannot know who else has the file.
//! Invariants
//! 1. A table is mapped to be read when it is finished, a log when it is closed: no store writes to it any more, and
//!    the directory is locked against others. It may be unlinked; its bytes stay until the map goes.
//! 2. Whatever is read is decoded anew, with all its bounds: whoever writes to the file past the lock makes readers
//!    fail, or believe it where they have compared a checksum before.
//! 3. What a device cannot read, or is behind the end of a file that was cut, is zeros, and the map is not sound any
//!    more (`fault.rs`): nobody believes what was read before [`Mapping::is_sound`] has said so, nor lends it out.
//! 4. Memory to write is of a file to which only its owner writes, on a file system that writes in place and has given
//!    it blocks for all of it: a lack of room is known before. What is put there is the file's if the memory is sound
//!    after that.
#![allow(unsafe_code)]

use super::fault::Guarded;
use super::files::Memory;
use super::host::writes_in_place;
use memmap2::{Advice, Mmap, MmapMut, MmapOptions};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

const ERA_SECONDS: u64 = 10;
/// See the module.
pub struct Mapping {
    guard: Guarded,
    map: Mmap,
}

impl Mapping {
    /// What a page has. Where it has more, the kernel says no to whoever asks about a part, and all is read by calls.
    pub(crate) const PAGE_BYTES: usize = 4096;

    /// Maps all of `file`; `None` where the system does not.
    pub(crate) fn of(file: &File) -> Option<Mapping> {
        // SAFETY: see the module.
        let map = unsafe { Mmap::map(file) }.ok()?;
        // Advice: what it changes is speed.
        let _ = map.advise(Advice::Random);
        Some(Mapping { guard: guard(&map)?, map })
    }

    /// True if the kernel has all of a part, which must lie within, in memory: no device is waited for.
    pub(crate) fn is_resident(&self, range: Range<usize>) -> bool {
        let begin = range.start - range.start % Mapping::PAGE_BYTES;
        let bytes = &self.map[begin..range.end];
        let mut pages = vec![0; bytes.len().div_ceil(Mapping::PAGE_BYTES)];
        // SAFETY: `pages` has a byte for each page of what is mapped there.
        let result = unsafe { libc::mincore(bytes.as_ptr() as *mut _, bytes.len(), pages.as_mut_ptr()) };
        result == 0 && pages.iter().all(|page| page & 1 == 1)
    }

    /// Of what was read in another era the kernel may have given up the memory, and read it again. It gives up last
    /// what was used within one, and to check again what is read all the time costs nothing that can be measured.
    pub(crate) fn era() -> u64 {
        clock_gettime(ClockId::MonotonicCoarse).tv_sec as u64 / ERA_SECONDS
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Part of it, if it is sound.
    #[inline]
    pub(crate) fn get(&self, range: Range<usize>) -> Option<&[u8]> {
        self.map.get(range).filter(|_| self.is_sound())
    }

    /// The same, if no more than a page has to be read for it: else a call waits for the device once, and not page by
    /// page.
    pub(crate) fn at_hand(&self, range: Range<usize>) -> Option<&[u8]> {
        let bytes = self.get(range.clone())?;
        (bytes.len() <= Mapping::PAGE_BYTES || self.is_resident(range)).then_some(bytes)
    }

    /// Part of it, sound or not, as it was gotten before. Must lie within.
    #[inline]
    pub(crate) fn lent(&self, range: Range<usize>) -> &[u8] {
        &self.map[range]
    }

    /// True if all that was read of it until now is the file's.
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
