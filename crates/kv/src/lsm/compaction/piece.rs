//! Merging piece by piece, where there is no room to merge in one: a delete of many keys on a full medium overlaps with
//! most of the level below.
//!
//! A piece merges the upper tables' entries of a range with the lower tables of that range, which it replaces. The
//! upper tables stay until the last piece is done: until then their entries of earlier pieces are there twice, which
//! changes nothing for anybody. So a crash between two pieces loses only the note of how far the merge has come.

use crate::lsm::table::Table;
use std::sync::Arc;

/// Keys that a piece merges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    /// From the key after this one on.
    pub after: Option<Vec<u8>>,
    /// Up to this one; no limit in the last piece.
    pub until: Option<Vec<u8>>,
}

impl Piece {
    pub(crate) fn is_all(&self) -> bool {
        *self == Piece::default()
    }
}

/// How far a merge in pieces has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub level: usize,
    /// Numbers of the upper tables.
    pub upper: Vec<u64>,
    /// Merged up to this key.
    pub upto: Vec<u8>,
    /// Tables that pieces so far made, beside those that they replaced: what they took of the upper ones.
    pub made: u64,
}

impl Progress {
    /// The upper tables, if all of them are still in their level.
    pub(crate) fn tables(&self, level: &[Arc<Table>]) -> Option<Vec<Arc<Table>>> {
        let there = level.iter().filter(|table| self.upper.contains(&table.meta.number));
        let there: Vec<Arc<Table>> = there.cloned().collect();
        (there.len() == self.upper.len()).then_some(there)
    }

    pub(crate) fn is_of(&self, level: usize, upper: &[Arc<Table>]) -> bool {
        self.level == level && self.upper.iter().eq(upper.iter().map(|table| &table.meta.number))
    }
}
