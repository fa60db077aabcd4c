//! Compaction on request: of a range of keys, or of everything.

use crate::journal::{LEVELS, TableMeta};
use crate::key::DEFAULT_KEYSPACE;
use crate::lsm::compaction::Gather;
use crate::lsm::core::{Core, State};
use crate::lsm::iter::{Bounds, Range};
use crate::lsm::keyspace::Keyspace;
use crate::lsm::store::Store;
use crate::lsm::table::Table;
use crate::lsm::version::Version;
use crate::waiting::Waiting;
use std::sync::Arc;
use vellum_base::sync::atomic::Ordering::{Acquire, Relaxed};
use vellum_base::{Error, Kind, Result};

/// Most rounds of gathering in one compaction on request: with concurrent writers there is always something to gather.
const GATHER_ROUNDS: usize = 3;
/// Most checks in a row that find none of the tables gathered. What cannot be gathered by then is left.
const GATHER_WAKES: usize = 1000;

/// A request, on which a caller waits, to merge what a level holds of a range of keys into the next level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub level: usize,
    pub range: Range,
    /// Only entries up to this sequence number: those that are written later do not count, or this might never end.
    pub upto: u64,
}

impl Request {
    /// To empty a level, also of what comes into it meanwhile.
    pub(crate) fn whole(level: usize) -> Request {
        Request { level, range: Range::everything(), upto: u64::MAX }
    }

    /// True if a table of the level may hold what is to be merged. It need not be one that was there when the request
    /// was made: tables of a level are gathered, and merges of the level above replace them.
    pub(crate) fn is_for(&self, table: &TableMeta) -> bool {
        table.seq_min <= self.upto && self.range.meets(table)
    }

    /// True if the level has such a table.
    pub(crate) fn is_open(&self, version: &Version) -> bool {
        version.levels[self.level].iter().any(|table| self.is_for(&table.meta))
    }
}

impl Store {
    /// Flushes, then merges all tables that hold keys within `bounds` into the deepest level that holds any.
    pub fn compact_range(&self, bounds: Bounds) -> Result<()> {
        self.core.compact(&bounds.within(DEFAULT_KEYSPACE))
    }
}

impl Keyspace {
    /// [`Store::compact_range`] for the keys of this keyspace.
    pub fn compact_range(&self, bounds: Bounds) -> Result<()> {
        self.core.view.load().version.keyspaces.check(&self.space)?;
        self.core.compact(&bounds.within(self.space.number))
    }
}

/// The deepest level with a table that overlaps a range.
fn deepest_that_holds(version: &Version, range: &Range) -> Option<usize> {
    (0..LEVELS).rev().find(|level| version.levels[*level].iter().any(|table| range.meets(&table.meta)))
}

/// True if a table of a sorted level has versions of keys that nobody sees ([`TableMeta::is_outlived`]). Its first key
/// may be an older version of the last key of the table before.
fn is_outlived(tables: &[Arc<Table>], at: usize, oldest: Option<u64>) -> bool {
    let meta = &tables[at].meta;
    let before = at.checked_sub(1).map(|before| &tables[before].meta);
    let before = before.filter(|before| before.largest == meta.smallest);
    meta.is_outlived(oldest)
        || before.is_some_and(|before| before.is_seen_whole(oldest) && meta.is_seen_whole(oldest))
}

impl State {
    /// Removes one request equal to `request`.
    pub(crate) fn withdraw(&mut self, request: &Request) {
        if let Some(at) = self.requested.iter().position(|other| other == request) {
            self.requested.swap_remove(at);
        }
    }
}

impl Core {
    /// Flushes, then merges every level into the deepest that holds anything of `range`. There it gathers small tables,
    /// and tables with deletes, which have nothing left to hide, with dropped keyspaces, or with what only dropped
    /// snapshots saw.
    pub(crate) fn compact(&self, range: &Range) -> Result<()> {
        match self.flush_and_empty(range) {
            // What nobody sees any more may take the room.
            Err(error) if error.kind() == Kind::NoSpace => {
                self.gather(range)?;
                self.flush_and_empty(range)?;
            }
            emptied => emptied?,
        }
        self.gather(range)?;
        self.state.check_writable()
    }

    fn flush_and_empty(&self, range: &Range) -> Result<()> {
        match self.flush() {
            // Merging what is in tables may make room for the flush.
            Err(error) if error.kind() == Kind::NoSpace => {
                self.empty_levels(range)?;
                self.flush()?;
            }
            flushed => flushed?,
        }
        self.empty_levels(range)
    }

    /// Empties all levels but the deepest. A merge that does not fit may fit once deeper levels have freed room, so
    /// this is repeated as long as it gets anywhere.
    fn empty_levels(&self, range: &Range) -> Result<()> {
        let merged = || self.counts.compactions.load(Relaxed) + self.counts.moves.load(Relaxed);
        // With concurrent writers there is always something that moves.
        let mut tries = LEVELS;
        loop {
            let before = merged();
            match self.empty_each_level(range)? {
                None => return Ok(()),
                Some(error) if merged() == before || tries == 0 => return Err(error),
                Some(_) => tries -= 1,
            }
        }
    }

