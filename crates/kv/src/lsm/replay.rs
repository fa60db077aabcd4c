//! Replay of logs into memtables when a store is opened.
//!
//! 1. Successive logs share a memtable as long as they fit, so that a store which is opened often for few writes does
//!    not create a table each time.
//! 2. The newest memtable becomes the active one; older ones are flushed at once.

use crate::batch::check_payload;
use crate::journal::{Area, Counted, Ending, LogRead, Payload, read_chain};
use crate::lsm::core::{Frozen, Limits};
use crate::lsm::memtable::{LogPlace, Memtable};
use crate::lsm::recover::ManifestState;
use crate::lsm::writer::INDEX_BYTES;
use crate::media::Media;
use std::sync::Arc;
use vellum_base::Result;

/// The batches of a log, in order.
#[derive(Default)]
pub(crate) struct Content {
    payloads: Vec<u8>,
    batches: Vec<Place>,
    entries: u64,
}

/// A batch: number of its first entry, where it is in the log, and length.
struct Place {
    seq: u64,
    at: u64,
    bytes: usize,
}

/// A memtable and the logs that it was replayed from.
pub(crate) struct Replayed {
    pub memtable: Memtable,
    pub logs: Vec<u64>,
    /// Its size as accounted for by the writer.
    pub bytes: usize,
    last_seq: u64,
}

/// The logs to be replayed, oldest first.
pub(crate) fn read_logs(
    media: &dyn Media,
    areas: &[Area],
    told: &ManifestState,
    (store, ending): (Option<u64>, Ending),
) -> Result<Vec<LogRead<Content>>> {
    let kept = told.kept_logs().collect();
    let counted = Counted { store, floor: told.log_floor, closed: told.closed, kept: &kept, ending };
    read_chain(media, areas, counted, &|content: &mut Content, Payload { bytes, seq, at }| {
        let count = check_payload(bytes, |keyspace| told.keyspaces.knows(keyspace))?;
        content.payloads.extend_from_slice(bytes);
        content.batches.push(Place { seq, at, bytes: bytes.len() });
        content.entries += count;
        Ok(count)
    })
}

/// Memtables to be flushed, oldest first, and the active one.
pub(crate) fn replay(logs: Vec<LogRead<Content>>, limits: &Limits) -> (Vec<Frozen>, Replayed) {
    let mut all: Vec<Replayed> = Vec::new();
    for log in logs {
        match all.last_mut() {
            Some(last) if last.has_room(&log.content, limits) => last.take(log),
            _ => {
                let mut next = Replayed::new(limits);
                next.take(log);
                all.push(next);
            }
        }
    }
    let active = all.pop().unwrap_or_else(|| Replayed::new(limits));
    let mut next_log = active.logs.first().copied().unwrap_or(0);
    let mut frozen = Vec::new();
    for Replayed { memtable, logs, bytes, last_seq } in all.into_iter().rev() {
        let first = logs[0];
        frozen.push(Frozen { memtable: Arc::new(memtable), logs, bytes, next_log, last_seq });
        next_log = first;
    }
    frozen.reverse();
    (frozen, active)
}

impl Content {
    fn bytes(&self) -> usize {
        self.payloads.len() + INDEX_BYTES * self.entries as usize
    }
}

impl Replayed {
    fn new(limits: &Limits) -> Replayed {
        let memtable = Memtable::new(limits.short.memtable_bytes);
        Replayed { memtable, logs: Vec::new(), bytes: 0, last_seq: 0 }
    }

    fn has_room(&self, content: &Content, limits: &Limits) -> bool {
        self.logs.len() < limits.replayed_logs_max
            && self.bytes + content.bytes() <= limits.short.memtable_bytes
    }

    fn take(&mut self, log: LogRead<Content>) {
        let mut rest = &log.content.payloads[..];
        for Place { seq, at, bytes } in &log.content.batches {
            let (payload, behind) = rest.split_at(*bytes);
            let place = LogPlace { log: log.number, offset: *at };
            self.memtable.insert(payload, *seq, Some(place));
            rest = behind;
        }
        self.logs.push(log.number);
        self.bytes += log.content.bytes();
        self.last_seq = log.last_seq;
    }
}
