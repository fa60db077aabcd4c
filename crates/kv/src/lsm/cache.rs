//! The cache for objects of tables and values in logs: sharded, with clock eviction in each shard.
//!
//! Keys are the number of a table or log (which share one number space) and a place in it. Numbers are never reused, so
//! entries are never stale.
//!
//! A full cache should not be filled by leaves that are read once. With *visits*, a missed leaf leaves a mark, and is
//! admitted only if it is missed again while the mark exists. One that is not admitted takes no memory and evicts
//! nothing.

use crate::lsm::striped::Striped;
use crate::lsm::table::Object;
use std::sync::Arc;
use vellum_base::hash::FixedMap;
use vellum_base::sync::Mutex;
use vellum_base::sync::atomic::{AtomicU16, Ordering::Relaxed};

const SHARDS: usize = 16;
/// Cache bytes per mark: four marks, of two bytes each, for each leaf that the cache can hold.
const BYTES_PER_MARK: usize = 1024;
/// Approximate overhead of an entry in bytes.
const OVERHEAD_BYTES: usize = 128;

/// The number of a table and the first unit of an object; or that of a log and the place of a value
/// ([`crate::lsm::kept_log::Pointer::place`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CacheKey {
    pub table: u64,
    pub unit: u32,
}

impl CacheKey {
    /// A hash whose high bits are best mixed.
    #[inline]
    fn mixed(self) -> u64 {
        let mixed = (self.table ^ u64::from(self.unit) << 20).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^ (mixed >> 32)
    }
}

/// See the module.
pub(crate) struct Cache {
    shards: Vec<Mutex<Shard>>,
    shard_bytes: usize,
    /// Hits through pins, which do not look the object up.
    hits_aside: Striped,
    /// Marks of missed leaves, indexed by hash. If empty, everything is admitted.
    visits: Box<[AtomicU16]>,
}

#[derive(Default)]
struct Shard {
    index: FixedMap<CacheKey, usize>,
    slots: Vec<Slot>,
    hand: usize,
    bytes: usize,
    bytes_max: usize,
    hits: u64,
    misses: u64,
}

struct Slot {
    place: CacheKey,
    object: Arc<Object>,
    used: bool,
}

impl Cache {
    /// A cache of at most so many bytes, that lets in whatever is missed.
    pub(crate) fn new(bytes_max: usize) -> Cache {
        let shard_bytes = bytes_max / SHARDS;
        let shard = || Mutex::new(Shard { bytes_max: shard_bytes, ..Shard::default() });
        let shards = (0..SHARDS).map(|_| shard()).collect();
        Cache { shards, shard_bytes, hits_aside: Striped::default(), visits: Box::default() }
    }

    /// One that, once full, admits only what is missed twice.
    pub(crate) fn with_visits(bytes_max: usize) -> Cache {
        let marks = (bytes_max / BYTES_PER_MARK).next_power_of_two();
        Cache { visits: (0..marks).map(|_| AtomicU16::new(0)).collect(), ..Cache::new(bytes_max) }
    }

    /// True if an object of so many bytes could be cached at all.
    pub(crate) fn can_hold(&self, bytes: usize) -> bool {
        bytes + OVERHEAD_BYTES <= self.shard_bytes
    }

    /// True if a missed object of so many bytes is to be inserted.
    #[inline]
    pub(crate) fn admits(&self, place: CacheKey, bytes: usize) -> bool {
        if self.visits.is_empty() {
            return true;
        }
        let shard = self.shard(place).lock();
        let has_room = shard.bytes + bytes + OVERHEAD_BYTES <= shard.bytes_max;
        drop(shard);
        let mixed = place.mixed();
        let tag = (mixed as u16) | 1; // no mark is zero
        let mark = &self.visits[(mixed >> 20) as usize & (self.visits.len() - 1)];
        has_room || mark.load(Relaxed) == tag || {
            mark.store(tag, Relaxed);
            false
        }
    }

    #[inline]
    pub(crate) fn get(&self, place: CacheKey) -> Option<Arc<Object>> {
        let shard = &mut *self.shard(place).lock();
        let Some(at) = shard.index.get(&place) else {
            shard.misses += 1;
            return None;
        };
        shard.hits += 1;
        let slot = &mut shard.slots[*at];
        slot.used = true;
        Some(slot.object.clone())
    }

    /// Counts a hit on a cached object that was found through a pin.
    #[inline]
    pub(crate) fn hit_aside(&self) {
        self.hits_aside.add(1);
    }

    /// True if the object is cached and was used since the clock hand last passed. Does not count as a use.
    pub(crate) fn is_in_use(&self, place: CacheKey) -> bool {
        let shard = self.shard(place).lock();
        shard.index.get(&place).is_some_and(|at| shard.slots[*at].used || shard.slots[*at].object.is_used())
    }

    pub(crate) fn insert(&self, place: CacheKey, object: Arc<Object>) {
        let mut shard = self.shard(place).lock();
        let evicted = shard.insert(place, object);
        drop(shard);
        drop(evicted); // outside the lock
    }

    /// Removes an object that nobody will look up any more.
    pub(crate) fn remove(&self, place: CacheKey) {
        let mut shard = self.shard(place).lock();
        let removed = shard.index.get(&place).copied().map(|at| shard.take(at));
        drop(shard);
        drop(removed); // frees memory outside the lock
    }

