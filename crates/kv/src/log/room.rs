//! The room of a log store, and waiting of writers until there is more.
//!
//! The last free table is kept for collection, which frees more; writers leave three besides, or one for deletes
//! (`writer`).

use super::collect::Picked;
use super::core::{Core, State};
use super::hint::UNIT_BYTES;
use crate::durable::Durable;
use crate::journal::{SEGMENT_MANIFEST_BYTES, STORE_MANIFEST_BYTES};
use vellum_base::sync::atomic::Ordering::Relaxed;
use vellum_base::{Error, Kind, Result};

fn full() -> Error {
    Error::new(Kind::NoSpace, "the medium is full; delete keys, drop iterators, then compact")
}

/// What it depends on whether collecting finds room.
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

    /// True unless collecting found no room, and since then there is no more, nor less to be copied: it programs tables
    /// before it finds that they are too few.
    fn may_find_room(&self, state: &State) -> bool {
        state.found_no_room.is_none_or(|then| {
            let now = self.prospects();
            now.room > then.room || now.kept + UNIT_BYTES as u64 <= then.kept
        })
    }

    /// What is to be collected in this state.
    pub(crate) fn pick_in(&self, state: &State, short: bool) -> Option<Picked> {
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

    /// Leaves the last table that is free to whoever collects, who gives some back: a segment of the last life has none
    /// set aside. An error as long as there is anything to collect that nobody collects unasked.
    pub(crate) fn let_collect_first(&self) -> Result<()> {
        let mut state = self.state.lock();
        self.state.try_again(&mut state);
        while self.media.room_bytes().is_none() && self.media.tables_free() < 2 {
            let is_picked = || !state.health.is_resting() && self.pick_in(&state, true).is_some();
            // It stays in its logs.
            if self.state.is_stopping() {
                return Err(full());
            }
            if state.health.has_failed() {
                break;
            }
            if state.is_collecting || is_picked() {
                state.is_short = true;
                self.state.wake_tasks();
                self.state.wait(&mut state);
            } else if !self.obsolete.is_empty() {
                drop(state);
                self.erase_obsolete().map_err(|error| self.state.poison(error))?;
                state = self.state.lock();
            } else if self.has_garbage() && self.media.tables_free() < 2 {
                return Err(full()); // nor was anything erased since everybody looked
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Waits for background tasks until `is_done`; true if it had to wait. An error if they are resting or the store
    /// has failed.
    pub(crate) fn wait_until(&self, is_done: impl Fn(&State) -> bool) -> Result<bool> {
        let (mut state, mut has_waited) = (self.state.lock(), false);
        while !is_done(&state) && !state.health.has_failed() {
            match has_waited {
                false => self.state.try_again(&mut state),
                true => state.health.check_room()?,
            }
            has_waited = true;
            self.state.wait(&mut state);
        }
        drop(state);
        self.state.check_writable().map(|()| has_waited)
    }

    /// Waits until so many tables are free; an error if collecting will not bring that about.
    pub(crate) fn wait_for_tables(&self, wanted: u64) -> Result<()> {
        let mut tried = false;
        loop {
            self.erase_obsolete().map_err(|error| self.state.poison(error))?;
            if self.free_tables() >= wanted {
                return Ok(());
            }
            let mut state = self.state.lock();
            if !tried {
                self.state.try_again(&mut state);
                tried = true;
            }
            if state.health.has_failed() {
                drop(state);
                return self.state.check_writable();
            }
            let busy = state.is_collecting || !state.frozen.is_empty();
            if state.health.is_resting() || !busy && self.pick_in(&state, true).is_none() {
                drop(state);
                // Room may have been won, or whoever read last may have let go, after everybody had looked.
                if !self.obsolete.is_empty() || self.free_tables() >= wanted {
                    tried = false;
                    continue;
                }
                return Err(full());
            }
            state.is_short = true;
            self.state.wake_tasks();
            self.state.wait(&mut state);
        }
    }
}
