//! Allocation of space in a file system.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use vellum_base::{Error, Kind, Result};

/// Consecutive sectors.
pub(super) type Extent = Range<u64>;

/// How a file system allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::experiment) enum Layout {
    /// Like ext4, whose stream allocator continues where it last was: takes the free extent after the end of the file,
    /// or the next one after the last allocation, cyclically.
    Extents,
    /// Like F2FS: appends to a log of segments, using the next free one each time. A segment is free when nothing in it
    /// is valid; when few are free, the emptiest is cleaned.
    Log { segment_sectors: u64 },
}

/// The sectors of a disk, and their allocation.
pub(super) enum Space {
    Extents(Extents),
    Log(Log),
}

impl Space {
    pub(super) fn new(layout: Layout, whole: Extent) -> Space {
        match layout {
            Layout::Extents => {
                Space::Extents(Extents { free: BTreeMap::from([(whole.start, whole.end)]), cursor: 0 })
            }
            Layout::Log { segment_sectors } => {
                let count = (whole.end - whole.start) / segment_sectors;
                Space::Log(Log {
                    start: whole.start,
                    segment_sectors,
                    valid: vec![0; count as usize],
                    free: (0..count).collect(),
                    head: 0..0,
                })
            }
        }
    }

    /// Allocates at most `sectors` for a file that ends at `end`.
    pub(super) fn take(&mut self, sectors: u64, end: u64) -> Result<Extent> {
        let taken = match self {
            Space::Extents(extents) => extents.take(sectors, end),
            Space::Log(log) => log.take(sectors),
        };
        taken.ok_or_else(|| Error::new(Kind::NoSpace, "the file system is full"))
    }

    pub(super) fn give_back(&mut self, extent: Extent) {
        match self {
            Space::Extents(extents) => extents.give_back(extent),
            Space::Log(log) => log.give_back(extent),
        }
    }

    /// The sectors to be cleaned, if any.
    pub(super) fn to_clean(&self) -> Option<Extent> {
        if let Space::Log(log) = self { log.to_clean() } else { None }
    }
}

/// Free extents by start.
pub(super) struct Extents {
    free: BTreeMap<u64, u64>,
    /// End of the last allocation.
    cursor: u64,
}

impl Extents {
    fn take(&mut self, sectors: u64, goal: u64) -> Option<Extent> {
        let start = match self.free.contains_key(&goal) {
            true => goal,
            false => *self.free.range(self.cursor..).next().or_else(|| self.free.first_key_value())?.0,
        };
        let end = self.free.remove(&start)?;
        let taken = start..end.min(start + sectors);
        self.cursor = taken.end;
        if taken.end < end {
            self.free.insert(taken.end, end);
        }
        Some(taken)
    }

    fn give_back(&mut self, mut extent: Extent) {
        if let Some(end) = self.free.remove(&extent.end) {
            extent.end = end;
        }
        if let Some((start, end)) = self.free.range_mut(..extent.start).next_back()
            && *end == extent.start
        {
            debug_assert!(*start < extent.start);
            *end = extent.end;
            return;
        }
        self.free.insert(extent.start, extent.end);
    }
}

/// Segments, and how many sectors are valid in each.
pub(super) struct Log {
    start: u64,
    segment_sectors: u64,
    valid: Vec<u64>,
    free: BTreeSet<u64>,
    head: Extent,
}

impl Log {
    /// One segment in this many is kept free.
    const KEPT_FREE: usize = 20;

    fn take(&mut self, sectors: u64) -> Option<Extent> {
        if self.head.is_empty() {
            let last = self.head.start.checked_sub(self.start).map_or(0, |at| at / self.segment_sectors);
            let segment = *self.free.range(last..).next().or_else(|| self.free.first())?;
            self.free.remove(&segment);
            let start = self.start + segment * self.segment_sectors;
            self.head = start..start + self.segment_sectors;
        }
        let taken = self.head.start..self.head.end.min(self.head.start + sectors);
        self.head.start = taken.end;
        let segment = self.segment_of(taken.start);
        self.valid[segment as usize] += taken.end - taken.start;
        Some(taken)
    }

    fn give_back(&mut self, extent: Extent) {
        let segment = self.segment_of(extent.start);
        self.valid[segment as usize] -= extent.end - extent.start;
        if self.valid[segment as usize] == 0 && !self.is_head(segment) {
            self.free.insert(segment);
        }
    }

    fn to_clean(&self) -> Option<Extent> {
        if self.free.len() * Log::KEPT_FREE > self.valid.len() {
            return None;
        }
        let dirty = |segment: &u64| {
            let valid = self.valid[*segment as usize];
            (1..self.segment_sectors).contains(&valid) && !self.is_head(*segment)
        };
        let emptiest = (0..self.valid.len() as u64).filter(dirty).min_by_key(|s| self.valid[*s as usize])?;
        let start = self.start + emptiest * self.segment_sectors;
        Some(start..start + self.segment_sectors)
    }

    fn segment_of(&self, sector: u64) -> u64 {
        (sector - self.start) / self.segment_sectors
    }

    fn is_head(&self, segment: u64) -> bool {
        !self.head.is_empty() && self.segment_of(self.head.start) == segment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Allocates and frees at random: nothing is allocated twice, and free space can be allocated.
    fn exercise(layout: Layout) {
        let whole = 64..64 + 4096;
        let mut space = Space::new(layout, whole.clone());
        let mut held: Vec<Extent> = Vec::new();
        let mut owned = [false; 4160];
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..20_000 {
            let used = owned.iter().filter(|owned| **owned).count();
            if used < 2500 {
                let end = held.last().map_or(0, |extent| extent.end);
                let extent = space.take(1 + random(100), end).unwrap();
                assert!(!extent.is_empty() && extent.start >= whole.start && extent.end <= whole.end);
                for sector in extent.clone() {
                    assert!(!std::mem::replace(&mut owned[sector as usize], true), "{sector} twice");
                }
                held.push(extent);
            } else {
                let extent = held.swap_remove(random(held.len() as u64) as usize);
                owned[extent.start as usize..extent.end as usize].fill(false);
                space.give_back(extent);
            }
            if let Some(victim) = space.to_clean() {
                let moved: Vec<Extent> = held.extract_if(.., |e| victim.contains(&e.start)).collect();
                assert!(!moved.is_empty(), "a victim has something valid");
                for extent in moved {
                    owned[extent.start as usize..extent.end as usize].fill(false);
                    space.give_back(extent);
                }
            }
        }
        held.into_iter().for_each(|extent| space.give_back(extent));
        if let Space::Extents(extents) = &space {
            assert_eq!(extents.free, BTreeMap::from([(whole.start, whole.end)]), "free extents join");
        }
    }

    #[test]
    fn extents_are_handed_out_once() {
        exercise(Layout::Extents);
    }

    #[test]
    fn segments_are_handed_out_once() {
        exercise(Layout::Log { segment_sectors: 128 });
    }
}
