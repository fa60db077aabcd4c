//! The chain of logs of a store being opened: which of them are to be replayed, and how far.
//!
//! 1. Logs form a chain: each names the previous non-empty one and its length. Logs that are not on the chain ending in
//!    the newest one are leftovers.
//! 2. A log that is shorter than its successor states was torn, and later logs are ignored; but if anything proves that
//!    the missing part was durable, it is damage. In strict mode it is damage if anything was written to a later log.

use super::edit::SEQ_STORED_MAX;
use super::frame::{AREA_HEAD_BYTES, Area, AreaKind, Previous};
use super::record::{Ending, Records};
use crate::media::Media;
use crate::reason;
use std::collections::{BTreeMap, BTreeSet};
use vellum_base::{Error, Result};

/// Logs that have more together are read twice: a directory that anybody may have written must not take all memory.
const HELD_BYTES_MAX: usize = 256 << 20;

/// What the manifest says about logs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogBounds<'a> {
    /// The store's identity number, if known.
    pub store: Option<u64>,
    /// Logs below this number are no longer needed.
    pub floor: u64,
    /// The log that was open when the store was closed, and its length.
    pub closed: Option<(u64, u64)>,
    /// Logs that are kept because tables point into them.
    pub kept: &'a BTreeSet<u64>,
    /// Where a log may end.
    pub ending: Ending,
}

/// A log that was read.
pub(crate) struct LogRead<C> {
    pub number: u64,
    pub content: C,
    pub length: u64,
    pub last_seq: u64,
    marked: bool,
}

/// A batch in a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Payload<'a> {
    pub bytes: &'a [u8],
    /// Sequence number of its first entry.
    pub seq: u64,
    /// Offset at which it begins in the log.
    pub at: u64,
}

/// Takes a batch into what a log holds; returns how many entries it has.
pub(crate) type OnBatch<'a, C> = &'a dyn Fn(&mut C, Payload<'_>) -> Result<u64>;

/// The logs to be replayed, oldest first.
pub(crate) fn read_chain<C: Default>(
    media: &dyn Media,
    areas: &[Area],
    bounds: LogBounds<'_>,
    on_batch: OnBatch<'_, C>,
) -> Result<Vec<LogRead<C>>> {
    let counts = |area: &&Area| area.kind == AreaKind::Log && area.number >= bounds.floor;
    let replayed = areas.iter().filter(counts).filter(|area| !bounds.kept.contains(&area.number));
    let numbers: BTreeSet<u64> = replayed.map(|area| area.number).collect();
    let mut bytes_of = LogBytes { media, held: BTreeMap::new(), held_bytes: 0 };
    let heads = numbers.iter().map(|number| Ok((*number, bytes_of.head(*number, bounds)?)));
    let heads: Vec<(u64, Option<Previous>)> = heads.collect::<Result<_>>()?;
    let chain = chain_of(&heads, bounds)?;
    let mut logs = Vec::new();
    for (at, (number, _)) in chain.iter().enumerate() {
        // A log counts as far as the next one says; what follows is from after a crash that cut it there.
        let limit = chain.get(at + 1).map(|(_, previous)| previous.length);
        let closed = bounds.closed.filter(|(log, _)| log == number).map(|(_, length)| length);
        let log = read_log(*number, bytes_of.take(*number)?, limit.or(closed), bounds, on_batch)?;
        if closed.is_some_and(|closed| log.length < closed) {
            return Err(Error::corrupt(format!("log {number} is shorter than when the store was closed")));
        }
        let torn = limit.is_some_and(|limit| log.length < limit);
        logs.push(log);
        if torn {
            check_nothing_durable_after(*number, &mut bytes_of, &chain[at + 1..], bounds, on_batch)?;
            break;
        }
    }
    Ok(logs)
}

/// The bytes of logs. They are read for their heads first, and held until they are replayed, as far as
/// [`HELD_BYTES_MAX`] goes: what is replayed takes as much memory, and takes their place log by log.
struct LogBytes<'a> {
    media: &'a dyn Media,
    held: BTreeMap<u64, Vec<u8>>,
    held_bytes: usize,
}

impl LogBytes<'_> {
    fn head(&mut self, number: u64, bounds: LogBounds<'_>) -> Result<Option<Previous>> {
        let bytes = self.media.read_area(Area::log(number))?;
        let head = head_of(number, &bytes, bounds)?;
        if self.held_bytes + bytes.len() <= HELD_BYTES_MAX {
            self.held_bytes += bytes.len();
            self.held.insert(number, bytes);
        }
        Ok(head)
    }

    fn take(&mut self, number: u64) -> Result<Vec<u8>> {
        self.held.remove(&number).map_or_else(|| self.media.read_area(Area::log(number)), Ok)
    }
}

/// True if a log from `floor` on is gone though it counts: the manifest says so, or a later log that names it. Where no
/// later log is there, either, a repair was cut short before it began the log.
pub(crate) fn lacks_a_log(media: &dyn Media, areas: &[Area], store: Option<u64>, floor: u64) -> bool {
    let bounds = LogBounds { store, floor, closed: None, kept: &BTreeSet::new(), ending: Ending::Torn };
    let logs: BTreeSet<u64> =
        areas.iter().filter(|area| area.kind == AreaKind::Log).map(|area| area.number).collect();
    let is_gone = |number: u64| number > 0 && number >= floor && !logs.contains(&number);
    logs.range(floor.saturating_add(1)..).any(|later| {
        let bytes = media.read_area(Area::log(*later));
        let head = bytes.and_then(|bytes| head_of(*later, &bytes, bounds)).ok().flatten();
        is_gone(floor) || head.is_some_and(|head| head.number < *later && is_gone(head.number))
    })
}

