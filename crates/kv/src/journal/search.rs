//! Looking through damage for records that check out.
//!
//! However hostile the bytes, a search takes time linear in them: a record that might be there is only looked at if its
//! number is near, and there is a budget of what may be checked in vain; where that is used up, nothing more is found.

use super::record::{Area, Ending, HEAD_BYTES, Record, RecordKind, Records};

/// Numbers and payloads of all data records that check out, whatever is between them.
pub(crate) fn salvage_records(area: Area, bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let records = Records::at_start(area, bytes, Ending::Torn);
    let found = Search::of(&records, 0).filter(|(_, record)| record.kind == RecordKind::Data);
    found.map(|(_, record)| (record.seq, record.payload)).collect()
}

/// Looks through damage for records that check out.
pub(super) struct Search<'r, 'a> {
    records: &'r Records<'a>,
    offset: usize,
    /// The number of the last record found, or before that the one that the area has come to.
    seq: u64,
    /// Bytes that may still be checked in vain.
    budget: usize,
}

impl<'r, 'a> Search<'r, 'a> {
    /// From `offset` on.
    pub(super) fn of(records: &'r Records<'a>, offset: usize) -> Search<'r, 'a> {
        Search { records, offset, seq: records.seq(), budget: records.bytes().len().saturating_mul(64) }
    }

    /// Of numbers that go back or leap far nothing is believed, and once one is known that keeps the search linear in
    /// the bytes; the budget does before.
    fn is_near(&self, seq: u64) -> bool {
        const LEAP_MAX: u64 = 1 << 32;
        self.seq == 0 || (self.seq..self.seq.saturating_add(LEAP_MAX)).contains(&seq)
    }
}

/// Where each is, and what.
impl<'a> Iterator for Search<'_, 'a> {
    type Item = (usize, Record<'a>);

    fn next(&mut self) -> Option<(usize, Record<'a>)> {
        loop {
            let at = self.offset;
            let seq = self.records.bytes().get(at + 8..at + HEAD_BYTES)?;
            self.offset += 1;
            let is_near = self.is_near(u64::from_le_bytes(seq.try_into().expect("eight bytes")));
            let Some((_, length, _)) = self.records.plausible(at).filter(|_| is_near) else { continue };
            match self.records.record_at(at) {
                Some((record, next)) => {
                    (self.offset, self.seq) = (next, record.seq);
                    return Some((at, record));
                }
                None => self.budget = self.budget.checked_sub(length)?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_through_damage_ends_soon() {
        // Each place is the head of a record that might be.
        let bytes: Vec<u8> = (0..1u32 << 20).map(|i| if i % 4 == 2 { 1 } else { 0 }).collect();
        assert!(salvage_records(Area::log(9), &bytes).is_empty());
    }
}
