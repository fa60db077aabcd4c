//! The room of a log store, and waiting of writers until there is more.
//!
//! The last free table is kept for collection, which frees more; writers leave three besides, or one for deletes
//! (`writer`).
//!
//! Invariants
//! 1. Nobody waits for what cannot happen any more: if nothing is running, collecting wins nothing and nothing is left
//!    to erase, waiting ends with [`Kind::NoSpace`]. Nobody gives up before.
//! 2. A store rests only where collecting wins nothing, and does not rest any more once something was collected.

use super::collect::PickedSegments;
use super::core::{Core, State};
use super::hint::SEGMENT_UNIT_BYTES;
use crate::durable::Durable;
use crate::journal::{SEGMENT_MANIFEST_BYTES, STORE_MANIFEST_BYTES};
use crate::lifetime::Counts;
use crate::waiting::Waiting;
use vellum_base::sync::MutexGuard;
use vellum_base::sync::atomic::Ordering::Relaxed;
use vellum_base::{Env, Error, Kind, Result};

/// What decides whether collecting finds room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prospects {
    /// Bytes, or tables, that are free.
    room: u64,
    /// Bytes that it would copy if it took everything.
    kept: u64,
}

impl Core {
    pub(crate) fn prospects(&self) -> Prospects {
        let room = self.media.room_bytes().unwrap_or_else(|| self.media.tables_free());
        Prospects { room, kept: self.kept_bytes() }
    }

    /// Collecting, begun with these prospects, found no room.
    pub(crate) fn found_no_room(&self, before: Prospects) {
        let room = self.prospects().room.min(before.room);
        self.state.lock().found_no_room = Some(Prospects { room, ..before });
    }

    /// False if collecting found no room, and since then no room was added, nor is there less to be copied: it programs
    /// tables before it finds that they are too few.
    fn may_find_room(&self, state: &State) -> bool {
        state.found_no_room.is_none_or(|then| {
            let now = self.prospects();
            now.room > then.room || now.kept + SEGMENT_UNIT_BYTES as u64 <= then.kept
        })
    }

    /// What is to be collected in this state.
    pub(crate) fn pick_in(&self, state: &State, short: bool) -> Option<PickedSegments> {
        if self.may_find_room(state) { self.pick(short) } else { None }
    }

    /// Tables that there is room for, on the medium and in the index, besides those that are promised.
    pub(crate) fn free_tables(&self) -> u64 {
        let on_medium = match self.media.room_bytes() {
            // Nothing is set aside there for segments on their way to tables, nor for the log of the one that is
            // written.
            Some(bytes) => {
                let promised = self.state.lock().frozen.len() as u64 + 1;
                (bytes / self.limits.segment_bytes).saturating_sub(promised)
            }
            None => {
                let lacking =
                    self.state.lock().frozen.iter().filter(|frozen| frozen.lacks_table.load(Relaxed)).count();
                self.media.tables_free().saturating_sub(lacking as u64)
            }
        };
        on_medium.min(self.free_slots() as u64).min(self.manifest_segments())
    }

    /// Segments that the manifest has room for, where it has no more than a slot of NVRAM.
    fn manifest_segments(&self) -> u64 {
        let shape = self.media.shape();
        if shape.areas_are_files {
            return u64::MAX;
        }
        let used = self.view.load().segments.iter().flatten().count() * SEGMENT_MANIFEST_BYTES
            + STORE_MANIFEST_BYTES;
        shape.manifest_bytes.saturating_sub(used as u64) / SEGMENT_MANIFEST_BYTES as u64
    }

