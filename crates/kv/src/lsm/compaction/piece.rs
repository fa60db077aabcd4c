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

use super::job::{Job, bounds, bytes_between, bytes_of, is_deleting, with_sharers};
use super::situation::Situation;
use crate::lsm::room::Room;
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

    /// True if the key reached is within a table, but not its last.
    fn ends_within(&self, table: &Table) -> bool {
        table.meta.smallest <= self.upto && table.meta.largest > self.upto
    }

    fn is_of(&self, level: usize, upper: &[Arc<Table>]) -> bool {
        self.level == level && self.upper.iter().eq(upper.iter().map(|table| &table.meta.number))
    }
}

/// The next piece of a job that is too large for the room, if no running job may free some. Where every table takes a
/// superblock, a piece also merges the last, probably short, table of the piece before.
pub(super) fn piece_of(version: &Version, mut job: Job, situation: &Situation<'_>) -> Option<Job> {
    let (level, room) = (job.claim.level, situation.room);
    let begun = situation.begun.of(level, &job.upper);
    if !situation.running.is_empty() || begun.is_none() && !may_begin(version, &job, situation) {
        return None;
    }
    // If a lower table spans the key reached, part of it was merged already: the merge starts over.
    let begun = begun.filter(|begun| !job.lower.iter().any(|table| begun.ends_within(table)));
    let done = begun.map_or(0, |begun| job.lower.partition_point(|t| t.meta.largest <= begun.upto));
    let needs = PieceNeeds {
        room: &room,
        upper: &job.upper,
        // Upper entries that earlier pieces merged are not written again.
        upper_left: begun.map(|begun| room.taken_by(&job.upper).saturating_sub(begun.made).max(1)),
        below: bytes_between(version, level + 2, &job.claim.smallest, &job.claim.largest),
    };
    let is_short = |table: &Arc<Table>| room.whole_tables && table.meta.bytes < room.table_bytes / 8 * 7;
    let along = usize::from(done > 0 && is_short(&job.lower[done - 1]));
    let all = job.lower.len() - done;
    let piece = |along: usize, count: usize| {
        let lower = with_sharers(version, level + 1, job.lower[done - along..done + count].to_vec());
        room.fits(needs.tables(&lower), lower.len()).then_some((count, lower))
    };
    let longest = |along: usize| (all.min(1)..=all).rev().find_map(|count| piece(along, count));
    let (count, lower) = longest(along).or_else(|| longest(0))?;
    let of_upper = bytes_of(&job.upper) * count as u64 / all.max(1) as u64;
    job.claim.tables = needs.tables(&lower);
    let number = |table: &Arc<Table>| table.meta.number;
    // `lower` may hold more than `count` tables, as those that share a key were added.
    let is_last = all == 0 || lower.last().map(number) == job.lower.last().map(number);
    let until = if is_last { None } else { Some(bounds(&lower)?.1) };
    job.piece = MergeRange { after: begun.map(|begun| begun.upto.clone()), until };
    job.lower = lower;
    job.claim.replaced = room.taken_by(job.replaced().map(|(_, table)| table));
    let kept = room.filled_by(of_upper + bytes_of(&job.lower));
    situation.has_room_for(&job, kept).then_some(job)
}

/// True if a merge may begin to be done in pieces: no other was begun, or this one is of deletes, which do not wait for
/// a merge of puts, as that may lack the room that they free.
fn may_begin(version: &Version, job: &Job, situation: &Situation<'_>) -> bool {
    let precedes = |other: &[Arc<Table>]| situation.frees_room(&job.upper) && !is_deleting(other);
    situation.begun.unfinished(version).next().is_none_or(|(_, upper)| precedes(&upper))
}

/// What the room that a piece needs depends on.
struct PieceNeeds<'a> {
    room: &'a Room,
    upper: &'a [Arc<Table>],
    /// Room that the rest of the upper tables takes, once a piece was merged.
    upper_left: Option<u64>,
    /// Bytes of the level below the output.
    below: u64,
}

impl PieceNeeds<'_> {
    /// Most tables that a piece with these lower tables creates.
    fn tables(&self, lower: &[Arc<Table>]) -> u64 {
        match self.upper_left {
            Some(left) => self.room.merge_of(lower.iter(), left, self.below),
            None => self.room.merge_of(self.upper.iter().chain(lower), 0, self.below),
        }
    }
}
