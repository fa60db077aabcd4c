//! How users of both engines wait for background tasks, and how that is counted.

use crate::durable::Durable;
use crate::lifetime::Counts;
use vellum_base::sync::MutexGuard;
use vellum_base::sync::atomic::Ordering::Relaxed;
use vellum_base::{Env, Error, Result};

/// The core of an engine, by what waiting needs.
pub(crate) trait Waiting: Durable {
    fn counts(&self) -> &Counts;
    fn env(&self) -> &dyn Env;
    /// The error where waiting does not help.
    fn full() -> Error;

    /// Waits until background work has made progress; returns false at once if it cannot make any.
    fn wait_for_change<'a>(
        &'a self,
        state: MutexGuard<'a, Self::State>,
    ) -> Result<(MutexGuard<'a, Self::State>, bool)>;

    /// The same; notes if it waited, however that ended.
    fn change_noting<'a>(
        &'a self,
        has_waited: &mut bool,
        state: MutexGuard<'a, Self::State>,
    ) -> Result<(MutexGuard<'a, Self::State>, bool)> {
        let waited = self.wait_for_change(state);
        *has_waited |= !matches!(waited, Ok((_, false)));
        waited
    }

    /// Runs `wait`, which notes whether it did. If so, it counts as a stall, with the time it took.
    fn stall<T>(&self, wait: impl FnOnce(&mut bool) -> T) -> T {
        let (start, mut has_waited) = (self.env().now(), false);
        let result = wait(&mut has_waited);
        if has_waited {
            self.counts().stalls.fetch_add(1, Relaxed);
            self.counts().stalled_ns.fetch_add(self.env().now().saturating_sub(start).0, Relaxed);
        }
        result
    }

    /// [`Waiting::wait_until`] of a writer, which counts as a stall.
    fn stall_until(&self, is_done: impl Fn(&Self::State) -> bool) -> Result<()> {
        self.stall(|has_waited| self.wait_noting(has_waited, is_done))
    }

    /// Waits for background tasks until `is_done`. An error if they have no room for that, or the store has failed.
    fn wait_until(&self, is_done: impl Fn(&Self::State) -> bool) -> Result<()> {
        self.wait_noting(&mut false, is_done)
    }

    /// The same; notes if it waited.
    fn wait_noting(&self, has_waited: &mut bool, is_done: impl Fn(&Self::State) -> bool) -> Result<()> {
        let (shared, mut has_tried) = (self.shared(), false);
        let mut state = shared.lock();
        while !is_done(&state) && !state.as_mut().has_failed() {
            if !has_tried {
                shared.try_again(&mut state);
                has_tried = true;
            }
            let changed;
            (state, changed) = self.change_noting(has_waited, state)?;
            if !changed {
                state.as_mut().check_room()?; // it says what there is no room for
                return Err(Self::full());
            }
        }
        drop(state);
        shared.check_writable()
    }
}
