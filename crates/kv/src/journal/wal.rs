//! The write-ahead log of a store: framed batches, until they are in tables. It is divided into logs; a new one is
//! begun on request.
//!
//! States of the open log: none (nothing was written since the store was opened) → open → closed when the next one
//! begins.
//!
//! Invariants
//! 1. `total` counts bytes of all logs since the store was opened.
//! 2. The head of a log names the previous non-empty log and its length, and is durable before anything follows it. So
//!    a missing log is damage, and not the result of a crash.

use super::{Area, FRAME_HEAD_BYTES, Framer, Previous};
use crate::media::{AreaWriter, Media};
use crate::options::Durability;
use std::sync::Arc;
use vellum_base::{Error, Kind, Result};

/// Most bytes that are buffered in the process with [`Durability::None`].
const PENDING_BYTES_MAX: usize = 64 << 10;

/// See the module.
pub(crate) struct Wal {
    /// The store's identity number.
    store: u64,
    pub previous: Previous,
    pub total: u64,
    /// Bytes of a log that may be allocated ahead if it is written through a mapping ([`crate::Options::map_files`]);
    /// `None` if it is not.
    ahead_bytes: Option<u64>,
    log: Option<Log>,
    /// Closed logs that may not have been synced, oldest first.
    closed: Closed,
    frame: Vec<u8>,
}

struct Log {
    number: u64,
    area: Arc<dyn AreaWriter>,
    framer: Framer,
    /// See [`AreaWriter::finish`].
    is_finished: bool,
    /// Length in bytes, including pending ones.
    bytes: u64,
    /// Framed bytes that were not handed to the medium yet.
    pending: Vec<u8>,
    /// Bytes known to be durable, and bytes marked as durable in the log.
    safe: u64,
    marked: u64,
}

/// Closed logs, with their numbers.
type Closed = Vec<(u64, Arc<dyn AreaWriter>)>;

/// Logs to be synced, and what becomes durable by that.
pub(crate) struct Unsynced {
    pub total: u64,
    closed: Closed,
    open: Option<(u64, u64, Arc<dyn AreaWriter>)>,
}

/// Most bytes that a batch takes in a log: a head, a mark, and its record.
pub(crate) fn record_bytes(batch: usize) -> u64 {
    (batch + 4 * FRAME_HEAD_BYTES + 32) as u64
}

impl Unsynced {
    /// Syncs the logs, oldest first.
    pub(crate) fn sync(&self) -> Result<()> {
        self.closed.iter().try_for_each(|(_, area)| area.sync())?;
        self.open.as_ref().map_or(Ok(()), |(_, _, area)| area.sync())
    }
}

impl Wal {
    /// A log for the store with this number, continuing after `previous`.
    pub(crate) fn new(store: u64, previous: Previous, ahead_bytes: Option<u64>) -> Wal {
        Wal { store, previous, total: 0, ahead_bytes, log: None, closed: Vec::new(), frame: Vec::new() }
    }

    /// The open log and its length.
    pub(crate) fn open_log(&self) -> Option<(u64, u64)> {
        self.log.as_ref().map(|log| (log.number, log.bytes))
    }

    /// The open log, and how many of its bytes the medium has.
    pub(crate) fn handed_over(&self) -> Option<(u64, u64)> {
        self.log.as_ref().map(|log| (log.number, log.bytes - log.pending.len() as u64))
    }

    /// True if a batch of so many bytes fits into the open log.
    pub(crate) fn has_room(&self, bytes: usize, log_bytes: u64) -> bool {
        self.log.as_ref().is_some_and(|log| log.bytes + record_bytes(bytes) <= log_bytes)
    }

    /// Closes the open log, if there is one, and begins log `number`. If there is no room for it, the open one stays.
    pub(crate) fn begin(&mut self, media: &dyn Media, number: u64, seq: u64) -> Result<()> {
        let mut previous = self.previous;
        self.finish()?;
        if let Some(log) = &mut self.log {
            log.hand_over()?;
            previous = Previous { number: log.number, length: log.bytes };
        }
        let (name, framer) = (Area::log(number), Framer::new(Area::log(number), self.store));
        self.frame.clear();
        framer.head(&mut self.frame, seq, previous);
        let begin = || {
            let area = media.create_area(name)?;
            area.append(0, &self.frame)?;
            Ok(area)
        };
        let area = begin().inspect_err(|error: &Error| {
            if error.kind() == Kind::NoSpace {
                // What cannot be removed now is removed when the store is opened again: it has no whole head.
                let _ = media.remove_area(name);
            }
        })?;
        // Later logs and the manifest rely on this one, so its existence must be durable.
        area.sync()?;
        if let Some(bytes) = self.ahead_bytes {
            area.map(bytes);
        }
        let bytes = self.frame.len() as u64;
        let (is_finished, pending) = (false, Vec::new());
        let log = Log { number, area, framer, is_finished, bytes, pending, safe: 0, marked: 0 };
        self.previous = previous;
        self.total += bytes;
        if let Some(log) = self.log.replace(log) {
            self.closed.push((log.number, log.area));
        }
        Ok(())
    }

