//! Making the log safe: one sync for all who wait.

use vellum_base::Result;
use vellum_base::sync::{Condvar, Mutex};

/// What of the logs is durable, and who waits for more.
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
    /// Returns when all below `upto` is durable: calls `sync`, which says how far that goes, for all who wait; or
    /// waits for who does. Asks `check` before either: behind a sync that failed the next one may say that all is well.
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

    /// Wakes those who wait: there is nothing to wait for.
    pub(crate) fn give_up(&self) {
        self.done.notify_all();
    }
}
