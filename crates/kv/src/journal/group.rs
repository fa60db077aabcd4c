//! Group sync of the log: one sync for all who wait.

use vellum_base::Result;
use vellum_base::sync::{Condvar, Mutex};

/// How much of the logs is durable, and waiting for more.
#[derive(Default)]
pub(crate) struct GroupSync {
    state: Mutex<Synced>,
    done: Condvar,
}

#[derive(Default)]
struct Synced {
    total: u64,
    running: bool,
}

impl GroupSync {
    /// Waits until everything below `upto` is durable. One caller runs `sync`, which returns how far it got, on behalf
    /// of all; the others wait. `check` is called before either: after a failed sync a later one may wrongly report
    /// success.
    pub(crate) fn upto(
        &self,
        upto: u64,
        sync: impl FnOnce() -> Result<u64>,
        check: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let mut synced = self.state.lock();
        loop {
            if synced.total >= upto {
                return Ok(());
            }
            check()?;
            if !synced.running {
                break;
            }
            self.done.wait(&mut synced);
        }
        synced.running = true;
        drop(synced);
        let result = sync();
        let mut synced = self.state.lock();
        synced.running = false;
        if let Ok(total) = &result {
            synced.total = synced.total.max(*total);
        }
        drop(synced);
        self.done.notify_all();
        result.map(drop)
    }

    /// Wakes all waiters, as the store has failed.
    pub(crate) fn give_up(&self) {
        self.done.notify_all();
    }
}
