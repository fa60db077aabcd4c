//! The end of a world: every task is unwound where it is, and nothing blocks any more.
//!
//! A destructor that sleeps or joins continues at once. If it locks, or waits for a condition, other tasks are unwound
//! until it gets what it waits for.

use super::{Panic, World};
use crate::coroutine::entered;
use crate::events::Slot;
use crate::log::Kind;
use std::panic::{AssertUnwindSafe, catch_unwind};

impl World {
    /// Drops every task, as a power cut does. Returns a panic that escaped from a destructor.
    pub(crate) fn stop(&self) -> Option<Panic> {
        self.begin_stopping();
        entered(self.scheduler(), || while self.unwind_one() {});
        let mut state = self.state.borrow_mut();
        let now = self.now();
        // A panicked task has no coroutine to unwind; only its entry is left.
        let left: Vec<Slot> = state.tasks.alive().map(|(slot, _)| slot).collect();
        left.into_iter().for_each(|slot| state.tasks.remove(slot));
        state.running = None;
        state.cores_busy_until.fill(now);
        state.log.event(now, 0, Kind::Cut);
        state.stopping = false;
        state.cut = false;
        state.stop_panic.take()
    }

    /// Advances the clock to `time`, without events.
    pub(crate) fn advance(&self, time: u64) {
        self.clock.set(self.now().max(time));
    }

    /// Forbids spawning of tasks from now on.
    pub(crate) fn set_over(&self) {
        self.state.borrow_mut().over = true;
    }

    /// Whether blocking is forbidden. A panicking task must not be suspended: it could not be unwound from there. Its
    /// panic ends the world anyway, so stopping begins when it wants to block.
    pub(super) fn is_stopping(&self) -> bool {
        let stopping = self.state.borrow().stopping;
        if !stopping && self.switch.is_inside() && std::thread::panicking() {
            self.begin_stopping();
            return true;
        }
        stopping
    }

    fn begin_stopping(&self) {
        let mut state = self.state.borrow_mut();
        if !state.stopping {
            state.stopping = true;
            state.events.clear();
            state.waiters.clear();
            self.waiting.set(0);
        }
    }

    /// Unwinds one suspended task. Returns false if there is none.
    pub(super) fn unwind_one(&self) -> bool {
        let (slot, mut coroutine, outer) = {
            let mut state = self.state.borrow_mut();
            let Some((slot, coroutine)) = state.tasks.take_any() else { return false };
            let outer = state.running.replace(slot);
            (slot, coroutine, outer)
        };
        let unwound = catch_unwind(AssertUnwindSafe(|| self.switch.unwind(&mut coroutine)));
        match unwound {
            Ok(()) => coroutine.recycle(),
            Err(panic) => {
                self.state.borrow_mut().stop_panic.get_or_insert(panic);
            }
        }
        let mut state = self.state.borrow_mut();
        state.running = outer;
        state.tasks.remove(slot);
        true
    }

    /// Called when a task that is being unwound would block, which it must not. If the task has caught the unwinding
    /// and continued, unwinds it again.
    pub(super) fn unwind_on(&self) {
        if self.switch.is_inside() && !std::thread::panicking() {
            self.switch.suspend();
        }
    }

    /// Called when a destructor waits for a lock or a condition: unwinds another task, which may release it.
    pub(super) fn wait_while_stopping(&self) {
        self.unwind_on();
        assert!(self.unwind_one(), "a destructor waits for something that no task is left to do");
    }
}
