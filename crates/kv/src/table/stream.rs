//! Reading a table from front to back, for compaction (FlashKV, section 3.4): in large batches, the next asked for
//! before the one at hand is worked on, past the cache; or, for comparison, through the cache, with a kernel's
//! read-ahead.

use super::leaf::{Leaf, LeafCursor};
use super::object::{Head, ObjectKind, UNIT_BYTES};
use super::{Object, Table};
use crate::cache::Place;
use crate::key::Stamp;
use crate::media::Asked;
use crate::merge::Stream;
use crate::options::CachePolicy;
use std::sync::Arc;
use vellum_base::{Error, IoClass, Result};

/// Bytes of a batch.
const BATCH_BYTES: usize = 2 << 20;
/// Linux reads ahead so far.
const READ_AHEAD_BYTES: usize = 128 << 10;

/// Entries of a table in order.
pub(crate) struct TableStream {
    table: Arc<Table>,
    class: IoClass,
    /// Bytes read and not yet passed; the current leaf is at `start`.
    bytes: Vec<u8>,
    start: usize,
    /// Where the next batch begins.
    unit: usize,
    ahead: Option<Asked>,
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

    fn ask(&self, bytes_max: usize) -> Result<Option<Asked>> {
        let units = (bytes_max / UNIT_BYTES).min(self.table.root_unit - self.unit);
        let offset = (self.unit * UNIT_BYTES) as u64;
        let asked = (units > 0).then(|| self.table.reader.ask(offset, units * UNIT_BYTES, self.class));
        asked.transpose()
    }

    /// The next bytes. `None` at the end of the runs.
    fn fetch(&mut self) -> Result<Option<Vec<u8>>> {
        let library = &self.table.library;
        if library.policy == CachePolicy::Lru {
            let place = Place { table: self.table.meta.number, unit: self.unit as u32 };
            if let Some(object) = library.cache.get(place) {
                let bytes = object.as_bytes().to_vec();
                self.unit += bytes.len() / UNIT_BYTES;
                return Ok(Some(bytes));
            }
        }
        let (bytes_max, ahead) = match library.policy {
            CachePolicy::CompactionAware => (BATCH_BYTES, self.ahead.take()),
            CachePolicy::Lru => (READ_AHEAD_BYTES, None),
        };
        let Some(asked) = ahead.map_or_else(|| self.ask(bytes_max), |asked| Ok(Some(asked)))? else {
            return Ok(None);
        };
        if library.policy == CachePolicy::CompactionAware {
            // The batch at hand is asked for and not counted yet.
            self.unit += (BATCH_BYTES / UNIT_BYTES).min(self.table.root_unit - self.unit);
            self.ahead = self.ask(bytes_max)?;
            return asked.wait(&*self.table.library.env).map(Some);
        }
        let bytes = asked.wait(&*library.env)?;
        self.unit += bytes.len() / UNIT_BYTES;
        Ok(Some(bytes))
    }

    /// Makes `len` bytes from `start` on available. False at the end of the runs.
    fn need(&mut self, len: usize) -> Result<bool> {
        while self.bytes.len() - self.start < len {
            let Some(batch) = self.fetch()? else { return Ok(false) };
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

    /// As a client's read would, gives the leaf at hand to the cache.
    fn keep(&self, leaf: Leaf) {
        let here = &self.bytes[self.start..][..self.leaf_units * UNIT_BYTES];
        let unit = self.unit - (self.bytes.len() - self.start) / UNIT_BYTES;
        let place = Place { table: self.table.meta.number, unit: unit as u32 };
        self.table.keep(place, Arc::new(Object::Data { leaf, bytes: here.into() }));
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
                if self.table.library.policy == CachePolicy::Lru {
                    self.keep(leaf);
                }
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
        self.table.stamp(self.entry.stamp())
    }
    fn value(&self) -> &[u8] {
        self.entry.value(&self.bytes[self.start..])
    }

    fn first(&mut self) -> Result<()> {
        let result = self.next_leaf();
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