    /// Tries each level in turn. Returns the first error for lack of room, if any.
    fn empty_each_level(&self, range: &Range) -> Result<Option<Error>> {
        let (mut level, mut refused) = (0, None);
        // The deepest level may change meanwhile.
        while level < self.deepest(range) {
            match self.empty_level(range, level) {
                Err(error) if error.kind() == Kind::NoSpace => {
                    refused.get_or_insert(error);
                }
                emptied => emptied?,
            }
            level += 1;
        }
        Ok(refused)
    }

    /// Rewrites tables of the deepest level where that makes them fewer or shorter, as far as there is room.
    fn gather(&self, range: &Range) -> Result<()> {
        if !self.rules.gathers() {
            return Ok(());
        }
        // Merges may have put new small tables next to gathered ones meanwhile.
        for round in 0..GATHER_ROUNDS {
            let gather = self.to_gather(range, round == 0);
            if gather.tables.is_empty() {
                return Ok(());
            }
            self.wait_to_gather(gather)?;
        }
        Ok(())
    }

    fn wait_to_gather(&self, gather: Gather) -> Result<()> {
        let mut state = self.state.lock();
        state.gathers.push(gather.clone());
        self.state.try_again(&mut state);
        self.state.wake_tasks();
        let (mut left, mut in_vain, mut goes_on) = (gather.tables.len(), 0, true);
        while goes_on && in_vain < GATHER_WAKES && !state.health.has_failed() && !state.health.is_resting() {
            let version = self.view.load().version.clone();
            let is_asked = |table: &&Arc<Table>| gather.tables.contains(&table.meta.number);
            let now = version.levels[gather.level].iter().filter(is_asked).count();
            drop(version);
            in_vain = if now < left { 0 } else { in_vain + 1 };
            (left, goes_on) = (now, now > 0);
            if goes_on {
                (state, goes_on) = self.wait_for_change(state)?;
            }
        }
        state.gathers.retain(|other| *other != gather);
        Ok(())
    }

    /// Adjacent small tables and, if `unclean`, also tables that hold deletes, dropped keyspaces, or what only dropped
    /// snapshots saw.
    fn to_gather(&self, range: &Range, unclean: bool) -> Gather {
        let in_vain = self.state.lock().gathered_in_vain.clone();
        let version = self.view.load().version.clone();
        let Some(level) = deepest_that_holds(&version, range).filter(|level| *level > 0) else {
            return Gather::default();
        };
        let (tables, small, oldest) = (&version.levels[level], self.small(true), self.oldest_snapshot());
        let beside = |at: usize, other: Option<usize>| {
            other.and_then(|other| tables.get(other)).is_some_and(|other| small.is_pair(&tables[at], other))
        };
        let is_to_be = |at: &usize| {
            let meta = &tables[*at].meta;
            let is_small = beside(*at, at.checked_sub(1)) || beside(*at, Some(at + 1));
            let is_small = is_small && !in_vain.contains(&meta.number);
            let has_dead = || version.keyspaces.has_dead(&tables[*at]);
            let is_unclean = || meta.deletes > 0 || is_outlived(tables, *at, oldest) || has_dead();
            range.meets(meta) && (is_small || unclean && is_unclean())
        };
        let numbers = (0..tables.len()).filter(is_to_be).map(|at| tables[at].meta.number).collect();
        Gather { level, tables: numbers }
    }

    /// The level into which everything in `range` is to be merged.
    fn deepest(&self, range: &Range) -> usize {
        let version = self.view.load().version.clone();
        let deepest = deepest_that_holds(&version, range).unwrap_or(0);
        // Where nothing is gathered, entries of dropped keyspaces go by merging one level further.
        let is_unclean = || version.levels[deepest].iter().any(|table| version.keyspaces.has_dead(table));
        let further = !self.rules.gathers() && is_unclean();
        (deepest.max(1) + usize::from(further)).min(LEVELS - 1)
    }

    /// Waits until what a level holds of a range now is merged into the next.
    pub(crate) fn empty_level(&self, range: &Range, level: usize) -> Result<()> {
        let request = Request { level, range: range.clone(), upto: self.visible.load(Acquire) };
        let mut state = self.state.lock();
        state.requested.push(request.clone());
        self.state.try_again(&mut state);
        self.state.wake_tasks();
        let mut stuck = false;
        while !stuck && !state.health.has_failed() && request.is_open(&self.view.load().version) {
            // If nothing is running, a job that does not fit now will not fit later.
            let changed;
            (state, changed) = self.wait_for_change(state)?;
            stuck = !changed;
        }
        state.withdraw(&request);
        match stuck {
            true => Err(Error::new(Kind::NoSpace, "the medium is too full to merge a level")),
            false => Ok(()),
        }
    }
}
