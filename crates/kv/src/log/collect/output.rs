//! A segment that is made of what others still hold.

use crate::freewrite::Reuse;
use crate::freewrite::{IslandPart, Planner, Totals, Verdict};
use crate::journal::SegmentMeta;
use crate::log::core::NewTable;
use crate::log::finish::finish;
use crate::log::foot::Origin;
use crate::log::hint::{Note, SEGMENT_UNIT_BYTES};
use crate::log::open_segment::table_bytes;
use crate::log::record::write_bubble;
use crate::log::segment::start;
use crate::media::Stored;
use crate::sum::sum_with;
use vellum_base::Result;

/// Gathered before it is handed to the medium.
const WRITE_BYTES: usize = 1 << 20;

/// A record or bubble of a segment that is collected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Where it is, and how many bytes it takes.
    pub offset: usize,
    pub bytes: usize,
    /// What the hint says of it; none of a bubble.
    pub note: Option<Note>,
}

impl Part {
    pub(crate) fn end(&self) -> usize {
        self.offset + self.bytes
    }
}

/// A segment that is collected: its table, and all its bytes.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub table: u64,
    pub data: &'a [u8],
}

/// See the module.
pub(crate) struct Output {
    pub begun: NewTable,
    origin: Origin,
    /// Written records, as the hint will say.
    pub notes: Vec<Note>,
    reuse: Reuse,
    planner: Planner,
    /// Bytes that were appended, and those of them that the medium does not have yet.
    at: u64,
    tail: Vec<u8>,
    bubble_bytes: u64,
    /// Of its records.
    sum: u32,
    relinked: u64,
}

/// What is known of an output when it is safe.
pub(crate) struct FinishedSegment {
    pub meta: SegmentMeta,
    pub totals: Totals,
    pub relinked: u64,
}

impl Output {
    pub(crate) fn new(begun: NewTable, origin: Origin, reuse: Reuse, planner: Planner) -> Output {
        let tail = start().to_vec();
        let at = tail.len() as u64;
        let notes = Vec::new();
        Output { begun, origin, notes, reuse, planner, at, tail, bubble_bytes: 0, sum: 0, relinked: 0 }
    }

    /// True if nothing was appended.
    pub(crate) fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// How many of these parts, which follow one another, fit, behind the bubble that they may need.
    pub(crate) fn fitting(&self, parts: &[Part], segment_bytes: u64) -> usize {
        let capacity = self.begun.table.capacity();
        match self.fitting_in(parts, capacity.min(segment_bytes)) {
            // It may have been written when segments were larger.
            0 if self.is_empty() => self.fitting_in(&parts[..1], capacity),
            fitting => fitting,
        }
    }

    fn fitting_in(&self, parts: &[Part], capacity: u64) -> usize {
        // With the largest bubble, if there may be one.
        let bubble = if self.reuse == Reuse::Off { 0 } else { self.planner.unit_bytes() };
        let (mut at, mut records) = (self.at + bubble, self.notes.len() as u64);
        let fits = |part: &&Part| {
            (at, records) = (at + part.bytes as u64, records + u64::from(part.note.is_some()));
            table_bytes(at, records) <= capacity
        };
        parts.iter().take_while(fits).count()
    }

    /// Appends parts that follow one another in `source`: as they lie, if that is worth the bubble; else without the
    /// bubbles among them. Says where each record went.
    pub(crate) fn append(
        &mut self,
        source: Source<'_>,
        mut parts: &[Part],
        mut moved: impl FnMut(&Note, u64),
    ) -> Result<()> {
        let end = parts.iter().rposition(|part| part.note.is_some()).map_or(0, |last| last + 1);
        parts = &parts[..end];
        while let Some(first) = parts.first() {
            if first.note.is_none() {
                parts = &parts[1..];
                continue;
            }
            if let Some(piece) = self.island(source.table, parts) {
                return self.keep(source, parts, piece, &mut moved);
            }
            // Up to the next bubble, where a smaller one may do.
            let until = parts.iter().position(|part| part.note.is_none()).unwrap_or(parts.len());
            for part in &parts[..until] {
                self.copy(source, part, &mut moved)?;
            }
            parts = &parts[until..];
        }
        Ok(())
    }

