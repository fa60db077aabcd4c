//! Reads a table from its zone, and finds where it ends.

use super::homes::Inner;
use super::label::{TableHead, ZONE_UNIT_BYTES};
use crate::media::TableReader;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};
use vellum_base::{Error, IoClass, Nanos, Result};

pub(super) struct ZoneReader {
    inner: Arc<Inner>,
    zone: u32,
    table: u64,
    /// Length of the table, once found.
    bytes: OnceLock<u64>,
}

impl ZoneReader {
    pub(super) fn new(inner: Arc<Inner>, zone: u32, table: u64) -> ZoneReader {
        ZoneReader { inner, zone, table, bytes: OnceLock::new() }
    }

    /// Where an end of its own is found, wherever that is: nothing but the table is before it. If only ends of other
    /// tables are found, an older table left them behind one that was never finished; unless a unit before them cannot
    /// be read, which may be its end.
    fn find_end(&self) -> Result<u64> {
        let unit = ZONE_UNIT_BYTES as u64;
        let most = self.inner.zones.report(self.zone).written.saturating_sub(unit);
        let head = TableHead::decode(&self.inner.first_unit(self.zone)?);
        if head.is_some_and(|head| !head.marks_end) {
            return Ok(most);
        }
        let (mut own, mut first) = (None, None);
        self.inner.each_end(self.zone, |end| {
            first.get_or_insert(end.bytes);
            own = (end.table == self.table).then_some(end.bytes);
            if own.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        match (own, first) {
            (Some(bytes), _) => Ok(bytes),
            (None, Some(bytes)) if !self.inner.has_unread(self.zone, bytes)? => Ok(0),
            _ => Ok(most),
        }
    }
}

impl TableReader for ZoneReader {
    /// Reads all of the table to find its end.
    fn bytes(&self) -> Result<u64> {
        match self.bytes.get() {
            Some(bytes) => Ok(*bytes),
            None => self.find_end().map(|bytes| *self.bytes.get_or_init(|| bytes)),
        }
    }

    fn bytes_given(&self, listed: u64) -> Result<u64> {
        Ok(listed.min(self.inner.capacity()))
    }

    fn read(&self, offset: u64, out: &mut [u8], _class: IoClass) -> Result<Nanos> {
        let end = offset.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > self.inner.capacity()) {
            return Err(Error::corrupt("a table is shorter than its index says"));
        }
        self.inner.zones.read(self.zone, ZONE_UNIT_BYTES as u64 + offset, out)?;
        Ok(Nanos::ZERO)
    }

    fn asking_waits(&self) -> bool {
        true
    }
}
