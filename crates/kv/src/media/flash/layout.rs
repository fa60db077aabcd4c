//! Where the bytes of a table are, while the store is open.
//!
//! An extent is a run of units of 4096 bytes of one superblock, wherever in its pages they begin and end: a page may be
//! larger than a unit, and is read in part.
//!
//! Invariants
//! 1. A layout never changes. Collection replaces it by another with the same bytes.
//! 2. Superblocks that a replaced layout needed are erased when nobody reads by it any more.

use super::superblock::{Home, UNIT_BYTES};
use std::sync::Arc;
use vellum_base::sync::{Condvar, Mutex};

/// Units of a superblock that follow one another.
#[derive(Clone, Debug)]
pub(super) struct Extent {
    pub home: Arc<Home>,
    pub start: u32,
    pub units: u32,
}

impl Extent {
    /// The superblock.
    pub(super) fn index(&self) -> u32 {
        self.home.index
    }

    /// First byte in the superblock.
    pub(super) fn offset(&self) -> u64 {
        self.start as u64 * UNIT_BYTES
    }

    pub(super) fn bytes(&self) -> u64 {
        self.units as u64 * UNIT_BYTES
    }

    /// The first so many units, and what is left.
    pub(super) fn split(&self, units: u64) -> (Extent, Option<Extent>) {
        let units = units.min(self.units as u64) as u32;
        let rest = Extent { start: self.start + units, units: self.units - units, ..self.clone() };
        (Extent { units, ..self.clone() }, (rest.units > 0).then_some(rest))
    }
}

/// Appends an extent, as part of the last if it follows that.
pub(super) fn push(extents: &mut Vec<Extent>, next: Extent) {
    match extents.last_mut() {
        Some(last) if last.index() == next.index() && last.start + last.units == next.start => {
            last.units += next.units;
        }
        _ => extents.push(next),
    }
}

/// See the module.
pub(super) struct Layout {
    pub edition: u32,
    /// The superblock that its list is on.
    pub list_on: u32,
    pub extents: Vec<Extent>,
    /// The unit of the table behind each extent.
    ends: Vec<u64>,
    reads: Mutex<usize>,
    none_reads: Condvar,
}

impl Layout {
    pub(super) fn new(edition: u32, list_on: u32, extents: Vec<Extent>) -> Layout {
        let mut end = 0;
        let ends = extents.iter().map(|extent| {
            end += extent.units as u64;
            end
        });
        let ends = ends.collect();
        Layout { edition, list_on, extents, ends, reads: Mutex::new(0), none_reads: Condvar::new() }
    }

    /// Bytes of the table.
    pub(super) fn bytes(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0) * UNIT_BYTES
    }

    /// Extents that lie elsewhere than the list.
    pub(super) fn foreign(&self) -> u64 {
        self.extents.iter().filter(|extent| extent.index() != self.list_on).count() as u64
    }

    /// Where so many bytes at `offset` are: parts of superblocks, each with its first byte there and how many. `None`
    /// if the table has not so many.
    pub(super) fn find(
        &self,
        offset: u64,
        bytes: u64,
    ) -> Option<impl Iterator<Item = (&Arc<Home>, u64, u64)>> {
        let end = offset.checked_add(bytes).filter(|end| *end <= self.bytes())?;
        let first = self.ends.partition_point(|unit| unit * UNIT_BYTES <= offset);
        let extents = self.extents[first..].iter().zip(&self.ends[first..]);
        let parts = extents.map(move |(extent, extent_end)| {
            let to = extent_end * UNIT_BYTES;
            let from = to - extent.bytes();
            let (first, last) = (offset.max(from), end.min(to));
            (&extent.home, extent.offset() + first - from, last.saturating_sub(first))
        });
        Some(parts.take_while(|(_, _, length)| *length > 0))
    }

    /// Returns when nobody reads by it. It has been replaced, so nobody begins to.
    pub(super) fn wait_for_readers(&self) {
        let mut reads = self.reads.lock();
        while *reads > 0 {
            self.none_reads.wait(&mut reads);
        }
    }
}

/// A table's layout in force.
pub(super) struct Handle {
    current: Mutex<Arc<Layout>>,
}

impl Handle {
    pub(super) fn new(layout: Layout) -> Handle {
        Handle { current: Mutex::new(Arc::new(layout)) }
    }

    pub(super) fn layout(&self) -> Arc<Layout> {
        self.current.lock().clone()
    }

    /// Begins to read by the layout in force.
    pub(super) fn read(&self) -> Reading {
        let current = self.current.lock();
        *current.reads.lock() += 1;
        Reading(current.clone())
    }

    /// Puts another in force. Returns the one before.
    pub(super) fn replace(&self, layout: Layout) -> Arc<Layout> {
        std::mem::replace(&mut *self.current.lock(), Arc::new(layout))
    }
}

/// Somebody reads by a layout.
pub(super) struct Reading(pub(super) Arc<Layout>);

impl Drop for Reading {
    fn drop(&mut self) {
        let mut reads = self.0.reads.lock();
        *reads -= 1;
        if *reads == 0 {
            self.0.none_reads.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_byte_is_found_where_its_extent_is(parts in prop::collection::vec((0u32..3, 0u32..50, 1u32..6), 1..20), from in 0u64..100, units in 1u64..100) {
            let homes: Vec<_> = (0..3).map(|index| Arc::new(Home { index, blocks: Vec::new() })).collect();
            let mut extents = Vec::new();
            let mut model = Vec::new();
            for (home, start, units) in parts {
                push(&mut extents, Extent { home: homes[home as usize].clone(), start, units });
                model.extend((start..start + units).map(|unit| (home, unit as u64)));
            }
            let layout = Layout::new(0, 0, extents);
            prop_assert_eq!(layout.bytes(), model.len() as u64 * UNIT_BYTES);
            let found = layout.find(from * UNIT_BYTES, units * UNIT_BYTES).map(|parts| {
                let units = |(home, offset, bytes): (&Arc<Home>, u64, u64)| {
                    let index = home.index;
                    (offset / UNIT_BYTES..(offset + bytes) / UNIT_BYTES).map(move |unit| (index, unit))
                };
                parts.flat_map(units).collect::<Vec<_>>()
            });
            let there = model.get(from as usize..(from + units) as usize).map(<[_]>::to_vec);
            prop_assert_eq!(found, there);
        }
    }
}
