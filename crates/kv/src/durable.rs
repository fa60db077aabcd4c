//! What both engines do alike to make writes durable: group sync of the log, and erasing what was replaced where there
//! is no room for it.

use crate::journal::Wal;
use crate::media::Media;
use crate::obsolete::Obsolete;
use crate::options::Durability;
use crate::shared::{Health, Shared};
use vellum_base::sync::Mutex;
use vellum_base::{Kind, Result};

/// The core of an engine, by what its log needs. The lock of the log is an innermost one.
pub(crate) trait Durable {
    type State: AsMut<Health>;
    fn shared(&self) -> &Shared<Self::State>;
    fn wal(&self) -> &Mutex<Wal>;
    fn media(&self) -> &dyn Media;
    fn obsolete(&self) -> &Obsolete;

    /// Erases what was replaced and nobody reads from any more.
    fn erase_obsolete(&self) -> Result<()> {
        self.obsolete().erase(self.media())
    }

    /// Erases what background work has replaced, which began after so many [`Obsolete::rounds`]. If it found no room,
    /// but there may be some now, this is no error: it is tried again.
    fn erase_after(&self, result: Result<()>, rounds: u64) -> Result<()> {
        match result {
            Err(error) if error.kind() == Kind::NoSpace && self.obsolete().may_win(rounds) => {
                self.erase_obsolete()?;
                self.shared().try_again(&mut self.shared().lock()); // other work may rest already
                Ok(())
            }
            Err(error) => Err(error),
            Ok(()) => self.erase_obsolete(),
        }
    }

    /// Runs `act`, which needs room; see [`Obsolete::with_room`].
    fn with_room<T>(&self, act: impl FnMut() -> Result<T>) -> Result<T> {
        self.obsolete().with_room(self.media(), act)
    }

    /// Makes everything written before as durable as `durability` says.
    fn settle(&self, durability: Durability) -> Result<()> {
        match durability {
            Durability::None => Ok(()),
            Durability::Buffered => {
                self.shared().check_writable()?;
                let handed_over = self.with_room(|| self.wal().lock().hand_over());
                handed_over.map(drop).map_err(|error| self.shared().refused_or_poisoned(error))
            }
            Durability::Sync => self.sync_log(),
        }
    }

    /// Makes everything written so far durable.
    fn sync_log(&self) -> Result<()> {
        self.shared().check_writable()?;
        let upto = self.wal().lock().total;
        self.sync_upto(upto)
    }

    /// Waits until all log bytes below `upto` are durable.
    fn sync_upto(&self, upto: u64) -> Result<()> {
        let shared = self.shared();
        shared.sync.upto(upto, || self.sync_all(upto), || shared.check_writable())
    }

    /// Syncs all logs, oldest first. Returns the position up to which everything is durable, at least `upto`.
    fn sync_all(&self, upto: u64) -> Result<u64> {
        let unsynced = self.with_room(|| self.wal().lock().hand_over_for(upto));
        let unsynced = unsynced.map_err(|error| self.shared().refused_or_poisoned(error))?;
        unsynced.sync().map_err(|error| self.shared().poison(error))?;
        // A flush's sync may have failed meanwhile, and the kernel reports an error only once.
        self.shared().check_writable()?;
        self.wal().lock().synced(&unsynced);
        Ok(unsynced.total)
    }
}
