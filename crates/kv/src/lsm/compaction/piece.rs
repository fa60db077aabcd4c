//! Merging in pieces, where there is no room to merge at once: a deletion of many keys on a full medium, for example,
//! overlaps with most of the level below.
//!
//! A piece merges the entries of a key range of the upper tables with the lower tables of that range, and replaces
//! these. The upper tables stay until the last piece is done; until then their merged entries exist twice, which no
//! reader can tell. So a crash between two pieces loses only the record of progress.

use crate::lsm::table::Table;
use std::sync::Arc;

/// The key range of a piece.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Exclusive lower bound; `None` in the first piece.
    pub after: Option<Vec<u8>>,
    /// Inclusive upper bound; `None` in the last piece.
    pub until: Option<Vec<u8>>,
}

impl Piece {
    pub(crate) fn is_all(&self) -> bool {
        *self == Piece::default()
    }
}

/// Progress of a merge in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub level: usize,
    /// Numbers of the upper tables.
    pub upper: Vec<u64>,
    /// Everything up to this key is merged.
    pub upto: Vec<u8>,
    /// Tables that the pieces so far created in excess of those they replaced: their share of the upper tables.
    pub made: u64,
}

impl Progress {
    /// The upper tables, if all of them are still in `level`.
    pub(crate) fn tables(&self, level: &[Arc<Table>]) -> Option<Vec<Arc<Table>>> {
        let there = level.iter().filter(|table| self.upper.contains(&table.meta.number));
        let there: Vec<Arc<Table>> = there.cloned().collect();
        (there.len() == self.upper.len()).then_some(there)
    }

    pub(crate) fn is_of(&self, level: usize, upper: &[Arc<Table>]) -> bool {
        self.level == level && self.upper.iter().eq(upper.iter().map(|table| &table.meta.number))
    }
}
