//! Replay of logs into memtables when a store is opened.
//!
//! 1. Successive logs share a memtable as long as they fit, so that a store which is opened often for few writes does
//!    not create a table each time, nor more tables than there is room for.
//! 2. The newest memtable becomes the active one; older ones are flushed at once.

use crate::batch::check_payload;
use crate::journal::{Area, Ending, LogBounds, LogRead, Payload, read_chain};
use crate::lsm::core::Frozen;
use crate::lsm::limits::Limits;
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
    batches: Vec<BatchSpan>,
    entries: u64,
}

/// A batch: number of its first entry, where it is in the log, and length.
struct BatchSpan {
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
    state: &ManifestState,
    (store, ending): (Option<u64>, Ending),
) -> Result<Vec<LogRead<Content>>> {
    let kept = state.kept_logs().collect();
    let bounds =
        LogBounds { store, floor: state.floors.log_floor, closed: state.floors.closed, kept: &kept, ending };
    read_chain(media, areas, bounds, &|content: &mut Content, Payload { bytes, seq, at }| {
        let count = check_payload(bytes, |keyspace| state.keyspaces.knows(keyspace))?;
        content.payloads.extend_from_slice(bytes);
        content.batches.push(BatchSpan { seq, at, bytes: bytes.len() });
        content.entries += count;
        Ok(count)
    })
}

/// Memtables to be flushed, oldest first, and the active one.
pub(crate) fn replay(logs: Vec<LogRead<Content>>, limits: &Limits) -> (Vec<Frozen>, Replayed) {
    let mut all: Vec<Replayed> =
        groups(logs, limits).into_iter().map(|group| Replayed::of(group, limits)).collect();
    let active = all.pop().unwrap_or_else(|| Replayed::of(Vec::new(), limits));
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

/// Logs that share a memtable: as many as fit into it, except that the active one must not hold too many, as it may
/// not be flushed for long.
fn groups(logs: Vec<LogRead<Content>>, limits: &Limits) -> Vec<Vec<LogRead<Content>>> {
    let mut groups: Vec<Vec<LogRead<Content>>> = Vec::new();
    let mut bytes = 0;
    for log in logs {
        bytes += log.content.bytes();
        match groups.last_mut().filter(|_| bytes <= limits.short.memtable_bytes) {
            Some(group) => group.push(log),
            None => {
                bytes = log.content.bytes();
                groups.push(vec![log]);
            }
        }
    }
    let has_too_many = |group: &&mut Vec<LogRead<Content>>| group.len() > limits.replayed_logs_max;
    if let Some(newest) = groups.last_mut().filter(has_too_many).and_then(Vec::pop) {
        groups.push(vec![newest]);
    }
    groups
}

impl Content {
    fn bytes(&self) -> usize {
        self.payloads.len() + INDEX_BYTES * self.entries as usize
    }
}

impl Replayed {
    fn of(group: Vec<LogRead<Content>>, limits: &Limits) -> Replayed {
        let memtable = Memtable::new(limits.short.memtable_bytes);
        let mut replayed = Replayed { memtable, logs: Vec::new(), bytes: 0, last_seq: 0 };
        group.into_iter().for_each(|log| replayed.take(log));
        replayed
    }

    fn take(&mut self, log: LogRead<Content>) {
        let mut rest = &log.content.payloads[..];
        for BatchSpan { seq, at, bytes } in &log.content.batches {
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
