//! Records in NVRAM and their stored form (docs/formats/array.md).
//!
//! A record that describes a page's content includes its checksum, if that is known (`sums.rs`); it is filled in on
//! appending. Records are stored in batches, each with a checksum, so that the changes of one answer of the policy are
//! stored as a whole or not at all.

use crate::cache::engine::log_page::{ENTRY, decode_entry, encode_entry};
use crate::cache::step::{LogEntry, PageNo};
use crate::superblock::{u16_at, u32_at, u64_at};
use std::sync::Arc;
use vellum_base::Lba;
use vellum_codes::crc32c;

/// Head of a batch: checksum, length of its records, mark of the half.
pub(super) const BATCH_HEAD: usize = 16;
const RECORD_HEAD: usize = 4;

/// A change of the cache's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// An entry in the metadata buffer.
    Entry(LogEntry),
    /// A delta is staged, in place of an earlier one to the same base.
    Staged {
        /// The page that the delta applies to.
        base: PageNo,
        /// The delta's sector.
        lba: Lba,
        /// Grows from delta to delta.
        stamp: u64,
        /// The sector may not have been written yet.
        is_intent: bool,
        /// Checksum of the base.
        sum: Option<u32>,
        /// The encoded delta.
        delta: Arc<[u8]>,
    },
    /// A delta that goes to a pending page.
    Moving {
        /// The page that the delta applies to.
        base: PageNo,
        /// The delta page that it goes to.
        home: PageNo,
        /// The delta's sector.
        lba: Lba,
        /// Grows from delta to delta.
        stamp: u64,
        /// Checksum of the base.
        sum: Option<u32>,
        /// The encoded delta.
        delta: Arc<[u8]>,
    },
    /// The delta to this base is no longer staged, and not in a delta page either.
    Unstaged(PageNo),
    /// Entries of the buffer go to a log page.
    LogBegun {
        /// Sequence number of the log page.
        sequence: u64,
        /// Sequence number of the oldest valid page.
        head: u64,
        /// The pages whose entries these are.
        pages: Vec<PageNo>,
    },
    /// The log page with this sequence number is written.
    LogWritten(u64),
    /// A sector that may not have been written yet, and whose delta went to a delta page.
    Intent(Lba, u64),
    /// Sectors of intents with smaller stamps are durable.
    Retired(u64),
    /// A page gets new content, with this stamp.
    Begun(PageNo, u64),
    /// The page has the content begun with this stamp, with this checksum.
    Filled(PageNo, u64, Option<u32>),
    /// The parity of a row is going to be updated, with this stamp.
    Cleaning(u64, u64),
    /// The row's parity was updated.
    Cleaned(u64, u64),
    /// Number of the session from now on, and whether SSD and members have it: nothing depends on it before they do.
    Session(u64, bool),
    /// The members' marks of all rows cleaned so far are being cleared.
    Telling,
    /// They have been cleared.
    Told,
}

impl Record {
    fn kind(&self) -> u8 {
        match self {
            Record::Entry(_) => 1,
            Record::Staged { is_intent: true, .. } => 2,
            Record::Staged { is_intent: false, .. } => 12,
            Record::Moving { .. } => 13,
            Record::Unstaged(_) => 3,
            Record::LogBegun { .. } => 4,
            Record::LogWritten(_) => 5,
            Record::Intent(..) => 6,
            Record::Retired(_) => 7,
            Record::Begun(..) => 8,
            Record::Filled(..) => 9,
            Record::Cleaning(..) => 10,
            Record::Cleaned(..) => 11,
            Record::Session(..) => 14,
            Record::Telling => 15,
            Record::Told => 16,
        }
    }

    /// The checksum that is stored before the record's content.
    fn sum(&self) -> Option<u32> {
        match self {
            Record::Staged { sum, .. } | Record::Moving { sum, .. } | Record::Filled(_, _, sum) => *sum,
            _ => None, // That of an entry is in the entry.
        }
    }

