//! Writes a table into its zone, and where it ends behind it.

use super::homes::Inner;
use super::label::{TableEnd, ZONE_UNIT_BYTES};
use crate::media::{Intent, Stored, TableWriter};
use std::sync::Arc;
use vellum_base::{Avoided, Cause, Kind, Result};

pub(super) struct ZoneWriter {
    inner: Arc<Inner>,
    zone: u32,
    table: u64,
    intent: Intent,
    bytes: u64,
    /// The device does not remap.
    refused: bool,
    done: bool,
}

impl ZoneWriter {
    /// Of a zone that has the head of `table`.
    pub(super) fn new(inner: Arc<Inner>, zone: u32, table: u64, intent: Intent) -> ZoneWriter {
        ZoneWriter { inner, zone, table, intent, bytes: 0, refused: false, done: false }
    }

    /// Writes an end: what an older table left behind this one must not be taken for a part of it. A table that fills
    /// its zone needs none.
    fn write_end(&self) -> Result<()> {
        if self.bytes + ZONE_UNIT_BYTES as u64 > self.inner.capacity() {
            return Ok(());
        }
        let end = TableEnd { id: self.inner.id, table: self.table, bytes: self.bytes };
        self.inner.zones.write(self.zone, ZONE_UNIT_BYTES as u64 + self.bytes, &end.encode())?;
        self.inner.ledger().programmed(Cause::StoreMetadata, ZONE_UNIT_BYTES as u64);
        Ok(())
    }

    /// The bytes that the device did not store; `None` if it does not remap.
    fn remap(&self, from: Stored, bytes: u64) -> Result<Option<u64>> {
        let home = self.inner.homes.lock().tables.get(&from.table).copied();
        let Some(zone) = home.filter(|_| !self.refused) else { return Ok(None) };
        let unit = ZONE_UNIT_BYTES as u64;
        match self.inner.zones.remap(self.zone, unit + self.bytes, (zone, unit + from.offset), bytes) {
            Err(e) if e.kind() == Kind::Unsupported => Ok(None),
            done => done.map(Some),
        }
    }
}

impl TableWriter for ZoneWriter {
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.inner.zones.write(self.zone, ZONE_UNIT_BYTES as u64 + self.bytes, bytes)?;
        self.bytes += bytes.len() as u64;
        self.inner.ledger().programmed(self.intent.cause, bytes.len() as u64);
        Ok(())
    }

    fn append_stored(&mut self, bytes: &[u8], from: Stored) -> Result<u64> {
        let length = bytes.len() as u64;
        let Some(shared) = self.remap(from, length)? else {
            self.refused = true;
            return self.append(bytes).map(|()| 0);
        };
        self.bytes += length;
        self.inner.ledger().programmed(self.intent.cause, length - shared);
        self.inner.ledger().avoided(Avoided::Remap, shared);
        Ok(shared)
    }

    fn finish(mut self: Box<Self>, bubbles: u64) -> Result<()> {
        self.inner.ledger().rebook(self.intent.cause, Cause::Bubble, bubbles);
        self.write_end()?;
        self.inner.zones.finish(self.zone)?;
        self.inner.zones.sync()?;
        self.done = true;
        self.inner.homes.lock().written -= 1;
        Ok(())
    }
}

impl Drop for ZoneWriter {
    fn drop(&mut self) {
        if !self.done {
            self.inner.give_up(self.table);
        }
    }
}
