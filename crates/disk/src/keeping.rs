//! Redundant metadata that a file system wants on flash several times (`--keep-copies`): its sectors are never shared.
//!
//! Invariant: between two discoveries of file systems, no kept sector shares its place. Sectors that were shared before
//! they were known to be kept are stored again when that is discovered.

use crate::discover::Discovery;
use crate::ftl::{Ftl, Incoming};
use std::ops::Range;
use vellum_base::{Kind, Result};

/// The kept sectors; see the module.
#[derive(Default)]
pub(crate) struct Keeping {
    /// Ascending and disjoint.
    ranges: Vec<Range<u32>>,
}

impl Keeping {
    /// The kept sectors of a disk of `sectors`, according to `found`.
    fn new(found: &Discovery, sectors: u64) -> Keeping {
        let within = |lba: u64| lba.min(sectors) as u32;
        let all = found.file_systems.iter().flat_map(|fs| &fs.copies);
        let mut ranges: Vec<Range<u32>> = all.map(|r| within(r.start.0)..within(r.end.0)).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let mut apart: Vec<Range<u32>> = Vec::with_capacity(ranges.len());
        for range in ranges.into_iter().filter(|range| !range.is_empty()) {
            match apart.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => apart.push(range),
            }
        }
        Keeping { ranges: apart }
    }

    #[inline]
    pub(crate) fn keeps(&self, sector: u32) -> bool {
        !self.ranges.is_empty() && {
            let after = self.ranges.partition_point(|range| range.start <= sector);
            after > 0 && sector < self.ranges[after - 1].end
        }
    }

    pub(crate) fn sectors(&self) -> u64 {
        self.ranges.iter().map(|range| u64::from(range.end - range.start)).sum()
    }
}

impl Ftl {
    /// Updates the kept sectors after a discovery; from now on each is stored alone.
    pub(crate) fn keep_copies(&mut self, found: &Discovery) -> Result<()> {
        if !self.identity.keep_copies {
            return Ok(());
        }
        self.keeping = Keeping::new(found, self.map.sectors());
        if self.options.read_only {
            return Ok(());
        }
        for range in self.keeping.ranges.clone() {
            for sector in range.filter(|s| self.map.is_shared(*s)).collect::<Vec<u32>>() {
                match self.store_alone(sector) {
                    Err(e) if e.kind() == Kind::NoSpace && self.poisoned.is_none() => return Ok(()),
                    stored => stored?,
                }
            }
        }
        Ok(())
    }

    /// Gives a sector that shares its place one of its own, unless its bytes cannot be read.
    fn store_alone(&mut self, sector: u32) -> Result<()> {
        if !self.map.is_shared(sector) {
            return Ok(());
        }
        let Some(data) = self.read_or_none(self.map.place(sector))? else { return Ok(()) };
        let crc = vellum_codes::crc32c(&*data);
        let alone =
            Incoming { data: &*data, is_zero: false, crc, digest: None, passed_by: false, small: None };
        self.write_slot(sector, &alone)?;
        self.settle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_searched() {
        let keeping = Keeping { ranges: vec![3..5, 9..10] };
        let kept: Vec<u32> = (0..12).filter(|s| keeping.keeps(*s)).collect();
        assert_eq!((kept, keeping.sectors()), (vec![3, 4, 9], 3));
        assert!(!Keeping::default().keeps(0));
    }
}
