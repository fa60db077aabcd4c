//! Data leaves of a table that is mapped into memory: neither copied nor cached.
//!
//! 1. A leaf is checked when it is first read since the table was opened. Later only its shape is: a file that somebody
//!    writes to gives errors or wrong entries, never a panic.
//! 2. Compressed leaves are not for this: unpacked ones belong into the cache.

use super::LeafPlace;
use super::cached::{Bytes, Object};
use super::leaf::Leaf;
use crate::media::Map;
use std::sync::Arc;
use vellum_base::Result;
use vellum_base::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// See the module.
pub(super) struct Mapped {
    map: Arc<Map>,
    unit_bytes: usize,
    /// A bit for every unit: the leaf that begins there was checked.
    checked: Box<[AtomicU64]>,
}

impl Mapped {
    pub(super) fn new(map: Arc<Map>, unit_bytes: usize) -> Mapped {
        let words = map.len().div_ceil(unit_bytes * 64);
        Mapped { map, unit_bytes, checked: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The leaf at `place` and its bytes; `None` if it is compressed, or not in the map.
    pub(super) fn leaf(&self, place: LeafPlace) -> Result<Option<(Leaf, &[u8])>> {
        let start = place.unit * self.unit_bytes;
        let Some(bytes) = self.map.get(start..start + place.units * self.unit_bytes) else { return Ok(None) };
        let (word, bit) = (&self.checked[place.unit / 64], 1 << (place.unit % 64));
        let was_checked = word.load(Relaxed) & bit != 0;
        let leaf = Leaf::plain(bytes, was_checked)?;
        if leaf.is_some() && !was_checked {
            word.fetch_or(bit, Relaxed);
        }
        Ok(leaf.map(|leaf| (leaf, bytes)))
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
