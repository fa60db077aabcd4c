//! Search for valid records in a damaged area.
//!
//! A search takes time linear in the number of bytes, however hostile they are: a record might begin at each of them,
//! but checking a candidate takes constant time, whatever its length.

use super::frame::{Area, FRAME_HEAD_BYTES, RecordKind};
use super::record::{Ending, Record, Records, seq_of};
use crate::bytes::u32_at;
use std::cell::OnceCell;
use vellum_base::{Kind, Result};
use vellum_codes::Crc32cParts;

/// Numbers of ingests, which no record has, that may lie between two records.
const INGESTS_MAX: u64 = 1 << 20;

/// Numbers and payloads of all data records that check out, whatever is between them. If the head does not, they are
/// those of `store`, if that is known; if there are none of it, those of an area of version 1. An error if the area is
/// of a later version.
pub(crate) fn salvage_records(area: Area, store: Option<u64>, bytes: &[u8]) -> Result<Vec<(u64, &[u8])>> {
    let headless = |store| salvaged(&Records::at_start(area, store, bytes, Ending::Torn));
    match Records::at_head(area, bytes, Ending::Torn) {
        Ok(Some(records)) => Ok(salvaged(&records)),
        Err(error) if error.kind() != Kind::Corrupt => Err(error),
        _ => Ok(Some(headless(store)).filter(|found| !found.is_empty()).unwrap_or_else(|| headless(None))),
    }
}

fn salvaged<'a>(records: &Records<'a>) -> Vec<(u64, &'a [u8])> {
    let found = Search::of(records, records.offset() as usize);
    let data = found.filter(|(_, record)| record.kind == RecordKind::Data);
    data.map(|(_, record)| (record.seq, record.payload)).collect()
}

/// Looks through damage for records that check out.
pub(super) struct Search<'r, 'a> {
    records: &'r Records<'a>,
    /// Made when it is needed first: mostly nothing is there that might be a record.
    parts: OnceCell<Crc32cParts<'a>>,
    offset: usize,
    /// The number of the last record found, or before that the one that the area has come to; 0 if none is known.
    seq: u64,
}

impl<'r, 'a> Search<'r, 'a> {
    /// From `offset` on.
    pub(super) fn of(records: &'r Records<'a>, offset: usize) -> Search<'r, 'a> {
        Search { records, parts: OnceCell::new(), offset, seq: records.seq() }
    }

    fn parts(&self) -> &Crc32cParts<'a> {
        self.parts.get_or_init(|| Crc32cParts::of(self.records.bytes()))
    }

    /// Once a number is known, others that go back, or leap further than entries before `at` can have brought it, are
    /// not believed.
    fn is_near(&self, seq: u64, at: usize) -> bool {
        let entries_max = at as u64;
        self.seq == 0 || (self.seq..=self.seq.saturating_add(entries_max + INGESTS_MAX)).contains(&seq)
    }

    /// The record at `at`, if one is there, and where the next one begins.
    fn record_at(&self, at: usize) -> Option<(Record<'a>, usize)> {
        let (head, length, kind) = self.records.plausible(at)?;
        let seq = seq_of(head);
        let end = at + FRAME_HEAD_BYTES + length;
        let checks = || self.parts().crc(at + 4..end) ^ self.records.tag() == u32_at(head, 0);
        let payload = &self.records.bytes()[at + FRAME_HEAD_BYTES..end];
        (self.is_near(seq, at) && checks()).then_some((Record { kind, seq, payload }, end))
    }
}

/// Where each is, and what.
impl<'a> Iterator for Search<'_, 'a> {
    type Item = (usize, Record<'a>);

    fn next(&mut self) -> Option<(usize, Record<'a>)> {
        while self.offset + FRAME_HEAD_BYTES <= self.records.bytes().len() {
            let at = self.offset;
            if let Some((record, next)) = self.record_at(at) {
                (self.offset, self.seq) = (next, record.seq);
                return Some((at, record));
            }
            self.offset += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{AREA_HEAD_BYTES, Framer, Previous};

    const AREA: Area = Area { kind: crate::journal::AreaKind::Log, number: 9 };

    fn salvaged_of(store: Option<u64>, bytes: &[u8]) -> Vec<(u64, &[u8])> {
        salvage_records(AREA, store, bytes).unwrap()
    }

    /// Each place is the head of a record that might be, and has half of the bytes.
    #[test]
    fn a_record_behind_a_mebibyte_of_such_that_might_be_is_found() {
        let length = 1 << 20;
        let mut bytes: Vec<u8> = (0..length).map(|i| if i % 4 == 2 { 4 } else { 0 }).collect();
        let whole = Records::at_start(AREA, None, &bytes, Ending::Torn);
        assert!((0..length / 2).step_by(4).all(|at| whole.plausible(at).is_some()));
        assert!(salvaged_of(Some(1), &bytes).is_empty());
        Framer::new(AREA, 1).data(&mut bytes, 4, b"found");
        assert_eq!(salvaged_of(Some(1), &bytes), [(4, &b"found"[..])]);
    }

    /// A log of store 1 with three records, the second of which has a log of another store with the same number.
    fn with_a_log_in_a_value(their_seq: u64) -> Vec<u8> {
        let (ours, theirs) = (Framer::new(AREA, 1), Framer::new(AREA, 2));
        let (mut other, mut bytes) = (Vec::new(), Vec::new());
        theirs.head(&mut other, their_seq, Previous::default());
        (0..9).for_each(|i| theirs.data(&mut other, their_seq + i, b"theirs"));
        ours.head(&mut bytes, 100, Previous::default());
        ours.data(&mut bytes, 100, b"ours");
        ours.data(&mut bytes, 101, &other);
        ours.data(&mut bytes, 120, b"ours");
        bytes
    }

    /// Whatever is damaged, one byte or two: lengths, numbers, and the head.
    #[test]
    fn a_log_that_somebody_keeps_in_a_value_is_not_believed() {
        let ours = [(100, &b"ours"[..]), (120, &b"ours"[..])];
        for their_seq in [1, 102, 5_000_000] {
            let whole = with_a_log_in_a_value(their_seq);
            let (value, last) = (AREA_HEAD_BYTES + 20, whole.len() - 20);
            for (a, b) in (value..last).flat_map(|a| (0..last).step_by(3).map(move |b| (a, b))) {
                let mut rotten = whole.clone();
                (rotten[a], rotten[b]) = (rotten[a] ^ 1, rotten[b] ^ 0x41);
                let found = salvaged_of(Some(1), &rotten);
                let is_first_whole = !(AREA_HEAD_BYTES..value).contains(&b);
                assert_eq!(found, ours[!is_first_whole as usize..], "{a}, {b}");
            }
        }
    }

    #[test]
    fn behind_a_lost_head_records_of_either_version_are_found() {
        for (framer, needs_number) in [(Framer::new(AREA, 1), true), (Framer::of_version_1(AREA), false)] {
            let mut bytes = Vec::new();
            framer.head(&mut bytes, 100, Previous::default());
            framer.data(&mut bytes, 100, b"found");
            bytes[3] ^= 1;
            assert_eq!(salvaged_of(Some(1), &bytes), [(100, &b"found"[..])]);
            assert_eq!(salvaged_of(None, &bytes).is_empty(), needs_number);
        }
    }
}
