//! Choice of what to compact: the level that exceeds its target size most, and in it the table that overlaps least with
//! the next level.
//!
//! Invariant: running jobs that touch a common level have disjoint key ranges, so several can run concurrently
//! (FlashKV, section 3.3).

use super::gather::{self, Gather, Small};
use super::piece::{MergeRange, MergedPart, PartialMerges, Progress};
use crate::journal::{LEVELS, TableMeta};
use crate::lsm::manual::Request;
use crate::lsm::room::{Room, RoomTaken};
use crate::lsm::table::Table;
use crate::lsm::version::Version;
use std::collections::BTreeSet;
use std::sync::Arc;

#[cfg(test)]
mod tests;

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

    fn conflicts(&self, other: &Claim) -> bool {
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
    /// ([`gather`]).
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

/// What decides besides the version: running jobs, requests and room.
pub(crate) struct Situation<'a> {
    pub running: &'a [Claim],
    /// Levels and ranges to be merged whatever their size.
    pub requested: &'a [Request],
    /// Tables to be rewritten within their level.
    pub gathers: &'a [Gather],
    /// Tables that are not gathered unless asked for.
    pub in_vain: &'a BTreeSet<u64>,
    /// Merges in pieces that are not complete.
    pub begun: &'a PartialMerges,
    /// Of what is due what was asked for comes first.
    pub asked_first: bool,
    /// Reads have cost as much as merging level 0 ([`super::Toll`]).
    pub toll_is_due: bool,
    /// Free room, less what flushes and running jobs may need.
    pub room: Room,
    /// Tables that jobs of deeper levels must leave for deletes.
    pub reserve: u64,
    /// What the oldest snapshot sees. Where there is one, deletes may not free what they hide.
    pub oldest: Option<u64>,
}

impl<'a> Situation<'a> {
    /// Where nothing but this is to be known.
    pub(crate) fn new(
        running: &'a [Claim],
        requested: &'a [Request],
        begun: &'a PartialMerges,
        room: Room,
    ) -> Situation<'a> {
        let room = room.beside(running);
        let in_vain = const { &BTreeSet::new() };
        Situation {
            running,
            requested,
            gathers: &[],
            in_vain,
            begun,
            asked_first: false,
            toll_is_due: false,
            room,
            reserve: 0,
            oldest: None,
        }
    }

    /// True if a request concerns tables of the level.
    pub(super) fn is_requested(&self, version: &Version, level: usize) -> bool {
        self.requested.iter().any(|request| request.level == level && request.is_open(version))
    }

    /// True if a request concerns this table of the level.
    fn is_asked_for(&self, level: usize, table: &Table) -> bool {
        self.requested.iter().any(|request| request.level == level && request.is_for(&table.meta))
    }

    /// True if there is room for a job, about `kept` tables of which it keeps for good: what is left in the end must
    /// cover the reserve for deletes. That is not asked of merges of level 0 and of mostly deletes, which free room in
    /// the end.
    fn has_room_for(&self, job: &Job, kept: u64) -> bool {
        let room = &self.room;
        let wins = !room.whole_tables || job.claim.level == 0 || self.frees_room(&job.upper);
        let left = room.free().saturating_add(job.claim.replaced);
        room.fits(job.claim.tables, job.replaced().count())
            && (wins || left >= self.reserve + kept.min(job.claim.tables))
    }

    /// True if merging these tables down frees room: most of their entries are deletes, and there is no snapshot that
    /// might see what they hide.
    fn frees_room(&self, tables: &[Arc<Table>]) -> bool {
        self.oldest.is_none() && is_deleting(tables)
    }

    /// About as many bytes of a table as are left without the older versions that no snapshot sees.
    pub(super) fn left_of(&self, table: &TableMeta) -> u64 {
        if !table.is_outlived(self.oldest) {
            return table.merged_bytes();
        }
        let bytes = u128::from(table.merged_bytes()) * u128::from(table.entries - table.older);
        bytes.div_ceil(u128::from(table.entries)) as u64
    }

    /// True if no running job conflicts with the claim.
    pub(super) fn is_alone(&self, claim: &Claim) -> bool {
        !self.running.iter().any(|other| other.conflicts(claim))
    }
}

