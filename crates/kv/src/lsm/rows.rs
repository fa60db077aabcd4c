//! Keys that gets ask for again and again, each with its newest value: looked for after memtables and before tables
//! (docs/decisions/0027).
//!
//! A shard is a ring of bytes to which rows are appended. The oldest makes room, and is appended again if it was used
//! since. Buckets of slots say where rows are; a row that no slot points to is dead. Once a ring is full, what is
//! missed leaves a mark, and is let in when it is missed again.
//!
//! Invariants
//! 1. A row is what the tables of the newest view say of its key. Who asks has asked the memtables before.
//! 2. A view whose tables say something else of a key goes in force by a [`Change`]: the epoch moves, rows of such keys
//!    go, and the view gets the new epoch. A row is put by who read in a view of the current epoch, and that is looked
//!    at with the shard's lock held. So what was read before a change is not put after it.
//!    An ingest is visible after its view is in force: who reads older than its tables puts nothing.
//! 3. One change at a time.

use vellum_base::sync::atomic::{AtomicU64, Ordering};
use vellum_base::sync::{Mutex, MutexGuard};

const SHARDS: usize = 16;
/// Below this there is one shard; and below the other, none.
const SHARDED_BYTES: usize = 1 << 20;
const BYTES_MIN: usize = 4 << 10;
/// Slots of a bucket: a cache line.
const WAYS: usize = 8;
/// Bytes of a shard for each slot, and for each mark.
const BYTES_PER_SLOT: usize = 64;
/// Rows are no larger than such a part of a ring.
const ROWS_MIN: usize = 8;
/// Rows that are appended again, at most, where one is put.
const CHANCES: usize = 16;
/// Before key and value: lengths and flags, and the hash.
const HEAD_BYTES: usize = 16;

/// See the module.
pub(crate) struct Rows {
    shards: Box<[Mutex<Shard>]>,
    epoch: AtomicU64,
    changing: Mutex<()>,
}

/// Tables come that say something else of some keys.
pub(crate) struct Change<'a> {
    rows: &'a Rows,
    epoch: u64,
    _one_at_a_time: MutexGuard<'a, ()>,
}

/// Bytes held, and lookups that found a row and that did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowStat {
    pub bytes: usize,
    pub hits: u64,
    pub misses: u64,
}

impl Rows {
    /// Of at most so many bytes.
    pub(crate) fn new(bytes: usize) -> Rows {
        let count = match bytes {
            0..BYTES_MIN => 0,
            BYTES_MIN..SHARDED_BYTES => 1,
            _ => SHARDS,
        };
        let shards = (0..count).map(|_| Mutex::new(Shard::new(bytes / count))).collect();
        Rows { shards, epoch: AtomicU64::new(0), changing: Mutex::new(()) }
    }

    /// The value of a key goes to `out`, if there is a row; `hash` is the key's.
    #[inline]
    pub(crate) fn get(&self, hash: u64, key: &[u8], out: &mut Vec<u8>) -> bool {
        self.shard(hash).is_some_and(|shard| shard.lock().get(hash, key, out))
    }

    /// Takes in what tables say, in a view of this epoch.
    #[inline]
    pub(crate) fn put(&self, epoch: u64, hash: u64, key: &[u8], value: &[u8]) {
        let Some(shard) = self.shard(hash) else { return };
        let mut shard = shard.lock();
        if self.epoch.load(Ordering::Acquire) == epoch && shard.admits(hash) {
            shard.put(hash, key, value);
        }
    }

    /// Begins a change. From here on no row is put, until a view of its epoch is in force.
    pub(crate) fn change(&self) -> Change<'_> {
        let one_at_a_time = self.changing.lock();
        let epoch = self.epoch.fetch_add(1, Ordering::AcqRel) + 1;
        Change { rows: self, epoch, _one_at_a_time: one_at_a_time }
    }

    pub(crate) fn stat(&self) -> RowStat {
        self.shards.iter().fold(RowStat::default(), |sum, shard| {
            let shard = shard.lock();
            RowStat {
                bytes: sum.bytes + shard.filled,
                hits: sum.hits + shard.hits,
                misses: sum.misses + shard.misses,
            }
        })
    }

    #[inline]
    fn shard(&self, hash: u64) -> Option<&Mutex<Shard>> {
        self.shards.get((hash >> 60) as usize & (self.shards.len().wrapping_sub(1)))
    }
}

