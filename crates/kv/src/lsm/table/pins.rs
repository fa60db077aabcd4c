//! Pins: direct pointers from an open table to its cached branches. Every get needs the branches of each table that may
//! hold its key; through pins it takes no lock, and touches no shared reference count.
//!
//! Invariant: pinned objects are in the cache, so pins keep no additional memory alive. Pinning sets home and pin, then
//! checks whether the object is still cached; eviction marks it as gone, then looks for its home. At least one of them
//! sees the other.

use super::Object;
use super::leaf::{IndexCursor, Leaf};
use crate::bytes::Fields;
use crate::swap::{ArcSwapOption, Guard};
use std::sync::{Arc, OnceLock, Weak};
use vellum_base::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed, Ordering::SeqCst, fence};

/// The branches of a table, by their first unit.
pub(crate) struct Pins {
    /// Ascending.
    units: Box<[u32]>,
    objects: Box<[ArcSwapOption<Object>]>,
}

impl Pins {
    /// Empty pins for the runs of a root. An entry that does not decode gets no pin; reading it will report the error.
    pub(super) fn new(root: &Leaf, bytes: &[u8]) -> Arc<Pins> {
        let (mut units, mut run) = (Vec::new(), IndexCursor::default());
        let mut more = run.first(root, bytes);
        while more.is_ok() && run.is_valid() {
            let unit = Fields::new(run.value(bytes)).varint().and_then(|unit| u32::try_from(unit).ok());
            units.extend(unit);
            more = run.next(root, bytes);
        }
        let objects = units.iter().map(|_| ArcSwapOption::empty()).collect();
        Arc::new(Pins { units: units.into(), objects })
    }

    fn at(&self, unit: usize) -> Option<usize> {
        let at = self.units.partition_point(|start| (*start as usize) < unit);
        (self.units.get(at).is_some_and(|start| *start as usize == unit)).then_some(at)
    }

    /// The branch at `unit`, if it is pinned.
    #[inline]
    pub(super) fn get(&self, unit: usize) -> Option<Guard<Option<Arc<Object>>>> {
        Some(self.objects[self.at(unit)?].load()).filter(|object| object.is_some())
    }

    /// Pins a branch, if it is in the cache.
    pub(super) fn pin(self: &Arc<Pins>, unit: usize, object: &Arc<Object>) {
        let (Some(at), Object::Branch { stay, .. }) = (self.at(unit), &**object) else { return };
        if stay.state.load(Relaxed) != CACHED {
            return;
        }
        stay.home.get_or_init(|| (Arc::downgrade(self), at));
        self.objects[at].store(Some(object.clone()));
        fence(SeqCst);
        if stay.state.load(SeqCst) != CACHED {
            self.objects[at].store(None);
        }
    }
}

const CACHED: u8 = 1;
const GONE: u8 = 2;

/// An object's stay in the cache.
#[derive(Default)]
pub(crate) struct Stay {
    state: AtomicU8,
    /// It was asked for since the cache's hand last passed.
    used: AtomicBool,
    home: OnceLock<(Weak<Pins>, usize)>,
}

impl Stay {
    /// A reader used the object without asking the cache.
    #[inline]
    pub(super) fn touch(&self) {
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
    }

    pub(super) fn is_used(&self) -> bool {
        self.used.load(Relaxed)
    }
    pub(super) fn take_used(&self) -> bool {
        self.used.swap(false, Relaxed)
    }

    pub(super) fn begin(&self) {
        self.state.store(CACHED, SeqCst);
    }

    pub(super) fn end(&self) {
        self.state.store(GONE, SeqCst);
        fence(SeqCst);
        if let Some((pins, at)) = self.home.get()
            && let Some(pins) = pins.upgrade()
        {
            pins.objects[*at].store(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::key::Stamp;
    use crate::lsm::cache::Cache;
    use crate::lsm::cache::CacheKey;
    use crate::lsm::table::Object;
    use crate::lsm::table::Pins;
    use crate::lsm::table::buffer::Buffer;
    use crate::lsm::table::leaf_build::LeafBuilder;
    use crate::lsm::table::object::ObjectKind;
    use crate::lsm::table::object::TABLE_UNIT_BYTES;
    use crate::lsm::table::{Leaf, filter};
    use std::sync::Arc;

    /// A root of two runs, and a branch.
    fn parts() -> (Arc<Pins>, Arc<Object>) {
        let (mut root, mut out) = (LeafBuilder::default(), Vec::new());
        root.add(b"k", Stamp(0), &[7, 1, 1], 0);
        root.add(b"m", Stamp(0), &[20, 1, 1], 0);
        root.finish(&mut out, ObjectKind::Root, TABLE_UNIT_BYTES);
        let pins = Pins::new(&Leaf::check(&out, ObjectKind::Root).unwrap(), &out);
        let (mut index, mut bytes) = (LeafBuilder::default(), Vec::new());
        let filter_units = filter::build(&mut bytes, &[1], 10, TABLE_UNIT_BYTES);
        index.add(b"k", Stamp(0), &[0, 1], 0);
        index.finish(&mut bytes, ObjectKind::Index, TABLE_UNIT_BYTES);
        (pins, Arc::new(Object::branch(Buffer::of(&bytes), filter_units * TABLE_UNIT_BYTES).unwrap()))
    }

    #[test]
    fn what_is_pinned_is_in_the_cache() {
        let (pins, branch) = parts();
        let (cache, place) = (Cache::new(1 << 20), CacheKey { table: 1, unit: 20 });
        pins.pin(20, &branch);
        assert!(pins.get(20).is_none(), "it is not in the cache yet");
        cache.insert(place, branch.clone());
        pins.pin(20, &branch);
        pins.pin(21, &branch);
        assert!(pins.get(20).is_some() && pins.get(7).is_none() && pins.get(21).is_none());
        cache.remove(place);
        assert!(pins.get(20).is_none(), "it left the cache");
        pins.pin(20, &branch);
        assert!(pins.get(20).is_none(), "and is not pinned again");
        drop(cache);
        assert_eq!(Arc::strong_count(&branch), 1);
    }

    #[test]
    fn what_is_used_through_a_pin_stays_in_the_cache() {
        let (pins, branch) = parts();
        let (cache, place) = (Cache::new(16 * (32 << 10)), CacheKey { table: 1, unit: 20 });
        cache.insert(place, branch.clone());
        pins.pin(20, &branch);
        for unit in 0..4000 {
            if let Some(object) = pins.get(20)
                && let Some(Object::Branch { stay, .. }) = object.as_deref()
            {
                stay.touch();
            }
            cache.insert(CacheKey { table: 2, unit }, Arc::new(Object::for_test(4096)));
        }
        assert!(pins.get(20).is_some() && cache.get(place).is_some());
        (4000..9000)
            .for_each(|unit| cache.insert(CacheKey { table: 2, unit }, Arc::new(Object::for_test(4096))));
        assert!(pins.get(20).is_none(), "nobody used it");
    }
}
