//! A search index for a leaf in memory: the offset of each entry, by eight bytes of its key. A search touches one or
//! two cache lines of it and the entry found, instead of one for each entry passed.
//!
//! Invariants
//! 1. A search finds the same as [`Leaf::find`].
//! 2. They exist only for leaves all of whose entries decode.

use super::leaf::{self, Leaf, RawEntry};
use super::object::OBJECT_HEAD_BYTES;
use crate::key::Stamp;
use crate::lsm::fences::Fences;
use std::cmp::Ordering;
use vellum_base::Result;

/// See the module.
pub(crate) struct EntryFences {
    keys: Fences,
    offsets: Vec<u32>,
}

impl EntryFences {
    /// Builds the fences of a leaf. An error if an entry does not decode.
    pub(crate) fn new(leaf: &Leaf, bytes: &[u8]) -> Result<EntryFences> {
        let mut last = Vec::new();
        leaf.last(bytes, &mut last)?;
        let first = leaf.entry(bytes, OBJECT_HEAD_BYTES)?.map_or(&[][..], |entry| entry.suffix);
        let mut keys = Fences::between(first, &last, leaf.entries_about());
        let mut offsets = Vec::with_capacity(leaf.entries_about());
        let (mut offset, mut key_bytes) = (OBJECT_HEAD_BYTES, 0);
        while let Some(entry) = leaf.entry(bytes, offset)? {
            if entry.shared > key_bytes {
                return Err(leaf::broken());
            }
            key_bytes = entry.shared + entry.suffix.len();
            keys.push_next(entry.shared, entry.suffix);
            offsets.push(offset as u32);
            offset = entry.next;
        }
        Ok(EntryFences { keys, offsets })
    }

    /// Their memory in bytes, without spare capacity, which is seven entries at most.
    pub(crate) fn bytes(&self) -> usize {
        self.keys.bytes() + self.offsets.len() * 4
    }

    /// See [`Leaf::get`].
    pub(crate) fn get<'a>(
        &self,
        leaf: &Leaf,
        bytes: &'a [u8],
        key: &[u8],
        stamp: Stamp,
    ) -> Result<Option<(Stamp, &'a [u8])>> {
        let found = self.find(leaf, bytes, key, stamp)?;
        Ok(found.filter(|(_, same)| *same).map(|(entry, _)| (entry.stamp, entry.value)))
    }

    /// See [`Leaf::at_or_after`].
    pub(crate) fn at_or_after<'a>(
        &self,
        leaf: &Leaf,
        bytes: &'a [u8],
        key: &[u8],
    ) -> Result<Option<(RawEntry<'a>, bool)>> {
        self.find(leaf, bytes, key, Stamp(u64::MAX))
    }

    /// The first entry at or after (`key`, `stamp`), and whether its key is `key`. `None` past the end.
    fn find<'a>(
        &self,
        leaf: &Leaf,
        bytes: &'a [u8],
        key: &[u8],
        stamp: Stamp,
    ) -> Result<Option<(RawEntry<'a>, bool)>> {
        let entry = |at: usize| match self.offsets.get(at) {
            Some(offset) => leaf.entry(bytes, *offset as usize),
            None => Ok(None),
        };
        let alike = self.keys.alike(key);
        let Some(first) = entry(alike.start)? else { return Ok(None) };
        if alike.is_empty() {
            return Ok(Some((first, false)));
        }
        // If its fence covers the prefix that `first` shares with the previous entry, comparing its suffix is enough.
        let rest = key.get(first.shared..).filter(|_| first.shared <= self.keys.covered());
        let (Some(rest), 1) = (rest, alike.len()) else {
            let (offset, same) = leaf.find(bytes, key, stamp)?;
            return Ok(leaf.entry(bytes, offset)?.map(|entry| (entry, same)));
        };
        match first.suffix.cmp(rest) {
            Ordering::Greater => Ok(Some((first, false))),
            Ordering::Equal if first.stamp <= stamp => Ok(Some((first, true))),
            _ => Ok(entry(alike.end)?.map(|entry| (entry, false))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::leaf_build::LeafBuilder;
    use super::super::object::{ObjectKind, TABLE_UNIT_BYTES};
    use super::*;
    use proptest::prelude::*;

    /// Keys that share much, are prefixes of each other, and end in zeros.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0), Just(1), Just(b'a'), Just(255)];
        ("(user)?(00000000)?", prop::collection::vec(byte, 1..10))
            .prop_map(|(head, tail)| [head.as_bytes(), &tail].concat())
    }

    proptest! {
        #[test]
        fn they_find_what_a_leaf_finds(
            entries in prop::collection::btree_set((key(), 1u64..5), 1..40),
            wanted in prop::collection::vec((key(), 0u64..6), 1..40),
        ) {
            // Versions of a key come newest first.
            let mut entries: Vec<_> = entries.into_iter().collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
            let (mut builder, mut bytes) = (LeafBuilder::default(), Vec::new());
            entries.iter().for_each(|(key, stamp)| builder.add(key, Stamp(*stamp), b"value", 0));
            builder.finish(&mut bytes, ObjectKind::Data, TABLE_UNIT_BYTES);
            let leaf = Leaf::check(&bytes, ObjectKind::Data).unwrap();
            let fences = EntryFences::new(&leaf, &bytes).unwrap();
            prop_assert_eq!(fences.offsets.len(), entries.len());
            for (key, stamp) in wanted.iter().chain(&entries) {
                let stamp = Stamp(*stamp);
                prop_assert_eq!(
                    fences.get(&leaf, &bytes, key, stamp).unwrap(),
                    leaf.get(&bytes, key, stamp).unwrap(),
                    "{:?} {:?}", key, stamp
                );
                let next = |found: Option<(RawEntry<'_>, bool)>| found.map(|(entry, same)| (entry.next, same));
                prop_assert_eq!(
                    next(fences.at_or_after(&leaf, &bytes, key).unwrap()),
                    next(leaf.at_or_after(&bytes, key).unwrap()),
                    "{:?}", key
                );
            }
        }
    }

    #[test]
    fn an_entry_that_shares_more_than_there_is_does_not_decode() {
        let (mut builder, mut bytes) = (LeafBuilder::default(), Vec::new());
        [b"key-a", b"key-b"].iter().for_each(|key| builder.add(*key, Stamp(1), b"value", 0));
        builder.finish(&mut bytes, ObjectKind::Data, TABLE_UNIT_BYTES);
        let leaf = Leaf::check(&bytes, ObjectKind::Data).unwrap();
        let second = leaf.entry(&bytes, OBJECT_HEAD_BYTES).unwrap().unwrap().next;
        assert_eq!(bytes[second], 4, "what it shares");
        bytes[second] = 6;
        assert!(EntryFences::new(&leaf, &bytes).is_err());
    }
}
