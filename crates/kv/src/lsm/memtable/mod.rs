//! Memtables: the newest entries, in memory. One writer at a time, any number of readers.
//!
//! Invariants
//! 1. Entries are never changed or removed; a memtable is dropped as a whole.
//! 2. Readers do not hold the lock between calls; lookups of absent keys rarely take it (`filter.rs`).

mod arena;
mod cursor;
mod filter;
mod tree;

pub(crate) use cursor::MemtableCursor;

use crate::batch::{BatchEntry, decode_entry};
use crate::key::{EntryKind, LookupKey, Stamp};
use crate::lsm::iter::Range;
use crate::lsm::table::hash;
use arena::{Arena, ArenaOffset};
use filter::Filter;
use tree::{Position, Slot, Tree};
use vellum_base::sync::RwLock;

/// Prefetch distance of a walk, in entries: a load from memory takes about as long as processing that many.
const ENTRIES_AHEAD: usize = 8;

/// See the module.
#[derive(Default)]
pub(crate) struct Memtable {
    filter: Filter,
    inner: RwLock<Inner>,
}

#[derive(Default)]
struct Inner {
    arena: Arena,
    tree: Tree,
    user_bytes: u64,
}

/// A place in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPlace {
    pub log: u64,
    pub offset: u64,
}

impl Memtable {
    /// An empty memtable for about so many bytes. `Memtable::default` has no filter, for use without lookups of single
    /// keys.
    pub(crate) fn new(bytes: usize) -> Memtable {
        Memtable::default().successor(bytes)
    }

    /// The same, in the memory of `self` once that is dropped.
    pub(crate) fn successor(&self, bytes: usize) -> Memtable {
        let arena = self.inner.read().arena.successor(bytes);
        Memtable { filter: Filter::for_bytes(bytes), inner: RwLock::new(Inner { arena, ..Inner::default() }) }
    }

    /// Adds the entries of a checked payload, numbered from `seq`, and returns their number. The place in a log must be
    /// given for all payloads or for none.
    pub(crate) fn insert(&self, payload: &[u8], seq: u64, in_log: Option<LogPlace>) -> u64 {
        let inner = &mut *self.inner.write();
        let mut place = inner.arena.push(payload, in_log);
        let (mut rest, mut count) = (payload, 0);
        while !rest.is_empty() {
            let (entry, len) = decode_entry(rest).expect("batches are checked before they come here");
            let slot = Slot { stamp: Stamp::new(seq + count, entry.kind), place };
            self.filter.insert(hash(entry.key));
            inner.tree.insert(&inner.arena, entry.key, slot);
            // The first byte of a key says which keyspace it is of.
            inner.user_bytes += (entry.key.len() - 1 + entry.value.len()) as u64;
            (rest, place, count) = (&rest[len..], place.after(len), count + 1);
        }
        count
    }

    /// Approximate memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let inner = self.inner.read();
        inner.arena.bytes() + inner.tree.bytes() + self.filter.bytes()
    }

    /// Bytes of keys and values.
    pub(crate) fn user_bytes(&self) -> u64 {
        self.inner.read().user_bytes
    }

    /// The smallest and the largest key; `None` if it is empty.
    pub(crate) fn bounds(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let inner = self.inner.read();
        let key = |at: Position| inner.arena.key(inner.tree.slot(at).place).to_vec();
        Some((key(inner.tree.first()?), key(inner.tree.last()?)))
    }

    /// Bytes of newest values that are at least so long, and bytes of everything written.
    pub(crate) fn newest_bytes(&self, value_bytes_min: usize) -> (u64, u64) {
        let inner = self.inner.read();
        let (mut at, mut last, mut newest): (_, Option<&[u8]>, _) = (inner.tree.first(), None, 0);
        while let Some(here) = at {
            inner.prefetch_after(here);
            let entry = inner.entry(inner.tree.slot(here).place);
            if last != Some(entry.key) && entry.value.len() >= value_bytes_min {
                newest += entry.value.len() as u64;
            }
            (last, at) = (Some(entry.key), inner.tree.next(here));
        }
        (newest, inner.arena.used_bytes())
    }

    /// True if there are entries in the range.
    pub(crate) fn meets(&self, range: &Range) -> bool {
        let inner = self.inner.read();
        let at = inner.tree.seek(&inner.arena, &range.lower, Stamp(u64::MAX));
        at.is_some_and(|at| inner.entry(inner.tree.slot(at).place).key < &range.upper[..])
    }

    /// Finds an entry, and copies its value to `out`, which is cleared first.
    pub(crate) fn get(&self, wanted: LookupKey<'_>, out: &mut Vec<u8>) -> Option<EntryKind> {
        if !self.filter.may_hold(wanted.hash) {
            return None;
        }
        let LookupKey { key, stamp, .. } = wanted;
        let inner = self.inner.read();
        let at = inner.tree.seek(&inner.arena, key, stamp)?;
        let entry = inner.entry(inner.tree.slot(at).place);
        if entry.key != key {
            return None;
        }
        out.clear();
        out.extend_from_slice(entry.value);
        Some(entry.kind)
    }
}

