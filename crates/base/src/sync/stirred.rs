//! What locks are made of under `shuttle`, which runs one task at a time and decides at every step which: feature
//! `shuttle`, for tests only. Every lock, wait and atomic is such a step, and a deadlock is seen.
#![allow(unsafe_code)]

use shuttle::sync::{Condvar, Mutex, MutexGuard};
use std::sync::PoisonError;

pub use shuttle::sync::atomic as atomics;

/// How often something is held: readers, or -1 for one that excludes.
struct Held {
    count: Mutex<isize>,
    freed: Condvar,
}

impl Held {
    const fn new() -> Held {
        Held { count: Mutex::new(0), freed: Condvar::new() }
    }

    /// A task that panics lets go of its locks; its message is what counts.
    fn count(&self) -> MutexGuard<'_, isize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, allowed: impl Fn(isize) -> bool, change: isize) {
        let mut count = self.count();
        while !allowed(*count) {
            count = self.freed.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
        *count += change;
    }

    fn try_take(&self, allowed: impl Fn(isize) -> bool, change: isize) -> bool {
        let mut count = self.count();
        let free = allowed(*count);
        *count += if free { change } else { 0 };
        free
    }

    fn release(&self, change: isize) {
        *self.count() += change;
        self.freed.notify_all();
    }
}

/// Mutual exclusion.
pub struct RawMutex(Held);

// SAFETY: only the caller that moved the count from 0 to -1 holds the lock, until it moves it back.
unsafe impl lock_api::RawMutex for RawMutex {
    const INIT: RawMutex = RawMutex(Held::new());
    type GuardMarker = lock_api::GuardSend;

    fn lock(&self) {
        self.0.take(|count| count == 0, -1);
    }
    fn try_lock(&self) -> bool {
        self.0.try_take(|count| count == 0, -1)
    }
    unsafe fn unlock(&self) {
        self.0.release(1);
    }
}

/// Many readers or one writer.
pub struct RawRwLock(Held);

// SAFETY: the count is -1 while one writer holds the lock, else how many readers do.
unsafe impl lock_api::RawRwLock for RawRwLock {
    const INIT: RawRwLock = RawRwLock(Held::new());
    type GuardMarker = lock_api::GuardSend;

    fn lock_shared(&self) {
        self.0.take(|count| count >= 0, 1);
    }
    fn try_lock_shared(&self) -> bool {
        self.0.try_take(|count| count >= 0, 1)
    }
    unsafe fn unlock_shared(&self) {
        self.0.release(-1);
    }
    fn lock_exclusive(&self) {
        self.0.take(|count| count == 0, -1);
    }
    fn try_lock_exclusive(&self) -> bool {
        self.0.try_take(|count| count == 0, -1)
    }
    unsafe fn unlock_exclusive(&self) {
        self.0.release(1);
    }
}

/// A count that can be waited for to move.
#[derive(Default)]
pub(super) struct Turnstile {
    turns: Mutex<u64>,
    moved: Condvar,
}

impl Turnstile {
    fn lock(&self) -> MutexGuard<'_, u64> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn turns(&self) -> u64 {
        *self.lock()
    }

    pub(super) fn wait_past(&self, seen: u64) {
        let mut turns = self.lock();
        while *turns == seen {
            turns = self.moved.wait(turns).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// There is no time here: it wakes for no reason, when others have had their turn.
    pub(super) fn wait_past_for(&self, _seen: u64, _most: std::time::Duration) {
        shuttle::thread::yield_now();
    }

    /// It moves, and only one of those who wait for it hears of it.
    pub(super) fn turn_for_one(&self) {
        *self.lock() += 1;
        self.moved.notify_one();
    }

    pub(super) fn turn(&self) {
        *self.lock() += 1;
        self.moved.notify_all();
    }
}
