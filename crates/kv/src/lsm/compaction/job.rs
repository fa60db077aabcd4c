//! A job of compaction: the tables that it merges, and what it has to itself meanwhile.
//!
//! Invariant: running jobs that touch a common level have disjoint key ranges, so several can run concurrently
//! (FlashKV, section 3.3).

use super::piece::{MergeRange, MergedPart};
use crate::journal::{LEVELS, TableMeta};
use crate::lsm::manual::Request;
use crate::lsm::room::{Room, RoomTaken};
use crate::lsm::table::Table;
use crate::lsm::version::Version;
use std::sync::Arc;

/// A compaction under way: the levels and the key range that it has to itself, and the room it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The job merges this level into the next.
    pub level: usize,
    pub smallest: Vec<u8>,
    pub largest: Vec<u8>,
    /// Most tables that it creates before those it replaces can be erased.
    pub tables: u64,
    /// Room of the tables that it replaces, in tables.
    pub replaced: u64,
    /// Room that its output has taken so far.
    pub taken: RoomTaken,
}

impl Claim {
    /// The claim of a job that creates and replaces no tables.
    pub(crate) fn of(level: usize, smallest: Vec<u8>, largest: Vec<u8>) -> Claim {
        Claim { level, smallest, largest, tables: 0, replaced: 0, taken: RoomTaken::default() }
    }

    /// Tables that it may still create.
    pub(crate) fn to_come(&self, room: &Room) -> u64 {
        self.tables.saturating_sub(self.taken.tables(room))
    }

    /// Room that its output has taken, as far as it is freed again when the replaced tables are erased.
    pub(crate) fn to_give_back(&self, room: &Room) -> u64 {
        self.taken.tables(room).min(self.replaced)
    }

    pub(super) fn conflicts(&self, other: &Claim) -> bool {
        self.level.abs_diff(other.level) <= 1
            && self.smallest <= other.largest
            && other.smallest <= self.largest
    }
}

/// Tables to be merged into the next level.
#[derive(Clone)]
pub(crate) struct Job {
    pub claim: Claim,
    /// Inputs of the claim's level; those of level 0 newest first. Empty if tables of the next level are gathered
    /// ([`super::gather`]).
    pub upper: Vec<Arc<Table>>,
    /// Inputs of the next level.
    pub lower: Vec<Arc<Table>>,
    /// Input tables hold entries of dropped keyspaces, which the merge removes: they must not just be moved.
    pub unclean: bool,
    /// The inputs hold only dropped keyspaces: they are removed without being read.
    pub discard: bool,
    /// It was planned with no allowance beyond its inputs: tables end only where they are full.
    pub is_tight: bool,
    /// Range of keys of the upper tables to be merged. All keys of the lower tables belong to it.
    pub piece: MergeRange,
}

impl Job {
    /// True if the tables can move to the next level without being rewritten.
    pub(crate) fn is_move(&self) -> bool {
        let alone = self.claim.level > 0 || self.upper.len() == 1;
        let points = self.upper.iter().any(|table| table.meta.points());
        self.lower.is_empty() && alone && !self.unclean && !points && self.piece.is_all()
    }

    /// All tables that the result replaces, with their levels. The upper ones are replaced by the last piece only.
    pub(crate) fn replaced(&self) -> impl Iterator<Item = (u8, &Arc<Table>)> {
        let level = self.claim.level as u8;
        let upper = if self.piece.until.is_none() { &self.upper[..] } else { &[] };
        upper.iter().map(move |t| (level, t)).chain(self.lower.iter().map(move |t| (level + 1, t)))
    }
    /// True if it joins small tables as a last resort.
    pub(crate) fn is_joining(&self) -> bool {
        self.is_tight && self.upper.is_empty()
    }
    /// What is noted of the piece when it was merged.
    pub(crate) fn done(&self, room: &Room) -> MergedPart {
        let made = self.claim.taken.tables(room).saturating_sub(self.claim.replaced);
        let upper = self.upper.iter().map(|table| table.meta.number).collect();
        MergedPart { level: self.claim.level, upper, piece: self.piece.clone(), made }
    }
    /// True if a request concerns tables that it merges down.
    pub(crate) fn is_asked_for(&self, requested: &[Request]) -> bool {
        let level = self.claim.level;
        let concerns = |request: &Request| self.upper.iter().any(|table| request.is_for(&table.meta));
        requested.iter().any(|request| request.level == level && concerns(request))
    }
    /// The level of the output.
    pub(crate) fn output_level(&self) -> usize {
        self.claim.level + 1
    }
}

/// True if most entries of these tables are deletes: merging them frees room.
pub(super) fn is_deleting(tables: &[Arc<Table>]) -> bool {
    let sum = |count: fn(&TableMeta) -> u64| tables.iter().map(|table| count(&table.meta)).sum::<u64>();
    2 * sum(|meta| meta.deletes) > sum(|meta| meta.entries)
}

/// Tables of a sorted level, extended by neighbours that share a key with them. They must be merged together: otherwise
/// an older version of the key could come to lie above a newer one, or lose the delete that hides it.
pub(crate) fn with_sharers(version: &Version, level: usize, mut tables: Vec<Arc<Table>>) -> Vec<Arc<Table>> {
    while let Some((smallest, largest)) = bounds(&tables) {
        let wider = version.overlap(level, &smallest, &largest);
        if wider.len() == tables.len() {
            break;
        }
        tables = wider;
    }
    tables
}

pub(super) fn bytes_of(tables: &[Arc<Table>]) -> u64 {
    tables.iter().map(|table| table.meta.merged_bytes()).sum()
}

/// Bytes of the tables of a level that overlap with a key range; 0 below the last level.
pub(super) fn bytes_between(version: &Version, level: usize, smallest: &[u8], largest: &[u8]) -> u64 {
    match level < LEVELS {
        true => version.overlap(level, smallest, largest).iter().map(|table| table.meta.bytes).sum(),
        false => 0,
    }
}

pub(super) fn bounds(tables: &[Arc<Table>]) -> Option<(Vec<u8>, Vec<u8>)> {
    let smallest = tables.iter().map(|table| &table.meta.smallest).min()?;
    let largest = tables.iter().map(|table| &table.meta.largest).max()?;
    Some((smallest.clone(), largest.clone()))
}