impl Change<'_> {
    /// Of the view that is put in force.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// True if there are no rows.
    pub(crate) fn finds_none(&self) -> bool {
        self.rows.shards.iter().all(|shard| shard.lock().filled == 0)
    }

    /// The row of a key with this hash goes, if there is one.
    pub(crate) fn forget(&self, hash: u64) {
        if let Some(shard) = self.rows.shard(hash) {
            shard.lock().forget(hash);
        }
    }

    pub(crate) fn forget_all(&self) {
        self.rows.shards.iter().for_each(|shard| shard.lock().forget_all());
    }
}

/// Alone on its cache lines.
#[repr(align(128))]
struct Shard {
    ring: Box<[u8]>,
    /// Where the next row goes, where the oldest is, and how many bytes are between.
    head: usize,
    tail: usize,
    filled: usize,
    /// In buckets: the low half of a hash, and where its row is, in units of eight bytes, from 1; or zero.
    slots: Box<[u64]>,
    /// Of keys that were missed and not let in.
    marks: Box<[u16]>,
    is_full: bool,
    hits: u64,
    misses: u64,
}

/// What a row begins with; of what ends the ring early, its first word.
#[derive(Clone, Copy)]
struct Head {
    value: usize,
    key: usize,
    is_used: bool,
    /// Only bytes that are passed over, `value` of them.
    is_gap: bool,
    hash: u64,
}

impl Head {
    /// Bytes of the row.
    fn bytes(&self) -> usize {
        match self.is_gap {
            true => self.value,
            false => (HEAD_BYTES + self.key + self.value).next_multiple_of(8),
        }
    }

    fn word(&self) -> [u8; 8] {
        let flags = u64::from(self.is_used) | u64::from(self.is_gap) << 1;
        (self.value as u64 | (self.key as u64) << 32 | flags << 62).to_le_bytes()
    }
}

impl Shard {
    fn new(bytes: usize) -> Shard {
        let slots = (bytes / BYTES_PER_SLOT / 2 + 1).next_power_of_two().max(WAYS);
        let ring = bytes.saturating_sub(10 * slots) / 8 * 8;
        Shard {
            ring: vec![0; ring].into(),
            head: 0,
            tail: 0,
            filled: 0,
            slots: vec![0; slots].into(),
            marks: vec![0; slots].into(),
            is_full: false,
            hits: 0,
            misses: 0,
        }
    }

    #[inline]
    fn get(&mut self, hash: u64, key: &[u8], out: &mut Vec<u8>) -> bool {
        let Some((at, head)) = self.find(hash, key) else {
            self.misses += 1;
            return false;
        };
        self.hits += 1;
        if !head.is_used {
            self.ring[at..at + 8].copy_from_slice(&Head { is_used: true, ..head }.word());
        }
        let value = at + HEAD_BYTES + head.key;
        out.clear();
        out.extend_from_slice(&self.ring[value..value + head.value]);
        true
    }

    /// Where the row of a key is.
    #[inline]
    fn find(&self, hash: u64, key: &[u8]) -> Option<(usize, Head)> {
        let tag = hash as u32;
        self.slots[self.bucket(hash)]
            .iter()
            .filter(|slot| **slot != 0 && (**slot >> 32) as u32 == tag)
            .find_map(|slot| {
                let at = place_in(*slot);
                let head = self.head_at(at);
                let own = &self.ring[at + HEAD_BYTES..at + HEAD_BYTES + head.key];
                (own == key).then_some((at, head))
            })
    }

    /// True if a key that was missed is to be put.
    fn admits(&mut self, hash: u64) -> bool {
        let mark = &mut self.marks[(hash >> 20) as usize & (self.slots.len() - 1)];
        let tag = (hash >> 44) as u16 | 1; // no mark is zero
        !self.is_full || *mark == tag || {
            *mark = tag;
            false
        }
    }

