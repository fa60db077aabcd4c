//! What can be read of a segment that is damaged.
//!
//! Records follow one another; behind damage its hint says where they go on, or, if that is damaged, too, wherever one
//! checks out. However hostile the bytes, that takes a time linear in them.

use crate::bytes::u32_at;
use crate::journal::SegmentMeta;
use crate::log::foot::Foot;
use crate::log::hint::{SEGMENT_UNIT_BYTES, read_unit};
use crate::log::record::{Item, RECORD_HEAD_BYTES, Record, checked_bytes, decode, length_of};
use crate::log::segment::{ReadContext, START_BYTES, is_segment};
use crate::media::TableReader;
use crate::sum::sum_with;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ops::Range;
use vellum_base::{Kind, Result};
use vellum_codes::Crc32cParts;

/// Read at a time.
const READ_BYTES: usize = 1 << 20;
/// Most bytes that are read of a table of which nothing is known.
const SALVAGE_BYTES_MAX: u64 = 1 << 30;

/// The foot of a segment's table, and where it ends: some units before the end of the table, if more was to follow.
/// `None` if it is damaged.
pub(super) fn foot_of(table: &dyn TableReader, reading: ReadContext<'_>) -> Result<Option<(Foot, u64)>> {
    let units = table.bytes()? / SEGMENT_UNIT_BYTES as u64;
    let first = units.saturating_sub(SALVAGE_BYTES_MAX / SEGMENT_UNIT_BYTES as u64);
    let mut unit = [0; SEGMENT_UNIT_BYTES];
    for at in (first..units).rev().map(|unit| unit * SEGMENT_UNIT_BYTES as u64) {
        let Ok(ready) = table.read(at, &mut unit, reading.class) else { continue };
        reading.env.sleep_until(ready);
        let end = at + SEGMENT_UNIT_BYTES as u64;
        match Foot::read(&unit) {
            Ok(foot) if foot.hint_at(end).is_some() => return Ok(Some((foot, end))),
            Err(error) if error.kind() == Kind::Unsupported => return Err(error),
            _ => {}
        }
    }
    Ok(None)
}

/// What the medium can read of a segment; zeros for the rest.
#[derive(Default)]
pub(super) struct Remains {
    bytes: Vec<u8>,
    /// Where the last record ends.
    data_bytes: usize,
    /// Where the hint is, if that is known.
    hint: Range<usize>,
}

impl Remains {
    /// `listed`: what the manifest or the foot says of it.
    pub(super) fn of(
        table: &dyn TableReader,
        reading: ReadContext<'_>,
        listed: Option<SegmentMeta>,
    ) -> Result<Remains> {
        let end = listed.map_or(SALVAGE_BYTES_MAX, |meta| meta.bytes).min(table.bytes()?) as usize;
        let data_bytes = listed.map_or(end, |meta| end.min(meta.data_bytes as usize));
        let hint = data_bytes.next_multiple_of(SEGMENT_UNIT_BYTES)..end.saturating_sub(SEGMENT_UNIT_BYTES);
        let mut bytes = vec![0; end];
        let read = |at: usize, out: &mut [u8]| {
            let ready = table.read(at as u64, out, reading.class);
            ready.map(|ready| reading.env.sleep_until(ready)).inspect_err(|_| out.fill(0))
        };
        let (mut is_any_read, mut failed) = (false, Ok(()));
        for (number, piece) in bytes.chunks_mut(READ_BYTES).enumerate() {
            let at = number * READ_BYTES;
            if read(at, piece).is_ok() {
                is_any_read = true;
                continue;
            }
            for (number, unit) in piece.chunks_mut(SEGMENT_UNIT_BYTES).enumerate() {
                match read(at + number * SEGMENT_UNIT_BYTES, unit) {
                    Ok(()) => is_any_read = true,
                    Err(error) => failed = Err(error),
                }
            }
        }
        // A device that returns nothing now may do so later.
        match failed {
            Err(error) if !is_any_read && error.kind() != Kind::Corrupt => Err(error),
            _ => Ok(Remains { bytes, data_bytes, hint }),
        }
    }

    /// True if it begins as a segment.
    pub(super) fn is_begun(&self) -> bool {
        is_segment(&self.bytes)
    }

