//! Locks for both environments: OS threads in production, coroutines on one thread in virtual time.
//!
//! The fast path is that of an ordinary lock. Only a contended lock, a release with waiters, or a condition wait
//! asks [`crate::env::scheduler`] whether this thread runs a virtual world, and then yields to it instead of
//! blocking the thread.
//!
//! The feature `shuttle` adds a third, for tests: `shuttle` decides at each lock, wait and atomic which task runs next.

#[cfg(feature = "shuttle")]
#[path = "stirred.rs"]
mod primitives;
#[cfg(not(feature = "shuttle"))]
#[path = "threads.rs"]
mod primitives;

use crate::env::{Env, scheduler};
use crate::units::Nanos;
use lock_api::RawMutex as _;
use std::time::Duration;

/// Atomics; engine code uses these, so that tests can control the interleaving of accesses.
pub use primitives::atomics as atomic;

/// A mutex; see the module.
pub type Mutex<T> = lock_api::Mutex<RawLock, T>;
/// Guard of a [`Mutex`].
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawLock, T>;

/// A reader-writer lock. Virtual tasks must not yield while they hold it, so that it never blocks them.
pub type RwLock<T> = lock_api::RwLock<primitives::RawRwLock, T>;

/// The raw lock behind [`Mutex`].
pub struct RawLock(primitives::RawMutex);

impl RawLock {
    fn key(&self) -> usize {
        self as *const RawLock as usize
    }

    #[cold]
    fn lock_contended(&self) {
        match scheduler() {
            None => self.0.lock(),
            Some(world) => {
                while !self.0.try_lock() {
                    world.wait(self.key(), None);
                }
            }
        }
    }
}

mod raw {
    //! `unsafe` because `lock_api` relies on the implementation for mutual exclusion; we delegate it to the inner
    //! lock, and add only what happens while waiting.
    #![allow(unsafe_code)]
    use super::{RawLock, primitives, scheduler};

    // SAFETY: every method takes or releases the inner `RawMutex`, which guarantees mutual exclusion.
    unsafe impl lock_api::RawMutex for RawLock {
        const INIT: RawLock = RawLock(<primitives::RawMutex as lock_api::RawMutex>::INIT);
        type GuardMarker = lock_api::GuardSend;

        #[inline]
        fn lock(&self) {
            if !lock_api::RawMutex::try_lock(&self.0) {
                self.lock_contended();
            }
        }
        #[inline]
        fn try_lock(&self) -> bool {
            lock_api::RawMutex::try_lock(&self.0)
        }
        #[inline]
        unsafe fn unlock(&self) {
            // SAFETY: our caller holds the lock, by the contract of this method.
            unsafe { lock_api::RawMutex::unlock(&self.0) };
            if let Some(world) = scheduler() {
                world.wake(self.key(), 1);
            }
        }
    }
}

/// A condition variable for [`Mutex`].
#[derive(Default)]
pub struct Condvar {
    /// Waiters note the count, then sleep until it has moved.
    turnstile: primitives::Turnstile,
}

impl Condvar {
    /// A condition variable without waiters.
    pub fn new() -> Condvar {
        Condvar::default()
    }

    fn key(&self) -> usize {
        self as *const Condvar as usize
    }

    /// Releases the lock, waits to be notified, and takes the lock again. May wake spuriously: call it in a loop.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        match scheduler() {
            Some(world) => MutexGuard::unlocked(guard, || world.wait(self.key(), None)),
            None => {
                let seen = self.turnstile.turns();
                MutexGuard::unlocked(guard, || self.turnstile.wait_past(seen));
            }
        }
    }

    /// The same, but returns by `deadline` on the clock of `env`.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, env: &dyn Env, deadline: Nanos) {
        match scheduler() {
            Some(world) => MutexGuard::unlocked(guard, || world.wait(self.key(), Some(deadline))),
            None => {
                let seen = self.turnstile.turns();
                let left = Duration::from_nanos(deadline.0.saturating_sub(env.now().0));
                MutexGuard::unlocked(guard, || self.turnstile.wait_past_for(seen, left));
            }
        }
    }

    /// Wakes one waiter, if there are any. Use it only if any of the waiters will do.
    pub fn notify_one(&self) {
        match scheduler() {
            Some(world) => world.wake(self.key(), 1),
            None => self.turnstile.turn_for_one(),
        }
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        match scheduler() {
            Some(world) => world.wake(self.key(), usize::MAX),
            None => self.turnstile.turn(),
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests the production world")]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn threads_exclude_each_other_and_meet_at_a_condition() {
        let shared = Arc::new((Mutex::new(0u64), Condvar::new()));
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let shared = shared.clone();
                std::thread::spawn(move || {
                    for _ in 0..10_000 {
                        *shared.0.lock() += 1;
                    }
                    shared.1.notify_all();
                })
            })
            .collect();
        let mut count = shared.0.lock();
        while *count < 40_000 {
            shared.1.wait(&mut count);
        }
        drop(count);
        for worker in workers {
            worker.join().unwrap();
        }
    }

    #[test]
    fn a_wait_ends_at_its_deadline_and_sooner_when_it_is_woken() {
        let env = crate::RealEnv::new();
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let mut told = shared.0.lock();
        let deadline = env.now() + Nanos(2_000_000);
        while env.now() < deadline {
            shared.1.wait_until(&mut told, &*env, deadline);
        }
        let other = shared.clone();
        let worker = std::thread::spawn(move || {
            *other.0.lock() = true;
            other.1.notify_all();
        });
        let late = env.now() + Nanos(60_000_000_000);
        while !*told {
            shared.1.wait_until(&mut told, &*env, late);
        }
        assert!(env.now() < late);
        drop(told);
        worker.join().unwrap();
    }
}
