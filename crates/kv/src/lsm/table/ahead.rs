//! Reading ahead of a scan: from the third leaf in a row on, those that follow are read with it, twice as many each
//! time. They do not go to the cache, which is for what is asked for again; but what is there is taken from there.

use super::scratch::Scratch;
use super::{LeafPlace, Object, Table};
use crate::lsm::cache::Place;
use std::sync::Arc;
use vellum_base::Result;

/// Leaves in a row that are read one by one.
const ALONE: u32 = 2;
/// Bytes read at a time, at first and at most.
const BYTES_MIN: usize = 16 << 10;
const BYTES_MAX: usize = 128 << 10;

/// See the module.
#[derive(Default)]
pub(super) struct Ahead {
    /// Where the leaf that follows the last one begins.
    next: usize,
    /// Leaves in a row so far.
    row: u32,
    /// Bytes of the next read.
    bytes: usize,
    /// What was read, and the unit at which it begins.
    read: Option<Scratch>,
    unit: usize,
}

impl Ahead {
    /// The leaf at `place`, of a run whose leaves end before unit `run_end`.
    pub(super) fn data(&mut self, table: &Table, place: LeafPlace, run_end: usize) -> Result<Arc<Object>> {
        if let Some(object) = table.mapped(place)? {
            return Ok(object);
        }
        let follows = self.next == place.unit;
        (self.next, self.row) = (place.unit + place.units, if follows { self.row + 1 } else { 1 });
        if self.row <= ALONE {
            self.bytes = BYTES_MIN;
            return table.data(place);
        }
        let known = Place { table: table.meta.number, unit: place.unit as u32 };
        if let Some(object) = table.library.cache.get(known) {
            return Ok(object);
        }
        if !self.holds(table, place) {
            let units = self.bytes / table.unit_bytes;
            let units = units.min(run_end.saturating_sub(place.unit)).max(place.units);
            self.bytes = (self.bytes * 2).min(BYTES_MAX);
            self.read = None; // its memory is used again
            let mut read = Scratch::new(units * table.unit_bytes);
            table.read(place.unit, &mut read)?;
            (self.unit, self.read) = (place.unit, Some(read));
        }
        let start = (place.unit - self.unit) * table.unit_bytes;
        let leaf = |read: &Scratch| Object::data(read[start..start + place.units * table.unit_bytes].into());
        Ok(Arc::new(leaf(self.read.as_ref().expect("it holds the leaf"))?))
    }

    fn holds(&self, table: &Table, place: LeafPlace) -> bool {
        let end = self.unit + self.read.as_ref().map_or(0, |read| read.len() / table.unit_bytes);
        place.unit >= self.unit && place.unit + place.units <= end
    }
}