    /// The bubble that these parts are worth, all together.
    fn island(&mut self, table: u64, parts: &[Part]) -> Option<IslandPart> {
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return None };
        let (from, to) = self.units(first.offset, last.end());
        if self.reuse == Reuse::Off || from >= to {
            return None;
        }
        let inherited = parts.iter().filter(|part| part.note.is_none()).map(|part| part.bytes as u64).sum();
        let bubble = self.planner.bubble(first.offset as u64, self.at);
        let piece = IslandPart { bubble, bytes: (to - from) as u64, inherited };
        let is_worth = self.planner.judge(self.at, piece, piece.bytes, true) == Verdict::Keep
            && (self.reuse != Reuse::Relink
                || self.begun.table.would_share(piece.bytes, Stored { table, offset: from as u64 }));
        is_worth.then_some(piece)
    }

    /// The whole units within a range of bytes.
    fn units(&self, from: usize, to: usize) -> (usize, usize) {
        let unit = self.planner.unit_bytes() as usize;
        let (first, last) = (from.next_multiple_of(unit), to / unit * unit);
        (first, last.max(first))
    }

    fn keep(
        &mut self,
        source: Source<'_>,
        parts: &[Part],
        piece: IslandPart,
        moved: &mut impl FnMut(&Note, u64),
    ) -> Result<()> {
        self.planner.keep(self.at, piece);
        write_bubble(piece.bubble as usize, &mut self.tail);
        self.at += piece.bubble;
        self.bubble_bytes += piece.bubble + piece.inherited;
        let (begin, end) = (parts[0].offset, parts[parts.len() - 1].end());
        for part in parts {
            if let Some(note) = &part.note {
                self.note(&source.data[part.offset..], note, self.at + (part.offset - begin) as u64, moved);
            }
        }
        let (from, to) = self.units(begin, end);
        self.tail.extend_from_slice(&source.data[begin..from]);
        self.flush()?;
        self.stored(&source.data[from..to], Stored { table: source.table, offset: from as u64 })?;
        self.tail.extend_from_slice(&source.data[to..end]);
        self.at += (end - begin) as u64;
        Ok(())
    }

    /// Appends whole units that are stored; the medium is told where, unless it finds them itself.
    fn stored(&mut self, units: &[u8], from: Stored) -> Result<()> {
        debug_assert!(self.tail.is_empty());
        match self.reuse {
            Reuse::Relink => self.relinked += self.begun.table.append_stored(units, from)?,
            _ => self.begun.table.append(units)?,
        }
        Ok(())
    }

    fn copy(&mut self, source: Source<'_>, part: &Part, moved: &mut impl FnMut(&Note, u64)) -> Result<()> {
        if let Some(note) = &part.note {
            self.note(&source.data[part.offset..], note, self.at, moved);
        }
        self.tail.extend_from_slice(&source.data[part.offset..part.end()]);
        self.at += part.bytes as u64;
        match self.tail.len() >= WRITE_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn note(&mut self, record: &[u8], note: &Note, offset: u64, moved: &mut impl FnMut(&Note, u64)) {
        self.sum = sum_with(self.sum, record);
        self.notes.push(Note { offset, ..*note });
        moved(note, offset);
    }

    /// Hands whole units to the medium.
    fn flush(&mut self) -> Result<()> {
        let whole = self.tail.len() / SEGMENT_UNIT_BYTES * SEGMENT_UNIT_BYTES;
        self.begun.table.append(&self.tail[..whole])?;
        self.tail.drain(..whole);
        Ok(())
    }

    /// Ends it; it is safe then. `consumed` segments were copied completely so far.
    pub(crate) fn finish(mut self, seed: u64, consumed: usize) -> Result<FinishedSegment> {
        self.notes.sort_unstable();
        let totals = self.planner.totals();
        let meta = SegmentMeta {
            number: self.begun.number,
            data_bytes: self.at,
            records: self.notes.len() as u64,
            bubble_bytes: self.bubble_bytes,
            sum: Some(self.sum),
            ..SegmentMeta::default()
        };
        let origin = Origin { consumed, ..self.origin };
        let written_bubbles = totals.bubble_bytes;
        let meta = finish(self.begun.table, self.tail, &self.notes, (meta, origin), seed, written_bubbles)?;
        Ok(FinishedSegment { meta, totals, relinked: self.relinked })
    }
}
