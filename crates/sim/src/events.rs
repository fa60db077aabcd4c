//! The event queue: tasks that are ready now, and tasks that sleep until a time.
//!
//! Invariants
//! 1. Events are taken in the order of (time, order number). Order numbers grow, so events of equal time are first
//!    come, first served, whether they come from timers or from wakes.
//! 2. A task has at most one valid event. `timers[task]` is the order number of its timer, or 0. A heap entry with
//!    another number is stale and is skipped.
//! 3. While `ready` is not empty the clock does not advance, so its entries are in order and all due now.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Index of a task in the task table.
pub(crate) type Slot = u32;

/// Bits of an order number that hold the task's slot.
const SLOT_BITS: u32 = 20;
/// Maximum number of tasks at once.
pub(crate) const TASKS_MAX: usize = 1 << SLOT_BITS;
/// Stale entries are removed when there are more of them than this and than valid ones.
const STALE_MIN: usize = 64;

/// Cause of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The task slept until now.
    Timer,
    /// The task was started or woken.
    Ready,
}

/// The next action of the event loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Run this task at this time.
    Run { slot: Slot, time: u64, source: Source },
    /// The next event is later than the limit.
    Later,
    /// There is no event.
    Idle,
}

/// Time and order number in one integer, so that a single comparison orders two events.
type Entry = u128;

/// The event queue.
#[derive(Default)]
pub(crate) struct Events {
    heap: BinaryHeap<Reverse<Entry>>,
    ready: VecDeque<Entry>,
    timers: Vec<u64>,
    stale: usize,
    sequence: u64,
}

impl Events {
    /// Schedules the task at `now`, after all that is already due.
    pub(crate) fn ready(&mut self, slot: Slot, now: u64) {
        let entry = self.entry(slot, now);
        self.ready.push_back(entry);
    }

    /// Schedules the task at `time`.
    pub(crate) fn sleep(&mut self, slot: Slot, time: u64) {
        let entry = self.entry(slot, time);
        if self.timers.len() <= slot as usize {
            self.timers.resize(slot as usize + 1, 0);
        }
        self.timers[slot as usize] = entry as u64;
        self.heap.push(Reverse(entry));
    }

    /// Cancels the task's timer.
    pub(crate) fn cancel(&mut self, slot: Slot) {
        if let Some(timer) = self.timers.get_mut(slot as usize)
            && *timer != 0
        {
            *timer = 0;
            self.stale += 1;
            if self.stale > STALE_MIN && self.stale > self.heap.len() / 2 {
                self.sweep();
            }
        }
    }

    /// Whether a task that wants to sleep until `time` would be the next to run.
    #[inline]
    pub(crate) fn none_until(&self, time: u64) -> bool {
        self.ready.is_empty() && self.heap.peek().is_none_or(|top| time_of(top.0) > time)
    }

    /// Takes the next event if it is due at `limit` or before.
    #[inline]
    pub(crate) fn pop(&mut self, limit: u64) -> Next {
        loop {
            let ready = self.ready.front().copied();
            let timer = self.heap.peek().map(|top| top.0);
            let timer = match (ready, timer) {
                (None, None) => return Next::Idle,
                (Some(first), timer) if timer.is_none_or(|timer| first < timer) => {
                    self.ready.pop_front();
                    return Next::Run { slot: slot_of(first), time: time_of(first), source: Source::Ready };
                }
                (_, Some(timer)) => timer,
                (Some(_), None) => unreachable!("a ready task comes before no timer"),
            };
            let slot = slot_of(timer);
            let counts = self.timers[slot as usize] == timer as u64;
            if counts && time_of(timer) > limit {
                return Next::Later;
            }
            self.heap.pop();
            if counts {
                self.timers[slot as usize] = 0;
                return Next::Run { slot, time: time_of(timer), source: Source::Timer };
            }
            self.stale -= 1;
        }
    }

    /// Removes all events. Order numbers continue.
    pub(crate) fn clear(&mut self) {
        self.heap.clear();
        self.ready.clear();
        self.timers.clear();
        self.stale = 0;
    }

    /// The time at which the task's timer expires, if it has one. Slow: for reports.
    pub(crate) fn timer(&self, slot: Slot) -> Option<u64> {
        let order = *self.timers.get(slot as usize).filter(|&&order| order != 0)?;
        self.heap.iter().map(|entry| entry.0).find(|&entry| entry as u64 == order).map(time_of)
    }

    fn entry(&mut self, slot: Slot, time: u64) -> Entry {
        self.sequence += 1;
        (time as Entry) << 64 | (self.sequence << SLOT_BITS | slot as u64) as Entry
    }

    fn sweep(&mut self) {
        let timers = &self.timers;
        self.heap.retain(|entry| timers[slot_of(entry.0) as usize] == entry.0 as u64);
        self.stale = 0;
    }
}

#[inline]
fn time_of(entry: Entry) -> u64 {
    (entry >> 64) as u64
}

#[inline]
fn slot_of(entry: Entry) -> Slot {
    entry as Slot & (TASKS_MAX - 1) as Slot
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A simple queue: a list that is searched each time.
    #[derive(Default)]
    struct Oracle {
        events: Vec<(u64, u64, Slot, Source)>,
        sequence: u64,
    }

    impl Oracle {
        fn push(&mut self, slot: Slot, time: u64, source: Source) {
            self.sequence += 1;
            self.events.push((time, self.sequence, slot, source));
        }
        fn pop(&mut self, limit: u64) -> Next {
            let first = self.events.iter().enumerate().min_by_key(|(_, event)| (event.0, event.1));
            match first {
                None => Next::Idle,
                Some((_, event)) if event.0 > limit => Next::Later,
                Some((at, &(time, _, slot, source))) => {
                    self.events.remove(at);
                    Next::Run { slot, time, source }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn same_order_as_a_searched_list(steps in prop::collection::vec((0u8..5, 0u32..40, 0u64..50), 0..600)) {
            let (mut events, mut oracle, mut now) = (Events::default(), Oracle::default(), 0);
            for (step, slot, delay) in steps {
                let idle = !oracle.events.iter().any(|event| event.2 == slot);
                match step {
                    0 if idle => {
                        events.ready(slot, now);
                        oracle.push(slot, now, Source::Ready);
                    }
                    1 | 2 if idle => {
                        events.sleep(slot, now + delay);
                        oracle.push(slot, now + delay, Source::Timer);
                    }
                    3 => {
                        events.cancel(slot);
                        oracle.events.retain(|event| event.2 != slot || event.3 == Source::Ready);
                    }
                    _ => {
                        let limit = now + delay;
                        let next = events.pop(limit);
                        prop_assert_eq!(next, oracle.pop(limit));
                        if let Next::Run { time, .. } = next {
                            now = time;
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn cancelled_timers_do_not_pile_up() {
        let mut events = Events::default();
        for round in 0..10_000 {
            events.sleep(3, 1_000_000 + round);
            events.cancel(3);
        }
        assert!(events.heap.len() <= 2 * STALE_MIN + 2, "{} entries kept", events.heap.len());
        assert_eq!(events.pop(u64::MAX), Next::Idle);
    }
}