    fn put(&mut self, hash: u64, key: &[u8], value: &[u8]) {
        let head = Head { value: value.len(), key: key.len(), is_used: false, is_gap: false, hash };
        if head.bytes() > self.ring.len() / ROWS_MIN || self.find(hash, key).is_some() {
            return;
        }
        for chances in (0..=CHANCES).rev().chain(std::iter::repeat(0)) {
            if self.fits(head.bytes()) {
                break;
            }
            self.evict(chances > 0);
        }
        let at = self.take(head);
        let end = at + HEAD_BYTES + key.len();
        self.ring[at + HEAD_BYTES..end].copy_from_slice(key);
        self.ring[end..end + value.len()].copy_from_slice(value);
    }

    /// True if a row of so many bytes fits in at the head. What is left of the ring before its end is passed over as
    /// soon as it is too short and free.
    fn fits(&mut self, bytes: usize) -> bool {
        let rest = self.ring.len() - self.head;
        if bytes > rest && self.filled + rest <= self.ring.len() {
            let filler = Head { value: rest, key: 0, is_used: false, is_gap: true, hash: 0 };
            self.ring[self.head..self.head + 8].copy_from_slice(&filler.word());
            (self.head, self.filled) = (0, self.filled + rest);
        }
        bytes <= self.ring.len() - self.head && self.filled + bytes <= self.ring.len()
    }

    /// Takes room for a row that fits, and points to it.
    fn take(&mut self, head: Head) -> usize {
        let at = self.head;
        self.ring[at..at + 8].copy_from_slice(&head.word());
        self.ring[at + 8..at + 16].copy_from_slice(&head.hash.to_le_bytes());
        self.head = (at + head.bytes()) % self.ring.len();
        self.filled += head.bytes();
        self.point(head.hash, at);
        at
    }

    /// Takes a slot, if need be that of another row, rather one that was not used.
    fn point(&mut self, hash: u64, at: usize) {
        let bucket = self.bucket(hash);
        let first = bucket.start;
        let free = bucket.clone().find(|slot| self.slots[*slot] == 0);
        let unused = || bucket.into_iter().find(|slot| !self.head_at(place_in(self.slots[*slot])).is_used);
        let slot = free.or_else(unused).unwrap_or(first + (hash >> 56) as usize % WAYS);
        self.slots[slot] = hash << 32 | (at as u64 / 8 + 1);
    }

    /// The oldest row goes, or is appended again if it was used.
    fn evict(&mut self, has_chance: bool) {
        self.is_full = true;
        let (at, head) = (self.tail, self.head_at(self.tail));
        self.tail = (at + head.bytes()) % self.ring.len();
        self.filled -= head.bytes();
        if head.is_gap {
            return;
        }
        let bucket = self.bucket(head.hash);
        let Some(slot) = self.slots[bucket].iter_mut().find(|slot| **slot != 0 && place_in(**slot) == at)
        else {
            return;
        };
        *slot = 0;
        if head.is_used && has_chance && self.fits(head.bytes()) {
            let row = at + HEAD_BYTES..at + head.bytes();
            let again = self.take(Head { is_used: false, ..head });
            self.ring.copy_within(row, again + HEAD_BYTES);
        }
    }

    fn forget(&mut self, hash: u64) {
        let bucket = self.bucket(hash);
        let same = |slot: &&mut u64| (**slot >> 32) as u32 == hash as u32;
        self.slots[bucket].iter_mut().filter(same).for_each(|slot| *slot = 0);
    }

    fn forget_all(&mut self) {
        self.slots.fill(0);
        (self.head, self.tail, self.filled, self.is_full) = (0, 0, 0, false);
    }

    fn head_at(&self, at: usize) -> Head {
        let word = |at: usize| u64::from_le_bytes(self.ring[at..at + 8].try_into().expect("eight bytes"));
        let first = word(at);
        let is_gap = first >> 63 != 0;
        Head {
            value: (first & u64::from(u32::MAX)) as usize,
            key: (first >> 32 & 0x3FFF_FFFF) as usize,
            is_used: first >> 62 & 1 != 0,
            is_gap,
            hash: if is_gap { 0 } else { word(at + 8) },
        }
    }

    /// The slots that a row may be told of in.
    #[inline]
    fn bucket(&self, hash: u64) -> std::ops::Range<usize> {
        let first = ((hash >> 32) as usize * WAYS) & (self.slots.len() - 1);
        first..first + WAYS
    }
}

