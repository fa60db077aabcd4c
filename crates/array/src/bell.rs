//! Wakes a task that rests until there is something to do.
//!
//! Who makes work and then calls [`Bell::ring_if_awaited`], and a task that awaits any work and then looks for some
//! before it waits, do not miss each other.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use vellum_base::sync::{Condvar, Mutex};
use vellum_base::{Env, Nanos};

/// See the module.
#[derive(Default)]
pub(crate) struct Bell {
    is_awaited: AtomicBool,
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    /// Wakes whoever waits, or is about to.
    pub fn ring(&self) {
        *self.rung.lock() = true;
        self.changed.notify_all();
    }

    /// Rings if somebody waits for any work.
    pub fn ring_if_awaited(&self) {
        if self.is_awaited.load(SeqCst) {
            self.ring();
        }
    }

    /// Whether any work is waited for from now on.
    pub fn await_any(&self, any: bool) {
        self.is_awaited.store(any, SeqCst);
    }

    /// Returns when it was rung since the last time, or at the deadline.
    pub fn wait(&self, env: &dyn Env, deadline: Option<Nanos>) {
        let mut rung = self.rung.lock();
        while !*rung && deadline.is_none_or(|deadline| env.now() < deadline) {
            match deadline {
                Some(deadline) => self.changed.wait_until(&mut rung, env, deadline),
                None => self.changed.wait(&mut rung),
            }
        }
        *rung = false;
        self.is_awaited.store(false, SeqCst);
    }
}