/// Logs after a torn one are ignored, unless anything proves that the missing part was durable.
fn check_nothing_durable_after<C: Default>(
    torn: u64,
    bytes_of: &mut LogBytes<'_>,
    later: &[(u64, Previous)],
    bounds: LogBounds<'_>,
    on_batch: OnBatch<'_, C>,
) -> Result<()> {
    for (other, _) in later {
        let closed = bounds.closed.is_some_and(|(log, _)| log == *other);
        let log = read_log(*other, bytes_of.take(*other)?, None, bounds, on_batch)?;
        if closed || log.marked {
            return Err(Error::corrupt(format!(
                "log {torn} is damaged: log {other}, which is later, was durable"
            )));
        }
        if bounds.ending == Ending::Strict && log.length > AREA_HEAD_BYTES as u64 {
            let what = format!("log {torn} is damaged in its middle: records follow in log {other}");
            return Err(Error::corrupt(what).because(reason::LOG_DAMAGED));
        }
    }
    Ok(())
}

/// What the head of a log says; `None` if it is torn.
fn head_of(number: u64, bytes: &[u8], bounds: LogBounds<'_>) -> Result<Option<Previous>> {
    let records = Records::open_as(Area::log(number), bounds.store, bytes, bounds.ending)?;
    records.map(|records| records.check_store(bounds.store).map(|()| records.previous())).transpose()
}

/// The chain that ends in the newest log, oldest first.
fn chain_of(heads: &[(u64, Option<Previous>)], bounds: LogBounds<'_>) -> Result<Vec<(u64, Previous)>> {
    let missing = |number: u64| {
        let is_there = heads.iter().any(|(there, _)| *there == number);
        let what = if is_there { "is damaged in its first bytes" } else { "is missing" };
        Err(Error::corrupt(format!("log {number} {what}")))
    };
    if let Some((closed, _)) = bounds.closed.filter(|(closed, _)| *closed >= bounds.floor)
        && !heads.iter().any(|(number, head)| *number == closed && head.is_some())
    {
        return missing(closed);
    }
    let mut chain = Vec::new();
    let newest = heads.iter().rev().find_map(|(number, head)| Some((*number, (*head)?)));
    let Some(mut next) = newest else {
        return if bounds.floor > 0 { missing(bounds.floor) } else { Ok(chain) };
    };
    loop {
        chain.insert(0, next);
        let previous = next.1.number;
        if previous < bounds.floor || previous == 0 || previous >= next.0 {
            break;
        }
        match heads.iter().find(|(number, _)| *number == previous) {
            Some((number, Some(head))) => next = (*number, *head),
            _ => return missing(previous),
        }
    }
    match chain.first() {
        Some((first, _)) if bounds.floor > 0 && *first != bounds.floor => missing(bounds.floor),
        _ => Ok(chain),
    }
}

fn read_log<C: Default>(
    number: u64,
    mut bytes: Vec<u8>,
    limit: Option<u64>,
    bounds: LogBounds<'_>,
    on_batch: OnBatch<'_, C>,
) -> Result<LogRead<C>> {
    let area = Area::log(number);
    if let Some(limit) = limit {
        bytes.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    }
    let Some(mut records) = Records::open_as(area, bounds.store, &bytes, bounds.ending)? else {
        return Err(Error::corrupt(format!("{area} lost its head")));
    };
    let mut content = C::default();
    let mut next_seq = records.seq();
    if next_seq > SEQ_STORED_MAX {
        return Err(Error::corrupt(format!("{area} cannot begin with entry {next_seq}")));
    }
    while let Some((seq, payload)) = records.next()? {
        // An ingest uses a sequence number without a record, which the next mark shows.
        let expected = next_seq.max(records.marked_seq());
        let in_order = seq == expected;
        let batch = Payload { bytes: payload, seq, at: records.offset() - payload.len() as u64 };
        let count = if in_order { on_batch(&mut content, batch).map_err(|e| e.context(area))? } else { 0 };
        let next = seq.checked_add(count).filter(|next| *next <= SEQ_STORED_MAX);
        let Some(next) = next.filter(|_| count > 0) else {
            return Err(Error::corrupt(format!(
                "{area}: a batch out of sequence, at byte {}",
                records.offset()
            )));
        };
        next_seq = next;
    }
    let (length, marked) = (records.offset(), records.safe() > 0);
    Ok(LogRead { number, content, length, last_seq: next_seq.saturating_sub(1), marked })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::frame::Framer;
    use crate::media::{Areas, Directory, DirectoryOptions};
    use vellum_base::Kind;

    /// The checksum of a head takes no secret: whoever wrote it can write any number.
    #[test]
    fn a_log_that_begins_with_an_entry_that_cannot_be_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let media = Directory::open(dir.path(), DirectoryOptions::default()).unwrap();
        let log = Area::log(1);
        for (seq, is_possible) in
            [(7, true), (SEQ_STORED_MAX, true), (SEQ_STORED_MAX + 1, false), (u64::MAX, false)]
        {
            let mut head = Vec::new();
            Framer::new(log, 5).head(&mut head, seq, Previous::default());
            media.create_area(log).unwrap().append(0, &head).unwrap();
            let kept = &BTreeSet::new();
            let bounds = LogBounds { store: Some(5), floor: 0, closed: None, kept, ending: Ending::Torn };
            let read = read_chain(&*media, &[log], bounds, &|_: &mut (), _| Ok(1));
            assert_eq!(
                read.map(|logs| logs.len()).map_err(|error| error.kind()),
                if is_possible { Ok(1) } else { Err(Kind::Corrupt) }
            );
            media.remove_area(log).unwrap();
        }
    }
}