    /// The same for those that begin at these units of a table, or places of a log.
    pub(crate) fn remove_units(&self, table: u64, units: impl IntoIterator<Item = usize>) {
        units.into_iter().for_each(|unit| self.remove(CacheKey { table, unit: unit as u32 }));
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().bytes).sum()
    }
    /// Numbers of lookups that hit and that missed.
    pub(crate) fn hits_and_misses(&self) -> (u64, u64) {
        let of_shard = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            (shard.hits, shard.misses)
        };
        self.shards
            .iter()
            .map(of_shard)
            .fold((self.hits_aside.total(), 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    #[inline]
    fn shard(&self, place: CacheKey) -> &Mutex<Shard> {
        &self.shards[(place.mixed() >> 60) as usize % SHARDS]
    }
}

fn cost(object: &Object) -> usize {
    object.bytes() + OVERHEAD_BYTES
}

impl Shard {
    fn insert(&mut self, place: CacheKey, object: Arc<Object>) -> Vec<Arc<Object>> {
        let bytes = cost(&object);
        if bytes > self.bytes_max || self.index.contains_key(&place) {
            return Vec::new();
        }
        let mut evicted = Vec::new();
        while self.bytes + bytes > self.bytes_max {
            evicted.push(self.evict());
        }
        object.enters();
        self.bytes += bytes;
        self.index.insert(place, self.slots.len());
        self.slots.push(Slot { place, object, used: false });
        evicted
    }

    /// Takes the next slot that was not used since the hand last passed. There must be at least one slot.
    fn evict(&mut self) -> Arc<Object> {
        loop {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            let slot = &mut self.slots[self.hand];
            if !(std::mem::take(&mut slot.used) | slot.object.take_used()) {
                break;
            }
            self.hand += 1;
        }
        // The newest slot moves to its place and the hand passes it, so it has a full round in which to be used.
        self.hand += 1;
        self.take(self.hand - 1)
    }

    fn take(&mut self, at: usize) -> Arc<Object> {
        let slot = self.slots.swap_remove(at);
        self.index.remove(&slot.place);
        if let Some(moved) = self.slots.get(at) {
            self.index.insert(moved.place, at);
        }
        self.bytes -= cost(&slot.object);
        slot.object.leaves();
        slot.object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(n: u64) -> CacheKey {
        CacheKey { table: n / 100, unit: (n % 100) as u32 }
    }

    #[test]
    fn it_stays_within_its_bytes_and_keeps_what_is_used() {
        let cache = Cache::new(SHARDS * 20 * (4096 + OVERHEAD_BYTES));
        for n in 0..5000 {
            cache.insert(place(n), Arc::new(Object::for_test(4096)));
            for hot in 0..40 {
                if cache.get(place(hot)).is_none() {
                    cache.insert(place(hot), Arc::new(Object::for_test(4096)));
                }
            }
            assert!(cache.bytes() <= SHARDS * 20 * (4096 + OVERHEAD_BYTES));
        }
        let (hits, misses) = cache.hits_and_misses();
        assert!(misses < hits / 20, "{hits} hits, {misses} misses");
    }

    #[test]
    fn what_nobody_uses_makes_room_for_what_is_new() {
        let room = 20;
        let cache = Cache::new(SHARDS * room * (4096 + OVERHEAD_BYTES));
        (0..3000).for_each(|n| cache.insert(place(n), Arc::new(Object::for_test(4096))));
        let newest = (3000 - (SHARDS * room / 2) as u64..3000).filter(|n| cache.get(place(*n)).is_some());
        assert!(newest.count() > SHARDS * room / 3, "the newest are gone");
        assert!((0..1000).all(|n| cache.get(place(n)).is_none()), "the oldest are still there");
    }

    #[test]
    fn what_is_missed_once_takes_no_place_and_what_is_missed_twice_does() {
        let room = 20 * SHARDS;
        let cache = Cache::with_visits(room * (4096 + OVERHEAD_BYTES));
        let miss = |n: u64| {
            let admitted = cache.get(place(n)).is_none() && cache.admits(place(n), 4096);
            if admitted {
                cache.insert(place(n), Arc::new(Object::for_test(4096)));
            }
            admitted
        };
        let first = (0..room as u64 * 3).filter(|n| miss(*n)).count();
        assert!((room * 3 / 4..=room).contains(&first), "as much as it has room for: {first}");
        let passing = (10_000..10_400).filter(|n| miss(*n)).count();
        assert_eq!(passing, 0, "missed once");
        assert!((10_000..10_400).filter(|n| miss(*n)).count() > 300, "missed twice");
    }

    #[test]
    fn what_is_removed_is_gone_and_the_rest_stays() {
        let cache = Cache::new(1 << 20);
        (0..100).for_each(|n| cache.insert(place(n), Arc::new(Object::for_test(1000))));
        let full = cache.bytes();
        (0..100).step_by(2).for_each(|n| cache.remove(place(n)));
        cache.remove(place(0));
        assert_eq!(cache.bytes(), full / 2);
        (0..100).for_each(|n| assert_eq!(cache.get(place(n)).is_some(), n % 2 == 1, "{n}"));
    }

    #[test]
    fn an_object_larger_than_a_shard_is_not_kept() {
        let cache = Cache::new(1 << 16);
        cache.insert(place(1), Arc::new(Object::for_test(1 << 20)));
        assert!(cache.get(place(1)).is_none() && cache.bytes() == 0);
    }
}
