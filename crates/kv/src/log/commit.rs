//! Making the log safe, one sync for all who wait.

use super::core::Core;
use vellum_base::Result;

/// What of the logs is durable.
#[derive(Default)]
pub(crate) struct Synced {
    total: u64,
    running: bool,
}

impl Core {
    /// Makes all that was written durable.
    pub(crate) fn sync_log(&self) -> Result<()> {
        self.check_writable()?;
        let upto = self.wal.lock().total;
        self.sync_upto(upto)
    }

    /// Returns when all below `upto` is durable: syncs for all who wait, or waits for who does.
    pub(crate) fn sync_upto(&self, upto: u64) -> Result<()> {
        let mut synced = self.sync.lock();
        loop {
            if synced.total >= upto {
                return Ok(());
            }
            if !synced.running {
                break;
            }
            self.sync_done.wait(&mut synced);
            self.check_writable()?;
        }
        synced.running = true;
        drop(synced);
        let result = self.sync_all();
        let mut synced = self.sync.lock();
        synced.running = false;
        if let Ok(total) = &result {
            synced.total = synced.total.max(*total);
        }
        drop(synced);
        self.sync_done.notify_all();
        result.map(drop)
    }

    /// Syncs every log there is, oldest first. Returns `total` as of its start.
    fn sync_all(&self) -> Result<u64> {
        let unsynced = self.wal.lock().hand_over();
        let unsynced = unsynced.map_err(|error| self.refused_or_poisoned(error))?;
        unsynced.sync().map_err(|error| self.poison(error))?;
        self.wal.lock().synced(&unsynced);
        Ok(unsynced.total)
    }
}
