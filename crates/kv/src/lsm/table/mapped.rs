//! Data leaves of a memory-mapped table. They are neither copied nor cached, if they are in the page cache or take one
//! page to be read.
//!
//! 1. A leaf is verified when it is read, and then trusted for the rest of an era ([`Mapping::era`]), as the kernel may
//!    have to read it from the device again later. While it is trusted only its head is checked: if somebody writes to
//!    the file, the result is errors, or wrong or missing entries, but never a panic.
//! 2. Compressed leaves are not used in place: they go to the cache unpacked. Those of one page, those that a scan
//!    reaches, and those that were verified in this era are copied from the mapping, which saves system calls, and
//!    verified again each time.
//! 3. Where the device cannot be read the mapping shows zeros, and is no longer sound ([`Mapping`]). Nothing taken from
//!    it since is used, and the table is read as if it were not mapped.

use super::LeafPlace;
use super::buffer::Buffer;
use super::cached::{Bytes, Object};
use super::leaf::Leaf;
use crate::media::Mapping;
use std::ops::Range;
use std::sync::Arc;
use vellum_base::Result;
use vellum_base::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// See the module.
pub(super) struct Mapped {
    map: Arc<Mapping>,
    unit_bytes: usize,
    /// One bit per unit: the leaf that begins there was verified in this era.
    checked: Box<[AtomicU64]>,
    era: AtomicU64,
}

impl Mapped {
    pub(super) fn new(map: Arc<Mapping>, unit_bytes: usize) -> Mapped {
        let words = map.len().div_ceil(unit_bytes * 64);
        let checked = (0..words).map(|_| AtomicU64::new(0)).collect();
        Mapped { map, unit_bytes, checked, era: AtomicU64::new(0) }
    }

    /// The leaf at `place` and its bytes; `None` if it is compressed, not at hand, or the mapping is not sound. After
    /// taking anything from these bytes the caller must check [`Mapped::is_sound`].
    pub(super) fn leaf(&self, place: LeafPlace) -> Result<Option<(Leaf, &[u8])>> {
        let range = self.range(place);
        let was_checked = self.was_checked(place);
        let bytes = if was_checked { self.map.get(range) } else { self.map.at_hand(range) };
        let Some(bytes) = bytes else { return Ok(None) };
        let leaf = Leaf::plain(bytes, was_checked);
        if !self.is_sound() {
            return Ok(None);
        }
        let leaf = leaf?;
        if leaf.is_some() && !was_checked {
            self.was_verified(place);
        }
        Ok(leaf.map(|leaf| (leaf, bytes)))
    }

    /// To be called when a leaf was verified, wherever it was read.
    pub(super) fn was_verified(&self, place: LeafPlace) {
        if let Some(word) = self.checked.get(place.unit / 64) {
            word.fetch_or(1 << (place.unit % 64), Relaxed);
        }
    }

    /// True if the leaf was verified in this era. So it is probably in the page cache; to be certain would take a
    /// system call, as much as reading it.
    pub(super) fn was_checked(&self, place: LeafPlace) -> bool {
        self.doubt();
        let word = self.checked.get(place.unit / 64);
        word.is_some_and(|word| word.load(Relaxed) & 1 << (place.unit % 64) != 0)
    }

    /// Copies an object of so many units. False if it is to be read by a system call instead, which is faster for more
    /// than a page that was not read lately: in the mapping each page takes a page fault of its own.
    pub(super) fn copy(&self, place: LeafPlace, out: &mut [u8]) -> bool {
        let at_hand = |bytes: &&[u8]| bytes.len() <= Mapping::PAGE_BYTES || self.was_checked(place);
        let Some(bytes) = self.map.get(self.range(place)).filter(at_hand) else { return false };
        out.copy_from_slice(bytes);
        self.is_sound()
    }

    /// The stored bytes of a leaf; `None` if they are not there. Copied, so that they cannot change while being
    /// unpacked.
    pub(super) fn stored(&self, place: LeafPlace) -> Option<Buffer> {
        let bytes = Buffer::of(self.map.get(self.range(place))?);
        self.is_sound().then_some(bytes)
    }

    /// True if the mapping is sound, and these units are in the page cache.
    pub(super) fn is_resident(&self, unit: usize, units: usize) -> bool {
        let range = self.range(LeafPlace { unit, units });
        self.map.get(range.clone()).is_some() && self.map.is_resident(range)
    }

    fn range(&self, place: LeafPlace) -> Range<usize> {
        place.unit * self.unit_bytes..(place.unit + place.units) * self.unit_bytes
    }

