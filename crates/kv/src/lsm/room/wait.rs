//! Waiting of writers and of compactions on request: until level 0 is merged, memtables are flushed, or there is room.
//!
//! Invariants
//! 1. Nobody waits for what cannot happen any more: if nothing is running, no merge fits and nothing is left to erase,
//!    waiting ends with [`Kind::NoSpace`]. Nobody gives up before.
//! 2. A resting store is woken once there is more room than when it began to rest.

use super::Budget;
use crate::batch::Batch;
use crate::durable::Durable;
use crate::journal::LEVELS;
use crate::lifetime::Counts;
use crate::lsm::core::{Core, State};
use crate::lsm::manual::Request;
use crate::lsm::version::Version;
use crate::lsm::writer::Writer;
use crate::waiting::Waiting;
use vellum_base::sync::MutexGuard;
use vellum_base::{Env, Error, Kind, Result};

/// Copies of a batch that exist until it is merged: in the log, in level 0, and in the output of the merge, which takes
/// a little more.
const TIMES_WRITTEN: u64 = 4;

/// A memtable may be begun once so much of it could be flushed, however large it may become: room for more is asked for
/// when it is full.
const BEGUN_BYTES_MAX: usize = 256 << 10;

impl Core {
    /// Waits while level 0 has as many tables as it may have; an error if there is no room to merge it.
    pub(crate) fn wait_for_level0(&self) -> Result<()> {
        let is_full = || self.level0_tables() >= self.options.level0_stop;
        if is_full() { self.stall_until(|_| !is_full()) } else { Ok(()) }
    }

    /// Waits until the memtable may be frozen so that deletes can go on. Earlier deletes are merged down first, as far
    /// as that may free room, while there is room for these merges. Puts in the memtable were admitted earlier and have
    /// to be flushed.
    pub(crate) fn wait_to_delete(&self) -> Result<()> {
        match self.wait_for_room(|budget| budget.has_spare(budget.merge_tables()), LEVELS) {
            Err(error) if error.kind() == Kind::NoSpace => {
                self.wait_for_room(|budget| budget.may_flush_deletes(), 0)
            }
            waited => waited,
        }
    }

    /// Waits until the memtable may be frozen so that puts can go on.
    pub(crate) fn wait_to_put(&self) -> Result<()> {
        self.wait_for_room(|budget| budget.has_spare(budget.spare_for(false)), 0)
    }

    /// Waits until another table may be ingested; those of the ingest take `listed` bytes of a manifest.
    pub(crate) fn wait_to_ingest(&self, listed: usize) -> Result<()> {
        self.wait_for_room(|budget| budget.may_ingest(listed), 1)
    }

    /// Waits until the manifest may list the tables of an ingest, which take so many bytes of it.
    pub(crate) fn wait_to_list(&self, bytes: usize) -> Result<()> {
        self.wait_for_room(|budget| budget.may_list(bytes), 1)
    }

    /// Waits until puts may be added to a memtable that has none: deletes may have to flush them with the room that is
    /// kept for deletes.
    pub(crate) fn wait_to_begin_puts(&self) -> Result<()> {
        let bytes = 2 * self.memtable_bytes_max().min(BEGUN_BYTES_MAX); // as a log, and as a table
        self.wait_for_room(|budget| budget.has_no_table() || budget.may_flush(bytes), 1)
    }

    /// Waits until there is room for a batch larger than a memtable: for its log, its tables, and merging these.
    pub(crate) fn wait_for_large(&self, batch: &Batch) -> Result<()> {
        let tables = (batch.bytes() as u64).div_ceil(self.room().table_bytes);
        let only_deletes = batch.only_deletes();
        let early = if only_deletes { LEVELS } else { 0 };
        let needed = |budget: &Budget<'_>| budget.spare_for(only_deletes) + TIMES_WRITTEN * tables;
        self.wait_for_room(|budget| budget.has_spare(needed(budget)), early)
    }

