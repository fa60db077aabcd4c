//! Reference counts of the units of a superblock. Until the inputs of a merge are erased, a unit may be in two tables;
//! it is live once.
//!
//! A *piece* is a maximal sequence of adjacent live units of one run. A list needs one entry to name it.

use std::collections::BTreeMap;

/// See the module.
#[derive(Default)]
pub(super) struct Cover {
    /// Counts by the first unit for which they hold.
    steps: BTreeMap<u32, u32>,
    /// Units at which another run begins, ascending.
    seams: Vec<u32>,
    live: u64,
    pieces: u64,
}

impl Cover {
    /// No unit is live yet; runs other than the first begin at `seams`.
    pub(super) fn new(seams: Vec<u32>) -> Cover {
        Cover { seams, ..Cover::default() }
    }

    /// Number of live units.
    pub(super) fn live(&self) -> u64 {
        self.live
    }

    /// Number of pieces.
    pub(super) fn pieces(&self) -> u64 {
        self.pieces
    }

    /// One more table uses these units.
    pub(super) fn add(&mut self, start: u32, units: u32) {
        self.change(start, start + units, |count| count + 1);
    }

    /// One table less uses these units.
    pub(super) fn take(&mut self, start: u32, units: u32) {
        self.change(start, start + units, |count| count.checked_sub(1).expect("counted on"));
    }

    /// Maximal ranges of live units: first unit and count.
    pub(super) fn ranges(&self) -> Vec<(u32, u32)> {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for ((start, count), end) in self.steps.iter().zip(self.steps.keys().skip(1)) {
            match ranges.last_mut() {
                _ if *count == 0 => {}
                Some((first, units)) if *first + *units == *start => *units = end - *first,
                _ => ranges.push((*start, end - start)),
            }
        }
        ranges
    }

    fn at(&self, unit: u32) -> u32 {
        self.steps.range(..=unit).next_back().map_or(0, |(_, count)| *count)
    }

    /// Pieces that begin among these units, if all of these are live.
    fn starts(&self, start: u32, end: u32) -> u64 {
        let seams =
            self.seams.partition_point(|seam| *seam < end) - self.seams.partition_point(|s| *s < start);
        let is_first = self.seams.binary_search(&start).is_err() && (start == 0 || self.at(start - 1) == 0);
        (seams + is_first as usize) as u64
    }

    /// 1 if this unit continues a piece of the unit before it, if that is live.
    fn joins(&self, unit: u32) -> u64 {
        (self.at(unit) > 0 && self.seams.binary_search(&unit).is_err()) as u64
    }

    fn change(&mut self, start: u32, end: u32, change: impl Fn(u32) -> u32) {
        for bound in [start, end] {
            let count = self.at(bound);
            self.steps.entry(bound).or_insert(count);
        }
        let bounds: Vec<u32> = self.steps.range(start..=end).map(|(bound, _)| *bound).collect();
        for pair in bounds.windows(2) {
            let (units, before) = (u64::from(pair[1] - pair[0]), self.steps[&pair[0]]);
            let after = change(before);
            match (before, after) {
                (0, _) => {
                    self.live += units;
                    self.pieces = self.pieces + self.starts(pair[0], pair[1]) - self.joins(pair[1]);
                }
                (_, 0) => {
                    self.live -= units;
                    self.pieces = self.pieces + self.joins(pair[1]) - self.starts(pair[0], pair[1]);
                }
                _ => {}
            }
            self.steps.insert(pair[0], after);
        }
        // Only at the two ends may a count now equal the one before it.
        for bound in [start, end] {
            let before = self.steps.range(..bound).next_back().map_or(0, |(_, count)| *count);
            if self.steps.get(&bound) == Some(&before) {
                self.steps.remove(&bound);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNITS: usize = 40;

    proptest! {
        #[test]
        fn counts_are_those_of_every_unit(
            steps in prop::collection::vec((0u32..40, 1u32..15, any::<bool>()), 1..60),
            seams in prop::collection::btree_set(1u32..40, 0..9),
        ) {
            let (mut cover, mut model) = (Cover::new(seams.iter().copied().collect()), [0u32; UNITS]);
            for (start, units, adds) in steps {
                let units = units.min(UNITS as u32 - start);
                let range = &mut model[start as usize..(start + units) as usize];
                if adds {
                    cover.add(start, units);
                    range.iter_mut().for_each(|count| *count += 1);
                } else if range.iter().all(|count| *count > 0) {
                    cover.take(start, units);
                    range.iter_mut().for_each(|count| *count -= 1);
                }
                prop_assert_eq!(cover.live(), model.iter().filter(|count| **count > 0).count() as u64);
                let is_start = |at: usize| at == 0 || model[at - 1] == 0 || seams.contains(&(at as u32));
                let starts = (0..UNITS).filter(|at| model[*at] > 0 && is_start(*at));
                prop_assert_eq!(cover.pieces(), starts.count() as u64);
                let mut found = [false; UNITS];
                for (start, units) in cover.ranges() {
                    found[start as usize..(start + units) as usize].fill(true);
                }
                prop_assert_eq!(found, model.map(|count| count > 0));
                prop_assert!(cover.steps.values().zip(cover.steps.values().skip(1)).all(|(a, b)| a != b));
            }
        }
    }
}
