//! Finds the units that say where tables end, in a zone that is read from the front.

use super::Inner;
use super::label::{TableEnd, UNIT_BYTES};
use std::ops::ControlFlow;
use vellum_base::{Kind, Result};

/// Read at a time.
const READ_BYTES: u64 = 1 << 20;

impl Inner {
    /// The first end in a zone.
    pub(super) fn first_end(&self, zone: u32) -> Result<Option<TableEnd>> {
        let mut first = None;
        self.each_end(zone, |end| {
            first = Some(end);
            ControlFlow::Break(())
        })?;
        Ok(first)
    }

    /// Shows the ends of this store's tables that are where they say. Values may look like others.
    pub(super) fn each_end(
        &self,
        zone: u32,
        mut show: impl FnMut(TableEnd) -> ControlFlow<()>,
    ) -> Result<()> {
        let unit = UNIT_BYTES as u64;
        let written = self.zones.report(zone).written;
        for from in (unit..written).step_by(READ_BYTES as usize) {
            let piece = self.units(zone, from, READ_BYTES.min(written - from))?;
            for (bytes, unit) in (from - unit..).step_by(UNIT_BYTES).zip(piece.chunks(UNIT_BYTES)) {
                let end = TableEnd::decode(unit).filter(|end| (end.id, end.bytes) == (self.id, bytes));
                if end.is_some_and(|end| show(end).is_break()) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// True if a unit behind the head cannot be read.
    pub(super) fn has_unread(&self, zone: u32) -> Result<bool> {
        let (unit, written) = (UNIT_BYTES as u64, self.zones.report(zone).written);
        let mut piece = vec![0; READ_BYTES as usize];
        for from in (unit..written).step_by(READ_BYTES as usize) {
            let bytes = READ_BYTES.min(written - from) as usize;
            if !self.is_read(zone, from, &mut piece[..bytes])? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// So many bytes of the zone, whole units; zeros for those that cannot be read.
    pub(super) fn units(&self, zone: u32, from: u64, bytes: u64) -> Result<Vec<u8>> {
        let mut out = vec![0; bytes as usize];
        if self.is_read(zone, from, &mut out)? {
            return Ok(out);
        }
        for (at, unit) in (from..).step_by(UNIT_BYTES).zip(out.chunks_mut(UNIT_BYTES)) {
            if !self.is_read(zone, at, unit)? {
                unit.fill(0);
            }
        }
        Ok(out)
    }

    fn is_read(&self, zone: u32, from: u64, out: &mut [u8]) -> Result<bool> {
        match self.zones.read(zone, from, out) {
            Err(e) if e.kind() == Kind::PowerLost => Err(e),
            read => Ok(read.is_ok()),
        }
    }
}
