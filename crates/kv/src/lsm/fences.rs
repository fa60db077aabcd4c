//! Sorted keys in packed form, for searching with few cache misses: the last keys of a level's tables, so that a search
//! touches only the table that it finds; or the keys of a leaf (`table/entry_fences.rs`).
//!
//! Invariant: packing preserves order, but different keys may have equal packed forms. Then the keys themselves have to
//! be compared.

use crate::bytes::shared_len;
use std::ops::Range;

const PACKED_BYTES: usize = 8;

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct Fences {
    /// The common prefix of all keys.
    shared: Vec<u8>,
    /// The eight bytes after it, zero-padded.
    packed: Vec<u64>,
}

impl Fences {
    /// The fences of a level whose tables end with these keys, in order.
    pub(crate) fn new<'a>(ends: impl ExactSizeIterator<Item = &'a [u8]> + Clone) -> Fences {
        let first = ends.clone().next().unwrap_or_default();
        let shared = ends.clone().fold(first, |shared, end| &shared[..shared_len(shared, end)]);
        let mut fences = Fences { shared: shared.to_vec(), packed: Vec::with_capacity(ends.len()) };
        ends.for_each(|end| fences.push(end));
        fences
    }

    /// Empty fences with capacity for about `keys` keys, between `first` and `last`.
    pub(crate) fn between(first: &[u8], last: &[u8], keys: usize) -> Fences {
        Fences { shared: first[..shared_len(first, last)].to_vec(), packed: Vec::with_capacity(keys) }
    }

    /// Adds the next key.
    fn push(&mut self, key: &[u8]) {
        self.packed.push(pack(key.get(self.shared.len()..).unwrap_or_default()));
    }

    /// Adds the next key, which is `suffix` behind the first `shared` bytes of the last one.
    #[inline]
    pub(crate) fn push_next(&mut self, shared: usize, suffix: &[u8]) {
        let packed = match shared.checked_sub(self.shared.len()) {
            None => pack(suffix.get(self.shared.len() - shared..).unwrap_or_default()),
            Some(kept) => {
                let behind = |word: u64| word.checked_shr(8 * kept.min(PACKED_BYTES) as u32).unwrap_or(0);
                self.packed.last().unwrap_or(&0) & !behind(u64::MAX) | behind(pack(suffix))
            }
        };
        self.packed.push(packed);
    }

    /// Positions that may equal `key`; all before are below it, and all after are above. Empty if none can.
    #[inline]
    pub(crate) fn alike(&self, key: &[u8]) -> Range<usize> {
        let Some(rest) = key.strip_prefix(&self.shared[..]) else {
            let at = if key < &self.shared[..] { 0 } else { self.packed.len() };
            return at..at;
        };
        let wanted = pack(rest);
        let from = self.packed.partition_point(|packed| *packed < wanted);
        let alike = self.packed[from..].iter().take_while(|packed| **packed == wanted).count();
        from..from + alike
    }

    /// Number of leading bytes in which keys with equal packed forms agree, as far as both have them.
    pub(crate) fn covered(&self) -> usize {
        self.shared.len() + PACKED_BYTES
    }

    /// Memory in bytes, without spare capacity.
    pub(crate) fn bytes(&self) -> usize {
        self.shared.len() + self.packed.len() * PACKED_BYTES
    }

    /// The first table that ends at or after `key`. `end` returns the last key of a table.
    #[inline]
    pub(crate) fn first<'a>(&self, key: &[u8], end: impl Fn(usize) -> &'a [u8]) -> usize {
        let Range { start: mut low, end: mut high } = self.alike(key);
        while low < high {
            let middle = low.midpoint(high);
            if end(middle) < key { low = middle + 1 } else { high = middle }
        }
        low
    }
}

/// Eight bytes of a key, zero-padded, as a number that preserves the order.
#[inline]
pub(crate) fn pack(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(eight) => u64::from_be_bytes(*eight),
        None => key
            .iter()
            .zip([56, 48, 40, 32, 24, 16, 8])
            .fold(0, |word, (b, shift)| word | u64::from(*b) << shift),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Keys that share much, are prefixes of each other, and end in zeros.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0), Just(1), Just(b'a'), Just(255)];
        ("(user)?(00000000)?", prop::collection::vec(byte, 0..10))
            .prop_map(|(head, tail)| [head.as_bytes(), &tail].concat())
    }

    proptest! {
        #[test]
        fn it_finds_what_a_search_among_whole_keys_finds(
            mut ends in prop::collection::vec(key(), 0..40),
            keys in prop::collection::vec(key(), 1..40),
        ) {
            ends.sort();
            let fences = Fences::new(ends.iter().map(Vec::as_slice));
            for key in keys.iter().chain(&ends) {
                let expected = ends.partition_point(|end| end < key);
                prop_assert_eq!(fences.first(key, |at| &ends[at]), expected, "{:?} in {:?}", key, ends);
            }
        }
    }
}
