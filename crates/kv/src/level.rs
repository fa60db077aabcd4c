//! A level below the first as one source: its tables do not overlap, so one is open at a time.

use crate::key::Stamp;
use crate::merge::Cursor;
use crate::table::{Table, TableCursor, TableStream};
use std::sync::Arc;
use vellum_base::{IoClass, Result};

/// Walks through a level in both directions.
pub(crate) struct LevelCursor {
    tables: Vec<Arc<Table>>,
    at: usize,
    cursor: Option<TableCursor>,
}

impl LevelCursor {
    /// `tables` in the order of their keys.
    pub(crate) fn new(tables: Vec<Arc<Table>>) -> LevelCursor {
        LevelCursor { tables, at: 0, cursor: None }
    }

    fn enter(&mut self, at: usize, place: impl FnOnce(&mut TableCursor) -> Result<()>) -> Result<()> {
        self.cursor = None;
        self.at = at;
        if let Some(table) = self.tables.get(at) {
            let mut cursor = TableCursor::new(table.clone());
            place(&mut cursor)?;
            self.cursor = Some(cursor);
        }
        Ok(())
    }

    fn skip_forward(&mut self) -> Result<()> {
        while self.cursor.as_ref().is_some_and(|cursor| !cursor.is_valid()) {
            self.enter(self.at + 1, TableCursor::first)?;
        }
        Ok(())
    }

    fn skip_backward(&mut self) -> Result<()> {
        while self.cursor.as_ref().is_some_and(|cursor| !cursor.is_valid()) {
            match self.at.checked_sub(1) {
                Some(before) => self.enter(before, TableCursor::last)?,
                None => self.cursor = None,
            }
        }
        Ok(())
    }

    fn here(&self) -> &TableCursor {
        self.cursor.as_ref().expect("asked while valid")
    }
}

impl Cursor for LevelCursor {
    fn is_valid(&self) -> bool {
        self.cursor.as_ref().is_some_and(TableCursor::is_valid)
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
    fn first(&mut self) -> Result<()> {
        self.enter(0, TableCursor::first)?;
        self.skip_forward()
    }
    fn last(&mut self) -> Result<()> {
        let Some(last) = self.tables.len().checked_sub(1) else { return Ok(()) };
        self.enter(last, TableCursor::last)?;
        self.skip_backward()
    }
    fn seek(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        let at = self.tables.partition_point(|table| table.meta.largest[..] < *key);
        self.enter(at, |cursor| cursor.seek(key, stamp))?;
        // The next table may go on with newer versions than asked for, of the same key.
        while self.cursor.as_ref().is_some_and(|cursor| !cursor.is_valid()) {
            self.enter(self.at + 1, |cursor| cursor.seek(key, stamp))?;
        }
        Ok(())
    }
    fn next(&mut self) -> Result<()> {
        if let Some(cursor) = &mut self.cursor {
            cursor.next()?;
        }
        self.skip_forward()
    }
    fn prev(&mut self) -> Result<()> {
        if let Some(cursor) = &mut self.cursor {
            cursor.prev()?;
        }
        self.skip_backward()
    }
}

/// Reads tables that follow one another from front to back.
pub(crate) struct LevelStream {
    tables: std::vec::IntoIter<Arc<Table>>,
    class: IoClass,
    stream: Option<TableStream>,
}

impl LevelStream {
    pub(crate) fn new(tables: Vec<Arc<Table>>, class: IoClass) -> LevelStream {
        LevelStream { tables: tables.into_iter(), class, stream: None }
    }

    fn here(&self) -> &TableStream {
        self.stream.as_ref().expect("asked while valid")
    }
}

impl Cursor for LevelStream {
    fn is_valid(&self) -> bool {
        self.stream.is_some()
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
    fn first(&mut self) -> Result<()> {
        self.stream = None;
        while self.stream.as_ref().is_none_or(|stream| !stream.is_valid()) {
            let Some(table) = self.tables.next() else {
                self.stream = None;
                return Ok(());
            };
            let mut stream = TableStream::new(table, self.class);
            stream.first()?;
            self.stream = Some(stream);
        }
        Ok(())
    }
    fn next(&mut self) -> Result<()> {
        if let Some(stream) = &mut self.stream {
            stream.next()?;
            if !stream.is_valid() {
                return self.first();
            }
        }
        Ok(())
    }
    fn last(&mut self) -> Result<()> {
        unreachable!("compaction goes forward")
    }
    fn seek(&mut self, _key: &[u8], _stamp: Stamp) -> Result<()> {
        unreachable!("compaction goes forward")
    }
    fn prev(&mut self) -> Result<()> {
        unreachable!("compaction goes forward")
    }
}
