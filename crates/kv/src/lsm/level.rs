//! A sorted level as one source: its tables do not overlap, so only one is read at a time.

use crate::key::Stamp;
use crate::lsm::compaction::MergeRange;
use crate::lsm::merge::{Cursor, Stream};
use crate::lsm::table::{StoredLeaf, StreamOptions, Table, TableCursor, TableStream};
use std::sync::Arc;
use vellum_base::Result;

/// Concatenates the tables of a level, each read through what `open` returns for it.
pub(crate) struct Level<T, S, F> {
    /// In key order.
    tables: T,
    open: F,
    at: usize,
    here: Option<S>,
}

/// A cursor over a level, in both directions.
pub(crate) type LevelCursor<T> = Level<T, TableCursor, fn(Arc<Table>) -> TableCursor>;

impl<T: AsRef<[Arc<Table>]>> LevelCursor<T> {
    pub(crate) fn over(tables: T) -> LevelCursor<T> {
        Level { tables, open: TableCursor::new, at: 0, here: None }
    }
}

/// A stream over the entries of adjacent tables whose keys are in `piece`.
pub(crate) fn stream_of(
    mut tables: Vec<Arc<Table>>,
    options: StreamOptions,
    piece: MergeRange,
) -> impl Stream {
    tables.retain(|table| {
        piece.after.as_ref().is_none_or(|after| table.meta.largest > *after)
            && piece.until.as_ref().is_none_or(|until| table.meta.smallest <= *until)
    });
    Level {
        tables,
        open: move |table| TableStream::within(table, options.clone(), piece.clone()),
        at: 0,
        here: None,
    }
}

impl<T: AsRef<[Arc<Table>]>, S: Stream, F: Fn(Arc<Table>) -> S> Level<T, S, F> {
    fn enter(&mut self, at: usize, place: impl FnOnce(&mut S) -> Result<()>) -> Result<()> {
        self.here = None;
        self.at = at;
        if let Some(table) = self.tables.as_ref().get(at) {
            let mut source = (self.open)(table.clone());
            place(&mut source)?;
            self.here = Some(source);
        }
        Ok(())
    }

    /// True if the current table is exhausted in the direction of travel.
    fn at_end(&self) -> bool {
        self.here.as_ref().is_some_and(|source| !source.is_valid())
    }

    fn skip_forward(&mut self, place: impl Fn(&mut S) -> Result<()>) -> Result<()> {
        while self.at_end() {
            self.enter(self.at + 1, &place)?;
        }
        Ok(())
    }

    fn here(&self) -> &S {
        self.here.as_ref().expect("asked while valid")
    }
}

impl<T, S, F> Stream for Level<T, S, F>
where
    T: AsRef<[Arc<Table>]> + Send,
    S: Stream,
    F: Fn(Arc<Table>) -> S + Send,
{
    fn is_valid(&self) -> bool {
        self.here.as_ref().is_some_and(S::is_valid)
    }
    fn key(&self) -> &[u8] {
        self.here().key()
    }
    fn stamp(&self) -> Stamp {
        self.here().stamp()
    }
    fn value(&self) -> &[u8] {
        self.here().value()
    }
    fn value_bytes(&self) -> usize {
        self.here().value_bytes()
    }
    fn load(&mut self) -> Result<()> {
        self.here.as_mut().map_or(Ok(()), S::load)
    }
    fn is_hot(&self) -> bool {
        self.here().is_hot()
    }
    fn first(&mut self) -> Result<()> {
        self.enter(0, S::first)?;
        self.skip_forward(S::first)
    }
    fn next(&mut self) -> Result<()> {
        if let Some(source) = &mut self.here {
            source.next()?;
        }
        self.skip_forward(S::first)
    }
    fn leaf_end(&mut self, last: &mut Vec<u8>) -> Result<Option<Stamp>> {
        self.here.as_mut().map_or(Ok(None), |source| source.leaf_end(last))
    }
    fn leaf_hides(&self, key: &[u8], stamp: Stamp) -> Result<bool> {
        self.here.as_ref().map_or(Ok(false), |source| source.leaf_hides(key, stamp))
    }
    fn take_leaf(&mut self) -> Result<Option<StoredLeaf>> {
        let leaf = self.here.as_mut().map_or(Ok(None), S::take_leaf)?;
        self.skip_forward(S::first)?;
        Ok(leaf)
    }
}

impl<T: AsRef<[Arc<Table>]>, S: Cursor, F: Fn(Arc<Table>) -> S> Level<T, S, F> {
    fn skip_backward(&mut self) -> Result<()> {
        while self.at_end() {
            match self.at.checked_sub(1) {
                Some(before) => self.enter(before, S::last)?,
                None => self.here = None,
            }
        }
        Ok(())
    }
}

impl<T, S, F> Cursor for Level<T, S, F>
where
    T: AsRef<[Arc<Table>]> + Send,
    S: Cursor,
    F: Fn(Arc<Table>) -> S + Send,
{
    fn last(&mut self) -> Result<()> {
        let Some(last) = self.tables.as_ref().len().checked_sub(1) else { return Ok(()) };
        self.enter(last, S::last)?;
        self.skip_backward()
    }
    fn aim(&mut self, key: &[u8]) -> Result<()> {
        let at = self.tables.as_ref().partition_point(|table| table.meta.largest[..] < *key);
        self.enter(at, |source| source.aim(key))
    }
    fn land(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        self.here.as_mut().map_or(Ok(()), |source| source.land(key, stamp))?;
        // The next table may begin with versions of the same key that are newer than `stamp`.
        self.skip_forward(|source| source.seek(key, stamp))
    }
    fn prev(&mut self) -> Result<()> {
        if let Some(source) = &mut self.here {
            source.prev()?;
        }
        self.skip_backward()
    }
}
