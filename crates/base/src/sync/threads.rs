//! What locks are made of in production: `parking_lot`.

pub(super) use parking_lot::{RawMutex, RawRwLock};
pub use std::sync::atomic as atomics;
use std::time::Duration;

/// A count that can be waited for to move.
#[derive(Default)]
pub(super) struct Turnstile {
    turns: parking_lot::Mutex<u64>,
    moved: parking_lot::Condvar,
}

impl Turnstile {
    pub(super) fn turns(&self) -> u64 {
        *self.turns.lock()
    }

    pub(super) fn wait_past(&self, seen: u64) {
        let mut turns = self.turns.lock();
        while *turns == seen {
            self.moved.wait(&mut turns);
        }
    }

    /// The same, but not for longer than `most`.
    pub(super) fn wait_past_for(&self, seen: u64, most: Duration) {
        let mut turns = self.turns.lock();
        self.moved.wait_while_for(&mut turns, |turns| *turns == seen, most);
    }

    /// It moves, and only one of those who wait for it hears of it.
    pub(super) fn turn_for_one(&self) {
        *self.turns.lock() += 1;
        self.moved.notify_one();
    }

    pub(super) fn turn(&self) {
        *self.turns.lock() += 1;
        self.moved.notify_all();
    }
}
