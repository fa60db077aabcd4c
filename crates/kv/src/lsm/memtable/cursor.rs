//! Cursor over a memtable that may be growing: it holds a copy of the current entry.

use super::tree::Position;
use super::{Inner, LogPlace, Memtable};
use crate::key::Stamp;
use crate::lsm::merge::{Cursor, Stream};
use std::sync::Arc;
use vellum_base::Result;

/// A cursor over a memtable, with a copy of the current entry.
pub(crate) struct MemtableCursor {
    table: Arc<Memtable>,
    key: Vec<u8>,
    value: Vec<u8>,
    stamp: Stamp,
    at: Option<Position>,
    /// Number of entries when `at` was found; positions shift as the memtable grows.
    count: usize,
}

impl MemtableCursor {
    pub(crate) fn new(table: Arc<Memtable>) -> MemtableCursor {
        let (key, value) = (Vec::new(), Vec::new());
        MemtableCursor { table, key, value, stamp: Stamp(0), at: None, count: 0 }
    }

    /// The place of the current value in a log, if known and worth a pointer.
    pub(crate) fn place_in_log(&self) -> Option<LogPlace> {
        let inner = self.table.inner.read();
        let at = self.found_again(&inner)?;
        inner.arena.value_in_log(inner.tree.slot(at).place)
    }

    fn found_again(&self, inner: &Inner) -> Option<Position> {
        match inner.tree.count() == self.count {
            true => self.at,
            false => inner.tree.seek(&inner.arena, &self.key, self.stamp),
        }
    }

    fn go(&mut self, to: impl FnOnce(&Inner, &MemtableCursor) -> Option<Position>) -> Result<()> {
        let inner = self.table.inner.read();
        self.at = to(&inner, self);
        self.count = inner.tree.count();
        let Some(at) = self.at else { return Ok(()) };
        let slot = inner.tree.slot(at);
        let entry = inner.entry(slot.place);
        self.key.clear();
        self.key.extend_from_slice(entry.key);
        self.value.clear();
        self.value.extend_from_slice(entry.value);
        self.stamp = slot.stamp;
        Ok(())
    }
}

impl Stream for MemtableCursor {
    fn is_valid(&self) -> bool {
        self.at.is_some()
    }
    fn key(&self) -> &[u8] {
        &self.key
    }
    fn stamp(&self) -> Stamp {
        self.stamp
    }
    fn value(&self) -> &[u8] {
        &self.value
    }
    fn first(&mut self) -> Result<()> {
        self.go(|inner, _| inner.tree.first())
    }
    fn next(&mut self) -> Result<()> {
        self.go(|inner, here| {
            let next = inner.tree.next(here.found_again(inner)?)?;
            inner.prefetch_after(next);
            Some(next)
        })
    }
}

impl Cursor for MemtableCursor {
    fn last(&mut self) -> Result<()> {
        self.go(|inner, _| inner.tree.last())
    }
    fn aim(&mut self, _key: &[u8]) -> Result<()> {
        Ok(())
    }
    fn land(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        self.go(|inner, _| inner.tree.seek(&inner.arena, key, stamp))
    }
    fn seek_before(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        self.go(|inner, _| match inner.tree.seek(&inner.arena, key, stamp) {
            Some(at) => inner.tree.prev(at),
            None => inner.tree.last(),
        })
    }
    fn prev(&mut self) -> Result<()> {
        self.go(|inner, here| inner.tree.prev(here.found_again(inner)?))
    }
}
