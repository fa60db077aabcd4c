//! The tasks that wait for each key, first come, first served, without an allocation per wait.
//!
//! Invariants
//! 1. A task waits for at most one key. It is linked into the list of that key's bucket.
//! 2. A list is in the order of arrival, and so is the order for each key. Keys are addresses and differ between runs;
//!    only whether two are equal is visible outside.

use crate::events::Slot;

const BUCKETS: usize = 256;
const NONE: Slot = Slot::MAX;

#[derive(Clone, Copy)]
struct Link {
    key: usize,
    before: Slot,
    after: Slot,
    waits: bool,
}

const UNLINKED: Link = Link { key: 0, before: NONE, after: NONE, waits: false };

#[derive(Clone, Copy)]
struct List {
    first: Slot,
    last: Slot,
}

const EMPTY: List = List { first: NONE, last: NONE };

/// The lists of waiting tasks.
pub(crate) struct Waiters {
    buckets: Box<[List; BUCKETS]>,
    links: Vec<Link>,
    count: usize,
}

impl Waiters {
    pub(crate) fn new() -> Waiters {
        Waiters { buckets: Box::new([EMPTY; BUCKETS]), links: Vec::new(), count: 0 }
    }

    /// Number of waiting tasks.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The key that the task waits for.
    pub(crate) fn key(&self, slot: Slot) -> Option<usize> {
        self.links.get(slot as usize).filter(|link| link.waits).map(|link| link.key)
    }

    /// Lets the task, which must not be waiting yet, wait for `key`.
    pub(crate) fn push(&mut self, key: usize, slot: Slot) {
        if self.links.len() <= slot as usize {
            self.links.resize(slot as usize + 1, UNLINKED);
        }
        debug_assert!(!self.links[slot as usize].waits);
        let list = &mut self.buckets[bucket(key)];
        self.links[slot as usize] = Link { key, before: list.last, after: NONE, waits: true };
        match list.last {
            NONE => list.first = slot,
            last => self.links[last as usize].after = slot,
        }
        list.last = slot;
        self.count += 1;
    }

    /// Removes the task that has waited longest for `key`.
    pub(crate) fn pop(&mut self, key: usize) -> Option<Slot> {
        let mut slot = self.buckets[bucket(key)].first;
        while slot != NONE && self.links[slot as usize].key != key {
            slot = self.links[slot as usize].after;
        }
        self.remove(slot).then_some(slot)
    }

    /// Removes the task. Returns false if it does not wait.
    pub(crate) fn remove(&mut self, slot: Slot) -> bool {
        let Some(&link) = self.links.get(slot as usize).filter(|link| link.waits) else { return false };
        let list = &mut self.buckets[bucket(link.key)];
        match link.before {
            NONE => list.first = link.after,
            before => self.links[before as usize].after = link.after,
        }
        match link.after {
            NONE => list.last = link.before,
            after => self.links[after as usize].before = link.before,
        }
        self.links[slot as usize] = UNLINKED;
        self.count -= 1;
        true
    }

    /// Removes all tasks.
    pub(crate) fn clear(&mut self) {
        self.buckets.fill(EMPTY);
        self.links.clear();
        self.count = 0;
    }
}

fn bucket(key: usize) -> usize {
    ((key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn same_as_one_list_of_arrivals(
            steps in prop::collection::vec((0u8..3, 0u32..30, 0usize..600), 0..500),
        ) {
            let (mut waiters, mut arrivals) = (Waiters::new(), Vec::<(usize, Slot)>::new());
            for (step, slot, key) in steps {
                match step {
                    0 if waiters.key(slot).is_none() => {
                        waiters.push(key, slot);
                        arrivals.push((key, slot));
                    }
                    1 => {
                        // Mostly keys that a task waits for.
                        let key = arrivals.get(key % 40).map_or(key, |arrival| arrival.0);
                        let first = arrivals.iter().position(|arrival| arrival.0 == key);
                        prop_assert_eq!(waiters.pop(key), first.map(|at| arrivals.remove(at).1));
                    }
                    _ => {
                        let at = arrivals.iter().position(|arrival| arrival.1 == slot);
                        prop_assert_eq!(waiters.remove(slot), at.map(|at| arrivals.remove(at)).is_some());
                    }
                }
                prop_assert_eq!(waiters.count(), arrivals.len());
            }
        }
    }
}
