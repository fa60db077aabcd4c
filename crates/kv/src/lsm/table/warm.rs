//! Cache warming: objects of a table go to the cache while it is written, so that a compaction does not evict what
//! clients read. These are its branches, which every get in their range needs, and leaves with entries from cached
//! leaves that were in use. With [`crate::CachePolicy::Lru`] all leaves go there, as a page cache has everything
//! written to a file.

use super::buffer::Buffer;
use super::cached::OwnLeaf;
use super::{Library, Object};
use crate::lsm::cache::CacheKey;
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_base::sync::Mutex;

/// An object that goes to the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WarmObject {
    pub unit: usize,
    pub units: usize,
    /// For a branch: units of its filter.
    pub filter_units: Option<usize>,
}

/// The objects among some bytes of a table that go to the cache.
pub(crate) struct Warm {
    pub objects: Vec<WarmObject>,
    /// The unit at which these bytes begin.
    pub first_unit: usize,
    pub unit_bytes: usize,
}

/// By table, first units of objects that went to the cache before the table was opened.
#[derive(Default)]
pub(crate) struct Warmed {
    units: Mutex<BTreeMap<u64, Vec<u32>>>,
}

impl Warmed {
    /// Takes those of a table.
    pub(super) fn take(&self, table: u64) -> Vec<u32> {
        self.units.lock().remove(&table).unwrap_or_default()
    }
}

impl Library {
    /// Adds objects of a table to the cache; `bytes` are its bytes from `warm.first_unit` on.
    pub(crate) fn warm(&self, table: u64, warm: Warm, bytes: &[u8]) {
        let Warm { objects, first_unit, unit_bytes } = warm;
        if objects.is_empty() {
            return;
        }
        let mut units = Vec::with_capacity(objects.len());
        for WarmObject { unit, units: count, filter_units } in objects {
            let start = (unit - first_unit) * unit_bytes;
            let stored = &bytes[start..start + count * unit_bytes];
            let object = match filter_units {
                None => OwnLeaf::of(stored).and_then(Object::searched),
                Some(filter_units) => Object::branch(Buffer::of(stored), filter_units * unit_bytes),
            };
            if let Ok(object) = object {
                self.cache.insert(CacheKey { table, unit: unit as u32 }, Arc::new(object));
                units.push(unit as u32);
            }
        }
        self.warmed.units.lock().entry(table).or_default().extend(units);
    }

    /// Removes the objects of a table that is given up from the cache.
    pub(crate) fn cool(&self, table: u64) {
        for unit in self.warmed.take(table) {
            self.cache.remove(CacheKey { table, unit });
        }
    }
}
