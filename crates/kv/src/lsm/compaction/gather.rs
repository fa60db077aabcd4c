//! Small tables of a level below the first, next to each other, become one where they are.
//!
//! Levels are measured in bytes, so nothing else would ever merge what is flushed or ingested little by little in the
//! order of its keys; and on flash a table takes a superblock however small it is, in a directory an open file.
//!
//! Invariants
//! 1. What is gathered becomes one table, or none, as far as that can be told: it is not as much as one may have, and
//!    overlaps with too little of the level below to be cut. What did not become fewer tables is left alone until the
//!    store is opened again. So gathering ends.
//! 2. Nothing is gathered in the levels of a merge that goes on in pieces, nor across where it has come to.
//! 3. It goes in steps: no table is more than half of what is gathered, unless room is short. So an entry is written a
//!    number of times that grows with the logarithm of the table.

use super::Piece;
use super::pick::{Claim, Job, Situation, bounds, bytes_between, with_sharers};
use super::room::GRANDPARENTS_MAX;
use crate::journal::LEVELS;
use crate::lsm::table::Table;
use crate::lsm::version::Version;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Tables that are looked at from each on.
const LOOKED_AT_MAX: usize = 64;

/// What is gathered unasked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Small {
    /// So many tables, at least.
    pub count: usize,
    /// None of them more than half of what is gathered.
    pub in_steps: bool,
    /// Of so many bytes each, at most.
    pub each: u64,
    /// And so many all told.
    pub all: u64,
    /// Bytes of a full table.
    pub table_bytes: u64,
}

/// Tables of a level that somebody waits for: that each is made anew, with those beside it that are to be, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gather {
    pub level: usize,
    /// Their numbers.
    pub tables: BTreeSet<u64>,
}

impl Small {
    /// True if two tables that follow one another would be one.
    pub(crate) fn is_pair(&self, a: &Table, b: &Table) -> bool {
        a.meta.bytes.max(b.meta.bytes) <= self.each && a.meta.bytes + b.meta.bytes <= self.all
    }

    /// How many of the first tables become one.
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

/// The job of tables that somebody waits for.
pub(super) fn asked(version: &Version, small: &Small, situation: &Situation<'_>) -> Option<Job> {
    situation.gathers.iter().find_map(|gather| job_asked_for(version, small, gather, situation))
}

/// The job of a run of small tables.
pub(super) fn unasked(version: &Version, small: &Small, situation: &Situation<'_>) -> Option<Job> {
    let is_in_vain = |table: &Arc<Table>| situation.in_vain.contains(&table.meta.number);
    (1..LEVELS).find_map(|level| {
        let tables = &version.levels[level];
        (0..tables.len()).find_map(|at| {
            let near = &tables[at..tables.len().min(at + LOOKED_AT_MAX)];
            let count = small.run(&near[..near.iter().position(is_in_vain).unwrap_or(near.len())])?;
            job_of(version, small, level, &near[..count], situation)
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
    let is_asked = |table: &Arc<Table>| gather.tables.contains(&table.meta.number);
    let mut at = 0;
    while let Some(first) = tables[at..].iter().position(is_asked) {
        at += first;
        let mut all = tables[at].meta.bytes;
        let more = tables[at + 1..].iter().take_while(|table| {
            all += table.meta.bytes;
            all <= small.all && is_asked(table)
        });
        let count = 1 + more.count();
        if let Some(job) = job_of(version, small, gather.level, &tables[at..][..count], situation) {
            return Some(job);
        }
        at += count;
    }
    None
}

/// True if a merge in pieces goes on from a level or into it. Its pieces end where tables of it do, so these stay.
fn is_in_pieces(version: &Version, level: usize, situation: &Situation<'_>) -> bool {
    situation.progress.is_some_and(|begun| {
        (begun.level == level || begun.level + 1 == level)
            && begun.tables(&version.levels[begun.level]).is_some()
    })
}

/// The job that makes one table of these, with what shares a key with them.
fn job_of(
    version: &Version,
    small: &Small,
    level: usize,
    tables: &[Arc<Table>],
    situation: &Situation<'_>,
) -> Option<Job> {
    if situation.room.is_tight || is_in_pieces(version, level, situation) {
        return None;
    }
    let lower = with_sharers(version, level, tables.to_vec());
    let (smallest, largest) = bounds(&lower)?;
    let below = bytes_between(version, level + 1, &smallest, &largest);
    if lower.len() > 1 && below > GRANDPARENTS_MAX * small.table_bytes {
        return None;
    }
    let unclean = lower.iter().any(|table| version.keyspaces.any_dead(&table.meta));
    let replaced = situation.room.taken_by(&lower);
    let tables = situation.room.merge_of(lower.iter(), 0, below);
    let claim = Claim { tables, replaced, ..Claim::of(level - 1, smallest, largest) };
    let is_possible = situation.is_alone(&claim) && tables <= situation.room.tables;
    let piece = Piece::default();
    is_possible.then_some(Job { claim, upper: Vec::new(), lower, unclean, discard: false, piece })
}
