//! Data leaves of a memory-mapped table, if they are in the page cache or take one page to be read.
//!
//! 1. An uncompressed leaf is used in place. It is verified when it is read, and then trusted for the rest of an era
//!    ([`Mapping::era`]), as the kernel may have to read it from the device again later, and only while memory is not
//!    short ([`Mapping::is_evicting`]): otherwise that is soon. While it is trusted only its head is checked: if
//!    somebody writes to the file, the result is errors, or wrong or missing entries, but never a panic. A cursor
//!    trusts the leaf that it is in for as long as it is there: the clock would cost as much as a step.
//! 2. A compressed leaf is copied, verified and unpacked each time, as the result goes to the cache. One of several
//!    pages is taken from the mapping if it was read in this era: it is probably in the page cache, and to be certain
//!    would take a system call.
//! 3. Where the device cannot be read the mapping shows zeros, and is no longer sound ([`Mapping`]). Nothing taken from
//!    it since is used, and the table is read as if it were not mapped.

use super::buffer::Buffer;
use super::cached::{Bytes, Object, OwnLeaf};
use super::leaf::Leaf;
use super::objects::LeafPlace;
use crate::lsm::units::Units;
use crate::media::Mapping;
use std::ops::Range;
use std::sync::Arc;
use vellum_base::Result;
use vellum_base::sync::atomic::AtomicU64;
use vellum_base::sync::atomic::Ordering::{Acquire, Release};

/// See the module.
pub(super) struct Mapped {
    map: Arc<Mapping>,
    unit_bytes: usize,
    /// Where leaves begin that were verified in this era: uncompressed ones in the mapping, compressed ones anywhere.
    verified: Units,
    era: AtomicU64,
    /// Where compressed leaves begin, as far as known.
    packed: Units,
}

impl Mapped {
    pub(super) fn new(map: Arc<Mapping>, unit_bytes: usize) -> Mapped {
        let units = || Units::of(map.len().div_ceil(unit_bytes));
        let (verified, packed) = (units(), units());
        Mapped { map, unit_bytes, verified, era: AtomicU64::new(0), packed }
    }

    /// The leaf at `place` and its bytes; `None` if it is compressed, not at hand, or the mapping is not sound. After
    /// taking anything from these bytes the caller must check [`Mapped::is_sound`].
    pub(super) fn leaf(&self, place: LeafPlace) -> Result<Option<(Leaf, &[u8])>> {
        if self.packed.has(place.unit) {
            return Ok(None); // it may be in the cache: none of its pages is touched
        }
        let was_verified = self.was_verified(place);
        let bytes = match was_verified {
            true => self.map.get(self.range(place)),
            false => self.map.at_hand(self.range(place)),
        };
        let Some(bytes) = bytes else { return Ok(None) };
        let leaf = Leaf::plain(bytes, was_verified);
        if !self.is_sound() {
            return Ok(None);
        }
        let leaf = leaf?;
        match leaf {
            None => self.packed.mark(place.unit),
            Some(_) if !was_verified => self.verified.mark(place.unit),
            Some(_) => {}
        }
        Ok(leaf.map(|leaf| (leaf, bytes)))
    }

    /// True if the leaf was verified in this era, and memory is not short. So it is probably in the page cache; to be
    /// certain would take a system call, as much as reading it.
    pub(super) fn was_verified(&self, place: LeafPlace) -> bool {
        self.doubt();
        self.verified.has(place.unit) && !self.map.is_evicting(self.range(place))
    }

    /// Notes that a compressed leaf was verified.
    pub(super) fn note_packed(&self, place: LeafPlace) {
        self.packed.mark(place.unit);
        self.verified.mark(place.unit);
    }

    /// A compressed leaf that takes one page or was verified in this era. More is read faster by a system call: in the
    /// mapping each page takes a page fault of its own.
    pub(super) fn unpacked_at_hand(&self, place: LeafPlace) -> Result<Option<OwnLeaf>> {
        match place.units * self.unit_bytes <= Mapping::PAGE_BYTES || self.was_verified(place) {
            true => self.unpacked(place),
            false => Ok(None),
        }
    }