    /// Waits while level 0 is full, and until there is room for one more table and for merging it.
    pub(crate) fn wait_to_flush(&self, writer: &Writer) -> Result<()> {
        match self.wait_for_level0() {
            Err(error) if error.kind() == Kind::NoSpace => {}
            waited => waited?,
        }
        let is_enough = |budget: &Budget<'_>| match writer.has_puts {
            true => budget.may_flush(writer.memtable_bytes),
            false => budget.may_flush_deletes(),
        };
        self.wait_for_room(is_enough, 1)
    }

    /// Waits until there is enough room; an error if that cannot be reached, as compaction would be left without the
    /// room that it needs to free any. To get there the first `early` levels are merged before they are due, if that
    /// may free room. This counts as a stall.
    fn wait_for_room(&self, is_enough: impl Fn(&Budget<'_>) -> bool, early: usize) -> Result<()> {
        self.stall(|has_waited| self.room_in_time(has_waited, is_enough, early))
    }

    fn room_in_time(
        &self,
        has_waited: &mut bool,
        is_enough: impl Fn(&Budget<'_>) -> bool,
        early: usize,
    ) -> Result<()> {
        let (mut state, mut asked) = (self.state.lock(), 0);
        let result = loop {
            let rounds = self.library.obsolete.rounds();
            if is_enough(&self.budget(&self.view.load().version, &state)) || state.health.has_failed() {
                break Ok(());
            }
            let changed;
            (state, changed) = self.change_noting(has_waited, state)?;
            // Something may have been erased between the two looks.
            if changed || self.library.obsolete.rounds() != rounds {
                continue;
            }
            if !self.may_ask(&self.view.load().version, asked, early) {
                break Err(Core::full());
            }
            state.requested.push(Request::whole(asked));
            asked += 1;
            // A store that rests does nothing that is asked of it. Deletes are worth another try.
            if early == LEVELS && self.pick(&self.view.load().version, &state).is_some() {
                self.state.try_again(&mut state);
            }
            self.state.wake_tasks();
        };
        (0..asked).for_each(|level| state.withdraw(&Request::whole(level)));
        drop(state);
        result.and_then(|()| self.state.check_writable())
    }

    /// True if merging a level before it is due may free room. Short tables of level 0 take a superblock each; and
    /// deletes free room wherever they meet the entries that they hide.
    fn may_ask(&self, version: &Version, level: usize, early: usize) -> bool {
        let is_deepest = version.levels[level + 1..].iter().all(Vec::is_empty);
        match level {
            // While readers hold replaced tables, more room than the reserve will be freed when they let go.
            0 => early > 0 || self.library.obsolete.is_any_held(),
            _ => level < early && !is_deepest,
        }
    }

    /// Erases tables whose last readers let go of them after all tasks had looked for room, and lets the tasks look
    /// again.
    fn erase_late<'a>(&'a self, state: MutexGuard<'a, State>) -> Result<MutexGuard<'a, State>> {
        drop(state);
        self.erase_obsolete().map_err(|error| self.state.poison(error))?;
        let mut state = self.state.lock();
        self.state.try_again(&mut state);
        self.state.wake_tasks();
        Ok(state)
    }
}

impl Waiting for Core {
    fn counts(&self) -> &Counts {
        &self.counts
    }

    fn env(&self) -> &dyn Env {
        &*self.env
    }

    fn full() -> Error {
        Error::new(
            Kind::NoSpace,
            "the medium is full; delete keys, drop snapshots and iterators, then compact",
        )
    }

    fn wait_for_change<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> Result<(MutexGuard<'a, State>, bool)> {
        let rests = state.health.is_resting();
        // What runs while others rest goes on, and may free room.
        let runs = !state.running.is_empty() || state.is_flushing;
        let busy = runs || !rests && !state.frozen.is_empty();
        let rounds = self.library.obsolete.rounds();
        let has_work = || !rests && self.pick(&self.view.load().version, &state).is_some();
        let is_hopeless = !busy && !has_work();
        if (rests || is_hopeless) && self.library.obsolete.may_win(rounds) {
            return Ok((self.erase_late(state)?, true));
        }
        if rests {
            let left = self.room().free();
            if left > state.rested_at {
                state.retried_at = left;
                self.state.try_again(&mut state);
                return Ok((state, true));
            }
        }
        if !is_hopeless {
            if !busy {
                // The work may have become possible only by room that was freed just now.
                self.state.wake_tasks();
            }
            self.state.wait(&mut state);
        }
        Ok((state, !is_hopeless))
    }
}