fn place_in(slot: u64) -> usize {
    ((slot & u64::from(u32::MAX)) as usize - 1) * 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsm::table::hash;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn get(rows: &Rows, key: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        rows.get(hash(key), key, &mut out).then_some(out)
    }

    fn put(rows: &Rows, key: &[u8], value: &[u8]) {
        // Who is let in the second time only comes twice.
        (0..2).for_each(|_| rows.put(rows.epoch.load(Ordering::Relaxed), hash(key), key, value));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Get(u8),
        Put(u8, usize),
        Forget(u8),
        ForgetAll,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            8 => any::<u8>().prop_map(Step::Get),
            8 => (any::<u8>(), 0usize..300).prop_map(|(key, length)| Step::Put(key, length)),
            2 => any::<u8>().prop_map(Step::Forget),
            1 => Just(Step::ForgetAll),
        ];
        prop::collection::vec(step, 0..2000)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn what_is_found_is_what_was_put_last_and_not_forgotten(steps in steps(), bytes in 4096usize..9000) {
            let (rows, mut model) = (Rows::new(bytes), BTreeMap::new());
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Get(key) => {
                        let found = get(&rows, &[key; 5]);
                        prop_assert!(found.is_none() || found.as_ref() == model.get(&key));
                    }
                    Step::Put(key, length) => {
                        rows.change().forget(hash(&[key; 5]));
                        let value = vec![number as u8; length];
                        put(&rows, &[key; 5], &value);
                        prop_assert_eq!(get(&rows, &[key; 5]), Some(value.clone()));
                        model.insert(key, value);
                    }
                    Step::Forget(key) => {
                        rows.change().forget(hash(&[key; 5]));
                        model.remove(&key);
                    }
                    Step::ForgetAll => {
                        rows.change().forget_all();
                        model.clear();
                    }
                }
                prop_assert!(rows.stat().bytes <= bytes);
            }
        }
    }

    #[test]
    fn what_is_used_stays_and_what_passes_by_does_not() {
        let rows = Rows::new(2 << 20);
        let key = |n: u32| n.wrapping_mul(0x9E37_79B1).to_be_bytes();
        (0..4000).for_each(|n| put(&rows, &key(n), &[7; 100]));
        for n in 4000..200_000 {
            put(&rows, &key(n), &[8; 100]);
            for hot in (0..4000).skip(n as usize % 16).step_by(16) {
                get(&rows, &key(hot));
            }
        }
        let there = (0..4000).filter(|n| get(&rows, &key(*n)).is_some()).count();
        // Some share their bucket with too many others.
        assert!(there > 3600, "{there} of 4000");
        // Who is asked for once is not let in.
        let before = rows.stat().bytes;
        (300_000..310_000)
            .for_each(|n| rows.put(rows.epoch.load(Ordering::Relaxed), hash(&key(n)), &key(n), b""));
        assert!((300_000..310_000).filter(|n| get(&rows, &key(*n)).is_some()).count() < 100);
        assert!(rows.stat().bytes <= before);
    }

    #[test]
    fn what_was_read_before_a_change_is_not_put_after_it() {
        let rows = Rows::new(1 << 20);
        let before = rows.epoch.load(Ordering::Relaxed);
        let change = rows.change();
        change.forget(hash(b"k"));
        rows.put(before, hash(b"k"), b"k", b"old");
        let after = change.epoch();
        drop(change);
        rows.put(before, hash(b"k"), b"k", b"old");
        assert_eq!(get(&rows, b"k"), None);
        rows.put(after, hash(b"k"), b"k", b"new");
        assert_eq!(get(&rows, b"k").as_deref(), Some(&b"new"[..]));
    }

    #[test]
    fn without_room_there_are_none_and_what_is_too_large_is_not_taken() {
        for bytes in [0, 100, 4095] {
            let rows = Rows::new(bytes);
            put(&rows, b"k", b"v");
            assert_eq!((get(&rows, b"k"), rows.stat()), (None, RowStat::default()));
        }
        let rows = Rows::new(64 << 10);
        put(&rows, b"k", &vec![1; 60 << 10]);
        assert_eq!(get(&rows, b"k"), None);
    }
}
