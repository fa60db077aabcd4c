//! Cursor over a table, in both directions: root, branch, leaf.

use super::ahead::Ahead;
use super::entry_fences::EntryFences;
use super::leaf::{IndexCursor, Leaf, LeafCursor};
use super::pointed::{Resolved, value_bytes};
use super::{Object, Table};
use crate::key::{Stamp, compare};
use crate::lsm::merge::{Cursor, Stream};
use crate::reason;
use std::cmp::Ordering;
use std::sync::Arc;
use vellum_base::{Error, Kind, Result};

/// A cursor over a table.
///
/// Invariant: while valid, `root` is at the run and `index` at the leaf that contain the current entry.
pub(crate) struct TableCursor {
    table: Arc<Table>,
    root: IndexCursor,
    branch: Option<Arc<Object>>,
    index: IndexCursor,
    data: Option<Arc<Object>>,
    entry: LeafCursor,
    ahead: Ahead,
    resolved: Resolved,
}

impl Table {
    /// The first and the last key, read from the table.
    pub(super) fn bounds(self: &Arc<Table>) -> Result<(Vec<u8>, Vec<u8>)> {
        let mut cursor = TableCursor::new(self.clone());
        cursor.first()?;
        let (begins, smallest) = (cursor.is_valid(), cursor.key().to_vec());
        cursor.last()?;
        let largest = cursor.key().to_vec();
        match begins && cursor.is_valid() && smallest <= largest {
            true => Ok((smallest, largest)),
            false => Err(cursor.named(Error::corrupt("its keys are out of order"))),
        }
    }
}

impl TableCursor {
    pub(crate) fn new(table: Arc<Table>) -> TableCursor {
        TableCursor {
            table,
            root: IndexCursor::default(),
            branch: None,
            index: IndexCursor::default(),
            data: None,
            entry: LeafCursor::default(),
            ahead: Ahead::default(),
            resolved: Resolved::default(),
        }
    }

    /// Loads the branch that `root` is at, and positions `index` in it.
    fn enter_run(
        &mut self,
        place: impl FnOnce(&mut IndexCursor, &Leaf, &[u8], &EntryFences) -> Result<()>,
    ) -> Result<()> {
        (self.branch, self.data) = (None, None);
        if !self.root.is_valid() {
            return Ok(());
        }
        let at = self.table.branch_place(self.root.value(&self.table.root_bytes))?;
        let object = self.table.branch(at).map_err(|e| self.named(e))?;
        if let Object::Branch { index, fences, index_at, bytes, .. } = &*object {
            place(&mut self.index, index, &bytes[*index_at..], fences)?;
        }
        self.branch = Some(object);
        Ok(())
    }

    /// The stored value of the current entry, which may be a pointer.
    fn stored(&self) -> &[u8] {
        match self.data.as_deref() {
            Some(Object::Data { bytes, .. }) => self.entry.value(bytes),
            _ => &[],
        }
    }

    fn named(&self, error: Error) -> Error {
        error.context(format!("table {}", self.table.meta.number))
    }

    /// True if the filter of the current run may contain a key.
    pub(crate) fn filter_holds(&self, hash: u64) -> bool {
        match self.branch.as_deref() {
            Some(Object::Branch { filter, bytes, .. }) => filter.may_hold(bytes, hash),
            _ => false,
        }
    }

