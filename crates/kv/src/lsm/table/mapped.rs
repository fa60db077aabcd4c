//! Data leaves of a table that is mapped into memory: neither copied nor cached, if the kernel has them in memory, or
//! has to read one page for them.
//!
//! 1. A leaf is checked when it is read, and then believed for the rest of an era ([`Mapping::era`]): the kernel may
//!    have to read it again later. Only its head is looked at then: a file that somebody writes to gives errors, wrong
//!    entries or none, never a panic.
//! 2. Compressed leaves are not for this: unpacked ones belong into the cache. Those of a page, and those that a scan
//!    comes to, are copied from here, which saves a call, and checked as if one had read them.
//! 3. Where the device cannot be read there are zeros, and the map is not sound any more ([`Mapping`]): nothing that
//!    was taken from it since is used, and the table is read as if it were not mapped.

use super::LeafPlace;
use super::cached::{Bytes, Object};
use super::leaf::Leaf;
use crate::media::Mapping;
use std::sync::Arc;
use vellum_base::Result;
use vellum_base::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// See the module.
pub(super) struct Mapped {
    map: Arc<Mapping>,
    unit_bytes: usize,
    /// A bit for every unit: the leaf that begins there was checked in this era.
    checked: Box<[AtomicU64]>,
    era: AtomicU64,
}

impl Mapped {
    pub(super) fn new(map: Arc<Mapping>, unit_bytes: usize) -> Mapped {
        let words = map.len().div_ceil(unit_bytes * 64);
        let checked = (0..words).map(|_| AtomicU64::new(0)).collect();
        Mapped { map, unit_bytes, checked, era: AtomicU64::new(0) }
    }

    /// The leaf at `place` and its bytes; `None` if it is compressed, or not at hand in the map, or the map is not
    /// sound. Whoever takes something from there looks after that whether [`Mapped::is_sound`].
    pub(super) fn leaf(&self, place: LeafPlace) -> Result<Option<(Leaf, &[u8])>> {
        let range = place.unit * self.unit_bytes..(place.unit + place.units) * self.unit_bytes;
        let was_checked = self.was_checked(place);
        let bytes = if was_checked { self.map.get(range) } else { self.map.at_hand(range) };
        let Some(bytes) = bytes else { return Ok(None) };
        let leaf = Leaf::plain(bytes, was_checked);
        if !self.is_sound() {
            return Ok(None);
        }
        let leaf = leaf?;
        if leaf.is_some() && !was_checked {
            self.checked[place.unit / 64].fetch_or(1 << (place.unit % 64), Relaxed);
        }
        Ok(leaf.map(|leaf| (leaf, bytes)))
    }

    /// True if the leaf was checked in this era: so the kernel has it in memory, as far as anybody can tell for less
    /// than what it takes to read it. To ask is a system call.
    pub(super) fn was_checked(&self, place: LeafPlace) -> bool {
        self.doubt();
        let word = self.checked.get(place.unit / 64);
        word.is_some_and(|word| word.load(Relaxed) & 1 << (place.unit % 64) != 0)
    }

    /// Copies what begins at a unit; false if it is to be read by a call, which is faster for more than a page: here
    /// each page is a fault of its own when it is met first.
    pub(super) fn copy(&self, unit: usize, out: &mut [u8]) -> bool {
        let start = unit * self.unit_bytes;
        let range = start..start + out.len();
        let Some(bytes) = self.map.get(range).filter(|bytes| bytes.len() <= Mapping::PAGE_BYTES) else {
            return false;
        };
        out.copy_from_slice(bytes);
        self.is_sound()
    }

    /// What is stored of a leaf; `None` if it is not there. It is copied: nobody changes what is being unpacked.
    pub(super) fn stored(&self, place: LeafPlace) -> Option<Box<[u8]>> {
        let range = place.unit * self.unit_bytes..(place.unit + place.units) * self.unit_bytes;
        let bytes = self.map.get(range)?.into();
        self.is_sound().then_some(bytes)
    }

    /// True if the map is sound, and the kernel has these units in memory.
    pub(super) fn is_resident(&self, unit: usize, units: usize) -> bool {
        let range = unit * self.unit_bytes..(unit + units) * self.unit_bytes;
        self.map.get(range.clone()).is_some() && self.map.is_resident(range)
    }

    /// True if what was read until now is the file's.
    #[inline]
    pub(super) fn is_sound(&self) -> bool {
        self.map.is_sound()
    }

    /// Forgets what was checked in another era.
    fn doubt(&self) {
        let (era, now) = (self.era.load(Relaxed), Mapping::era());
        if era != now && self.era.compare_exchange(era, now, Relaxed, Relaxed).is_ok() {
            self.checked.iter().for_each(|word| word.store(0, Relaxed));
        }
    }

    /// Brings a leaf closer.
    pub(super) fn prefetch(&self, place: LeafPlace) {
        let start = place.unit * self.unit_bytes;
        if let Some(bytes) = self.map.get(start..start + place.units * self.unit_bytes) {
            vellum_codes::prefetch_all(bytes);
        }
    }

    /// The same, for who keeps it.
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

    #[test]
    fn a_leaf_is_believed_for_an_era() {
        let mut builder = TableBuilder::new(1, 10, Grain::default());
        builder.add(b"key", Stamp::new(1, EntryKind::Put), &[7; 1000]);
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&builder.finish().tail, 0).unwrap();
        let mapped = Mapped::new(Arc::new(Mapping::of(&file).unwrap()), 4096);
        let place = LeafPlace { unit: 0, units: 1 };
        assert!(mapped.leaf(place).unwrap().is_some_and(|(_, bytes)| bytes[500] == 7));
        let era = mapped.era.load(Relaxed);
        file.write_all_at(&[8], 500).unwrap();
        let believed = mapped.leaf(place);
        assert!(believed.is_ok() || era != mapped.era.load(Relaxed));
        mapped.era.store(0, Relaxed);
        assert!(mapped.leaf(place).unwrap_err().to_string().contains("checksum"));
    }

    #[test]
    fn a_page_is_copied_and_more_is_read_by_a_call() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[[1; 4096], [2; 4096]].concat(), 0).unwrap();
        let mapped = Mapped::new(Arc::new(Mapping::of(&file).unwrap()), 4096);
        let mut out = vec![0; 8192];
        assert!(mapped.copy(1, &mut out[..4096]) && out[..4096] == [2; 4096]);
        assert!(!mapped.copy(0, &mut out) && !mapped.copy(2, &mut out[..1]));
        // What is not there any more cannot be read, and says so.
        file.set_len(0).unwrap();
        assert!(!mapped.copy(0, &mut out[..4096]) && !mapped.is_sound());
        file.write_all_at(&[1; 4096], 0).unwrap();
        assert!(!mapped.copy(0, &mut out[..4096]), "it is never believed again");
    }

    #[test]
    fn a_compressed_leaf_is_copied_and_not_believed() {
        let mut builder = TableBuilder::new(1, 10, Grain::default()).packing(Compression::Lz4);
        builder.add(b"key", Stamp::new(1, EntryKind::Put), &[7; 3000]);
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&builder.finish().tail, 0).unwrap();
        let mapped = Mapped::new(Arc::new(Mapping::of(&file).unwrap()), 4096);
        let place = LeafPlace { unit: 0, units: 1 };
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