    /// A compressed leaf; `None` if it is not compressed, or the mapping is not sound.
    pub(super) fn unpacked(&self, place: LeafPlace) -> Result<Option<OwnLeaf>> {
        let Some(bytes) = self.map.get(self.range(place)) else { return Ok(None) };
        let stored = Buffer::of(bytes);
        if !self.is_sound() {
            return Ok(None);
        }
        let leaf = OwnLeaf::open(stored)?;
        if leaf.packed {
            self.note_packed(place);
        }
        Ok(leaf.packed.then_some(leaf))
    }

    /// True if the mapping is sound, and these units are in the page cache.
    pub(super) fn is_resident(&self, unit: usize, units: usize) -> bool {
        let range = self.range(LeafPlace { unit, units });
        self.map.get(range.clone()).is_some() && self.map.is_resident(range)
    }

    /// True if the leaf is worth being announced: see [`Mapping::would_wait`].
    pub(super) fn would_wait(&self, place: LeafPlace) -> bool {
        self.map.would_wait(self.range(place))
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
        let now = Mapping::era();
        if self.era.load(Acquire) != now {
            self.verified.clear(); // before others are told of the era: they would believe what is of any earlier one
            self.era.store(now, Release);
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
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use vellum_base::sync::atomic::Ordering::Relaxed;

    fn place(units: usize) -> LeafPlace {
        LeafPlace { unit: 0, units }
    }

    /// The mapping of a table with one leaf, and its file.
    fn of(value: &[u8], compression: Compression) -> (Mapped, File) {
        let mut builder = TableBuilder::new(1, 10, Grain::default()).packing(compression);
        builder.add(b"key", Stamp::new(1, EntryKind::Put), value);
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&builder.finish().tail, 0).unwrap();
        (Mapped::new(Arc::new(Mapping::of(&file).unwrap()), 4096), file)
    }

    #[test]
    fn a_leaf_is_believed_for_an_era() {
        let (mapped, file) = of(&[7; 1000], Compression::None);
        let place = place(1);
        assert!(mapped.leaf(place).unwrap().is_some_and(|(_, bytes)| bytes[500] == 7));
        let era = mapped.era.load(Relaxed);
        file.write_all_at(&[8], 500).unwrap();
        // Unless memory is short, as another test may think until it has seen enough of what is there.
        let is_believed = (0..20_000).any(|_| mapped.leaf(place).is_ok());
        assert!(is_believed || era != mapped.era.load(Relaxed));
        mapped.era.store(0, Relaxed);
        assert!(mapped.leaf(place).unwrap_err().to_string().contains("checksum"));
    }

    #[test]
    fn a_compressed_leaf_is_unpacked_and_not_believed() {
        for compression in [Compression::Lz4, Compression::Zstd(1)] {
            let (mapped, file) = of(&[7; 3000], compression);
            let place = place(1);
            assert!(mapped.leaf(place).unwrap().is_none() && !mapped.was_verified(place));
            let object = Object::data(mapped.unpacked(place).unwrap().unwrap());
            assert!(object.bytes() > 3000 && object.as_stored().is_none() && !object.is_mapped());
            file.write_all_at(&[8], 40).unwrap();
            let damaged = mapped.unpacked(place);
            assert!(damaged.err().unwrap().to_string().contains("checksum"));
            // What is not there any more cannot be read, and is never believed again.
            file.set_len(0).unwrap();
            assert!(mapped.unpacked(place).unwrap().is_none() && !mapped.is_sound());
            file.write_all_at(&[1; 4096], 0).unwrap();
            assert!(mapped.unpacked(place).unwrap().is_none());
        }
    }

    #[test]
    fn what_takes_more_than_a_page_is_at_hand_once_it_was_read() {
        let noise: Vec<u8> = (0..6000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let (mapped, _file) = of(&[noise, vec![7; 6000]].concat(), Compression::Lz4);
        let (place, at_hand) = (place(2), |place| mapped.unpacked_at_hand(place).unwrap());
        assert!(at_hand(place).is_none());
        assert!(mapped.unpacked(place).unwrap().is_some_and(|leaf| leaf.bytes.len() > 12_000));
        let era = mapped.era.load(Relaxed);
        assert!((0..20_000).any(|_| at_hand(place).is_some()) || era != mapped.era.load(Relaxed));
        mapped.era.store(0, Relaxed);
        assert!(at_hand(place).is_none() && mapped.leaf(place).unwrap().is_none());
    }
}
