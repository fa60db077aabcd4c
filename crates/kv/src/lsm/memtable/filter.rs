//! Which keys a memtable certainly does not hold, told without its lock: most gets of a store that is larger than its
//! memory would wait for the lock, and look through the tree, in vain.
//!
//! Invariants
//! 1. A key's bits are set before its entry may be seen, by who makes its number visible with `Release`. So who has
//!    read that number with `Acquire` finds them, though they are read and set as `Relaxed`.
//! 2. A filter without words holds everything.

use vellum_base::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// So many bytes of a memtable have a byte of the filter: about ten bits for an entry of 128 bytes.
const BYTES_A_BYTE: usize = 128;

/// See the module. All bits of a key are in one word.
#[derive(Default)]
pub(super) struct Filter {
    words: Box<[AtomicU64]>,
}

impl Filter {
    /// For a memtable of so many bytes.
    pub(super) fn for_bytes(memtable_bytes: usize) -> Filter {
        let words = (memtable_bytes / BYTES_A_BYTE / 8).max(1);
        Filter { words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Memory taken.
    pub(super) fn bytes(&self) -> usize {
        self.words.len() * 8
    }

    /// Puts a key with this hash in. One thread at a time.
    #[inline]
    pub(super) fn insert(&self, hash: u64) {
        let Some(word) = self.word(hash) else { return };
        word.store(word.load(Relaxed) | bits_of(hash), Relaxed);
    }

    /// False if no key with this hash was put in.
    #[inline]
    pub(super) fn may_hold(&self, hash: u64) -> bool {
        self.word(hash).is_none_or(|word| word.load(Relaxed) & bits_of(hash) == bits_of(hash))
    }

    #[inline]
    fn word(&self, hash: u64) -> Option<&AtomicU64> {
        self.words.get((((hash >> 32) * self.words.len() as u64) >> 32) as usize)
    }
}

#[inline]
fn bits_of(hash: u64) -> u64 {
    1 << (hash & 63) | 1 << (hash >> 6 & 63) | 1 << (hash >> 12 & 63) | 1 << (hash >> 18 & 63)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsm::table::hash;

    #[test]
    fn no_key_that_was_put_in_is_missed_and_few_others_are_taken_for_one() {
        let filter = Filter::for_bytes(8 << 20);
        let entries = (8u64 << 20) / 160;
        (0..entries).for_each(|n| filter.insert(hash(&n.to_be_bytes())));
        assert!((0..entries).all(|n| filter.may_hold(hash(&n.to_be_bytes()))));
        let wrong = (entries..entries + 100_000).filter(|n| filter.may_hold(hash(&n.to_be_bytes()))).count();
        assert!(wrong < 5000, "{wrong} of 100000 keys that are not there");
    }

    #[test]
    fn one_without_words_holds_everything() {
        let filter = Filter::default();
        filter.insert(7);
        assert!(filter.may_hold(7) && filter.may_hold(8));
        assert!(!Filter::for_bytes(0).may_hold(8));
    }
}
