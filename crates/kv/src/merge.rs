//! Sorted sources, seen as one.

use crate::key::{Stamp, compare};
use crate::memtable::{Memtable, MemtableCursor};
use std::cmp::Ordering;
use std::sync::Arc;
use vellum_base::Result;

/// A place in something sorted. `key`, `stamp` and `value` are only asked for while valid.
pub(crate) trait Cursor: Send {
    fn is_valid(&self) -> bool;
    fn key(&self) -> &[u8];
    fn stamp(&self) -> Stamp;
    fn value(&self) -> &[u8];
    fn first(&mut self) -> Result<()>;
    fn last(&mut self) -> Result<()>;
    /// To the first entry at or after (`key`, `stamp`).
    fn seek(&mut self, key: &[u8], stamp: Stamp) -> Result<()>;
    fn next(&mut self) -> Result<()>;
    fn prev(&mut self) -> Result<()>;
}

/// A memtable as a source.
pub(crate) struct MemtableSource {
    table: Arc<Memtable>,
    cursor: MemtableCursor,
}

impl MemtableSource {
    pub(crate) fn new(table: Arc<Memtable>) -> MemtableSource {
        MemtableSource { table, cursor: MemtableCursor::default() }
    }
}

impl Cursor for MemtableSource {
    fn is_valid(&self) -> bool {
        self.cursor.is_valid()
    }
    fn key(&self) -> &[u8] {
        self.cursor.key()
    }
    fn stamp(&self) -> Stamp {
        self.cursor.stamp()
    }
    fn value(&self) -> &[u8] {
        self.cursor.value()
    }
    fn first(&mut self) -> Result<()> {
        self.cursor.first(&self.table);
        Ok(())
    }
    fn last(&mut self) -> Result<()> {
        self.cursor.last(&self.table);
        Ok(())
    }
    fn seek(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        self.cursor.seek(&self.table, key, stamp);
        Ok(())
    }
    fn next(&mut self) -> Result<()> {
        self.cursor.next(&self.table);
        Ok(())
    }
    fn prev(&mut self) -> Result<()> {
        self.cursor.prev(&self.table);
        Ok(())
    }
}

/// States: forward (every source stands at its first entry at or after the current one) or backward (at its last
/// entry at or before it). [`Merge::next`] is for forward, [`Merge::prev`] for backward; `seek` and `seek_before`
/// choose.
pub(crate) struct Merge {
    sources: Vec<Box<dyn Cursor>>,
    current: Option<usize>,
}

impl Merge {
    /// No two sources hold the same entry (key and stamp).
    pub(crate) fn new(sources: Vec<Box<dyn Cursor>>) -> Merge {
        Merge { sources, current: None }
    }

    /// The source at the current entry.
    pub(crate) fn current(&self) -> Option<&dyn Cursor> {
        self.current.map(|at| &*self.sources[at])
    }

    /// Forward from the first entry.
    pub(crate) fn first(&mut self) -> Result<()> {
        self.sources.iter_mut().try_for_each(|s| s.first())?;
        self.choose(Ordering::Less);
        Ok(())
    }

    /// Forward from the first entry at or after (`key`, `stamp`).
    pub(crate) fn seek(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        self.sources.iter_mut().try_for_each(|s| s.seek(key, stamp))?;
        self.choose(Ordering::Less);
        Ok(())
    }

    /// Backward from the last entry before (`key`, `stamp`).
    pub(crate) fn seek_before(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        for source in &mut self.sources {
            source.seek(key, stamp)?;
            if source.is_valid() { source.prev()? } else { source.last()? }
        }
        self.choose(Ordering::Greater);
        Ok(())
    }

    /// Forward by one.
    pub(crate) fn next(&mut self) -> Result<()> {
        if let Some(at) = self.current {
            self.sources[at].next()?;
            self.choose(Ordering::Less);
        }
        Ok(())
    }

    /// Backward by one.
    pub(crate) fn prev(&mut self) -> Result<()> {
        if let Some(at) = self.current {
            self.sources[at].prev()?;
            self.choose(Ordering::Greater);
        }
        Ok(())
    }

    fn choose(&mut self, wanted: Ordering) {
        let mut best: Option<usize> = None;
        for (at, source) in self.sources.iter().enumerate().filter(|(_, source)| source.is_valid()) {
            let better = best.is_none_or(|best| {
                let best = &self.sources[best];
                compare((source.key(), source.stamp()), (best.key(), best.stamp())) == wanted
            });
            if better {
                best = Some(at);
            }
        }
        self.current = best;
    }
}