    /// Shows every record that checks out, in order. Returns their sum.
    pub(super) fn each(&self, mut show: impl FnMut(Record<'_>)) -> u32 {
        let data = &self.bytes[..self.data_bytes];
        let damage = OnceCell::new();
        let (mut at, mut sum) = (START_BYTES, 0);
        while at < data.len() {
            at = match decode(&data[at..]) {
                Some((Item::Record(record), length)) => {
                    show(record);
                    sum = sum_with(sum, &data[at..]);
                    at + length
                }
                Some((Item::Bubble, length)) => at + length,
                None => damage.get_or_init(|| self.damage()).next_after(at),
            };
        }
        sum
    }

    fn damage(&self) -> Damage<'_> {
        let data = &self.bytes[..self.data_bytes];
        Damage { data, parts: Crc32cParts::of(data), hinted: self.hinted() }
    }

    /// Where records are, if all of the hint can be read.
    fn hinted(&self) -> Option<BTreeSet<usize>> {
        let (hint, mut notes) = (self.bytes.get(self.hint.clone())?, Vec::new());
        hint.chunks(SEGMENT_UNIT_BYTES).try_for_each(|unit| read_unit(unit, &mut notes))?;
        (!notes.is_empty()).then(|| notes.iter().map(|note| note.offset as usize).collect())
    }
}

/// What is known where a record is damaged.
struct Damage<'a> {
    data: &'a [u8],
    parts: Crc32cParts<'a>,
    hinted: Option<BTreeSet<usize>>,
}

impl Damage<'_> {
    /// Where the next record or bubble is behind the damaged one at `at`; the end, if there is none. Its value, which
    /// may look like records, is passed if its length can be believed.
    fn next_after(&self, at: usize) -> usize {
        let end = self.data.len();
        let behind = length_of(&self.data[at..]).map(|length| at + length);
        let next = match &self.hinted {
            _ if behind.is_some_and(|at| at == end || self.checks_out(at)) => behind,
            Some(hinted) => hinted.range(at + 1..).copied().find(|at| self.checks_out(*at)),
            None => (at + RECORD_HEAD_BYTES..end).step_by(RECORD_HEAD_BYTES).find(|at| self.checks_out(*at)),
        };
        next.unwrap_or(end)
    }

    /// True if a record or bubble is at `at`.
    fn checks_out(&self, at: usize) -> bool {
        let Some(head) = self.data.get(at..) else { return false };
        length_of(head).is_some_and(|length| {
            let checked = at + RECORD_HEAD_BYTES + checked_bytes(head);
            at + length <= self.data.len() && self.parts.crc(at + 4..checked) == u32_at(head, 0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::EntryKind;
    use crate::log::record::Record;
    use crate::log::segment::start;

    fn put(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
        Record { kind: EntryKind::Put, key, value, more: false, twin: false }.write(out);
    }

    fn keys(bytes: Vec<u8>) -> Vec<Vec<u8>> {
        let (data_bytes, hint) = (bytes.len(), 0..0);
        let mut found = Vec::new();
        Remains { bytes, data_bytes, hint }.each(|record| found.push(record.key.to_vec()));
        found
    }

    /// Every place looks like the head of a delete of the greatest length.
    #[test]
    fn a_record_behind_a_mebibyte_of_such_that_might_be_is_found() {
        let mut bytes = start().to_vec();
        for _ in 0..1 << 17 {
            bytes.extend_from_slice(&[0; 4]);
            bytes.extend_from_slice(&(60_000u32 | 1 << 28).to_le_bytes());
        }
        put(b"found", b"", &mut bytes);
        assert_eq!(keys(bytes), [b"found"]);
    }

    /// A value that is itself a segment is passed where its length can be believed.
    #[test]
    fn what_a_damaged_value_looks_like_is_not_taken_for_records() {
        let (mut inner, mut bytes) = (vec![0; 6], start().to_vec());
        put(b"inner", b"nobody wrote this", &mut inner);
        put(b"first", b"1", &mut bytes);
        let damaged = bytes.len() + 9;
        put(b"middle", &inner, &mut bytes);
        put(b"last", b"2", &mut bytes);
        assert_eq!(keys(bytes.clone()), [&b"first"[..], b"middle", b"last"]);
        bytes[damaged] ^= 1;
        assert_eq!(keys(bytes), [&b"first"[..], b"last"]);
    }
}