    /// Appends a batch whose first entry has number `seq` to the open log. Returns `total` after it. On error nothing
    /// was appended.
    pub(crate) fn append(&mut self, payload: &[u8], seq: u64, durability: Durability) -> Result<u64> {
        let Wal { log: Some(log), frame, total, .. } = self else { unreachable!("a log is open") };
        frame.clear();
        let marked = log.safe.max(log.marked);
        if marked > log.marked {
            log.framer.mark(frame, seq, marked);
        }
        log.framer.data(frame, seq, payload);
        let wait = durability == Durability::None && log.pending.len() + frame.len() <= PENDING_BYTES_MAX;
        log.take(frame, wait)?;
        log.marked = marked;
        *total += frame.len() as u64;
        Ok(*total)
    }

    /// Ends holding and frees what is ahead of the open log ([`AreaWriter::finish`]). False if that was done before, or
    /// no log is open.
    pub(crate) fn finish(&mut self) -> Result<bool> {
        let Some(log) = self.log.as_mut().filter(|log| !log.is_finished) else { return Ok(false) };
        log.hand_over()?;
        log.area.finish()?;
        log.is_finished = true;
        Ok(true)
    }

    /// Hands all pending bytes to the medium, and returns what is to be synced.
    pub(crate) fn hand_over(&mut self) -> Result<Unsynced> {
        self.hand_over_for(self.total)
    }

    /// Hands all pending bytes to the medium, and returns what has to be synced for everything below `upto` to be
    /// durable. Pending bytes after `upto` are left out if there is no room for them.
    pub(crate) fn hand_over_for(&mut self, upto: u64) -> Result<Unsynced> {
        let handed_over = self.log.as_mut().map_or(Ok(()), Log::hand_over);
        let waiting = self.log.as_ref().map_or(0, |log| log.pending.len() as u64);
        let total = self.total - waiting;
        match handed_over {
            Err(error) if error.kind() == Kind::NoSpace && total >= upto => {}
            done => done?,
        }
        let open = self.log.as_ref().map(|log| (log.number, log.bytes - waiting, log.area.clone()));
        Ok(Unsynced { total, closed: self.closed.clone(), open })
    }

    /// To be called when `unsynced` was synced.
    pub(crate) fn synced(&mut self, unsynced: &Unsynced) {
        self.closed.retain(|(number, _)| unsynced.closed.iter().all(|(synced, _)| synced != number));
        if let (Some((number, bytes, _)), Some(log)) = (&unsynced.open, &mut self.log)
            && log.number == *number
        {
            log.safe = log.safe.max(*bytes);
        }
    }

    /// Logs below this number are in tables, and need not be synced any more. Their room is free when what is returned
    /// is dropped.
    pub(crate) fn forget_below(&mut self, floor: u64) -> Closed {
        let (kept, gone) =
            std::mem::take(&mut self.closed).into_iter().partition(|(number, _)| *number >= floor);
        self.closed = kept;
        gone
    }
}

impl Log {
    /// Takes in a frame. It is handed to the medium at once unless it may `wait`. On error it was not taken in.
    fn take(&mut self, frame: &[u8], wait: bool) -> Result<()> {
        if !wait && self.pending.is_empty() {
            self.area.append(self.bytes, frame)?;
            self.bytes += frame.len() as u64;
            return Ok(());
        }
        let before = (self.pending.len(), self.bytes);
        self.pending.extend_from_slice(frame);
        self.bytes += frame.len() as u64;
        if wait {
            return Ok(());
        }
        self.hand_over().inspect_err(|_| {
            self.pending.truncate(before.0);
            self.bytes = before.1;
        })
    }

    fn hand_over(&mut self) -> Result<()> {
        if !self.pending.is_empty() {
            let at = self.bytes - self.pending.len() as u64;
            self.area.append(at, &self.pending)?;
            self.pending.clear();
        }
        Ok(())
    }
}
