//! Wakes a task that sleeps until there is work.
//!
//! No wake-up is lost between a task that adds work before it calls [`Bell::ring_if_awaited`], and a task that calls
//! [`Bell::await_any`] and then looks for work before it waits.

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
    /// Wakes the task that waits, or the next that is about to.
    pub fn ring(&self) {
        *self.rung.lock() = true;
        self.changed.notify_all();
    }

    /// Rings if a task waits for any work.
    pub fn ring_if_awaited(&self) {
        if self.is_awaited.load(SeqCst) {
            self.ring();
        }
    }

    /// Sets whether any work is awaited from now on.
    pub fn await_any(&self, any: bool) {
        self.is_awaited.store(any, SeqCst);
    }

    /// Returns once the bell has been rung since the last call, or at the deadline.
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
