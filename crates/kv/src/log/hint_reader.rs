//! Reads a segment's hint, unit by unit.

use super::foot::Foot;
use super::hint::{Note, SEGMENT_UNIT_BYTES, read_unit};
use super::segment::{Home, ReadContext, START_BYTES, Segment};
use crate::media::TableReader;
use crate::sum::sum_with;
use std::sync::Arc;
use vellum_base::{Error, Kind, Result};

/// See the module.
pub(crate) struct HintReader {
    table: Arc<dyn TableReader>,
    /// The next unit, and the end.
    at: u64,
    end: u64,
    /// Where the segment's last record ends.
    data_bytes: u64,
    notes: std::vec::IntoIter<Note>,
    /// Sum of the units that were read, and the expected sum of all.
    sum: u32,
    expected_sum: Option<u32>,
}

/// Bytes of hints read at a time.
const HINT_BYTES: u64 = 64 << 10;

impl HintReader {
    /// `Corrupt` if the segment's foot does not check out, or is another's: then there is no hint. `Unsupported` if the
    /// segment is of another store, and nothing else would show that: then nothing of it is to be read.
    pub(crate) fn open(segment: &Segment, seed: u64, reading: ReadContext<'_>) -> Result<HintReader> {
        let Home::Table(table, meta) = &segment.home else {
            return Err(Error::corrupt("a segment in memory has no hint"));
        };
        let mut unit = [0; SEGMENT_UNIT_BYTES];
        let last = meta.bytes.checked_sub(SEGMENT_UNIT_BYTES as u64).ok_or_else(|| segment.damage(0))?;
        reading.env.sleep_until(table.read(last, &mut unit, reading.class)?);
        let foot = Foot::read(&unit)?;
        // With a sum in the manifest, that shows it.
        if foot.seed != seed && meta.sum.is_none() {
            let what =
                format!("segment {} is of another store: put there what belongs to this one", meta.number);
            return Err(Error::new(Kind::Unsupported, what));
        }
        let is_its_own = foot.seed == seed && foot.data_bytes == meta.data_bytes && !foot.is_another(meta);
        let at = foot.hint_at(meta.bytes).filter(|_| is_its_own);
        let at = at.ok_or_else(|| Error::corrupt("a segment's hint is of another"))?;
        let expected_sum = foot.sums.map(|sums| sums.hint);
        let (data_bytes, notes) = (meta.data_bytes, Vec::new().into_iter());
        Ok(HintReader { table: table.clone(), at, end: last, data_bytes, notes, sum: 0, expected_sum })
    }

    /// The next note; an error if the unit that it should be in does not check out.
    pub(crate) fn next(&mut self, reading: ReadContext<'_>) -> Result<Option<Note>> {
        while self.notes.as_slice().is_empty() && self.at < self.end {
            let mut bytes = vec![0; HINT_BYTES.min(self.end - self.at) as usize];
            reading.env.sleep_until(self.table.read(self.at, &mut bytes, reading.class)?);
            let mut notes = Vec::new();
            let read = bytes.chunks(SEGMENT_UNIT_BYTES).try_for_each(|unit| {
                self.sum = sum_with(self.sum, unit);
                read_unit(unit, &mut notes)
            });
            let is_there = |note: &Note| {
                let end = note.offset.saturating_add(note.bytes as u64);
                note.offset >= START_BYTES as u64 && end <= self.data_bytes
            };
            self.at += bytes.len() as u64;
            let is_another =
                self.at == self.end && self.expected_sum.is_some_and(|expected| expected != self.sum);
            if read.is_none() || is_another || !notes.iter().all(is_there) {
                return Err(Error::corrupt("a segment's hint does not check out"));
            }
            self.notes = notes.into_iter();
        }
        Ok(self.notes.next())
    }
}
