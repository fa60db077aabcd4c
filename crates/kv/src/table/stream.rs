//! Reading a table from front to back in large batches, for compaction (FlashKV, section 3.4): the next batch is
//! asked for before the one at hand is worked on, and nothing goes through the cache.

use super::Table;
use super::leaf::{Leaf, LeafCursor};
use super::object::{Head, ObjectKind, UNIT_BYTES};
use crate::key::Stamp;
use crate::merge::Stream;
use std::sync::Arc;
use vellum_base::{Error, IoClass, Nanos, Result};

/// Bytes of a batch.
const BATCH_BYTES: usize = 2 << 20;

/// Entries of a table in order.
pub(crate) struct TableStream {
    table: Arc<Table>,
    class: IoClass,
    /// Bytes read and not yet passed; the current leaf is at `start`.
    bytes: Vec<u8>,
    start: usize,
    /// Where the next batch begins.
    unit: usize,
    ahead: Option<(Vec<u8>, Nanos)>,
    leaf: Option<Leaf>,
    leaf_units: usize,
    entry: LeafCursor,
    entries: u64,
}

impl TableStream {
    pub(crate) fn new(table: Arc<Table>, class: IoClass) -> TableStream {
        TableStream {
            table,
            class,
            bytes: Vec::new(),
            start: 0,
            unit: 0,
            ahead: None,
            leaf: None,
            leaf_units: 0,
            entry: LeafCursor::default(),
            entries: 0,
        }
    }

    fn ask_ahead(&mut self) -> Result<()> {
        let units = (BATCH_BYTES / UNIT_BYTES).min(self.table.root_unit - self.unit);
        if units > 0 {
            let mut batch = vec![0; units * UNIT_BYTES];
            let at = self.table.reader.read((self.unit * UNIT_BYTES) as u64, &mut batch, self.class)?;
            self.unit += units;
            self.ahead = Some((batch, at));
        }
        Ok(())
    }

    /// Makes `len` bytes from `start` on available. False at the end of the runs.
    fn need(&mut self, len: usize) -> Result<bool> {
        while self.bytes.len() - self.start < len {
            let Some((batch, at)) = self.ahead.take() else { return Ok(false) };
            self.ask_ahead()?;
            self.table.library.env.sleep_until(at);
            if self.start == self.bytes.len() {
                self.bytes = batch;
            } else {
                self.bytes.drain(..self.start);
                self.bytes.extend_from_slice(&batch);
            }
            self.start = 0;
        }
        Ok(true)
    }

    fn next_leaf(&mut self) -> Result<()> {
        loop {
            self.start += self.leaf_units * UNIT_BYTES;
            (self.leaf, self.leaf_units) = (None, 0);
            if !self.need(UNIT_BYTES)? {
                return self.at_end();
            }
            let head = Head::parse(&self.bytes[self.start..])?;
            if !self.need(head.units() * UNIT_BYTES)? {
                return Err(Error::corrupt("an object reaches into the root"));
            }
            self.leaf_units = head.units();
            let bytes = &self.bytes[self.start..];
            if head.kind == ObjectKind::Data {
                let leaf = Leaf::check(bytes, ObjectKind::Data)?;
                self.entry.first(&leaf, bytes)?;
                self.leaf = Some(leaf);
                self.entries += self.entry.is_valid() as u64;
                return Ok(());
            }
            head.check(bytes, head.kind)?;
        }
    }

    fn at_end(&self) -> Result<()> {
        match self.entries == self.table.meta.entries {
            true => Ok(()),
            false => Err(Error::corrupt(format!(
                "{} entries where there should be {}",
                self.entries, self.table.meta.entries
            ))),
        }
    }

    fn named<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|e| e.context(format!("table {}", self.table.meta.number)))
    }
}

impl Stream for TableStream {
    fn is_valid(&self) -> bool {
        self.leaf.is_some()
    }
    fn key(&self) -> &[u8] {
        self.entry.key()
    }
    fn stamp(&self) -> Stamp {
        self.entry.stamp()
    }
    fn value(&self) -> &[u8] {
        self.entry.value(&self.bytes[self.start..])
    }

    fn first(&mut self) -> Result<()> {
        let result = self.ask_ahead().and_then(|()| self.next_leaf());
        self.named(result)
    }

    fn next(&mut self) -> Result<()> {
        let Some(leaf) = self.leaf else { return Ok(()) };
        let result = self.entry.next(&leaf, &self.bytes[self.start..]);
        self.named(result)?;
        if self.entry.is_valid() {
            self.entries += 1;
            return Ok(());
        }
        let result = self.next_leaf();
        self.named(result)
    }
}
