//! Reads a table from its zone, and finds where it ends.

use super::Inner;
use super::label::{TableEnd, TableHead, UNIT_BYTES};
use crate::media::TableReader;
use std::sync::{Arc, OnceLock};
use vellum_base::{Error, IoClass, Kind, Nanos, Result};

/// Read at a time.
const READ_BYTES: u64 = 1 << 20;

pub(super) struct ZoneReader {
    inner: Arc<Inner>,
    zone: u32,
    /// Once they were found.
    bytes: OnceLock<u64>,
}

impl ZoneReader {
    pub(super) fn new(inner: Arc<Inner>, zone: u32) -> ZoneReader {
        ZoneReader { inner, zone, bytes: OnceLock::new() }
    }

    /// Where its own end says, wherever that is: before it is nothing but the table. If there are ends of others
    /// alone, they are what an older table left behind one that was never finished.
    fn find_end(&self) -> Result<u64> {
        let unit = UNIT_BYTES as u64;
        let written = self.inner.zones.report(self.zone).written;
        let head = self.units(0, unit)?;
        let Some(TableHead { table, marks_end: true, .. }) = TableHead::decode(&head) else {
            return Ok(written.saturating_sub(unit));
        };
        let mut has_anothers = false;
        for from in (unit..written).step_by(READ_BYTES as usize) {
            let piece = self.units(from, READ_BYTES.min(written - from))?;
            for (bytes, end) in (from - unit..).step_by(UNIT_BYTES).zip(piece.chunks(UNIT_BYTES)) {
                match TableEnd::decode(end) {
                    Some(end) if (end.id, end.bytes) != (self.inner.id, bytes) => {}
                    Some(end) if end.table == table => return Ok(bytes),
                    other => has_anothers |= other.is_some(),
                }
            }
        }
        Ok(if has_anothers { 0 } else { written.saturating_sub(unit) })
    }

    /// So many bytes of the zone, whole units; zeros for those that cannot be read.
    fn units(&self, from: u64, bytes: u64) -> Result<Vec<u8>> {
        let mut out = vec![0; bytes as usize];
        if self.is_read(from, &mut out)? {
            return Ok(out);
        }
        for (at, unit) in (from..).step_by(UNIT_BYTES).zip(out.chunks_mut(UNIT_BYTES)) {
            if !self.is_read(at, unit)? {
                unit.fill(0);
            }
        }
        Ok(out)
    }

    fn is_read(&self, from: u64, out: &mut [u8]) -> Result<bool> {
        match self.inner.zones.read(self.zone, from, out) {
            Err(e) if e.kind() == Kind::PowerLost => Err(e),
            read => Ok(read.is_ok()),
        }
    }
}

impl TableReader for ZoneReader {
    /// Reads all of the table for that.
    fn bytes(&self) -> Result<u64> {
        match self.bytes.get() {
            Some(bytes) => Ok(*bytes),
            None => self.find_end().map(|bytes| *self.bytes.get_or_init(|| bytes)),
        }
    }

    fn bytes_if_told(&self, told: u64) -> Result<u64> {
        Ok(told.min(self.inner.capacity()))
    }

    fn read(&self, offset: u64, out: &mut [u8], _class: IoClass) -> Result<Nanos> {
        let end = offset.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > self.inner.capacity()) {
            return Err(Error::corrupt("a table is shorter than its index says"));
        }
        self.inner.zones.read(self.zone, UNIT_BYTES as u64 + offset, out)?;
        Ok(Nanos::ZERO)
    }

    fn asking_waits(&self) -> bool {
        true
    }
}
