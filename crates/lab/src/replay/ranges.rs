//! Sorted, disjoint ranges of sectors.

use std::ops::Range;
use vellum_base::Lba;

/// Sorts and merges ranges, leaving out empty ones.
pub(super) fn sorted(ranges: Vec<Range<Lba>>) -> Vec<Range<u64>> {
    let mut ranges: Vec<_> =
        ranges.into_iter().map(|r| r.start.0..r.end.0).filter(|r| r.start < r.end).collect();
    ranges.sort_by_key(|r| r.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// True if one of the sorted ranges contains `sector`.
pub(super) fn contain(ranges: &[Range<u64>], sector: u64) -> bool {
    let after = ranges.partition_point(|r| r.start <= sector);
    after > 0 && sector < ranges[after - 1].end
}

/// How many of `sectors` the sorted ranges contain.
pub(super) fn shared(ranges: &[Range<u64>], sectors: Range<u64>) -> u64 {
    let of = |r: &Range<u64>| r.end.min(sectors.end).saturating_sub(r.start.max(sectors.start));
    ranges.iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_merge_and_contain() {
        let r = |a, b| Lba(a)..Lba(b);
        let all = sorted(vec![r(50, 60), r(5, 8), r(7, 12), r(12, 13), r(9, 9)]);
        assert_eq!(all, [5..13, 50..60]);
        let inside: Vec<u64> = (0..100).filter(|s| contain(&all, *s)).collect();
        assert_eq!(inside, (5..13).chain(50..60).collect::<Vec<_>>());
        assert!(!contain(&[], 0));
        for (start, end) in [(0, 100), (6, 7), (13, 50), (12, 51), (59, 70)] {
            let one_by_one = (start..end).filter(|s| contain(&all, *s)).count() as u64;
            assert_eq!(shared(&all, start..end), one_by_one, "{start}..{end}");
        }
    }
}