/// Target sizes of levels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub level0_compact: usize,
    pub level1_bytes: u64,
    pub level_factor: u64,
    pub small: Small,
}

impl Shape {
    /// Urgency of compacting a level: it is due from 1 on.
    fn score(&self, version: &Version, level: usize, situation: &Situation<'_>) -> f64 {
        let full = self.fullness(version, level);
        match level {
            // One at a time: the running job will empty the level.
            0 if situation.running.iter().any(|claim| claim.level == 0) => 0.0,
            0 if situation.toll_is_due => full.max(1.0),
            _ => full,
        }
    }

    /// Size of a level relative to its target.
    pub(super) fn fullness(&self, version: &Version, level: usize) -> f64 {
        if level == 0 {
            return version.levels[0].len() as f64 / self.level0_compact.max(1) as f64;
        }
        let factor = self.level_factor.max(2).saturating_pow(level as u32 - 1);
        version.bytes(level) as f64 / self.level1_bytes.saturating_mul(factor).max(1) as f64
    }
}

/// The most urgent job that fits and does not conflict with running ones.
pub(crate) fn pick(version: &Version, shape: &Shape, situation: &Situation<'_>) -> Option<Job> {
    if let Some(job) = discarded(version, situation) {
        return Some(job);
    }
    next_piece(version, situation)
        .or_else(|| gather::asked(version, &shape.small, situation))
        .or_else(|| situation.asked_first.then(|| asked_job(version, situation)).flatten())
        .or_else(|| due_job(version, shape, situation))
        .or_else(|| gather::unasked(version, &shape.small, situation))
}

/// The next piece of a merge that is not complete. In the place of the newest only one that does not begin anew: else
/// two might do so in turn for ever.
pub(super) fn next_piece(version: &Version, situation: &Situation<'_>) -> Option<Job> {
    situation.begun.unfinished(version).enumerate().find_map(|(at, (begun, upper))| {
        let may_go_on = begun.level == 0 || is_wanted(&upper, situation);
        let job = may_go_on.then(|| job_of(version, begun.level, upper, situation)).flatten();
        job.filter(|job| at == 0 || job.piece.is_all() || job.piece.after.is_some())
    })
}

/// A job of tables below level 0 that a request concerns.
fn asked_job(version: &Version, situation: &Situation<'_>) -> Option<Job> {
    let of_level =
        |level| least_overlap(version, level, situation, |table| situation.is_asked_for(level, table));
    (1..LEVELS - 1).find_map(of_level)
}

/// A job of the most urgent level that has one.
fn due_job(version: &Version, shape: &Shape, situation: &Situation<'_>) -> Option<Job> {
    let mut levels: Vec<(f64, usize)> = (0..LEVELS - 1)
        .map(|level| {
            let score = shape.score(version, level, situation);
            let asked = situation.is_requested(version, level);
            (if asked { score.max(1.0) } else { score }, level)
        })
        .filter(|(score, _)| *score >= 1.0)
        .collect();
    levels.sort_by(|a, b| b.0.total_cmp(&a.0));
    levels.into_iter().find_map(|(_, level)| match level {
        0 => level0_job(version, situation),
        _ => {
            let due = shape.score(version, level, situation) >= 1.0;
            least_overlap(version, level, situation, |table| due || situation.is_asked_for(level, table))
        }
    })
}

/// In tight room, below level 0, only tables of mostly deletes are merged.
fn is_wanted(upper: &[Arc<Table>], situation: &Situation<'_>) -> bool {
    !situation.room.is_tight || is_deleting(upper)
}

/// True if most entries of these tables are deletes: merging them frees room.
pub(super) fn is_deleting(tables: &[Arc<Table>]) -> bool {
    let sum = |count: fn(&TableMeta) -> u64| tables.iter().map(|table| count(&table.meta)).sum::<u64>();
    2 * sum(|meta| meta.deletes) > sum(|meta| meta.entries)
}

