//! Choice of what to compact: the level that exceeds its target size most, and in it the table that overlaps least with
//! the next level.

use super::gather;
use super::job::{Claim, Job, bounds, bytes_between, bytes_of, is_deleting, with_sharers};
use super::piece::{MergeRange, piece_of};
use super::situation::{Shape, Situation};
use crate::journal::{LEVELS, TableMeta};
use crate::lsm::table::Table;
use crate::lsm::version::Version;
use std::sync::Arc;

#[cfg(test)]
mod tests;

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
pub(crate) fn next_piece(version: &Version, situation: &Situation<'_>) -> Option<Job> {
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
pub(crate) fn job_of(
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
