//! Merging in pieces, where there is no room to merge at once: a deletion of many keys on a full medium, for example,
//! overlaps with most of the level below.
//!
//! A piece merges the entries of a key range of the upper tables with the lower tables of that range, and replaces
//! these. The upper tables stay until the last piece is done; until then their merged entries exist twice, which no
//! reader can tell. So a merge may begin anew at any time, and a crash between two pieces loses only the record of
//! progress.
//!
//! One merge at a time is in pieces, except that one of deletes may come between two pieces of one of puts, which goes
//! on when that is complete. If that cannot go on, the merge of puts does, and the other begins anew.
//!
//! Merges with tables in common are never both incomplete: one may have dropped a delete, and what it hid, of which the
//! other has only the latter, and writes it again; that must not go on without the delete.

use crate::lsm::table::Table;
use crate::lsm::version::Version;
use std::sync::Arc;

/// The key range of a piece.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MergeRange {
    /// Exclusive lower bound; `None` in the first piece.
    pub after: Option<Vec<u8>>,
    /// Inclusive upper bound; `None` in the last piece.
    pub until: Option<Vec<u8>>,
}

impl MergeRange {
    pub(crate) fn is_all(&self) -> bool {
        *self == MergeRange::default()
    }
}

/// The merges in pieces that are not complete, in the order in which they were begun.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartialMerges(Vec<Progress>);

/// Progress of a merge in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    pub level: usize,
    /// Numbers of the upper tables.
    pub upper: Vec<u64>,
    /// Everything up to this key is merged.
    pub upto: Vec<u8>,
    /// Tables that the pieces so far created in excess of those they replaced: their share of the upper tables.
    pub made: u64,
}

/// A piece that was merged.
pub(crate) struct MergedPart {
    pub level: usize,
    /// Numbers of the upper tables.
    pub upper: Vec<u64>,
    pub piece: MergeRange,
    /// Tables that it created in excess of those it replaced.
    pub made: u64,
}

impl PartialMerges {
    /// Merges whose upper tables are there, which are returned, too; the one begun last comes first.
    pub(super) fn unfinished(&self, version: &Version) -> impl Iterator<Item = (&Progress, Vec<Arc<Table>>)> {
        let present = |begun: &'_ Progress| begun.tables(&version.levels[begun.level]);
        self.0.iter().rev().filter_map(move |begun| Some((begun, present(begun)?)))
    }

    /// How far the merge of these tables is.
    pub(super) fn of(&self, level: usize, upper: &[Arc<Table>]) -> Option<&Progress> {
        self.0.iter().find(|begun| begun.is_of(level, upper))
    }

    /// Notes that a piece was merged, which resulted in `version`. What was begun after that merge, or has tables of
    /// it, will begin anew.
    pub(crate) fn note(&mut self, done: MergedPart, version: &Version) {
        let MergedPart { level, upper, piece, mut made } = done;
        if let Some(at) = self.0.iter().position(|begun| (begun.level, &begun.upper) == (level, &upper)) {
            made += if piece.after.is_some() { self.0[at].made } else { 0 };
            self.0.truncate(at);
        }
        let is_apart =
            |begun: &Progress| begun.level != level || begun.upper.iter().all(|t| !upper.contains(t));
        self.0.retain(|begun| is_apart(begun) && begun.tables(&version.levels[begun.level]).is_some());
        self.0.extend(piece.until.map(|upto| Progress { level, upper, upto, made }));
    }
}

impl Progress {
    /// The upper tables, if all of them are still in `level`.
    fn tables(&self, level: &[Arc<Table>]) -> Option<Vec<Arc<Table>>> {
        let present = level.iter().filter(|table| self.upper.contains(&table.meta.number));
        let present: Vec<Arc<Table>> = present.cloned().collect();
        (present.len() == self.upper.len()).then_some(present)
    }

    fn is_of(&self, level: usize, upper: &[Arc<Table>]) -> bool {
        self.level == level && self.upper.iter().eq(upper.iter().map(|table| &table.meta.number))
    }
}