    /// Appends the encoded record to a batch.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (start, sum) = (out.len(), self.sum());
        out.extend_from_slice(&[0, 0, self.kind(), sum.is_some().into()]);
        out.extend_from_slice(sum.map(u32::to_le_bytes).as_ref().map_or(&[], |sum| &sum[..]));
        match self {
            Record::Entry(entry) => out.extend_from_slice(&encode_entry(entry)),
            Record::Staged { base, lba, stamp, delta, .. } => {
                out.extend_from_slice(&base.0.to_le_bytes());
                out.extend_from_slice(&lba.0.to_le_bytes());
                out.extend_from_slice(&stamp.to_le_bytes());
                out.extend_from_slice(delta);
            }
            Record::Moving { base, home, lba, stamp, delta, .. } => {
                out.extend_from_slice(&base.0.to_le_bytes());
                out.extend_from_slice(&home.0.to_le_bytes());
                out.extend_from_slice(&lba.0.to_le_bytes());
                out.extend_from_slice(&stamp.to_le_bytes());
                out.extend_from_slice(delta);
            }
            Record::Unstaged(page) => out.extend_from_slice(&page.0.to_le_bytes()),
            Record::LogWritten(number) | Record::Retired(number) => {
                out.extend_from_slice(&number.to_le_bytes());
            }
            Record::LogBegun { sequence, head, pages } => {
                out.extend_from_slice(&sequence.to_le_bytes());
                out.extend_from_slice(&head.to_le_bytes());
                pages.iter().for_each(|page| out.extend_from_slice(&page.0.to_le_bytes()));
            }
            Record::Intent(Lba(one), other) | Record::Cleaning(one, other) | Record::Cleaned(one, other) => {
                out.extend_from_slice(&one.to_le_bytes());
                out.extend_from_slice(&other.to_le_bytes());
            }
            Record::Session(session, is_told) => {
                out.extend_from_slice(&session.to_le_bytes());
                out.push((*is_told).into());
            }
            Record::Telling | Record::Told => {}
            Record::Begun(page, stamp) | Record::Filled(page, stamp, _) => {
                out.extend_from_slice(&page.0.to_le_bytes());
                out.extend_from_slice(&stamp.to_le_bytes());
            }
        }
        let bytes = (out.len() - start - RECORD_HEAD) as u16;
        out[start..start + 2].copy_from_slice(&bytes.to_le_bytes());
    }

    fn decode(kind: u8, has_sum: u8, content: &[u8]) -> Option<Record> {
        let (sum, content) = match has_sum {
            0 => (None, content),
            1 => content.split_first_chunk().map(|(sum, rest)| (Some(u32::from_le_bytes(*sum)), rest))?,
            _ => return None,
        };
        let page = || PageNo(u32_at(content, 0));
        let long = |at| u64_at(content, at);
        let record = match (kind, content.len()) {
            (1, ENTRY) => Record::Entry(decode_entry(content).ok()?),
            (2 | 12, 20..) => Record::Staged {
                is_intent: kind == 2,
                sum,
                base: page(),
                lba: Lba(long(4)),
                stamp: long(12),
                delta: content[20..].into(),
            },
            (13, 24..) => Record::Moving {
                base: page(),
                home: PageNo(u32_at(content, 4)),
                lba: Lba(long(8)),
                stamp: long(16),
                sum,
                delta: content[24..].into(),
            },
            (3, 4) => Record::Unstaged(page()),
            (4, 16..) if content.len().is_multiple_of(4) => Record::LogBegun {
                sequence: long(0),
                head: long(8),
                pages: content[16..].chunks_exact(4).map(|page| PageNo(u32_at(page, 0))).collect(),
            },
            (5, 8) => Record::LogWritten(long(0)),
            (6, 16) => Record::Intent(Lba(long(0)), long(8)),
            (7, 8) => Record::Retired(long(0)),
            (8, 12) => Record::Begun(page(), long(4)),
            (9, 12) => Record::Filled(page(), long(4), sum),
            (10, 16) => Record::Cleaning(long(0), long(8)),
            (11, 16) => Record::Cleaned(long(0), long(8)),
            (15, 0) => Record::Telling,
            (16, 0) => Record::Told,
            (14, 9) if content[8] < 2 => Record::Session(long(0), content[8] == 1),
            _ => return None,
        };
        (record.sum() == sum).then_some(record)
    }
}