    /// True if everything read so far was what the file contains.
    #[inline]
    pub(super) fn is_sound(&self) -> bool {
        self.map.is_sound()
    }

    /// Forgets what was verified in earlier eras.
    fn doubt(&self) {
        let (era, now) = (self.era.load(Relaxed), Mapping::era());
        if era != now && self.era.compare_exchange(era, now, Relaxed, Relaxed).is_ok() {
            self.checked.iter().for_each(|word| word.store(0, Relaxed));
        }
    }

    /// Prefetches a leaf into the processor's cache.
    pub(super) fn prefetch(&self, place: LeafPlace) {
        if let Some(bytes) = self.map.get(self.range(place)) {
            vellum_codes::prefetch_all(bytes);
        }
    }

    /// The leaf at `place` as an object that may be kept.
    pub(super) fn object(&self, place: LeafPlace) -> Result<Option<Object>> {
        let object = |(leaf, bytes): (Leaf, &[u8])| {
            let start = place.unit * self.unit_bytes;
            let bytes = Bytes::Mapped { map: self.map.clone(), start, end: start + bytes.len() };
            Object::Data { leaf, fences: None, bytes, packed: false }
        };
        Ok(self.leaf(place)?.map(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{EntryKind, Stamp};
    use crate::lsm::table::{Grain, TableBuilder};
    use crate::options::Compression;
    use std::os::unix::fs::FileExt;

    fn place((unit, units): (usize, usize)) -> LeafPlace {
        LeafPlace { unit, units }
    }

    #[test]
    fn a_leaf_is_believed_for_an_era() {
        let mut builder = TableBuilder::new(1, 10, Grain::default());
        builder.add(b"key", Stamp::new(1, EntryKind::Put), &[7; 1000]);
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&builder.finish().tail, 0).unwrap();
        let mapped = Mapped::new(Arc::new(Mapping::of(&file).unwrap()), 4096);
        let place = place((0, 1));
        assert!(mapped.leaf(place).unwrap().is_some_and(|(_, bytes)| bytes[500] == 7));
        let era = mapped.era.load(Relaxed);
        file.write_all_at(&[8], 500).unwrap();
        let believed = mapped.leaf(place);
        assert!(believed.is_ok() || era != mapped.era.load(Relaxed));
        mapped.era.store(0, Relaxed);
        assert!(mapped.leaf(place).unwrap_err().to_string().contains("checksum"));
    }

    #[test]
    fn a_page_is_copied_and_more_is_read_by_a_call_unless_it_was_lately() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[[1; 4096], [2; 4096]].concat(), 0).unwrap();
        let mapped = Mapped::new(Arc::new(Mapping::of(&file).unwrap()), 4096);
        let (mut out, [page, both, behind]) = (vec![0; 8192], [(1, 1), (0, 2), (2, 1)].map(place));
        assert!(mapped.copy(page, &mut out[..4096]) && out[..4096] == [2; 4096]);
        assert!(!mapped.copy(both, &mut out) && !mapped.copy(behind, &mut out[..4096]));
        mapped.was_verified(both);
        assert!(mapped.copy(both, &mut out) && out[..4096] == [1; 4096], "what was read lately is in memory");
        // What is not there any more cannot be read, and says so.
        file.set_len(0).unwrap();
        let first = place((0, 1));
        assert!(!mapped.copy(first, &mut out[..4096]) && !mapped.is_sound());
        file.write_all_at(&[1; 4096], 0).unwrap();
        assert!(!mapped.copy(first, &mut out[..4096]), "it is never believed again");
    }

    #[test]
    fn a_compressed_leaf_is_copied_and_not_believed() {
        let mut builder = TableBuilder::new(1, 10, Grain::default()).packing(Compression::Lz4);
        builder.add(b"key", Stamp::new(1, EntryKind::Put), &[7; 3000]);
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&builder.finish().tail, 0).unwrap();
        let mapped = Mapped::new(Arc::new(Mapping::of(&file).unwrap()), 4096);
        let place = place((0, 1));
        assert!(mapped.leaf(place).unwrap().is_none() && !mapped.was_checked(place));
        let object = Object::data(mapped.stored(place).unwrap()).unwrap();
        assert!(object.bytes() > 3000 && object.as_stored().is_none() && !object.is_mapped());
        file.write_all_at(&[8], 40).unwrap();
        let damaged = Object::data(mapped.stored(place).unwrap());
        assert!(damaged.err().unwrap().to_string().contains("checksum"));
        file.set_len(0).unwrap();
        assert!(mapped.stored(place).is_none() && !mapped.is_sound());
    }
}
