//! The sectors of file system journals, and their numbering.

use std::ops::Range;
use vellum_base::Lba;

/// Journals of a disk as sorted, disjoint extents with consecutive numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Journals {
    /// First sector, end, number of the first sector.
    extents: Vec<(u32, u32, u32)>,
    sectors: u32,
}

impl Journals {
    /// From ranges in any order; ranges that overlap others or exceed `sectors` are left out.
    pub(crate) fn new(ranges: impl IntoIterator<Item = Range<Lba>>, sectors: u64) -> Journals {
        let mut ranges: Vec<_> =
            ranges.into_iter().filter(|r| r.start < r.end && r.end.0 <= sectors).collect();
        ranges.sort_by_key(|r| r.start);
        let mut journals = Journals::default();
        for range in ranges {
            let (start, end) = (range.start.0 as u32, range.end.0 as u32);
            if journals.extents.last().is_none_or(|last| last.1 <= start) {
                journals.extents.push((start, end, journals.sectors));
                journals.sectors += end - start;
            }
        }
        journals
    }

    /// Number of sectors in all journals.
    pub(crate) fn sectors(&self) -> u32 {
        self.sectors
    }

    /// The number of `sector` within the journals.
    #[inline]
    pub(crate) fn index_of(&self, sector: u32) -> Option<u32> {
        let at = self.extents.partition_point(|e| e.0 <= sector).checked_sub(1)?;
        let (start, end, first) = self.extents[at];
        (sector < end).then(|| first + sector - start)
    }

    /// The sector with number `index`.
    pub(crate) fn sector_at(&self, index: u32) -> u32 {
        let at = self.extents.partition_point(|e| e.2 <= index) - 1;
        let (start, _, first) = self.extents[at];
        start + index - first
    }

    /// All sectors of all journals.
    pub(crate) fn all(&self) -> impl Iterator<Item = u32> + '_ {
        self.extents.iter().flat_map(|e| e.0..e.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_run_through_the_extents() {
        let r = |a, b| Lba(a)..Lba(b);
        let j = Journals::new([r(100, 110), r(5, 8), r(7, 9), r(200, 300)], 210);
        assert_eq!(j.sectors(), 13, "overlap and out-of-range are left out");
        let all: Vec<u32> = j.all().collect();
        for (n, sector) in all.iter().enumerate() {
            assert_eq!(j.index_of(*sector), Some(n as u32));
            assert_eq!(j.sector_at(n as u32), *sector);
        }
        for outside in [0, 4, 8, 99, 110, 209] {
            assert_eq!(j.index_of(outside), None);
        }
    }
}