/// The job that discards a table which holds nothing but dropped keyspaces.
fn discarded(version: &Version, situation: &Situation<'_>) -> Option<Job> {
    version.levels.iter().enumerate().find_map(|(level, tables)| {
        let dead = |t: &&Arc<Table>| version.keyspaces.all_dead(&t.meta);
        tables.iter().filter(dead).find_map(|table| {
            let (smallest, largest) = (table.meta.smallest.clone(), table.meta.largest.clone());
            let claim = Claim::of(level, smallest, largest);
            situation.is_alone(&claim).then(|| Job {
                claim,
                upper: vec![table.clone()],
                lower: Vec::new(),
                unclean: true,
                discard: true,
                is_tight: false,
                piece: MergeRange::default(),
            })
        })
    })
}

/// The job of level 0: all its tables; if there is no room for that and nothing is running, about as many of the oldest
/// as there is room for. Newer tables stay above them.
fn level0_job(version: &Version, situation: &Situation<'_>) -> Option<Job> {
    let tables = &version.levels[0];
    let all = job_of(version, 0, tables.clone(), situation);
    let fewer = std::iter::successors(Some(tables.len() / 2), |count| Some(count / 2)).take_while(|n| *n > 0);
    let of_oldest = |count: usize| {
        let from = (tables.len() - count..tables.len()).find(|from| may_part(tables, *from))?;
        job_of(version, 0, tables[from..].to_vec(), situation)
    };
    all.or_else(|| situation.running.is_empty().then(|| fewer.filter_map(of_oldest).next()).flatten())
}

/// True if `tables[from..]`, the older part of level 0, may be merged without the rest: no table before `from` may have
/// an older version of a key than one of these.
fn may_part(tables: &[Arc<Table>], from: usize) -> bool {
    let (newer, older) = tables.split_at(from);
    let precedes = |older: &TableMeta, newer: &TableMeta| {
        newer.seq_min > older.seq_max || older.largest < newer.smallest || newer.largest < older.smallest
    };
    older.iter().all(|older| newer.iter().all(|newer| precedes(&older.meta, &newer.meta)))
}

/// The job of the `wanted` table with the least overlap: bytes of the next level per byte of its own. In tight room, of
/// those of mostly deletes.
fn least_overlap(
    version: &Version,
    level: usize,
    situation: &Situation<'_>,
    wanted: impl Fn(&Arc<Table>) -> bool,
) -> Option<Job> {
    let mut best: Option<(f64, Job)> = None;
    let is_possible =
        |table: &&Arc<Table>| wanted(table) && is_wanted(std::slice::from_ref(table), situation);
    for table in version.levels[level].iter().filter(is_possible) {
        let meta = &table.meta;
        let below = version.overlap(level + 1, &meta.smallest, &meta.largest);
        let cost = below.iter().map(|t| t.meta.bytes).sum::<u64>() as f64 / meta.bytes as f64;
        if best.as_ref().is_none_or(|(least, _)| cost < *least)
            && let Some(job) = job_of(version, level, vec![table.clone()], situation)
        {
            best = Some((cost, job));
        }
    }
    best.map(|(_, job)| job)
}

/// The job that merges `upper` into the next level, if it conflicts with no running job. If there is no room for all of
/// it: its next piece.
pub(super) fn job_of(
    version: &Version,
    level: usize,
    mut upper: Vec<Arc<Table>>,
    situation: &Situation<'_>,
) -> Option<Job> {
    if level > 0 {
        upper = with_sharers(version, level, upper);
    }
    let (mut smallest, mut largest) = bounds(&upper)?;
    let lower = with_sharers(version, level + 1, version.overlap(level + 1, &smallest, &largest));
    if let Some((low, high)) = bounds(&lower) {
        (smallest, largest) = (smallest.min(low), largest.max(high));
    }
    let replaced = situation.room.taken_by(upper.iter().chain(&lower));
    let below = bytes_between(version, level + 2, &smallest, &largest);
    let tables = situation.room.merge_of(upper.iter().chain(&lower), 0, below);
    let unclean = upper.iter().any(|table| version.keyspaces.any_dead(&table.meta));
    let claim = Claim { tables, replaced, ..Claim::of(level, smallest, largest) };
    if !situation.is_alone(&claim) {
        return None;
    }
    let is_tight = situation.room.is_tight;
    let job = Job { claim, upper, lower, unclean, discard: false, is_tight, piece: MergeRange::default() };
    let kept = situation.room.filled_by(bytes_of(&job.upper) + bytes_of(&job.lower)) + 1;
    if situation.has_room_for(&job, kept) || job.is_move() {
        Some(job)
    } else {
        piece_of(version, job, situation)
    }
}

