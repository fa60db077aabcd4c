//! Segments, of which the log consists. See docs/formats/kv-segment.md.
//!
//! States: in memory, while being written and until its table is durable; a table; retired, when others have replaced
//! it: its table is erased when the last holder drops it.
//!
//! Invariants
//! 1. Slot, order and account stay the same when it becomes a table, so pointers of the index stay valid.
//! 2. Bytes read from a table are decoded with all bounds checks. An invalid record is an error, and the segment is not
//!    collected any more.

use super::hint::{Note, SEGMENT_UNIT_BYTES, hash_of};
use super::record::{Item, Items, Record, decode, length_of};
use crate::bytes::u32_at;
use crate::journal::SegmentMeta;
use crate::key::EntryKind;
use crate::media::TableReader;
use crate::obsolete::Obsolete;
use crate::sum::sum_with;
use std::sync::Arc;
use vellum_base::sync::RwLock;
use vellum_base::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use vellum_base::{Env, Error, IoClass, Kind, Result};

/// Bytes before the first record.
pub(crate) const START_BYTES: usize = 16;
const MAGIC: &[u8; 4] = b"VKSG";
const VERSION: u32 = 1;
/// Read at a time when all of a segment is read.
pub(super) const READ_BYTES: usize = 1 << 20;

/// What a segment begins with.
pub(crate) fn start() -> [u8; START_BYTES] {
    let mut out = [0; START_BYTES];
    out[..4].copy_from_slice(MAGIC);
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let crc = vellum_codes::crc32c(&out[8..]);
    out[4..8].copy_from_slice(&crc.to_le_bytes());
    out
}

/// True if a table claims to be a segment.
pub(crate) fn is_segment(unit: &[u8]) -> bool {
    unit.starts_with(MAGIC)
}

/// An error if a segment does not begin as one.
pub(crate) fn check_start(unit: &[u8]) -> Result<()> {
    if unit.len() < START_BYTES
        || !is_segment(unit)
        || u32_at(unit, 4) != vellum_codes::crc32c(&unit[8..START_BYTES])
    {
        return Err(Error::corrupt("a segment does not begin as one"));
    }
    match u32_at(unit, 8) {
        VERSION => Ok(()),
        other => Err(Error::new(Kind::Unsupported, format!("a segment of version {other}"))),
    }
}

/// What a segment's records are worth; shared by the segment in memory and the table that it becomes.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Bytes of records that the index points to.
    pub live: AtomicU64,
    /// Bytes of deletes.
    pub deletes: AtomicU64,
    /// It is not collected: a record of it does not check out, perhaps.
    pub is_skipped: AtomicBool,
}

/// Bytes of a segment that is not yet a table.
pub(crate) type Buffer = Arc<RwLock<Vec<u8>>>;

/// Where a segment is.
pub(crate) enum Home {
    Memory(Buffer),
    Table(Arc<dyn TableReader>, SegmentMeta),
}

/// See the module.
pub(crate) struct Segment {
    pub order: u64,
    pub slot: usize,
    pub home: Home,
    pub account: Arc<Account>,
    obsolete: Arc<Obsolete>,
    is_retired: AtomicBool,
}

impl Drop for Segment {
    fn drop(&mut self) {
        if let Home::Table(_, meta) = &self.home
            && self.is_retired.load(Relaxed)
        {
            self.obsolete.add_table(meta.number);
        }
    }
}

/// What a read needs besides its place.
#[derive(Clone, Copy)]
pub(crate) struct ReadContext<'a> {
    pub env: &'a dyn Env,
    pub class: IoClass,
}

impl Segment {
    pub(crate) fn new(
        order: u64,
        slot: usize,
        home: Home,
        account: Arc<Account>,
        obsolete: &Arc<Obsolete>,
    ) -> Segment {
        Segment { order, slot, home, account, obsolete: obsolete.clone(), is_retired: AtomicBool::new(false) }
    }

