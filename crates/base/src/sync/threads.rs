//! What locks are made of in production: `parking_lot`.

pub(super) use parking_lot::{RawMutex, RawRwLock};
pub use std::sync::atomic as atomics;

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

    pub(super) fn turn(&self) {
        *self.turns.lock() += 1;
        self.moved.notify_all();
    }
}