impl Inner {
    #[inline]
    fn entry(&self, place: ArenaOffset) -> BatchEntry<'_> {
        self.arena.entry(place)
    }

    /// Prefetches entries that a walk will reach after `at`; they are scattered in memory.
    #[inline]
    fn prefetch_after(&self, at: Position) {
        let ahead = self.tree.further(at, ENTRIES_AHEAD);
        ahead.into_iter().for_each(|slot| self.arena.prefetch(slot.place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::lsm::merge::{Cursor, Stream};
    use proptest::prelude::*;
    use std::cmp::Reverse;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn internal(key: &[u8]) -> Vec<u8> {
        [&[0], key].concat()
    }

    /// Keys that share long starts, so that prefixes tie and `common` shrinks.
    fn keys() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            8 => (0u32..400).prop_map(|n| format!("a-long-common-start-{n:04}").into_bytes()),
            2 => prop::collection::vec(0u8..3, 0..20),
        ]
    }

    proptest! {
        #[test]
        fn it_is_a_sorted_map(ops in prop::collection::vec((keys(), any::<bool>()), 1..900), probes in prop::collection::vec((keys(), 0u64..900), 30)) {
            let (table, mut model) = (Arc::new(Memtable::new(9000)), BTreeMap::new());
            for (seq, (key, put)) in ops.iter().enumerate() {
                let seq = seq as u64 + 1;
                let mut batch = Batch::new();
                if *put { batch.put(key, &seq.to_le_bytes()).unwrap() } else { batch.delete(key).unwrap() }
                prop_assert_eq!(table.insert(batch.payload(), seq, None), 1);
                let kind = if *put { EntryKind::Put } else { EntryKind::Delete };
                let value = if *put { seq.to_le_bytes().to_vec() } else { Vec::new() };
                model.insert((internal(key), Reverse(Stamp::new(seq, kind))), value);
            }
            let mut cursor = MemtableCursor::new(table.clone());
            cursor.first().unwrap();
            for ((key, stamp), value) in &model {
                prop_assert_eq!((cursor.key(), cursor.stamp(), cursor.value()), (&key[..], stamp.0, &value[..]));
                cursor.next().unwrap();
            }
            prop_assert!(!cursor.is_valid());
            cursor.last().unwrap();
            for ((key, stamp), _) in model.iter().rev() {
                prop_assert_eq!((cursor.key(), cursor.stamp()), (&key[..], stamp.0));
                cursor.prev().unwrap();
            }
            prop_assert!(!cursor.is_valid());
            for (key, seq) in probes {
                let (key, stamp) = (internal(&key), Stamp::visible_at(seq));
                let expected = model.range((key.clone(), Reverse(stamp))..).next();
                cursor.seek(&key, stamp).unwrap();
                prop_assert_eq!(cursor.is_valid().then(|| cursor.key()), expected.map(|((k, _), _)| &k[..]));
                let mut value = Vec::new();
                let found = table.get(LookupKey { key: &key, stamp, hash: hash(&key) }, &mut value);
                let expected = expected.filter(|((k, _), _)| *k == key);
                prop_assert_eq!(found, expected.map(|((_, s), _)| s.0.kind().unwrap()));
                if let Some((_, v)) = expected { prop_assert_eq!(&value, v); }
            }
        }
    }

    #[test]
    fn many_keys_in_any_order_split_every_level() {
        for step in [1u64, 7919, 29_999] {
            let (table, mut batch) = (Arc::<Memtable>::default(), Batch::new());
            for i in 0..30_000u64 {
                batch.clear();
                batch.put(format!("user{:08}", i * step % 30_000).as_bytes(), &[]).unwrap();
                table.insert(batch.payload(), i + 1, None);
            }
            let (mut cursor, mut count) = (MemtableCursor::new(table.clone()), 0);
            cursor.first().unwrap();
            while cursor.is_valid() {
                assert_eq!(cursor.key(), internal(format!("user{count:08}").as_bytes()));
                count += 1;
                cursor.next().unwrap();
            }
            assert_eq!(count, 30_000);
        }
    }

    #[test]
    fn a_cursor_survives_inserts_around_it() {
        let table = Arc::<Memtable>::default();
        let put = |key: &[u8], seq| {
            let mut batch = Batch::new();
            batch.put(key, b"v").unwrap();
            table.insert(batch.payload(), seq, None);
        };
        put(b"m", 1);
        let mut cursor = MemtableCursor::new(table.clone());
        cursor.first().unwrap();
        (0..200u8).for_each(|i| put(&[i], 2 + i as u64));
        cursor.next().unwrap();
        assert_eq!(cursor.key(), internal(b"n"));
        put(b"ma", 900);
        cursor.prev().unwrap();
        assert_eq!(cursor.key(), internal(b"ma"));
    }

    /// Else each would cost a fault for each of its pages; and what is spare is bounded.
    #[test]
    fn memory_of_one_that_is_dropped_is_used_by_those_that_follow() {
        const BYTES: usize = 3 << 20;
        let fill = |table: &Memtable, bytes: usize| {
            let mut batch = Batch::new();
            batch.put(b"k", &vec![7; 1000]).unwrap();
            for seq in 1..=bytes as u64 / 1000 {
                table.insert(batch.payload(), seq, None);
            }
        };
        let first = Memtable::new(BYTES);
        fill(&first, 2 * BYTES);
        let second = first.successor(BYTES);
        fill(&second, BYTES);
        let third = second.successor(BYTES);
        assert_eq!(third.inner.read().arena.spare_chunks(), 0);
        drop(first);
        assert_eq!(third.inner.read().arena.spare_chunks(), 3);
        // A batch longer than a chunk is allocated in the place of as many.
        let mut long = Batch::new();
        long.put(b"l", &vec![7; 3 << 19]).unwrap();
        third.insert(long.payload(), 1, None);
        assert_eq!(third.inner.read().arena.spare_chunks(), 1);
        fill(&third, BYTES);
        assert_eq!(third.inner.read().arena.spare_chunks(), 0);
        let mut cursor = MemtableCursor::new(Arc::new(third));
        cursor.first().unwrap();
        assert_eq!((cursor.key(), cursor.value()), (&internal(b"k")[..], &[7; 1000][..]));
    }

    #[test]
    fn every_value_is_where_the_log_has_it() {
        let (table, mut logs) = (Arc::<Memtable>::default(), vec![Vec::new(), Vec::new()]);
        let mut seq = 1;
        for i in 0..3000u32 {
            let mut batch = Batch::new();
            for j in 0..1 + i % 3 {
                // One in three is too small for a pointer.
                let value = vec![(i + j) as u8; 20 + 90 * (i + j) as usize % 270];
                batch.put(format!("key{:05}", i * 7919 % 3000 * 3 + j).as_bytes(), &value).unwrap();
            }
            let log = &mut logs[(i / 1700) as usize];
            log.extend_from_slice(&[0xEE; 16]);
            let place = LogPlace { log: 5 + u64::from(i / 1700), offset: log.len() as u64 };
            seq += table.insert(batch.payload(), seq, Some(place));
            log.extend_from_slice(batch.payload());
        }
        let (mut cursor, mut found) = (MemtableCursor::new(table.clone()), 0);
        cursor.first().unwrap();
        while cursor.is_valid() {
            let place = cursor.place_in_log();
            assert_eq!(place.is_some(), cursor.value().len() >= 48);
            if let Some(LogPlace { log, offset }) = place {
                let log = &logs[log as usize - 5];
                assert_eq!(&log[offset as usize..][..cursor.value().len()], cursor.value());
                found += 1;
            }
            cursor.next().unwrap();
        }
        assert!(found > 3000, "{found}");
        let (newest, all) = table.newest_bytes(0);
        assert!(newest < all && newest > all / 2, "{newest} of {all}");
    }
}
