//! Bloom filter of a memtable, queried without its lock. Without it, most gets of a store that is larger than memory
//! would wait for the lock and search the tree in vain.
//!
//! Invariants
//! 1. The bits of a key are set before its sequence number becomes visible by a `Release` store. Whoever has loaded
//!    that number with `Acquire` therefore sees them, although they are read and set with `Relaxed`.
//! 2. A filter without words lets every key through.

use vellum_base::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of a memtable per byte of filter: about ten bits for an entry of 128 bytes.
const BYTES_A_BYTE: usize = 128;

/// See the module. All bits of a key are in one word.
#[derive(Default)]
pub(super) struct Filter {
    words: Box<[AtomicU64]>,
}

impl Filter {
    /// A filter for a memtable of so many bytes.
    pub(super) fn for_bytes(memtable_bytes: usize) -> Filter {
        let words = (memtable_bytes / BYTES_A_BYTE / 8).max(1);
        Filter { words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Memory taken.
    pub(super) fn bytes(&self) -> usize {
        self.words.len() * 8
    }

    /// Adds a key by its hash. Only one thread may do so at a time.
    #[inline]
    pub(super) fn insert(&self, hash: u64) {
        let Some(word) = self.word(hash) else { return };
        word.store(word.load(Relaxed) | bits_of(hash), Relaxed);
    }

    /// False if no key with this hash was added.
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
