//! Sectors that were programmed without looking for a copy: one bit per sector.
//!
//! Marks are kept in memory only. Copies missed when they are lost are found by [`crate::Disk::dedup_all`].
//! Invariant: `count` bits are set; none of a sector that was overwritten since.

use crate::huge_pages::zeros;

/// The marks; see the module.
#[derive(Default)]
pub(crate) struct Marks {
    bits: Vec<u64>,
    count: u64,
    /// The word where the search continues.
    at: usize,
}

impl Marks {
    /// Marks for a disk of `sectors`.
    pub(crate) fn new(sectors: u64) -> Marks {
        Marks { bits: zeros(0, sectors.div_ceil(64) as usize), count: 0, at: 0 }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn set(&mut self, sector: u32) {
        let (word, bit) = place(sector);
        self.count += u64::from(self.bits[word] & bit == 0);
        self.bits[word] |= bit;
    }

    #[inline]
    pub(crate) fn clear(&mut self, sector: u32) {
        if self.count > 0 {
            let (word, bit) = place(sector);
            self.count -= u64::from(self.bits[word] & bit != 0);
            self.bits[word] &= !bit;
        }
    }

    /// Clears and returns the next mark, wrapping around.
    pub(crate) fn take(&mut self) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        while self.bits[self.at] == 0 {
            self.at = (self.at + 1) % self.bits.len();
        }
        let sector = self.at as u32 * 64 + self.bits[self.at].trailing_zeros();
        self.clear(sector);
        Some(sector)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.bits.capacity() * 8
    }
}

fn place(sector: u32) -> (usize, u64) {
    (sector as usize / 64, 1 << (sector % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn marks_agree_with_a_set(ops in proptest::collection::vec((0u32..200, 0u8..4), 1..300)) {
            let (mut marks, mut oracle) = (Marks::new(200), BTreeSet::new());
            for (sector, op) in ops {
                match op {
                    0 | 1 => { marks.set(sector); oracle.insert(sector); }
                    2 => { marks.clear(sector); oracle.remove(&sector); }
                    _ => match marks.take() {
                        Some(taken) => prop_assert!(oracle.remove(&taken)),
                        None => prop_assert!(oracle.is_empty()),
                    }
                }
                prop_assert_eq!(marks.count(), oracle.len() as u64);
            }
        }
    }
}
