//! Looking through damage for records that check out.
//!
//! However hostile the bytes, a search takes a time linear in them: a record might begin at each, but to check one
//! takes as long as to check any other, however many bytes it has.
//!
//! What looks like a record in the payload of a damaged one is what somebody put there: a user may keep logs as values.
//! It counts only if it is plain that the damaged one ends before it.

use super::record::{Area, Ending, HEAD_BYTES, PAYLOAD_BYTES_MAX, Record, RecordKind, Records, seq_of};
use crate::bytes::u32_at;
use std::cell::OnceCell;
use vellum_codes::Crc32cParts;

/// Numbers of ingests, which no record has, that may lie between two records.
const INGESTS_MAX: u64 = 1 << 20;

/// A head that was not damaged does not claim more than this, or than the area has.
const CLAIM_BYTES_MAX: usize = 16 << 20;

/// Numbers and payloads of all data records that check out, whatever is between them.
pub(crate) fn salvage_records(area: Area, bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let records = Records::at_start(area, bytes, Ending::Torn);
    let found = Search::of(&records, 0).filter(|(_, record)| record.kind == RecordKind::Data);
    found.map(|(_, record)| (record.seq, record.payload)).collect()
}

/// Looks through damage for records that check out.
pub(super) struct Search<'r, 'a> {
    records: &'r Records<'a>,
    /// Made when it is needed first: mostly nothing is there that might be a record.
    parts: OnceCell<Crc32cParts<'a>>,
    offset: usize,
    /// The number of the last record found, or before that the one that the area has come to; 0 if none is known.
    seq: u64,
    /// Where the last record ended, so the next one begins; the last of those that follow one another from there, as
    /// all are damaged; and where that ends, as far as their heads are believed.
    first: usize,
    last: usize,
    end: usize,
}

impl<'r, 'a> Search<'r, 'a> {
    /// From `offset` on, where a record ends.
    pub(super) fn of(records: &'r Records<'a>, offset: usize) -> Search<'r, 'a> {
        let seq = records.seq();
        Search { records, parts: OnceCell::new(), offset, seq, first: offset, last: offset, end: offset }
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
        let end = at + HEAD_BYTES + length;
        let checks = || self.parts().crc(at + 4..end) ^ self.records.tag() == u32_at(head, 0);
        let payload = &self.records.bytes()[at + HEAD_BYTES..end];
        (self.is_near(seq, at) && checks()).then_some((Record { kind, seq, payload }, end))
    }

    /// Where what is damaged at `at` ends: where its head says, if that has the number of a record that may be here. If
    /// it is not the first, it may be none: then something has to be there, too.
    fn end_of_damage(&self, at: usize) -> usize {
        let bytes = self.records.bytes();
        let may_be = |at: usize| {
            let head = bytes.get(at..at + HEAD_BYTES);
            self.seq > 0 && head.is_some_and(|head| self.is_near(seq_of(head), at))
        };
        let length = u32_at(bytes, at + 4) as usize & PAYLOAD_BYTES_MAX;
        let end = at + HEAD_BYTES + length;
        let is_believed =
            may_be(at) && length <= bytes.len().max(CLAIM_BYTES_MAX) && (at == self.first || may_be(end));
        if is_believed { end } else { at }
    }

    /// True if a record may be at `at`: behind those that are damaged, or where one of them ends.
    fn is_behind_damage(&self, at: usize) -> bool {
        at >= self.end || self.ends_at(self.first, at) || self.ends_at(self.last, at)
    }

    /// True if what is `damaged` checks out if it ends at `at`: then only its length or kind is wrong.
    fn ends_at(&self, damaged: usize, at: usize) -> bool {
        let Some(length) = at.checked_sub(damaged + HEAD_BYTES) else { return false };
        let crc = u32_at(self.records.bytes(), damaged) ^ self.records.tag();
        let right = |kind: u32| (length as u32 | kind << 30).to_le_bytes();
        (0..3).any(|kind| self.parts().crc_behind(&right(kind), damaged + 8..at) == crc)
    }
}

