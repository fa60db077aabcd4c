//! Where the bytes of a table are: its extents, in memory.
//!
//! An extent is a run of units of one superblock, wherever in its pages they begin and end: a page is larger than a
//! unit, and is read in part.
//!
//! Invariants
//! 1. A layout is immutable. Collection replaces it by another one with the same units.
//! 2. Superblocks of a replaced layout are erased only when nobody reads by it any more.

use super::superblock::{EXTENT_UNIT_BYTES, Home};
use std::sync::Arc;
use vellum_base::sync::{Condvar, Mutex};

/// Adjacent units of a superblock.
#[derive(Clone, Debug)]
pub(super) struct Extent {
    pub home: Arc<Home>,
    pub start: u32,
    pub units: u32,
}

impl Extent {
    /// Units that were not found on the flash.
    pub(super) fn lost(units: u32) -> Extent {
        Extent { home: Arc::new(Home { index: u32::MAX, blocks: Vec::new() }), start: 0, units }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.index() == u32::MAX
    }

    /// The superblock.
    pub(super) fn index(&self) -> u32 {
        self.home.index
    }

    /// Offset in the superblock, in bytes.
    pub(super) fn offset(&self) -> u64 {
        self.start as u64 * EXTENT_UNIT_BYTES
    }

    pub(super) fn bytes(&self) -> u64 {
        self.units as u64 * EXTENT_UNIT_BYTES
    }

    /// Splits it into parts of at most `bytes_max` bytes.
    pub(super) fn pieces(&self, bytes_max: u64) -> impl Iterator<Item = Extent> {
        let most = (bytes_max / EXTENT_UNIT_BYTES).max(1) as u32;
        let starts = (0..self.units).step_by(most as usize);
        starts.map(move |skipped| self.part(skipped, most.min(self.units - skipped)))
    }

    /// A part of it.
    pub(super) fn part(&self, skipped: u32, units: u32) -> Extent {
        Extent { start: self.start + skipped, units, ..self.clone() }
    }
}

/// Appends an extent, joined to the last one if adjacent.
pub(super) fn push(extents: &mut Vec<Extent>, next: Extent) {
    match extents.last_mut() {
        Some(last) if last.index() == next.index() && last.start + last.units == next.start => {
            last.units += next.units;
        }
        _ => extents.push(next),
    }
}

/// See the module.
pub(super) struct TableLayout {
    /// Extents of the table's bytes, then of its list.
    pub extents: Vec<Extent>,
    list_units: u64,
    /// By extent, the unit of the table after it.
    ends: Vec<u64>,
    reads: Mutex<usize>,
    none_reads: Condvar,
}

impl TableLayout {
    pub(super) fn new(extents: Vec<Extent>, list_units: u64) -> TableLayout {
        let mut end = 0;
        let ends = extents.iter().map(|extent| {
            end += extent.units as u64;
            end
        });
        let ends = ends.collect();
        TableLayout { extents, list_units, ends, reads: Mutex::new(0), none_reads: Condvar::new() }
    }

    /// The layout after a move; `to` maps each extent.
    pub(super) fn moved(&self, to: impl Fn(&Extent, &mut Vec<Extent>)) -> TableLayout {
        let mut extents = Vec::new();
        self.extents.iter().for_each(|extent| to(extent, &mut extents));
        TableLayout::new(extents, self.list_units)
    }

    /// Bytes of the table.
    pub(super) fn bytes(&self) -> u64 {
        (self.ends.last().copied().unwrap_or(0) - self.list_units) * EXTENT_UNIT_BYTES
    }

    /// Bytes of lost extents.
    pub(super) fn lost_bytes(&self) -> u64 {
        self.extents.iter().filter(|extent| extent.is_lost()).map(Extent::bytes).sum()
    }

    /// True of a table that consists of its superblock only.
    pub(super) fn is_plain(&self) -> bool {
        self.list_units == 0
    }

    /// Where a byte range is: parts of superblocks, as superblock, offset and bytes. `None` if the table is shorter, or
    /// part of the range is lost.
    pub(super) fn find(
        &self,
        offset: u64,
        bytes: u64,
    ) -> Option<impl Iterator<Item = (&Arc<Home>, u64, u64)>> {
        let end = offset.checked_add(bytes).filter(|end| *end <= self.bytes())?;
        let first = self.ends.partition_point(|unit| unit * EXTENT_UNIT_BYTES <= offset);
        let last = self.ends.partition_point(|unit| unit * EXTENT_UNIT_BYTES < end);
        if self.extents[first..].iter().take(last + 1 - first.min(last)).any(Extent::is_lost) && bytes > 0 {
            return None;
        }
        let extents = self.extents[first..].iter().zip(&self.ends[first..]);
        let parts = extents.map(move |(extent, extent_end)| {
            let to = extent_end * EXTENT_UNIT_BYTES;
            let from = to - extent.bytes();
            let (first, last) = (offset.max(from), end.min(to));
            (&extent.home, extent.offset() + first - from, last.saturating_sub(first))
        });
        Some(parts.take_while(|(_, _, length)| *length > 0))
    }

    /// Waits until nobody reads by this layout. It was replaced, so no new reads begin.
    pub(super) fn wait_for_readers(&self) {
        let mut reads = self.reads.lock();
        while *reads > 0 {
            self.none_reads.wait(&mut reads);
        }
    }
}

/// The current layout of a table.
pub(super) struct TableHandle {
    current: Mutex<Arc<TableLayout>>,
}

impl TableHandle {
    pub(super) fn new(layout: TableLayout) -> TableHandle {
        TableHandle { current: Mutex::new(Arc::new(layout)) }
    }

    pub(super) fn layout(&self) -> Arc<TableLayout> {
        self.current.lock().clone()
    }

    /// Begins to read by the layout in force.
    pub(super) fn read(&self) -> ReadGuard {
        let current = self.current.lock();
        *current.reads.lock() += 1;
        ReadGuard(current.clone())
    }

    /// Puts another in force. Returns the one before.
    pub(super) fn replace(&self, layout: TableLayout) -> Arc<TableLayout> {
        std::mem::replace(&mut *self.current.lock(), Arc::new(layout))
    }
}

/// Held while a layout is read by.
pub(super) struct ReadGuard(pub(super) Arc<TableLayout>);

impl Drop for ReadGuard {
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
            let layout = TableLayout::new(extents, 0);
            prop_assert_eq!(layout.bytes(), model.len() as u64 * EXTENT_UNIT_BYTES);
            let found = layout.find(from * EXTENT_UNIT_BYTES, units * EXTENT_UNIT_BYTES).map(|parts| {
                let units = |(home, offset, bytes): (&Arc<Home>, u64, u64)| {
                    let index = home.index;
                    (offset / EXTENT_UNIT_BYTES..(offset + bytes) / EXTENT_UNIT_BYTES).map(move |unit| (index, unit))
                };
                parts.flat_map(units).collect::<Vec<_>>()
            });
            let there = model.get(from as usize..(from + units) as usize).map(<[_]>::to_vec);
            prop_assert_eq!(found, there);
        }
    }
}
