//! Tables that are no longer needed, and logs that only such tables pointed into, until they are erased.
//!
//! Invariants
//! 1. One task erases at a time; a task that finds no room waits for what another one is about to free.
//! 2. What could not be erased remains listed.
//! 3. A log is removed before the last table that pointed into it is erased.

use crate::journal::Area;
use crate::media::Media;
use std::collections::BTreeSet;
use vellum_base::sync::Mutex;
use vellum_base::sync::atomic::AtomicU64;
use vellum_base::sync::atomic::Ordering::{Acquire, Release};
use vellum_base::{Kind, Result};

/// See the module.
#[derive(Default)]
pub(crate) struct Obsolete {
    tables: Mutex<Vec<u64>>,
    logs: Mutex<Vec<u64>>,
    /// Held while erasing.
    turn: Mutex<()>,
    /// Number of times that something was erased.
    rounds: AtomicU64,
    /// Tables that were replaced and are not erased yet, even if still in use.
    retired: Mutex<BTreeSet<u64>>,
}

impl Obsolete {
    /// Removes and erases everything listed, once no other task is doing so.
    pub(crate) fn erase(&self, media: &dyn Media) -> Result<()> {
        self.erase_all(|log| media.remove_area(Area::log(log)), |table| media.erase_table(table))
    }

    fn erase_all(&self, remove: impl Fn(u64) -> Result<()>, erase: impl Fn(u64) -> Result<()>) -> Result<()> {
        let _erasing = self.turn.lock();
        // Take tables before logs: the log of a listed table was listed before it.
        let mut tables = std::mem::take(&mut *self.tables.lock());
        let mut logs = std::mem::take(&mut *self.logs.lock());
        let listed = tables.len() + logs.len();
        let removed = empty(&mut logs, remove);
        let erased = removed.and_then(|()| {
            empty(&mut tables, |table| {
                erase(table)?;
                self.retired.lock().remove(&table);
                Ok(())
            })
        });
        self.rounds.fetch_add(u64::from(tables.len() + logs.len() < listed), Release);
        self.tables.lock().append(&mut tables);
        self.logs.lock().append(&mut logs);
        erased
    }

    /// How often something was erased so far.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.load(Acquire)
    }

    /// True if there may be more room than there was after so many [`Obsolete::rounds`], now or once what is listed is
    /// erased.
    pub(crate) fn may_win(&self, rounds: u64) -> bool {
        !self.is_empty() || self.rounds() != rounds
    }

    /// Runs `act`, which needs room; if there is none, erases what is listed and runs it once more. Needed because a
    /// reader may be the last to release a replaced table, at a time when no background task has work to do.
    pub(crate) fn with_room<T>(&self, media: &dyn Media, mut act: impl FnMut() -> Result<T>) -> Result<T> {
        let rounds = self.rounds();
        match act() {
            // Others may have erased something since there was no room.
            Err(error) if error.kind() == Kind::NoSpace && self.may_win(rounds) => {
                self.erase(media).and_then(|()| act())
            }
            result => result,
        }
    }

    /// True if nothing is to be erased, nor being erased.
    pub(crate) fn is_empty(&self) -> bool {
        let turn = self.turn.try_lock();
        turn.is_some() && self.tables.lock().is_empty() && self.logs.lock().is_empty()
    }

    /// True if replaced tables are not erased yet: somebody still reads from them, unless they are only waiting to be
    /// erased.
    pub(crate) fn is_any_held(&self) -> bool {
        !self.retired.lock().is_empty()
    }

    /// The numbers of replaced tables that are not erased yet.
    pub(crate) fn retired(&self) -> Vec<u64> {
        self.retired.lock().iter().copied().collect()
    }

    /// Notes that a table was replaced. It may still be in use.
    pub(crate) fn retire(&self, table: u64) {
        self.retired.lock().insert(table);
    }
    /// Lists a replaced table that nobody holds any more for erasing. Logs that it pointed into were listed before it.
    pub(crate) fn add_table(&self, table: u64) {
        self.tables.lock().push(table);
    }
    /// The same for a log.
    pub(crate) fn add_log(&self, log: u64) {
        self.logs.lock().push(log);
    }
}

fn empty(numbers: &mut Vec<u64>, one: impl Fn(u64) -> Result<()>) -> Result<()> {
    while let Some(number) = numbers.last() {
        one(*number)?;
        numbers.pop();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::{Directory, DirectoryOptions};
    use vellum_base::Error;

    #[test]
    fn what_is_being_erased_is_room_to_wait_for() {
        let obsolete = Obsolete::default();
        obsolete.retire(7);
        obsolete.add_log(3);
        obsolete.add_table(7);
        let no = |_| Err(Error::new(Kind::Io, "no"));
        assert!(obsolete.erase_all(no, |_| unreachable!("its log is there")).is_err());
        assert!(obsolete.erase_all(|_| Ok(()), no).is_err() && !obsolete.is_empty(), "it is there still");
        let erase = |table| {
            assert!(table == 7 && obsolete.is_any_held());
            assert!(!obsolete.is_empty(), "it is not erased yet");
            Ok(())
        };
        obsolete.erase_all(|_| unreachable!("it was removed"), erase).unwrap();
        assert!(obsolete.is_empty() && !obsolete.is_any_held());
    }

    #[test]
    fn what_another_won_back_meanwhile_is_room() {
        let (obsolete, dir) = (Obsolete::default(), tempfile::tempdir().unwrap());
        let media = Directory::open(dir.path(), DirectoryOptions::default()).unwrap();
        let mut tries = 0;
        let mut act = |wins_room: bool| {
            tries += 1;
            if tries == 1 && wins_room {
                obsolete.add_table(7);
                obsolete.erase_all(|_| Ok(()), |_| Ok(()))?;
            }
            if tries == 2 { Ok(()) } else { Err(Error::new(Kind::NoSpace, "full")) }
        };
        obsolete.with_room(&*media, || act(true)).unwrap();
        assert!(obsolete.with_room(&*media, || act(false)).is_err());
        assert_eq!(tries, 3, "nothing was erased: it is not tried again");
    }
}