/// Where each is, and what.
impl<'a> Iterator for Search<'_, 'a> {
    type Item = (usize, Record<'a>);

    fn next(&mut self) -> Option<(usize, Record<'a>)> {
        while self.offset + HEAD_BYTES <= self.records.bytes().len() {
            let at = self.offset;
            match self.record_at(at) {
                Some((record, next)) if self.is_behind_damage(at) => {
                    (self.offset, self.seq) = (next, record.seq);
                    (self.first, self.last, self.end) = (next, next, next);
                    return Some((at, record));
                }
                // Only here it is known that a record begins, or believed.
                None if at == self.end => (self.last, self.end) = (at, self.end_of_damage(at)),
                _ => {}
            }
            self.offset += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Framer;

    /// Each place is the head of a record that might be, and has half of the bytes.
    #[test]
    fn a_record_behind_a_mebibyte_of_such_that_might_be_is_found() {
        let (length, area) = (1 << 20, Area::log(9));
        let mut bytes: Vec<u8> = (0..length).map(|i| if i % 4 == 2 { 4 } else { 0 }).collect();
        let whole = Records::at_start(area, &bytes, Ending::Torn);
        assert!((0..length / 2).step_by(4).all(|at| whole.plausible(at).is_some()));
        assert!(salvage_records(area, &bytes).is_empty());
        Framer::new(area).data(&mut bytes, 4, b"found");
        assert_eq!(salvage_records(area, &bytes), [(4, &b"found"[..])]);
    }

    /// One record of ours, and another with a log of somebody else's with the same number.
    fn with_a_log_in_a_value(their_seq: u64) -> Vec<u8> {
        let (framer, mut other, mut bytes) = (Framer::new(Area::log(9)), Vec::new(), Vec::new());
        (0..9).for_each(|i| framer.data(&mut other, their_seq + i, b"theirs"));
        framer.data(&mut bytes, 100, b"ours");
        framer.data(&mut bytes, 101, &other);
        bytes
    }

    #[test]
    fn a_log_that_somebody_keeps_in_a_value_is_not_believed() {
        let ours = [(100, &b"ours"[..]), (120, &b"ours"[..])];
        for their_seq in [1, 102, 5_000_000] {
            let whole = with_a_log_in_a_value(their_seq);
            for torn in 40..whole.len() {
                let found = |bytes| assert_eq!(salvage_records(Area::log(9), bytes), ours[..1], "{torn}");
                found(&whole[..torn]);
                found(&[&whole[..torn], &[0; 300]].concat());
                let mut rotten = whole.clone();
                rotten[torn] ^= 1;
                Framer::new(Area::log(9)).data(&mut rotten, 120, b"ours");
                assert_eq!(salvage_records(Area::log(9), &rotten), ours, "{torn}");
            }
        }
    }

    #[test]
    fn nor_one_in_the_value_of_the_next_record_that_is_damaged_too() {
        let mut whole = with_a_log_in_a_value(102);
        let (first, theirs) = (whole.len(), whole[36..].to_vec());
        Framer::new(Area::log(9)).data(&mut whole, 111, &theirs);
        let second = whole.len();
        Framer::new(Area::log(9)).data(&mut whole, 120, b"ours");
        for (a, b) in (36..first).step_by(7).flat_map(|a| (first + 16..second).map(move |b| (a, b))) {
            let mut rotten = whole.clone();
            (rotten[a], rotten[b]) = (rotten[a] ^ 1, rotten[b] ^ 1);
            let found = salvage_records(Area::log(9), &rotten);
            assert_eq!(found, [(100, &b"ours"[..]), (120, &b"ours"[..])], "{a}, {b}");
        }
    }

    #[test]
    fn of_a_damaged_length_the_next_record_tells() {
        let mut bytes = with_a_log_in_a_value(102);
        Framer::new(Area::log(9)).data(&mut bytes, 111, b"ours");
        for bit in 0..32 {
            let mut bad = bytes.clone();
            bad[20 + 4 + bit / 8] ^= 1 << (bit % 8);
            let found = salvage_records(Area::log(9), &bad);
            assert!(found.contains(&(111, b"ours")), "bit {bit}: {found:?}");
        }
    }
}
