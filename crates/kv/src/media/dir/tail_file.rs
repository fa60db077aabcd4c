//! Which log uses TAIL, and what an earlier user left in it.
//!
//! States: unsettled (a writer that is gone may have left the end of its log) → free → used by a log → free, if that
//! log has all that was held, else unsettled.
//!
//! Invariants
//! 1. TAIL is used only when nothing is left in it. It is removed only while it is unsettled, and others are locked
//!    out: a mapping of a free TAIL is one of the file.
//! 2. What is left belongs to the newest log: TAIL is emptied before another log is created.
//! 3. It is written to that log, and TAIL is removed durably, before a log is created or truncated: nothing that was
//!    truncated comes back.
//! 4. A log that lost TAIL to a later opening writes nothing of what it held.

use super::files::Files;
use super::newest_log;
use super::tail::{Left, TAIL, TAIL_BYTES, Tail, holds_nothing};
use crate::journal::Area;
use crate::media::patient::twice;
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{Error, Result};

/// How often TAIL may be found torn before it counts as such.
const TORN_MAX: usize = 4;

/// See the module.
pub(super) struct TailFile {
    files: Arc<dyn Files>,
    state: Mutex<State>,
}

enum State {
    Unsettled,
    /// With its mapping, once there was one: to map a file again for each log takes long.
    Free(Option<Box<Tail>>),
    /// By the log of this number.
    Used(u64),
}

impl TailFile {
    /// Of a directory. What an earlier process left is not looked at yet.
    pub(super) fn new(files: Arc<dyn Files>) -> TailFile {
        TailFile { files, state: Mutex::new(State::Unsettled) }
    }

    /// Takes TAIL for a log. `None` if it is not free, or cannot be mapped.
    pub(super) fn take(&self, log: u64) -> Option<Tail> {
        let mut state = self.state.lock();
        let State::Free(mapped) = &mut *state else { return None };
        let map = || Tail::new(self.files.memory(TAIL, TAIL_BYTES)?);
        let tail = mapped.take().map(|tail| *tail).or_else(map)?;
        *state = State::Used(log);
        Some(tail.of_log(log))
    }

    /// True unless the log lost TAIL to a later opening.
    pub(super) fn is_used_by(&self, log: u64) -> bool {
        matches!(*self.state.lock(), State::Used(user) if user == log)
    }

    /// The log gives TAIL back. What it still holds is left to the next opening.
    pub(super) fn release(&self, log: u64, tail: Tail) {
        let mut state = self.state.lock();
        if !matches!(*state, State::Used(user) if user == log) {
            return;
        }
        *state = match tail.has_failed() {
            // What the file holds then is not known.
            true if tail.held_bytes() == 0 && self.remove().is_ok() => State::Free(None),
            false if tail.held_bytes() == 0 => State::Free(Some(Box::new(tail))),
            _ => State::Unsettled,
        };
    }

    /// Makes sure that nothing is left in TAIL, unless a log uses it. `is_gone` says whether the writer of that log
    /// must be gone: then the log loses TAIL.
    pub(super) fn settle(&self, is_gone: impl FnOnce(u64) -> bool) -> Result<()> {
        let mut state = self.state.lock();
        match *state {
            State::Free(_) => return Ok(()),
            State::Used(log) if !is_gone(log) => return Ok(()),
            _ => *state = State::Unsettled,
        }
        self.complete_log()?;
        *state = State::Free(None);
        Ok(())
    }

    /// What is left of a log; `None` if that is nothing.
    ///
    /// Errors: TAIL exists and cannot be read.
    pub(super) fn left_of(&self, log: u64) -> Result<Option<Left>> {
        let names = self.files.names()?;
        match names.iter().any(|name| name == TAIL) && newest_log(&names) == Some(log) {
            true => Ok(self.read()?.filter(|left| left.log == log)),
            false => Ok(None),
        }
    }

    /// What does not check out is read again: where the store is only looked at, another process may be writing it.
    fn read(&self) -> Result<Option<Left>> {
        for _ in 0..TORN_MAX {
            let bytes = twice(|| {
                let file = self.files.open(TAIL)?;
                let mut bytes = vec![0; file.len()?.min(TAIL_BYTES as u64) as usize];
                file.read(0, &mut bytes).map(|()| bytes)
            });
            let bytes = bytes.map_err(unreadable)?;
            match Left::decode(&bytes)? {
                None if !holds_nothing(&bytes) => {}
                left => return Ok(left),
            }
        }
        Ok(None)
    }

    /// Writes what is left to its log, and removes TAIL.
    fn complete_log(&self) -> Result<()> {
        let names = self.files.names()?;
        if !names.iter().any(|name| name == TAIL) {
            return Ok(());
        }
        if let Some(log) = newest_log(&names)
            && let Some(left) = self.left_of(log)?
        {
            let name = super::area_name(Area::log(log));
            if left.begin <= self.files.open(&name)?.len()? {
                self.files.write(&name, left.begin, &left.held)?;
            }
        }
        self.remove()
    }

    /// Removes it for good.
    fn remove(&self) -> Result<()> {
        self.files.remove(TAIL)?;
        self.files.sync_names()
    }
}

fn unreadable(error: Error) -> Error {
    let next =
        "a copy of the directory without it opens, and lacks at most 64 KiB of log that were not synced";
    Error::new(error.kind(), format!("read {TAIL}: {error}; {next}")).because(error.reason())
}
