//! The bytes of a table in order, for compaction (FlashKV, section 3.4): they bypass the cache and are read in large
//! batches, the next one requested before the current one is processed. For comparison also through the cache, with
//! the read-ahead of a kernel.

use super::{Object, Table};
use crate::media::PendingRead;
use crate::options::CachePolicy;
use crate::prefetch::Prefetch;
use std::sync::Arc;
use vellum_base::{IoClass, Result};

/// How far Linux reads ahead.
const READ_AHEAD_BYTES: usize = 128 << 10;

/// The bytes of adjacent units of a table.
pub(super) struct Batches {
    table: Arc<Table>,
    class: IoClass,
    /// Whole units, whatever they have.
    batch_bytes: usize,
    /// Bytes read. Those from `start` on were not passed yet.
    bytes: Vec<u8>,
    start: usize,
    /// The unit after `bytes`.
    unit: usize,
    /// The unit after the last one to be read.
    end: usize,
    ahead: Option<PendingRead>,
}

impl Batches {
    /// Nothing yet: see [`Batches::begin`].
    pub(super) fn new(table: Arc<Table>, class: IoClass, batch_bytes: usize) -> Batches {
        Batches { table, class, batch_bytes, bytes: Vec::new(), start: 0, unit: 0, end: 0, ahead: None }
    }

    /// From unit `begin` to before `end`.
    pub(super) fn begin(&mut self, begin: usize, end: usize) {
        (self.bytes, self.start, self.ahead) = (Vec::new(), 0, None);
        (self.unit, self.end) = (begin, end);
    }

    /// Makes `len` of the bytes that were not passed available. False if there are not so many.
    pub(super) fn need(&mut self, len: usize) -> Result<bool> {
        while self.rest().len() < len {
            if self.rest().is_empty() {
                (self.bytes, self.start) = (Vec::new(), 0); // given back before more is asked for
            }
            let batch = match self.table.library.policy {
                CachePolicy::CompactionAware => self.fetch_batch()?,
                CachePolicy::Lru => self.fetch_cached()?,
            };
            let Some(batch) = batch else { return Ok(false) };
            if self.bytes.is_empty() {
                self.bytes = batch;
            } else {
                self.bytes.drain(..self.start);
                self.bytes.extend_from_slice(&batch);
            }
            self.start = 0;
        }
        Ok(true)
    }

    /// What is available and was not passed.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Passes `len` bytes, which are available.
    pub(super) fn pass(&mut self, len: usize) {
        self.start += len;
    }

    /// The unit of the first byte that was not passed, which begins one.
    pub(super) fn first_unit(&self) -> usize {
        self.unit - self.rest().len() / self.table.unit_bytes
    }

    /// The next batch, bypassing the cache; the one after it is requested. `None` at the end.
    fn fetch_batch(&mut self) -> Result<Option<Vec<u8>>> {
        let batch = self.batch_bytes;
        let pending = match self.ahead.take() {
            Some(pending) => Some(pending),
            None => self.ask(batch)?,
        };
        let Some(pending) = pending else { return Ok(None) };
        self.unit += (batch / self.table.unit_bytes).min(self.end - self.unit);
        self.ahead = self.ask_ahead(batch)?;
        pending.wait(&*self.table.library.env).map(Some)
    }

    /// The same through the cache.
    fn fetch_cached(&mut self) -> Result<Option<Vec<u8>>> {
        if self.unit >= self.end {
            return Ok(None);
        }
        let library = &self.table.library;
        let cached = library.cache.get(self.table.cache_key(self.unit));
        let bytes = match cached.as_deref().and_then(Object::as_stored) {
            Some(bytes) => bytes.to_vec(),
            None => match self.ask(READ_AHEAD_BYTES)? {
                Some(pending) => pending.wait(&*library.env)?,
                None => return Ok(None),
            },
        };
        self.unit += bytes.len() / self.table.unit_bytes;
        Ok(Some(bytes))
    }

    fn ask(&self, bytes_max: usize) -> Result<Option<PendingRead>> {
        let range = self.next_range(bytes_max);
        range.map(|(offset, bytes)| self.table.reader.ask(offset, bytes, self.class)).transpose()
    }

    /// The same, without waiting for a device.
    fn ask_ahead(&self, bytes_max: usize) -> Result<Option<PendingRead>> {
        let Some((offset, bytes)) = self.next_range(bytes_max).filter(|_| self.table.reader.asking_waits())
        else {
            return self.ask(bytes_max);
        };
        let (table, class) = (self.table.clone(), self.class);
        let read = move || table.reader.ask(offset, bytes, class)?.wait(&*table.library.env);
        let coming = Prefetch::begin(&self.table.library.env, "kv-prefetch", read);
        Ok(Some(PendingRead::InFlight(Box::new(|| coming.wait()))))
    }

    /// Offset and length of the next read; `None` at the end.
    fn next_range(&self, bytes_max: usize) -> Option<(u64, usize)> {
        let unit_bytes = self.table.unit_bytes;
        let units = (bytes_max / unit_bytes).min(self.end - self.unit);
        (units > 0).then_some(((self.unit * unit_bytes) as u64, units * unit_bytes))
    }
}