    /// No manifest needs it: its table is erased when nobody reads it any more.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Relaxed);
        self.meta().into_iter().for_each(|meta| self.obsolete.retire(meta.number));
    }

    /// What the manifest says of it, once it is a table.
    pub(crate) fn meta(&self) -> Option<&SegmentMeta> {
        match &self.home {
            Home::Table(_, meta) => Some(meta),
            Home::Memory(_) => None,
        }
    }

    /// Where its last record ends.
    pub(crate) fn data_bytes(&self) -> u64 {
        match &self.home {
            Home::Memory(buffer) => buffer.read().len() as u64,
            Home::Table(_, meta) => meta.data_bytes,
        }
    }

    /// True if it has no record.
    pub(crate) fn is_empty(&self) -> bool {
        self.data_bytes() <= START_BYTES as u64
    }

    pub(super) fn damage(&self, offset: u64) -> Error {
        let name = self.meta().map_or("the open segment".into(), |meta| format!("segment {}", meta.number));
        Error::corrupt(format!("{name}: the record at byte {offset} does not check out"))
    }

    /// Shows the record at `offset`, and how many bytes it takes.
    pub(crate) fn record<T>(
        &self,
        reading: ReadContext<'_>,
        offset: u64,
        show: impl FnOnce(Record<'_>, usize) -> T,
    ) -> Result<T> {
        let shown = |found: Option<(Item<'_>, usize)>| match found {
            Some((Item::Record(record), bytes)) => Ok(show(record, bytes)),
            _ => Err(self.damage(offset)),
        };
        match &self.home {
            Home::Memory(buffer) => shown(buffer.read().get(offset as usize..).and_then(decode)),
            Home::Table(table, meta) => {
                let bytes = self.bytes_at(&**table, meta, reading, offset)?;
                shown(decode(&bytes[(offset % SEGMENT_UNIT_BYTES as u64) as usize..]))
            }
        }
    }

    /// Whole units from the one with `offset` on, to where the record there ends.
    fn bytes_at(
        &self,
        table: &dyn TableReader,
        meta: &SegmentMeta,
        reading: ReadContext<'_>,
        offset: u64,
    ) -> Result<Vec<u8>> {
        if offset + 8 > meta.data_bytes {
            return Err(self.damage(offset));
        }
        let unit = SEGMENT_UNIT_BYTES as u64;
        let (first, within) = (offset / unit * unit, (offset % unit) as usize);
        // Behind the data there is at least the foot.
        let units = if within > SEGMENT_UNIT_BYTES / 4 * 3 { 2 } else { 1 };
        let mut bytes = vec![0; units * SEGMENT_UNIT_BYTES];
        reading.env.sleep_until(table.read(first, &mut bytes, reading.class)?);
        let length = length_of(&bytes[within..]).ok_or_else(|| self.damage(offset))?;
        if offset + length as u64 > meta.data_bytes {
            return Err(self.damage(offset));
        }
        let (filled, wanted) = (bytes.len(), (within + length).next_multiple_of(SEGMENT_UNIT_BYTES));
        if wanted > filled {
            bytes.resize(wanted, 0);
            reading.env.sleep_until(table.read(
                first + filled as u64,
                &mut bytes[filled..],
                reading.class,
            )?);
        }
        Ok(bytes)
    }

    /// All its bytes up to the end of its last record.
    pub(crate) fn data(&self, reading: ReadContext<'_>) -> Result<Vec<u8>> {
        let (table, meta) = match &self.home {
            Home::Memory(buffer) => return Ok(buffer.read().clone()),
            Home::Table(table, meta) => (table, meta),
        };
        let mut bytes = vec![0; (meta.data_bytes as usize).next_multiple_of(SEGMENT_UNIT_BYTES)];
        for (number, piece) in bytes.chunks_mut(READ_BYTES).enumerate() {
            let at = table.read((number * READ_BYTES) as u64, piece, reading.class)?;
            reading.env.sleep_until(at);
        }
        bytes.truncate(meta.data_bytes as usize);
        check_start(&bytes).map_err(|e| e.context(format!("segment {}", meta.number)))?;
        Ok(bytes)
    }

    /// Shows every record of `data`, which is all of the segment, and bubbles as `None`: where it is, and how many
    /// bytes it takes.
    pub(crate) fn each<'a>(
        &self,
        data: &'a [u8],
        mut show: impl FnMut(u64, Option<Record<'a>>, usize),
    ) -> Result<()> {
        let mut items = Items::new(data, START_BYTES);
        while !items.is_done() {
            match items.next() {
                Some((at, Item::Record(record), bytes)) => show(at as u64, Some(record), bytes),
                Some((at, Item::Bubble, bytes)) => show(at as u64, None, bytes),
                None => return Err(self.damage(items.at() as u64)),
            }
        }
        Ok(())
    }

    /// What its hint would say, by its records, in the hint's order; and their sum.
    pub(crate) fn notes(&self, data: &[u8], seed: u64) -> Result<(Vec<Note>, u32)> {
        let (mut notes, mut sum) = (Vec::new(), 0);
        self.each(data, |offset, record, bytes| {
            if let Some(record) = record {
                sum = sum_with(sum, &data[offset as usize..]);
                notes.push(note_of(&record, seed, offset, bytes));
            }
        })?;
        self.check_sum(sum)?;
        notes.sort_unstable();
        Ok((notes, sum))
    }

    /// An error if the manifest states another sum of the records.
    pub(crate) fn check_sum(&self, sum: u32) -> Result<()> {
        match self.meta() {
            Some(SegmentMeta { number, sum: Some(expected), .. }) if *expected != sum => Err(Error::corrupt(
                format!("segment {number}: a record is not the one that was written there"),
            )),
            _ => Ok(()),
        }
    }
}

/// What a hint says of a record.
pub(crate) fn note_of(record: &Record<'_>, seed: u64, offset: u64, bytes: usize) -> Note {
    Note {
        hash: hash_of(seed, record.key),
        offset,
        bytes: bytes as u32,
        delete: record.kind == EntryKind::Delete,
        twin: record.twin,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_begins_as_one() {
        check_start(&start()).unwrap();
        for at in 0..START_BYTES {
            let mut bad = start();
            bad[at] ^= 1;
            check_start(&bad).unwrap_err();
        }
    }
}
