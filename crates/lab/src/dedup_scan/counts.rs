//! A table of fingerprints and their number of occurrences: 12 bytes per slot, as there may be hundreds of millions.
//!
//! Open addressing with linear probing. A fingerprint is a good hash itself, so its high bits give the slot; 0 marks a
//! free slot.

/// Maximum load factor, in quarters.
const FULL_QUARTERS: usize = 3;
const SLOTS_AT_FIRST: usize = 64;

/// Bytes per entry of a full table.
pub const ENTRY_BYTES: u64 = (8 + 4) * 4 / FULL_QUARTERS as u64;

/// See the module.
#[derive(Default)]
pub struct Counts {
    fingerprints: Vec<u64>,
    seen: Vec<u32>,
    used: usize,
}

impl Counts {
    /// Counts one more occurrence of `fingerprint`, in a table that will hold at most `limit` + 1.
    pub fn add(&mut self, fingerprint: u64, limit: usize) {
        // One fingerprint in 2^64, which is 0, is counted as 1.
        let fingerprint = fingerprint.max(1);
        if self.used >= self.fingerprints.len() * FULL_QUARTERS / 4 {
            let most = (limit.max(self.used) + 1) * 4 / FULL_QUARTERS + 2;
            self.rebuild((2 * self.fingerprints.len()).max(SLOTS_AT_FIRST).min(most), |_| true);
        }
        self.count(fingerprint, 1);
    }

    /// Number of distinct fingerprints.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Removes all fingerprints but those to keep.
    pub fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        self.rebuild(self.fingerprints.len(), keep);
    }

    /// Every fingerprint with its number of occurrences.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        self.fingerprints.iter().copied().zip(self.seen.iter().copied()).filter(|(f, _)| *f != 0)
    }

    fn rebuild(&mut self, slots: usize, keep: impl Fn(u64) -> bool) {
        let empty = Counts { fingerprints: vec![0; slots], seen: vec![0; slots], used: 0 };
        let old = std::mem::replace(self, empty);
        old.iter().filter(|(f, _)| keep(*f)).for_each(|(f, seen)| self.count(f, seen));
    }

    fn count(&mut self, fingerprint: u64, times: u32) {
        let slots = self.fingerprints.len();
        let mut at = ((u128::from(fingerprint) * slots as u128) >> 64) as usize;
        loop {
            match self.fingerprints[at] {
                found if found == fingerprint => break,
                0 => {
                    self.fingerprints[at] = fingerprint;
                    self.used += 1;
                    break;
                }
                _ => at = if at + 1 == slots { 0 } else { at + 1 },
            }
        }
        self.seen[at] = self.seen[at].saturating_add(times);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn counts_as_a_plain_map_does(
            added in prop::collection::vec((0u64..400).prop_map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15)), 0..2000),
            bits in 0u32..3,
        ) {
            let (mut counts, mut oracle) = (Counts::default(), BTreeMap::new());
            for fingerprint in added {
                counts.add(fingerprint, 400);
                *oracle.entry(fingerprint.max(1)).or_insert(0u32) += 1;
            }
            let keep = |f: u64| f.trailing_zeros() >= bits;
            counts.retain(keep);
            oracle.retain(|f, _| keep(*f));
            prop_assert_eq!(counts.len(), oracle.len());
            prop_assert_eq!(counts.iter().collect::<BTreeMap<_, _>>(), oracle);
        }
    }

    #[test]
    fn a_full_table_keeps_to_its_memory() {
        let mut counts = Counts::default();
        (0..1001u64).for_each(|i| counts.add((i + 1) << 50 | i, 1000));
        assert_eq!(counts.len(), 1001);
        assert!(
            counts.fingerprints.len() * 12 <= 1001 * ENTRY_BYTES as usize + 100,
            "{}",
            counts.fingerprints.len()
        );
    }
}
