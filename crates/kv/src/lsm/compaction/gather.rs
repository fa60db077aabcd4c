//! Gathering, or intra-level compaction: adjacent small tables of a sorted level are merged into one within the level.
//!
//! Compaction is triggered by bytes per level, so nothing else would ever merge data that is flushed or ingested in
//! small portions in key order; and every table, however small, takes a superblock on flash or an open file in a
//! directory.
//!
//! Invariants
//! 1. Gathering terminates: what is gathered is expected to become one table, as it is smaller than a full one and
//!    overlaps too little with the level below to be cut. Tables that did not become fewer are left alone until the
//!    store is opened again, as are those that were joined in tight room and did not fit.
//! 2. Nothing is gathered in the two levels of an incomplete merge in pieces, except in the upper one where room is
//!    tight, and what nobody sees: the merge then begins anew, with more room.
//! 3. Unless room is short, no table is more than half of what is gathered. So the number of times an entry is
//!    rewritten is logarithmic in the size of the table.

use super::GRANDPARENTS_MAX;
use super::MergeRange;
use super::job::{Claim, Job, bounds, bytes_between, is_deleting, with_sharers};
use super::situation::Situation;
use crate::journal::LEVELS;
use crate::lsm::table::Table;
use crate::lsm::version::Version;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most tables that are considered for one run.
const RUN_TABLES_MAX: usize = 64;

/// Which runs of tables are gathered unasked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Small {
    /// Fewest tables of a run.
    pub count: usize,
    /// Room is not short: no table may be more than half of the run.
    pub in_steps: bool,
    /// Most bytes of each table.
    pub each: u64,
    /// Most bytes of the run.
    pub all: u64,
    /// Bytes of a full table.
    pub table_bytes: u64,
}

/// A request to rewrite tables of a level, adjacent ones together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gather {
    pub level: usize,
    /// Their numbers.
    pub tables: BTreeSet<u64>,
}

impl Small {
    /// True if two adjacent tables would be merged into one.
    pub(crate) fn is_pair(&self, a: &Table, b: &Table) -> bool {
        a.meta.bytes.max(b.meta.bytes) <= self.each && a.meta.bytes + b.meta.bytes <= self.all
    }

    /// Length of the longest run of small tables at the start of `tables`, if it is long enough.
    fn run(&self, tables: &[Arc<Table>]) -> Option<usize> {
        let (mut all, mut most, mut run) = (0, 0, None);
        for (count, table) in (1..).zip(tables) {
            all += table.meta.bytes;
            most = most.max(table.meta.bytes);
            if most > self.each || all > self.all {
                break;
            }
            if count >= self.count && !(self.in_steps && 2 * most > all) {
                run = Some(count);
            }
        }
        run
    }
}

/// The next job of a request to gather.
pub(super) fn asked(version: &Version, small: &Small, situation: &Situation<'_>) -> Option<Job> {
    situation.gathers.iter().find_map(|gather| job_asked_for(version, small, gather, situation))
}

/// The job of a run of small tables that nobody asked for.
pub(super) fn unasked(version: &Version, small: &Small, situation: &Situation<'_>) -> Option<Job> {
    let is_in_vain = |table: &Arc<Table>| situation.in_vain.contains(&table.meta.number);
    let pairs = Small { count: 2, ..*small };
    let small = if situation.room.is_tight { &pairs } else { small };
    (1..LEVELS).find_map(|level| {
        let tables = &version.levels[level];
        (0..tables.len()).find_map(|at| {
            let near = &tables[at..tables.len().min(at + RUN_TABLES_MAX)];
            let count = small.run(&near[..near.iter().position(is_in_vain).unwrap_or(near.len())])?;
            gathered(version, small, level, &near[..count], situation)
        })
    })
}

fn job_asked_for(
    version: &Version,
    small: &Small,
    gather: &Gather,
    situation: &Situation<'_>,
) -> Option<Job> {
    let tables = &version.levels[gather.level];
    let is_asked = |table: &Arc<Table>| {
        let number = table.meta.number;
        gather.tables.contains(&number) && !(situation.room.is_tight && situation.in_vain.contains(&number))
    };
    let mut at = 0;
    while let Some(first) = tables[at..].iter().position(is_asked) {
        at += first;
        let mut all = situation.left_of(&tables[at].meta);
        let more = tables[at + 1..].iter().take_while(|table| {
            all += situation.left_of(&table.meta);
            all <= small.all && is_asked(table)
        });
        let count = 1 + more.count();
        let of_first = |count| gathered(version, small, gather.level, &tables[at..][..count], situation);
        let alone = || tables[at].meta.is_outlived(situation.oldest).then(|| of_first(1)).flatten();
        if let Some(job) = of_first(count).or_else(alone) {
            return Some(job);
        }
        at += count;
    }
    None
}

/// True if an incomplete merge in pieces does without changes to this level: its pieces end at boundaries of lower
/// tables, which must stay.
fn is_in_pieces(version: &Version, level: usize, situation: &Situation<'_>) -> bool {
    situation
        .begun
        .unfinished(version)
        .any(|(begun, _)| begun.level == level && !situation.room.is_tight || begun.level + 1 == level)
}

/// The job that merges these tables, and neighbours that share a key with them, into one, or rewrites a single one.
fn gathered(
    version: &Version,
    small: &Small,
    level: usize,
    tables: &[Arc<Table>],
    situation: &Situation<'_>,
) -> Option<Job> {
    let (room, is_tight) = (situation.room, situation.room.is_tight);
    // What is planned tightly is a last resort: not for a store that has room.
    if is_tight && small.in_steps {
        return None;
    }
    let lower = with_sharers(version, level, tables.to_vec());
    let is_outlived = lower.iter().all(|table| table.meta.is_outlived(situation.oldest));
    if !is_outlived && is_in_pieces(version, level, situation) {
        return None;
    }
    let (smallest, largest) = bounds(&lower)?;
    let below = bytes_between(version, level + 1, &smallest, &largest);
    if lower.len() > 1 && below > GRANDPARENTS_MAX * small.table_bytes {
        return None;
    }
    let unclean = lower.iter().any(|table| version.keyspaces.any_dead(&table.meta));
    let replaced = room.taken_by(&lower);
    let tables = match is_tight {
        true if lower.len() == 1 && is_outlived => replaced,
        true => joined_tightly(&lower, situation).filter(|tables| *tables < replaced)?,
        false => room.merge_of(lower.iter(), 0, below),
    };
    let claim = Claim { tables, replaced, ..Claim::of(level - 1, smallest, largest) };
    let is_possible = situation.is_alone(&claim) && room.fits(tables, lower.len());
    let piece = MergeRange::default();
    is_possible.then_some(Job { claim, upper: Vec::new(), lower, unclean, discard: false, is_tight, piece })
}

/// Most tables that these become. `None` if some are of mostly deletes and others not: alone those may be merged down
/// in tight room.
fn joined_tightly(tables: &[Arc<Table>], situation: &Situation<'_>) -> Option<u64> {
    let deleting = tables.iter().filter(|table| is_deleting(std::slice::from_ref(*table))).count();
    let bytes = tables.iter().map(|table| situation.left_of(&table.meta)).sum();
    (deleting == 0 || deleting == tables.len()).then(|| situation.room.filled_by(bytes))
}
