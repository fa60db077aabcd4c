//! Resolves pointers to values in logs. This is the only place that knows of them: outside of tables every entry has
//! its value.
//!
//! Invariants
//! 1. A value is read when it is asked for, not when a source reaches its entry.
//! 2. A sequential reader of a table holds at most a batch's worth of bytes of values in memory, or one value.

use super::Table;
use super::leaf::{Leaf, LeafCursor};
use crate::key::Stamp;
use crate::lsm::kept_log::{KeptLog, Pointer};
use std::ops::Range;
use vellum_base::{Error, Result};

/// Values no further apart in a log than `GAP_BYTES_MAX` are read in one piece, up to `PIECE_BYTES_MAX`.
const GAP_BYTES_MAX: u64 = 512;
const PIECE_BYTES_MAX: u64 = 128 << 10;
/// Bytes of a mapped value that are prefetched; the processor prefetches the rest by itself.
const PREFETCHED_BYTES_MAX: usize = 256;

impl Table {
    /// The log that a pointer of the table refers to.
    fn log_of(&self, pointer: &Pointer) -> Result<&KeptLog> {
        let log = self.logs.iter().find(|log| log.number == pointer.log);
        let log = log.ok_or_else(|| {
            Error::corrupt(format!(
                "a pointer into log {}, on which the table is not known to count",
                pointer.log
            ))
        })?;
        log.check_place(pointer).map(|()| &**log)
    }

    /// Prefetches the value of a pointer, if its log is mapped: loading it from memory takes longer than merging it.
    fn prefetch_value(&self, pointer: &Pointer) {
        let log = self.logs.iter().find(|log| log.number == pointer.log);
        if let Some(value) = log.and_then(|log| log.in_map(pointer)) {
            vellum_codes::prefetch_all(&value[..value.len().min(PREFETCHED_BYTES_MAX)]);
        }
    }

    /// The same for an entry with this stamp and stored value.
    pub(super) fn prefetch_pointed(&self, stamp: Stamp, stored: &[u8]) {
        if stamp.is_in_log()
            && let Ok(pointer) = Pointer::decode(stored)
        {
            self.prefetch_value(&pointer);
        }
    }

    /// Reads the value that the pointer `stored` refers to into `out`, for a client.
    pub(super) fn resolve(&self, stored: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let pointer = Pointer::decode(stored)?;
        self.log_of(&pointer)?.get(&pointer, out)
    }
}

/// The value of a cursor's current entry, if it is in a log or in a mapped table.
#[derive(Default)]
pub(super) struct Resolved {
    value: Option<Vec<u8>>,
    /// A buffer to be reused.
    spare: Vec<u8>,
}

impl Resolved {
    /// To be called when the cursor moves.
    pub(super) fn forget(&mut self) {
        if let Some(value) = self.value.take() {
            self.spare = value;
        }
    }

    /// Reads the value, unless it was read already. A value in a mapping (`is_lent`) is copied, as the caller may keep
    /// it.
    pub(super) fn load(&mut self, table: &Table, stamp: Stamp, stored: &[u8], is_lent: bool) -> Result<()> {
        if self.value.is_some() || !stamp.is_in_log() && !is_lent {
            return Ok(());
        }
        let mut value = std::mem::take(&mut self.spare);
        match stamp.is_in_log() {
            true => table.resolve(stored, &mut value)?,
            false => {
                value.clear();
                value.extend_from_slice(stored);
            }
        }
        self.value = Some(value);
        Ok(())
    }

    /// The value of an entry with this stamp and stored value.
    pub(super) fn value<'a>(&'a self, stamp: Stamp, stored: &'a [u8]) -> &'a [u8] {
        match &self.value {
            Some(value) => value,
            None if stamp.is_in_log() => unreachable!("a value is loaded before it is looked at"),
            None => stored,
        }
    }
}

/// Length of the value of an entry with this stamp and stored value.
pub(super) fn value_bytes(stamp: Stamp, stored: &[u8]) -> usize {
    match stamp.is_in_log() {
        true => Pointer::decode(stored).map_or(0, |pointer| pointer.bytes as usize),
        false => stored.len(),
    }
}

/// Values of adjacent entries of a leaf, which are read together in the order in which they are in logs.
#[derive(Default)]
pub(super) struct LeafValues {
    /// The bytes read.
    bytes: Vec<u8>,
    /// A copy of the current value, if its log is at hand in a mapping.
    copied: Vec<u8>,
    /// In the order of the entries.
    values: Vec<Pointed>,
    /// Index of the current entry's value.
    at: Option<usize>,
}

struct Pointed {
    /// Offset of its entry in the leaf.
    entry: usize,
    pointer: Pointer,
    /// Its place in the bytes read; `None` if its log is at hand in a mapping.
    place: Option<Range<usize>>,
}