    /// Leaves the last free table to collection, which frees more: a segment from before this opening has none set
    /// aside. Waits for tasks that are busy. An error as long as there is garbage that no task collects unasked.
    pub(crate) fn let_collect_first(
        &self,
        has_waited: &mut bool,
        is_busy: impl Fn(&State) -> bool,
    ) -> Result<()> {
        let mut state = self.state.lock();
        self.state.try_again(&mut state);
        while self.media.room_bytes().is_none() && self.media.tables_free() < 2 {
            let is_picked = || !state.health.is_resting() && self.pick_in(&state, true).is_some();
            // It stays in its logs.
            if self.state.is_stopping() {
                return Err(Core::full());
            }
            if state.health.has_failed() {
                break;
            }
            if is_busy(&state) || is_picked() {
                *has_waited = true;
                self.wait_for_tasks(&mut state, true);
            } else if !self.obsolete.is_empty() {
                drop(state);
                self.erase_obsolete().map_err(|error| self.state.poison(error))?;
                state = self.state.lock();
            } else if self.has_garbage() && self.media.tables_free() < 2 {
                return Err(Core::full()); // nor was anything erased since the last look
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Waits for collecting while it is behind: whoever overwrites faster than is collected would else fill the medium
    /// with garbage.
    pub(crate) fn let_collection_catch_up(&self) -> Result<()> {
        self.stall(|has_waited| {
            let mut state = self.state.lock();
            while self.may_catch_up(&state) && self.is_behind() {
                *has_waited = true;
                // While others collect, a task that is woken finds nothing, and wakes all who wait.
                if !state.is_collecting {
                    self.state.wake_tasks();
                }
                self.state.wait(&mut state);
            }
        });
        self.state.check_writable()
    }

    /// True if something is being collected, or is going to be.
    fn may_catch_up(&self, state: &State) -> bool {
        let goes_on = !state.health.has_failed() && !state.health.is_resting() && !self.state.is_stopping();
        let is_picked = || state.may_collect() && self.pick_in(state, state.is_short).is_some();
        goes_on && (state.is_collecting || is_picked())
    }

    /// Does what needs room. A collection or a seal may hold the last free table, and give some back: waits for that.
    pub(crate) fn when_free<T>(&self, act: impl Fn() -> Result<T>) -> Result<T> {
        self.stall(|has_waited| self.act_when_free(has_waited, act))
    }

    fn act_when_free<T>(&self, has_waited: &mut bool, act: impl Fn() -> Result<T>) -> Result<T> {
        let mut is_last_try = false;
        loop {
            let refused = match act() {
                Err(error) if error.kind() == Kind::NoSpace => error,
                other => return other,
            };
            let mut state = self.state.lock();
            if state.is_busy() && !state.health.has_failed() {
                *has_waited = true;
                self.state.wait(&mut state);
                is_last_try = false;
            } else if std::mem::replace(&mut is_last_try, true) {
                return Err(refused);
            }
            drop(state);
            self.state.check_writable()?;
        }
    }

    /// Waits until `wanted` tables are free, which counts as a stall; an error if collecting will not bring that about.
    pub(crate) fn wait_for_tables(&self, wanted: u64) -> Result<()> {
        self.stall(|has_waited| self.tables_in_time(has_waited, wanted))
    }

    fn tables_in_time(&self, has_waited: &mut bool, wanted: u64) -> Result<()> {
        let mut has_tried = false;
        loop {
            self.erase_obsolete().map_err(|error| self.state.poison(error))?;
            if self.free_tables() >= wanted {
                return Ok(());
            }
            let mut state = self.state.lock();
            if !has_tried {
                self.state.try_again(&mut state);
                has_tried = true;
            }
            if state.health.has_failed() {
                drop(state);
                return self.state.check_writable();
            }
            let waited = self.wait_where(state, true).map(|(_, changed)| changed);
            *has_waited |= !matches!(waited, Ok(false));
            let changed = waited?;
            // Room may have been won since the last look.
            if !changed && self.free_tables() < wanted {
                return Err(Core::full());
            }
        }
    }

    /// Waits until background work has made progress, where room is `short` by collecting; returns false at once if it
    /// cannot make any.
    fn wait_where<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        short: bool,
    ) -> Result<(MutexGuard<'a, State>, bool)> {
        let rests = state.health.is_resting();
        if state.is_busy() || short && !rests && self.pick_in(&state, true).is_some() {
            self.wait_for_tasks(&mut state, short);
            return Ok((state, true));
        }
        let rounds = if rests { state.rested_rounds } else { self.obsolete.rounds() };
        if !self.obsolete.may_win(rounds) {
            return Ok((state, false));
        }
        // The last reader let go, or something was erased, since the last look.
        drop(state);
        self.erase_obsolete().map_err(|error| self.state.poison(error))?;
        let mut state = self.state.lock();
        self.state.try_again(&mut state);
        Ok((state, true))
    }

    /// Handles an error of a seal, which began after `rounds` ([`crate::obsolete::Obsolete::rounds`]). If it found no
    /// room, it waits while collecting may win some; the store rests if that does not.
    pub(crate) fn rests_or_poisoned(&self, error: Error, rounds: u64) {
        let has_won = || self.obsolete.may_win(rounds);
        let may_win = |state: &State| state.is_collecting || self.pick_in(state, true).is_some();
        let mut state = self.state.lock();
        let is_over = |state: &State| state.health.has_failed() || self.state.is_stopping();
        while error.kind() == Kind::NoSpace && !has_won() && !is_over(&state) && may_win(&state) {
            self.wait_for_tasks(&mut state, true);
        }
        drop(state);
        self.state.rests_or_poisoned(error, "seal", |state| {
            state.rested_rounds = rounds;
            !has_won() && !may_win(state)
        });
    }

    /// Ends collecting.
    pub(crate) fn has_collected(&self) {
        let mut state = self.state.lock();
        state.is_collecting = false;
        self.has_won_room(&mut state);
    }

    /// Tasks that rest, or wait, may have room now. Those that still have none say so again.
    pub(crate) fn has_won_room(&self, state: &mut State) {
        state.is_short = false;
        self.state.try_again(state);
        self.state.wake_all();
    }

    /// Waits for a task; where room is `short`, wakes the one that collects, if there is something to collect. A task
    /// that is woken for nothing wakes all who wait, and so on: in virtual time no time would pass.
    fn wait_for_tasks(&self, state: &mut MutexGuard<'_, State>, short: bool) {
        state.is_short |= short;
        if short && state.may_collect() && self.pick_in(state, true).is_some() {
            self.state.wake_tasks();
        }
        self.state.wait(state);
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
        Error::new(Kind::NoSpace, "the medium is full; delete keys, drop iterators, then compact")
    }

    fn wait_for_change<'a>(&'a self, state: MutexGuard<'a, State>) -> Result<(MutexGuard<'a, State>, bool)> {
        self.wait_where(state, false)
    }
}

#[cfg(test)]
mod tests {
    use crate::log::open::open;
    use crate::log::{Options, Store};
    use crate::map::Map;
    use crate::media::{FlashMedia, Tables};
    use std::sync::Arc;
    use vellum_base::{Env, Flash, Geometry, Nanos, RealEnv};
    use vellum_media::nand::{Nand, NandParams};

