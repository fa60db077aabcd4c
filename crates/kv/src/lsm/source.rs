//! The sources that an iterator merges, as an enum instead of trait objects: a step of a scan makes half a dozen calls
//! to its source, for which dynamic dispatch would cost more than the work.

use crate::key::Stamp;
use crate::lsm::level::LevelCursor;
use crate::lsm::memtable::MemtableCursor;
use crate::lsm::merge::{Cursor, Stream};
use crate::lsm::table::{Table, TableCursor};
use std::sync::Arc;
use vellum_base::Result;

/// See the module. `T` provides the tables of a level.
pub(crate) enum Source<T> {
    Memtable(MemtableCursor),
    Table(TableCursor),
    Level(LevelCursor<T>),
}

macro_rules! ask {
    ($source:expr, $cursor:ident => $answer:expr) => {
        match $source {
            Source::Memtable($cursor) => $answer,
            Source::Table($cursor) => $answer,
            Source::Level($cursor) => $answer,
        }
    };
}

impl<T: AsRef<[Arc<Table>]> + Send> Stream for Source<T> {
    #[inline]
    fn is_valid(&self) -> bool {
        ask!(self, cursor => cursor.is_valid())
    }
    #[inline]
    fn key(&self) -> &[u8] {
        ask!(self, cursor => cursor.key())
    }
    #[inline]
    fn stamp(&self) -> Stamp {
        ask!(self, cursor => cursor.stamp())
    }
    #[inline]
    fn value(&self) -> &[u8] {
        ask!(self, cursor => cursor.value())
    }
    fn value_bytes(&self) -> usize {
        ask!(self, cursor => cursor.value_bytes())
    }
    #[inline]
    fn load(&mut self) -> Result<()> {
        ask!(self, cursor => cursor.load())
    }
    fn first(&mut self) -> Result<()> {
        ask!(self, cursor => cursor.first())
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        ask!(self, cursor => cursor.next())
    }
}

impl<T: AsRef<[Arc<Table>]> + Send> Cursor for Source<T> {
    fn last(&mut self) -> Result<()> {
        ask!(self, cursor => cursor.last())
    }
    fn aim(&mut self, key: &[u8]) -> Result<()> {
        ask!(self, cursor => cursor.aim(key))
    }
    fn land(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        ask!(self, cursor => cursor.land(key, stamp))
    }
    fn seek_before(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        ask!(self, cursor => cursor.seek_before(key, stamp))
    }
    fn prev(&mut self) -> Result<()> {
        ask!(self, cursor => cursor.prev())
    }
}