/// Encodes records as a batch of the half with this `mark`.
pub fn encode_batch(mark: u64, records: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(records.len() as u32).to_le_bytes());
    out.extend_from_slice(&mark.to_le_bytes());
    out.extend_from_slice(records);
    let crc = crc32c(&out[start + 4..]);
    out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Decodes the batch at the beginning of `half`; also returns its length. `None` if there is no complete batch.
pub fn decode_batch(half: &[u8], mark: u64) -> Option<(Vec<Record>, usize)> {
    let head = half.get(..BATCH_HEAD)?;
    let end = BATCH_HEAD.checked_add(u32_at(head, 4) as usize)?;
    let stored = half.get(..end)?;
    if u64_at(head, 8) != mark || end == BATCH_HEAD || crc32c(&stored[4..]) != u32_at(head, 0) {
        return None;
    }
    let (mut records, mut rest) = (Vec::new(), &stored[BATCH_HEAD..]);
    while !rest.is_empty() {
        let bytes = usize::from(u16_at(rest.get(..RECORD_HEAD)?, 0));
        let (record, behind) = rest.split_at_checked(RECORD_HEAD + bytes)?;
        records.push(Record::decode(record[2], record[3], &record[RECORD_HEAD..])?);
        rest = behind;
    }
    Some((records, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::shape::PageState;

    fn all() -> Vec<Record> {
        let entry = LogEntry {
            page: PageNo(7),
            state: PageState::Old,
            lba: Lba(1 << 37),
            delta: Some((PageNo(9), 48, 100)),
            sum: None,
        };
        vec![
            Record::Entry(entry),
            Record::Entry(LogEntry { state: PageState::Clean, delta: None, sum: Some(3), ..entry }),
            Record::Staged {
                base: PageNo(1),
                lba: Lba(2),
                stamp: 3,
                is_intent: true,
                sum: Some(u32::MAX - 2),
                delta: Arc::from([1, 2, 3]),
            },
            Record::Staged {
                base: PageNo(1),
                lba: Lba(2),
                stamp: 3,
                is_intent: false,
                sum: None,
                delta: Arc::from([]),
            },
            Record::Moving {
                base: PageNo(1),
                home: PageNo(4),
                lba: Lba(2),
                stamp: 3,
                sum: Some(9),
                delta: Arc::from([1, 2]),
            },
            Record::Unstaged(PageNo(5)),
            Record::LogBegun { sequence: 1 << 40, head: 3, pages: vec![PageNo(8), PageNo(9)] },
            Record::LogWritten(6),
            Record::Intent(Lba(8), 9),
            Record::Retired(10),
            Record::Begun(PageNo(11), 12),
            Record::Filled(PageNo(13), 14, Some(15)),
            Record::Filled(PageNo(13), 14, None),
            Record::Cleaning(15, 16),
            Record::Cleaned(17, 18),
            Record::Session(19, true),
            Record::Telling,
            Record::Told,
        ]
    }

    #[test]
    fn a_batch_comes_back_whole_or_not_at_all() {
        let mut records = Vec::new();
        all().iter().for_each(|record| record.encode(&mut records));
        let mut stored = Vec::new();
        encode_batch(77, &records, &mut stored);
        let bytes = stored.len();
        stored.extend_from_slice(&[0xEE; 40]);
        assert_eq!(decode_batch(&stored, 77), Some((all(), bytes)));
        assert_eq!(decode_batch(&stored, 78), None, "of an earlier life of this half");
        for cut in 0..bytes {
            assert_eq!(decode_batch(&stored[..cut], 77), None);
        }
        for at in 0..bytes {
            let mut wrong = stored.clone();
            wrong[at] ^= 1;
            assert_eq!(decode_batch(&wrong, 77), None, "byte {at}");
        }
    }
}