    const GEOMETRY: Geometry = Geometry {
        channels: 4,
        dies_per_channel: 1,
        blocks_per_die: 40,
        pages_per_block: 8,
        page_bytes: 4096,
        oob_bytes: 64,
    };

    fn on_flash(flash: &Arc<dyn Flash>) -> Arc<FlashMedia> {
        FlashMedia::open(flash.clone(), RealEnv::new()).unwrap()
    }

    /// A segment on its way to a table has one set aside as long as none was begun for it, and no longer.
    #[test]
    fn only_tables_that_are_not_begun_are_promised() {
        let params = NandParams { nvram_bytes: 1 << 20, ..NandParams::default() };
        let flash: Arc<dyn Flash> = Arc::new(Nand::ram(GEOMETRY, params).unwrap());
        FlashMedia::format(&*flash).unwrap();
        let (media, env) = (on_flash(&flash), RealEnv::new());
        let store = Arc::new(Store::open(media.clone(), env.clone(), Options::default()).unwrap());
        store.put(b"k", b"v").unwrap();
        let manifest = store.core.manifest.lock(); // a seal cannot end
        let flush = {
            let store = store.clone();
            env.clone().spawn("flush", Box::new(move || store.flush().unwrap()))
        };
        while !store.core.state.lock().is_sealing {
            env.sleep_until(env.now() + Nanos::from_ms(1));
        }
        env.sleep_until(env.now() + Nanos::from_ms(30));
        assert_eq!(store.core.free_tables(), media.tables_free());
        drop(manifest);
        flush.join();
        store.put(b"l", b"w").unwrap();
        drop((store, media));
        // What it finds in its log has no table, and no task makes it one.
        let media = on_flash(&flash);
        let core = open(media.clone(), env, Options::default()).unwrap();
        core.flush_locked(&mut core.writer.lock()).unwrap();
        assert_eq!(core.free_tables(), media.tables_free() - 1);
    }
}
