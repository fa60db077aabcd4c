//! Finds the units that say where tables end, in a zone that is read from the front.

use super::homes::Inner;
use super::label::{TableEnd, ZONE_UNIT_BYTES};
use crate::media::patient::twice;
use std::ops::ControlFlow;
use vellum_base::{Kind, Result};

/// Read at a time.
const READ_BYTES: u64 = 1 << 20;
/// Pieces in a row that cannot be read, after which a search ends.
const DEAD_MAX: u32 = 4;

impl Inner {
    /// The first end in a zone that can be read.
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
        let unit = ZONE_UNIT_BYTES as u64;
        let written = self.zones.report(zone).written;
        let mut dead = 0;
        for from in (unit..written).step_by(READ_BYTES as usize) {
            let Some(piece) = self.piece(zone, from, READ_BYTES.min(written - from))? else {
                dead += 1;
                // A zone that cannot be read at all is not tried to its end: each read may take seconds.
                if dead == DEAD_MAX { return Ok(()) } else { continue }
            };
            dead = 0;
            for (bytes, unit) in (from - unit..).step_by(ZONE_UNIT_BYTES).zip(piece.chunks(ZONE_UNIT_BYTES)) {
                let end = TableEnd::decode(unit).filter(|end| (end.id, end.bytes) == (self.id, bytes));
                if end.is_some_and(|end| show(end).is_break()) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// True if any of the first `bytes` bytes behind the head cannot be read.
    pub(super) fn has_unread(&self, zone: u32, bytes: u64) -> Result<bool> {
        let unit = ZONE_UNIT_BYTES as u64;
        let mut piece = vec![0; READ_BYTES as usize];
        for from in (unit..unit + bytes).step_by(READ_BYTES as usize) {
            let length = READ_BYTES.min(unit + bytes - from) as usize;
            if !self.is_read(zone, from, &mut piece[..length])? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The first unit of a zone; zeros if it cannot be read.
    pub(super) fn first_unit(&self, zone: u32) -> Result<Vec<u8>> {
        Ok(self.piece(zone, 0, ZONE_UNIT_BYTES as u64)?.unwrap_or_else(|| vec![0; ZONE_UNIT_BYTES]))
    }

    /// `bytes` bytes of the zone, whole units; zeros for those that cannot be read, `None` if none can.
    fn piece(&self, zone: u32, from: u64, bytes: u64) -> Result<Option<Vec<u8>>> {
        let mut out = vec![0; bytes as usize];
        if self.is_read(zone, from, &mut out)? {
            return Ok(Some(out));
        }
        let mut is_any = false;
        for (at, unit) in (from..).step_by(ZONE_UNIT_BYTES).zip(out.chunks_mut(ZONE_UNIT_BYTES)) {
            match self.is_read(zone, at, unit)? {
                true => is_any = true,
                false => unit.fill(0),
            }
        }
        Ok(is_any.then_some(out))
    }

    fn is_read(&self, zone: u32, from: u64, out: &mut [u8]) -> Result<bool> {
        match twice(|| self.zones.read(zone, from, out)) {
            Err(e) if e.kind() == Kind::PowerLost => Err(e),
            read => Ok(read.is_ok()),
        }
    }
}
