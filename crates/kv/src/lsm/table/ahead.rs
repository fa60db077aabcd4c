//! Reading ahead of a scan: from the third leaf in a row on, those that follow are read with it, twice as many each
//! time. They do not go to the cache, which is for what is asked for again; but what is there is taken from there.

use super::object::UNIT_BYTES;
use super::scratch::Scratch;
use super::{LeafPlace, Object, Table};
use crate::lsm::cache::Place;
use std::sync::Arc;
use vellum_base::Result;

/// Leaves in a row that are read one by one.
const ALONE: u32 = 2;
/// Units read at a time, at first and at most.
const UNITS_MIN: usize = 4;
const UNITS_MAX: usize = 32;

/// See the module.
#[derive(Default)]
pub(super) struct Ahead {
    /// Where the leaf that follows the last one begins.
    next: usize,
    /// Leaves in a row so far.
    row: u32,
    /// Units of the next read.
    units: usize,
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
            self.units = UNITS_MIN;
            return table.data(place);
        }
        let known = Place { table: table.meta.number, unit: place.unit as u32 };
        if let Some(object) = table.library.cache.get(known) {
            return Ok(object);
        }
        if !self.holds(place) {
            let units = self.units.min(run_end.saturating_sub(place.unit)).max(place.units);
            self.units = (self.units * 2).min(UNITS_MAX);
            self.read = None; // its memory is used again
            let mut read = Scratch::new(units * UNIT_BYTES);
            table.read(place.unit, &mut read)?;
            (self.unit, self.read) = (place.unit, Some(read));
        }
        let start = (place.unit - self.unit) * UNIT_BYTES;
        let leaf = |read: &Scratch| Object::data(read[start..start + place.units * UNIT_BYTES].into());
        Ok(Arc::new(leaf(self.read.as_ref().expect("it holds the leaf"))?))
    }

    fn holds(&self, place: LeafPlace) -> bool {
        let end = self.unit + self.read.as_ref().map_or(0, |read| read.len() / UNIT_BYTES);
        place.unit >= self.unit && place.unit + place.units <= end
    }
}