/// The next piece of a job that is too large for the room, if no running job may free some. Where every table takes a
/// superblock, a piece also merges the last, probably short, table of the piece before.
fn piece_of(version: &Version, mut job: Job, situation: &Situation<'_>) -> Option<Job> {
    if !situation.running.is_empty() {
        return None;
    }
    let (level, room) = (job.claim.level, situation.room);
    let begun = situation.begun.of(level, &job.upper);
    // Deletes do not wait for a merge of puts, which may lack the room that they free.
    let may_begin = |upper: Vec<Arc<Table>>| situation.frees_room(&job.upper) && !is_deleting(&upper);
    if begun.is_none()
        && !situation.begun.unfinished(version).next().is_none_or(|(_, upper)| may_begin(upper))
    {
        return None;
    }
    // If a lower table spans the key reached, part of it was merged already: the merge starts over.
    let lies_beside = |begun: &&Progress| {
        let lies_across = |t: &Arc<Table>| t.meta.smallest <= begun.upto && t.meta.largest > begun.upto;
        !job.lower.iter().any(lies_across)
    };
    let begun = begun.filter(lies_beside);
    let done = begun.map_or(0, |begun| job.lower.partition_point(|t| t.meta.largest <= begun.upto));
    job.piece.after = begun.map(|begun| begun.upto.clone());
    let all = job.lower.len() - done;
    let below = bytes_between(version, level + 2, &job.claim.smallest, &job.claim.largest);
    // Upper entries that earlier pieces merged are not written again.
    let left = |begun: &Progress| room.taken_by(&job.upper).saturating_sub(begun.made).max(1);
    let upper_left = begun.map(left);
    let needed = |lower: &[Arc<Table>]| match upper_left {
        Some(left) => room.merge_of(lower.iter(), left, below),
        None => room.merge_of(job.upper.iter().chain(lower), 0, below),
    };
    let is_short = |table: &Arc<Table>| room.whole_tables && table.meta.bytes < room.table_bytes / 8 * 7;
    let along = usize::from(done > 0 && is_short(&job.lower[done - 1]));
    let piece = |along: usize, count: usize| {
        let lower = with_sharers(version, level + 1, job.lower[done - along..done + count].to_vec());
        room.fits(needed(&lower), lower.len()).then_some((count, lower))
    };
    let least = all.min(1);
    let longest = |along: usize| (least..=all).rev().find_map(|count| piece(along, count));
    let (count, lower) = longest(along).or_else(|| longest(0))?;
    let of_upper = bytes_of(&job.upper) * count as u64 / all.max(1) as u64;
    job.claim.tables = needed(&lower);
    let number = |table: &Arc<Table>| table.meta.number;
    // `lower` may hold more than `count` tables, as those that share a key were added.
    if all > 0 && lower.last().map(number) != job.lower.last().map(number) {
        job.piece.until = Some(bounds(&lower)?.1);
    }
    job.lower = lower;
    job.claim.replaced = room.taken_by(job.replaced().map(|(_, table)| table));
    let kept = room.filled_by(of_upper + bytes_of(&job.lower));
    situation.has_room_for(&job, kept).then_some(job)
}

/// Tables of a sorted level, extended by neighbours that share a key with them. They must be merged together: otherwise
/// an older version of the key could come to lie above a newer one, or lose the delete that hides it.
pub(super) fn with_sharers(version: &Version, level: usize, mut tables: Vec<Arc<Table>>) -> Vec<Arc<Table>> {
    while let Some((smallest, largest)) = bounds(&tables) {
        let wider = version.overlap(level, &smallest, &largest);
        if wider.len() == tables.len() {
            break;
        }
        tables = wider;
    }
    tables
}

fn bytes_of(tables: &[Arc<Table>]) -> u64 {
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
