//! Collecting the entries of a leaf.

use super::leaf::RESTART_ENTRIES;
use super::object::{self, OBJECT_HEAD_BYTES, ObjectKind};
use crate::bytes::{Fields, put_varint, shared_len, varint_len};
use crate::key::{Stamp, separator_bytes};

/// Short keys are allowed for whole, twice in the index for each leaf. Longer ones by what tells leaves apart: else
/// tables of keys of kilobytes would end long before they are full.
pub(super) const KEY_BYTES_SHORT: usize = 64;

/// What longer keys share with the entry before counts where a leaf may be divided: each part begins with a whole key.
const KEY_BYTES_LONG: usize = 256;

/// Entries in order, encoded as a leaf has them.
#[derive(Default)]
pub(crate) struct LeafBuilder {
    entries: Vec<u8>,
    restarts: Vec<u32>,
    /// Where each entry ends, and the hash of its key.
    marks: Vec<(u32, u64)>,
    last_key: Vec<u8>,
    longest_key: usize,
    longest_separator: usize,
    repeated: usize,
}

impl LeafBuilder {
    pub(crate) fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }
    pub(crate) fn count(&self) -> usize {
        self.marks.len()
    }
    pub(crate) fn last_key(&self) -> &[u8] {
        &self.last_key
    }
    /// Bytes of the longest key.
    pub(crate) fn longest_key(&self) -> usize {
        self.longest_key
    }
    /// Most bytes of what tells an entry from the one before it, if any has more than [`KEY_BYTES_SHORT`].
    pub(crate) fn longest_separator(&self) -> usize {
        self.longest_separator
    }
    /// Bytes that entries share with those before them, if keys have more than [`KEY_BYTES_LONG`]: so much longer the
    /// leaf would be as leaves of an entry each.
    pub(crate) fn repeated(&self) -> usize {
        self.repeated
    }
    /// Hashes of the keys, in order.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = u64> {
        self.marks.iter().map(|(_, hash)| *hash)
    }
    /// Bytes of the leaf so far.
    pub(crate) fn bytes(&self) -> usize {
        OBJECT_HEAD_BYTES + self.entries.len() + 4 * self.restarts.len()
    }
    /// Bytes of the payload of the first `count` entries, restarts aside.
    pub(crate) fn bytes_of(&self, count: usize) -> usize {
        count.checked_sub(1).map_or(0, |last| self.marks[last].0 as usize)
    }

    /// Bytes of the leaf with one more entry, at most.
    pub(crate) fn bytes_with(&self, key: &[u8], stamp: Stamp, value: &[u8]) -> usize {
        let restart = self.count().is_multiple_of(RESTART_ENTRIES);
        let shared = if restart { 0 } else { shared_len(&self.last_key, key) };
        let (unshared, value_len) = (key.len() - shared, value.len());
        let head = varint_len(shared as u64) + varint_len(unshared as u64) + varint_len(value_len as u64);
        self.bytes() + 4 * restart as usize + head + varint_len(stamp.0) + unshared + value_len
    }

    pub(crate) fn add(&mut self, key: &[u8], stamp: Stamp, value: &[u8], hash: u64) {
        // Nothing longer than the lower key tells two keys apart.
        if self.last_key.len() > KEY_BYTES_SHORT && !self.is_empty() {
            self.longest_separator = self.longest_separator.max(separator_bytes(&self.last_key, key));
        }
        let mut shared = 0;
        if self.count().is_multiple_of(RESTART_ENTRIES) {
            self.restarts.push(self.entries.len() as u32);
        } else {
            shared = shared_len(&self.last_key, key);
        }
        if key.len() > KEY_BYTES_LONG {
            self.repeated += shared;
        }
        put_varint(&mut self.entries, shared as u64);
        put_varint(&mut self.entries, (key.len() - shared) as u64);
        put_varint(&mut self.entries, value.len() as u64);
        put_varint(&mut self.entries, stamp.0);
        self.entries.extend_from_slice(&key[shared..]);
        self.entries.extend_from_slice(value);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
        self.longest_key = self.longest_key.max(key.len());
        self.marks.push((self.entries.len() as u32, hash));
    }

    /// The payload of a leaf of the first `count` entries, into `out`, which is emptied first. Returns its restarts.
    pub(crate) fn payload(&self, count: usize, out: &mut Vec<u8>) -> u16 {
        let restarts = &self.restarts[..count.div_ceil(RESTART_ENTRIES)];
        out.clear();
        out.extend_from_slice(&self.entries[..self.bytes_of(count)]);
        restarts.iter().for_each(|restart| out.extend_from_slice(&restart.to_le_bytes()));
        counted(restarts)
    }

    /// Appends the leaf to `out` and starts anew. Returns its units, of so many bytes.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>, kind: ObjectKind, unit_bytes: usize) -> usize {
        let start = object::begin(out);
        out.extend_from_slice(&self.entries);
        for restart in &self.restarts {
            out.extend_from_slice(&restart.to_le_bytes());
        }
        let units = object::end(out, start, kind, counted(&self.restarts), unit_bytes);
        self.entries.clear();
        self.restarts.clear();
        self.marks.clear();
        (self.longest_key, self.longest_separator, self.repeated) = (0, 0, 0);
        units
    }

    /// Takes out all entries but the first `count`.
    pub(crate) fn split_off(&mut self, count: usize) -> LeafBuilder {
        let mut rest = LeafBuilder::default();
        if count < self.count() {
            std::mem::take(self).each(|at, key, stamp, value, hash| {
                let half = if at < count { &mut *self } else { &mut rest };
                half.add(key, stamp, value, hash);
            });
        }
        rest
    }

    /// Hands out every entry: its number, key, stamp, value, and the key's hash.
    pub(crate) fn each(&self, mut with: impl FnMut(usize, &[u8], Stamp, &[u8], u64)) {
        let (mut start, mut key) = (0, Vec::new());
        for (at, (end, hash)) in self.marks.iter().enumerate() {
            let mut fields = Fields::new(&self.entries[start..*end as usize]);
            let mut number = || fields.varint().expect("written here");
            let (shared, unshared) = (number() as usize, number() as usize);
            let (_, stamp) = (number(), Stamp(number()));
            key.truncate(shared);
            key.extend_from_slice(fields.take(unshared).expect("written here"));
            let value = fields.take(fields.left()).expect("the rest");
            with(at, &key, stamp, value, *hash);
            start = *end as usize;
        }
    }
}