impl LeafValues {
    /// To be called when the stream moves to another leaf.
    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.at = None;
    }

    /// Reads the value of the current entry, unless it was read already, together with following ones up to about
    /// `bytes_max`.
    pub(super) fn load(
        &mut self,
        table: &Table,
        (leaf, bytes): (&Leaf, &[u8]),
        entry: &LeafCursor,
        bytes_max: usize,
    ) -> Result<()> {
        if !entry.stamp().is_in_log() {
            return Ok(());
        }
        let known = |values: &[Pointed]| values.binary_search_by_key(&entry.offset(), |v| v.entry).ok();
        self.at = known(&self.values);
        if self.at.is_none() {
            let collected = self.collect(leaf, bytes, entry.offset(), bytes_max as u64);
            collected.and_then(|()| self.read(table)).inspect_err(|_| self.clear())?;
            if table.mapped.is_some() {
                self.prefetch(table);
            }
            self.at = known(&self.values);
        }
        let Some(value) = self.at.map(|at| &self.values[at]) else { return Ok(()) };
        match &value.place {
            Some(place) => value.pointer.check(&self.bytes[place.clone()]),
            None => table.log_of(&value.pointer)?.copy(&value.pointer, &mut self.copied),
        }
    }

    /// Prefetches the values that are in mappings.
    fn prefetch(&self, table: &Table) {
        let mapped = self.values.iter().filter(|value| value.place.is_none());
        mapped.for_each(|value| table.prefetch_value(&value.pointer));
    }

    /// The value of the current entry, which must have been loaded.
    pub(super) fn value<'a>(&'a self, entry: &LeafCursor, stored: &'a [u8]) -> &'a [u8] {
        if !entry.stamp().is_in_log() {
            return stored;
        }
        let value = self.at.map(|at| &self.values[at]).filter(|value| value.entry == entry.offset());
        match &value.expect("a value is loaded before it is looked at").place {
            Some(place) => &self.bytes[place.clone()],
            None => &self.copied,
        }
    }

    /// Collects the pointers of the entries from `offset` on.
    fn collect(&mut self, leaf: &Leaf, bytes: &[u8], mut offset: usize, bytes_max: u64) -> Result<()> {
        self.clear();
        let mut sum = 0;
        while let Some(entry) = leaf.entry(bytes, offset)? {
            if entry.stamp.is_in_log() {
                let pointer = Pointer::decode(entry.value)?;
                sum = pointer.bytes.saturating_add(sum);
                if sum > bytes_max && !self.values.is_empty() {
                    break;
                }
                self.values.push(Pointed { entry: offset, pointer, place: None });
            }
            offset = entry.next;
        }
        Ok(())
    }

    /// Reads those of them whose logs are not at hand: all of a log together.
    fn read(&mut self, table: &Table) -> Result<()> {
        let at_hand: Vec<u64> =
            table.logs.iter().filter(|log| log.is_at_hand()).map(|log| log.number).collect();
        let is_read = |at: &usize| !at_hand.contains(&self.values[*at].pointer.log);
        let mut order: Vec<usize> = (0..self.values.len()).filter(is_read).collect();
        order.sort_unstable_by_key(|at| (self.values[*at].pointer.log, self.values[*at].pointer.offset));
        self.bytes.clear();
        let values = &mut self.values;
        let logs: Vec<&[usize]> =
            order.chunk_by(|a, b| values[*a].pointer.log == values[*b].pointer.log).collect();
        logs.into_iter().try_for_each(|order| read_pieces(table, values, order, &mut self.bytes))
    }
}

/// Reads the values with these indices, which are in one log, in the order of `order`, and appends them to `bytes`.
fn read_pieces(table: &Table, values: &mut [Pointed], order: &[usize], bytes: &mut Vec<u8>) -> Result<()> {
    let (start, mut end, mut pieces) = (bytes.len(), bytes.len(), Vec::<Piece>::new());
    let log = table.log_of(&values[order[0]].pointer)?;
    for at in order {
        let Pointed { pointer, place, .. } = &mut values[*at];
        log.check_place(pointer)?;
        match pieces.last_mut() {
            Some(piece) if piece.takes(pointer) => piece.end = piece.end.max(pointer.end()),
            _ => pieces.push(Piece { begin: pointer.offset, end: pointer.end(), at: end }),
        }
        let piece = &pieces[pieces.len() - 1];
        let from = piece.at + (pointer.offset - piece.begin) as usize;
        *place = Some(from..from + pointer.bytes as usize);
        end = piece.at + (piece.end - piece.begin) as usize;
    }
    bytes.resize(end, 0);
    let mut rest = &mut bytes[start..];
    let mut reads = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let (out, others) = rest.split_at_mut((piece.end - piece.begin) as usize);
        reads.push((piece.begin, out));
        rest = others;
    }
    log.read_all(&mut reads)
}

/// Part of a log that is read at once.
struct Piece {
    begin: u64,
    end: u64,
    /// Where its bytes are, of those read.
    at: usize,
}

impl Piece {
    /// True if the value of `next`, which begins within the piece or behind it, is read with it.
    fn takes(&self, next: &Pointer) -> bool {
        next.offset <= self.end.saturating_add(GAP_BYTES_MAX) && next.end() - self.begin <= PIECE_BYTES_MAX
    }
}
