//! Replay of logs: what they hold becomes segments in memory, as it was before the store was closed.

use super::open_segment::table_bytes;
use super::options::Limits;
use super::record::{Item, Items};
use super::segment::{START_BYTES, start};
use super::state::ManifestState;
use crate::journal::{Area, Ending, LogBounds, LogRead, Payload, read_chain, salvage_records};
use crate::media::Media;
use std::collections::BTreeSet;
use vellum_base::{Error, Result};

/// Records of a log, as they are in its segment.
#[derive(Default)]
pub(crate) struct Content {
    bytes: Vec<u8>,
    records: u64,
}

impl Content {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
    /// Appends what another holds.
    pub(crate) fn take(&mut self, other: &Content) {
        self.bytes.extend_from_slice(&other.bytes);
        self.records += other.records;
    }
}

/// Takes a batch: records, where all but the last say that more follow.
pub(crate) fn take_batch(content: &mut Content, batch: Payload<'_>) -> Result<u64> {
    let payload = batch.bytes;
    let (mut items, mut count, mut more) = (Items::new(payload, 0), 0, true);
    for (_, item, _) in items.by_ref() {
        let Item::Record(record) = item else { break };
        if !more {
            return Err(Error::corrupt("a batch has records behind its last"));
        }
        (count, more) = (count + 1, record.more);
    }
    if !items.is_done() || more {
        return Err(Error::corrupt("a batch does not decode"));
    }
    content.bytes.extend_from_slice(payload);
    content.records += count;
    Ok(count)
}

/// True if a log has batches of a log store.
pub(crate) fn holds_records(media: &dyn Media, log: Area, store: Option<u64>) -> bool {
    let Ok(bytes) = media.read_area(log) else { return false };
    let records = salvage_records(log, store, &bytes).unwrap_or_default();
    let mut batches = records.into_iter().map(|(seq, bytes)| Payload { bytes, seq, at: 0 });
    batches.any(|batch| take_batch(&mut Content::default(), batch).is_ok_and(|count| count > 0))
}

/// The logs that count, oldest first.
pub(crate) fn read_logs(
    media: &dyn Media,
    areas: &[Area],
    state: &ManifestState,
    (store, ending): (Option<u64>, Ending),
) -> Result<Vec<LogRead<Content>>> {
    let kept = &BTreeSet::new();
    let bounds =
        LogBounds { store, floor: state.floors.log_floor, closed: state.floors.closed, kept, ending };
    read_chain(media, areas, bounds, &take_batch)
}

/// A segment that was not a table yet, out of its logs.
pub(crate) struct ReplayedSegment {
    pub bytes: Vec<u8>,
    pub records: u64,
    pub logs: Vec<u64>,
}

impl ReplayedSegment {
    fn new() -> ReplayedSegment {
        ReplayedSegment { bytes: start().to_vec(), records: 0, logs: Vec::new() }
    }
    fn fits(&self, bytes: usize, records: u64, most: u64) -> bool {
        table_bytes((self.bytes.len() + bytes) as u64, self.records + records) <= most
    }
    pub(crate) fn table_bytes(&self) -> u64 {
        table_bytes(self.bytes.len() as u64, self.records)
    }
    fn take(&mut self, bytes: &[u8], records: u64) {
        self.bytes.extend_from_slice(bytes);
        self.records += records;
    }
}

/// A log belongs to the segment that it fits into. A log that is too long is cut: where tables take whole superblocks,
/// none may be as large as the one that it was written for, because of what they list, or of blocks that have become
/// bad. A cut log belongs to the last of its segments, so it is read again unless all of them become tables, and what
/// is read hides what is in these. Where segments are shorter than they were, there may be too few free tables for such
/// pieces and for a collection: then the pieces are as long as a table has room for.
pub(crate) fn segments_of(
    logs: &[LogRead<Content>],
    limits: &Limits,
    media: &dyn Media,
) -> Vec<ReplayedSegment> {
    let whole_tables = media.shape().whole_tables;
    let short = cut_for(logs, limits.logs_max, cut_bytes(limits, whole_tables));
    if !whole_tables || (short.len() as u64) < media.tables_free() {
        return short;
    }
    drop(short); // logs and pieces are in memory at once
    cut_for(logs, limits.logs_max, limits.table_bytes / 8 * 7)
}

fn cut_for(logs: &[LogRead<Content>], logs_max: usize, most: u64) -> Vec<ReplayedSegment> {
    let mut all: Vec<ReplayedSegment> = Vec::new();
    for LogRead { number, content: Content { bytes, records }, .. } in logs {
        let fits =
            |last: &ReplayedSegment| last.logs.len() < logs_max && last.fits(bytes.len(), *records, most);
        if !all.last().is_some_and(fits) {
            all.push(ReplayedSegment::new());
        }
        match all.last_mut().filter(|last| fits(last)) {
            Some(last) => last.take(bytes, *records),
            None => cut(bytes, most, &mut all),
        }
        all.last_mut().expect("there is one").logs.push(*number);
    }
    debug_assert!(all.iter().all(|segment| segment.bytes.len() >= START_BYTES));
    all
}

/// Bytes of a table that logs are cut to fit.
pub(crate) fn cut_bytes(limits: &Limits, whole_tables: bool) -> u64 {
    if whole_tables { limits.segment_bytes / 8 * 7 } else { limits.segment_bytes }
}

/// Fills the last segment with records, and adds more segments as needed.
pub(crate) fn cut(bytes: &[u8], most: u64, all: &mut Vec<ReplayedSegment>) {
    for (at, _, length) in Items::new(bytes, 0) {
        if !all.last().is_some_and(|last| last.records == 0 || last.fits(length, 1, most)) {
            all.push(ReplayedSegment::new());
        }
        all.last_mut().expect("there is one").take(&bytes[at..at + length], 1);
    }
}