/// How many there are. More than a leaf can say would be lost with what is merged into it: rather no merge at all.
fn counted(restarts: &[u32]) -> u16 {
    u16::try_from(restarts.len()).expect("small entries close a leaf at a few units")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::EntryKind;
    use crate::lsm::table::leaf::{Leaf, LeafCursor};
    use crate::lsm::table::object::TABLE_UNIT_BYTES;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Model = BTreeMap<(Vec<u8>, std::cmp::Reverse<Stamp>), Vec<u8>>;

    fn entries() -> impl Strategy<Value = Model> {
        let key = prop::collection::vec(0u8..3, 0..7);
        let value = prop::collection::vec(any::<u8>(), 0..9);
        prop::collection::btree_map((key, 0u64..6), value, 1..60).prop_map(|map| {
            map.into_iter()
                .map(|((k, s), v)| ((k, std::cmp::Reverse(Stamp::new(s, EntryKind::Put))), v))
                .collect()
        })
    }

    fn leaf_of(model: &Model) -> Vec<u8> {
        let (mut builder, mut out) = (LeafBuilder::default(), Vec::new());
        for ((key, stamp), value) in model {
            let before = builder.bytes_with(key, stamp.0, value);
            builder.add(key, stamp.0, value, 0);
            assert_eq!(builder.bytes(), before);
        }
        builder.finish(&mut out, ObjectKind::Data, TABLE_UNIT_BYTES);
        out
    }

    proptest! {
        #[test]
        fn a_leaf_is_a_sorted_map(model in entries(), probes in prop::collection::vec((prop::collection::vec(0u8..3, 0..7), 0u64..7), 20)) {
            let bytes = leaf_of(&model);
            let leaf = Leaf::check(&bytes, ObjectKind::Data).unwrap();
            let mut cursor = LeafCursor::default();
            cursor.first(&leaf, &bytes).unwrap();
            for ((key, stamp), value) in &model {
                prop_assert_eq!((cursor.key(), cursor.stamp(), cursor.value(&bytes)), (&key[..], stamp.0, &value[..]));
                cursor.next(&leaf, &bytes).unwrap();
            }
            prop_assert!(!cursor.is_valid());
            cursor.last(&leaf, &bytes).unwrap();
            for ((key, stamp), _) in model.iter().rev() {
                prop_assert_eq!((cursor.key(), cursor.stamp()), (&key[..], stamp.0));
                cursor.prev(&leaf, &bytes).unwrap();
            }
            prop_assert!(!cursor.is_valid());
            for (key, seq) in probes {
                let at = Stamp::visible_at(seq);
                let expected = model.range((key.clone(), std::cmp::Reverse(at))..).next();
                cursor.seek(&leaf, &bytes, &key, at).unwrap();
                prop_assert_eq!(cursor.is_valid().then(|| (cursor.key(), cursor.stamp())),
                    expected.map(|((k, s), _)| (&k[..], s.0)));
                let found = leaf.get(&bytes, &key, at).unwrap();
                let wanted = expected.filter(|((k, _), _)| *k == key).map(|((_, s), v)| (s.0, &v[..]));
                prop_assert_eq!(found, wanted);
            }
        }

        #[test]
        fn hostile_leaves_are_errors(mut bytes in prop::collection::vec(any::<u8>(), 40..200), restarts in 0u16..5, key in prop::collection::vec(any::<u8>(), 0..5)) {
            // A true checksum over nonsense: nothing may panic.
            let length = bytes.len() as u32;
            bytes[4..8].copy_from_slice(&length.to_le_bytes());
            bytes[8..12].copy_from_slice(&(length - 16).to_le_bytes());
            bytes[12..14].copy_from_slice(&restarts.to_le_bytes());
            bytes[14..16].copy_from_slice(&[1, 0]);
            let crc = vellum_codes::crc32c(&bytes[4..]);
            bytes[..4].copy_from_slice(&crc.to_le_bytes());
            let believed = Leaf::plain(&bytes, true).ok().flatten();
            for leaf in believed.into_iter().chain(Leaf::check(&bytes, ObjectKind::Data)) {
                let _ = leaf.get(&bytes, &key, Stamp(u64::MAX));
                let mut cursor: LeafCursor = Default::default();
                let _ = cursor.seek(&leaf, &bytes, &key, Stamp(9));
                for _ in 0..20 { if cursor.is_valid() { let _ = cursor.next(&leaf, &bytes); } }
                let _ = cursor.last(&leaf, &bytes);
                while cursor.is_valid() {
                    let here = cursor.offset();
                    let stepped = cursor.prev(&leaf, &bytes);
                    prop_assert!(stepped.is_err() || !cursor.is_valid() || cursor.offset() < here);
                }
            }
        }
    }

    #[test]
    fn a_moved_leaf_is_identical_and_a_flipped_bit_is_seen() {
        let model: Model = (0..40u32)
            .map(|i| {
                (
                    (i.to_be_bytes().to_vec(), std::cmp::Reverse(Stamp::new(7, EntryKind::Put))),
                    vec![i as u8; 9],
                )
            })
            .collect();
        let good = leaf_of(&model);
        let mut elsewhere = vec![0; TABLE_UNIT_BYTES];
        let mut builder = LeafBuilder::default();
        model.iter().for_each(|((k, s), v)| builder.add(k, s.0, v, 0));
        builder.finish(&mut elsewhere, ObjectKind::Data, TABLE_UNIT_BYTES);
        assert_eq!(good, elsewhere[TABLE_UNIT_BYTES..]);
        let used = u32::from_le_bytes(good[4..8].try_into().unwrap()) as usize;
        for bit in 0..used * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Leaf::check(&bad, ObjectKind::Data).is_err(), "bit {bit}");
        }
    }
}