    /// Loads the leaf that `index` is at, and positions `entry` in it. `follows`: it comes right after the last one.
    fn enter_leaf(
        &mut self,
        follows: bool,
        place: impl Fn(&mut LeafCursor, &Leaf, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.data = None;
        let Some(Object::Branch { index_at, bytes, .. }) = self.branch.as_deref() else { return Ok(()) };
        if !self.index.is_valid() {
            return Ok(());
        }
        let at = self.table.leaf_place(self.index.value(&bytes[*index_at..]))?;
        let run_end = self.table.branch_place(self.root.value(&self.table.root_bytes))?.unit;
        self.resolved.forget();
        loop {
            let object = self.ahead.data(&self.table, at, run_end, follows);
            let object = object.map_err(|e| {
                let byte = at.unit as u64 * self.table.unit_bytes as u64;
                self.named(e.context(format!("byte {byte}")))
            })?;
            let placed = match &*object {
                Object::Data { leaf, bytes, .. } => place(&mut self.entry, leaf, bytes),
                _ => Ok(()),
            };
            // Otherwise retry: it is read by system calls then.
            if object.is_sound() {
                placed?;
                self.data = Some(object);
                return Ok(());
            }
        }
    }

    /// An error, and the cursor invalid, if the mapping of the current leaf turned out not to be sound.
    fn check_sound(&mut self) -> Result<()> {
        if self.data.as_ref().is_none_or(|data| data.is_sound()) {
            return Ok(());
        }
        self.data = None;
        let error = Error::new(Kind::Io, "it could not be read where it is mapped; seek again");
        Err(self.named(error.because(reason::NOT_READ_MAPPED)))
    }

    /// Prepares the leaf that `index` is at for being read.
    fn prepare_leaf(&self) -> Result<()> {
        if let Some(Object::Branch { index_at, bytes, .. }) = self.branch.as_deref()
            && self.index.is_valid()
        {
            self.table.prepare(self.table.leaf_place(self.index.value(&bytes[*index_at..]))?);
        }
        Ok(())
    }

    /// Brings the value of the entry at hand closer, which is perhaps not asked for before others were.
    fn prefetch_value(&self) {
        if self.table.mapped.is_some() && self.table.meta.points() && self.is_valid() {
            self.table.prefetch_pointed(self.entry.stamp(), self.stored());
        }
    }

    fn step_index(&mut self, step: impl FnOnce(&mut IndexCursor, &Leaf, &[u8]) -> Result<()>) -> Result<()> {
        if let Some(Object::Branch { index, index_at, bytes, .. }) = self.branch.as_deref() {
            step(&mut self.index, index, &bytes[*index_at..])?;
        }
        Ok(())
    }

    fn step_entry(&mut self, step: impl FnOnce(&mut LeafCursor, &Leaf, &[u8]) -> Result<()>) -> Result<()> {
        self.resolved.forget();
        let stepped = match self.data.as_deref() {
            Some(Object::Data { leaf, bytes, .. }) => step(&mut self.entry, leaf, bytes),
            _ => Ok(()),
        };
        self.check_sound().and(stepped)
    }

    /// Where the current leaf has ended: on to the first entry of the next.
    fn skip_forward(&mut self) -> Result<()> {
        while self.data.is_some() && !self.entry.is_valid() {
            self.step_index(IndexCursor::next)?;
            if !self.index.is_valid() {
                self.root.next(&self.table.root, &self.table.root_bytes)?;
                self.enter_run(|index, leaf, bytes, _| index.first(leaf, bytes))?;
            }
            self.enter_leaf(true, LeafCursor::first)?;
        }
        Ok(())
    }

    fn skip_backward(&mut self) -> Result<()> {
        while self.data.is_some() && !self.entry.is_valid() {
            self.step_index(IndexCursor::prev)?;
            if !self.index.is_valid() {
                self.root.prev(&self.table.root, &self.table.root_bytes)?;
                self.enter_run(|index, leaf, bytes, _| index.last(leaf, bytes))?;
            }
            self.enter_leaf(false, LeafCursor::last)?;
        }
        Ok(())
    }
}

impl Stream for TableCursor {
    fn is_valid(&self) -> bool {
        self.data.is_some() && self.entry.is_valid()
    }
    fn key(&self) -> &[u8] {
        self.entry.key()
    }
    fn stamp(&self) -> Stamp {
        self.table.stamp(self.entry.stamp())
    }
    fn value(&self) -> &[u8] {
        self.resolved.value(self.entry.stamp(), self.stored())
    }
    fn value_bytes(&self) -> usize {
        value_bytes(self.entry.stamp(), self.stored())
    }
    fn load(&mut self) -> Result<()> {
        let (Some(Object::Data { bytes, .. }), true) = (self.data.as_deref(), self.is_valid()) else {
            return Ok(());
        };
        let (stamp, is_lent) = (self.entry.stamp(), self.data.as_ref().is_some_and(|data| data.is_mapped()));
        let loaded = self.resolved.load(&self.table, stamp, self.entry.value(bytes), is_lent);
        self.check_sound().and(loaded.map_err(|e| self.named(e)))
    }

    fn first(&mut self) -> Result<()> {
        self.root.first(&self.table.root, &self.table.root_bytes)?;
        self.enter_run(|index, leaf, bytes, _| index.first(leaf, bytes))?;
        self.enter_leaf(false, LeafCursor::first)?;
        self.skip_forward()
    }

    fn next(&mut self) -> Result<()> {
        self.step_entry(LeafCursor::next)?;
        self.skip_forward()?;
        self.prefetch_value();
        Ok(())
    }
}

impl Cursor for TableCursor {
    fn last(&mut self) -> Result<()> {
        self.root.last(&self.table.root, &self.table.root_bytes)?;
        self.enter_run(|index, leaf, bytes, _| index.last(leaf, bytes))?;
        self.enter_leaf(false, LeafCursor::last)?;
        self.skip_backward()
    }

    fn aim(&mut self, key: &[u8]) -> Result<()> {
        // Separators are at least the last key of what they stand for, in any version.
        self.root.seek(&self.table.root, &self.table.root_bytes, key, Stamp(u64::MAX))?;
        self.enter_run(|index, leaf, bytes, fences| {
            let found = fences.at_or_after(leaf, bytes, key)?;
            index.place(found.map(|(entry, _)| entry));
            Ok(())
        })?;
        self.prepare_leaf()
    }

    fn land(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        self.enter_leaf(false, |entry, leaf, bytes| entry.seek(leaf, bytes, key, stamp))?;
        self.skip_forward()?;
        // Where the versions of one key fill leaves, the next leaf may begin with one that is too new.
        while self.is_valid() && compare((self.key(), self.stamp()), (key, stamp)) == Ordering::Less {
            self.next()?;
        }
        self.prefetch_value();
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        self.step_entry(LeafCursor::prev)?;
        self.skip_backward()
    }
}
