//! What of a table goes to the cache while it is written: its branches, which every get in their range will ask for,
//! and leaves with entries from leaves that were in use in the cache. So a compaction does not take from clients what
//! they read. With [`crate::CachePolicy::Lru`] all of it goes there, as all that is written to a file is in the
//! kernel's.

use super::{Library, Object};
use crate::lsm::cache::Place;
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_base::sync::Mutex;

/// An object that was written, and goes to the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub unit: usize,
    pub units: usize,
    /// Of a branch.
    pub filter_units: Option<usize>,
}

/// Those among some bytes of a table.
pub(crate) struct Warm {
    pub pieces: Vec<Piece>,
    /// Where the bytes begin.
    pub first_unit: usize,
    pub unit_bytes: usize,
}

/// Units at which objects begin that went to the cache before their table was opened.
#[derive(Default)]
pub(crate) struct Warmed {
    units: Mutex<BTreeMap<u64, Vec<u32>>>,
}

impl Warmed {
    /// Hands them over.
    pub(super) fn take(&self, table: u64) -> Vec<u32> {
        self.units.lock().remove(&table).unwrap_or_default()
    }
}

impl Library {
    /// Gives pieces of a table to the cache; `bytes` are those of it from the first unit on that `warm` says.
    pub(crate) fn warm(&self, table: u64, warm: Warm, bytes: &[u8]) {
        let Warm { pieces, first_unit, unit_bytes } = warm;
        if pieces.is_empty() {
            return;
        }
        let mut units = Vec::with_capacity(pieces.len());
        for Piece { unit, units: count, filter_units } in pieces {
            let start = (unit - first_unit) * unit_bytes;
            let own: Box<[u8]> = bytes[start..start + count * unit_bytes].into();
            let object = match filter_units {
                None => Object::searched(own),
                Some(filter_units) => Object::branch(own, filter_units * unit_bytes),
            };
            if let Ok(object) = object {
                self.cache.insert(Place { table, unit: unit as u32 }, Arc::new(object));
                units.push(unit as u32);
            }
        }
        self.warmed.units.lock().entry(table).or_default().extend(units);
    }

    /// The table will not be.
    pub(crate) fn cool(&self, table: u64) {
        for unit in self.warmed.take(table) {
            self.cache.remove(Place { table, unit });
        }
    }
}
