//! Lays out the output of a merge in tables: entries, and unchanged leaves, which are kept where that is worth a bubble
//! (Freewrite, sections 2 and 3.1).
//!
//! Invariant: everything before the leaves that wait in `island` has been passed on, so order is kept.

use super::{Job, TableSink};
use crate::freewrite::{Reuse, ReuseStat, Verdict};
use crate::journal::{LEVELS, TableMeta};
use crate::key::Stamp;
use crate::lsm::core::Core;
use crate::lsm::table::StoredLeaf;
use crate::lsm::version::Version;
use crate::options::CachePolicy;
use std::collections::VecDeque;
use vellum_base::Result;

/// An output table is cut where it would overlap with more than this many full tables of the level below it.
pub(crate) const GRANDPARENTS_MAX: u64 = 10;
/// At most one in so many output tables, and one more, is cut because it overlaps with too much; in each part of a job
/// that is split. Together with those that end aligned, they are what
/// [`tables_of_merge`](crate::lsm::room::tables_of_merge) allows beyond full ones.
const CUTS_PARTS: u64 = 10;

/// See the module.
pub(crate) struct MergeLayout<'a> {
    sink: TableSink<'a>,
    below: NextLevel<'a>,
    reuse: Reuse,
    policy: CachePolicy,
    /// Leaves on which no decision was made yet.
    island: VecDeque<StoredLeaf>,
    /// It was checked already whether the table should end before the first of them.
    asked: bool,
    /// The current island is rewritten as a whole.
    declined: bool,
}

impl<'a> MergeLayout<'a> {
    /// A layout of the output of `job`.
    pub(crate) fn new(
        core: &'a Core,
        version: &'a Version,
        job: &Job,
        sink: TableSink<'a>,
    ) -> MergeLayout<'a> {
        let below = NextLevel::new(core, version, job);
        let (reuse, policy) = (core.reuse(), core.options.cache_policy);
        MergeLayout { sink, below, reuse, policy, island: VecDeque::new(), asked: false, declined: false }
    }

    /// Adds the next entry.
    pub(crate) fn entry(&mut self, key: &[u8], stamp: Stamp, value: &[u8], is_hot: bool) -> Result<()> {
        self.settle(true)?;
        self.declined = false;
        self.cut_before(key)?;
        self.put(key, stamp, value, is_hot)
    }

    /// Adds a leaf, all of whose entries are needed.
    pub(crate) fn leaf(&mut self, leaf: StoredLeaf) -> Result<()> {
        self.island.push_back(leaf);
        self.settle(false)
    }

    /// Ends the last table. Returns all tables in order, and the totals of kept leaves.
    pub(crate) fn finish(mut self) -> Result<(Vec<TableMeta>, ReuseStat)> {
        self.settle(true)?;
        self.sink.finish_all()
    }

    fn put(&mut self, key: &[u8], stamp: Stamp, value: &[u8], is_hot: bool) -> Result<()> {
        self.sink.add(key, stamp, value)?;
        if is_hot || self.policy == CachePolicy::Lru {
            self.sink.heat();
        }
        Ok(())
    }

    fn cut_before(&mut self, key: &[u8]) -> Result<()> {
        match self.below.cuts_before(key, self.sink.fill()) {
            true => self.sink.cut(),
            false => Ok(()),
        }
    }

    /// Decides on waiting leaves as far as possible; on all of them if the island has ended.
    fn settle(&mut self, ended: bool) -> Result<()> {
        while let Some(leaf) = self.island.front() {
            let cut = !std::mem::replace(&mut self.asked, true)
                && self.below.cuts_before(&leaf.first, self.sink.fill());
            if cut || self.sink.is_full_for(leaf) {
                self.sink.cut()?;
            }
            let known = self.island.iter().map(|leaf| leaf.bytes.len() as u64).sum();
            let verdict = match self.declined {
                true => Verdict::Pack,
                false => self.sink.judge(leaf, known, ended),
            };
            if verdict == Verdict::Wait {
                break;
            }
            self.asked = false;
            let Some(leaf) = self.island.pop_front() else { break };
            match verdict {
                Verdict::Keep => self.sink.keep(&leaf)?,
                _ => self.pack(&leaf)?,
            }
        }
        Ok(())
    }

    /// Rewrites the entries of a leaf.
    fn pack(&mut self, leaf: &StoredLeaf) -> Result<()> {
        self.declined = self.reuse == Reuse::Bubbles;
        leaf.each(|key, stamp, value| self.put(key, stamp, value, leaf.is_hot))
    }
}

/// A cursor over the level below the output, which decides where to cut tables.
struct NextLevel<'a> {
    version: &'a Version,
    level: usize,
    /// The first table that does not end before the current key.
    at: usize,
    /// Keyspace of the current key.
    keyspace: Option<u8>,
    /// Bytes of tables that the open output table overlaps with.
    bytes: u64,
    /// No table may end before it is full.
    is_tight: bool,
    /// Tables that may still end because they overlap with too much.
    cuts_left: u64,
    table_bytes: u64,
    whole_tables: bool,
    /// Tables end where tables of this level do.
    aligns: bool,
}

impl<'a> NextLevel<'a> {
    fn new(core: &Core, version: &'a Version, job: &Job) -> NextLevel<'a> {
        let (table_bytes, aligns) = (core.limits.table_bytes, core.rules.aligns_cuts());
        let whole_tables = core.media.shape().whole_tables;
        let is_tight = whole_tables && job.is_tight;
        // Where every table takes a superblock, the plan allows for a few that are not full.
        let is_bounded = whole_tables && aligns;
        let cuts_left = if is_bounded { 1 + job.claim.tables / CUTS_PARTS } else { u64::MAX };
        let (level, at, keyspace, bytes) = (job.output_level() + 1, 0, None, 0);
        NextLevel {
            version,
            level,
            at,
            keyspace,
            bytes,
            is_tight,
            cuts_left,
            table_bytes,
            whole_tables,
            aligns,
        }
    }

    /// True if the open output table should end before `key`: at the end of a table of this level or of a keyspace, if
    /// the output is long enough or overlaps with too much. Keys come in ascending order.
    fn cuts_before(&mut self, key: &[u8], fill: Option<(u64, u64)>) -> bool {
        let keyspace_ends = std::mem::replace(&mut self.keyspace, key.first().copied()) != self.keyspace;
        let Some(tables) = self.version.levels.get(self.level) else { return false };
        let mut passed = false;
        while tables.get(self.at).is_some_and(|table| table.meta.largest[..] < *key) {
            self.bytes += tables[self.at].meta.bytes;
            passed = true;
            self.at += 1;
        }
        let Some((bytes, capacity)) = fill else {
            self.bytes = 0;
            return false;
        };
        // A table that takes a whole superblock should nearly fill it.
        let enough = if self.whole_tables { capacity / 8 * 7 } else { capacity / 2 };
        let enough = if keyspace_ends && !self.whole_tables { capacity / 16 } else { enough };
        let passed = passed || keyspace_ends;
        let aligned = self.aligns && bytes >= enough;
        let overlaps = self.bytes > GRANDPARENTS_MAX * self.table_bytes && self.cuts_left > 0;
        let cut = passed && !self.is_tight && (aligned || overlaps);
        if cut {
            self.bytes = 0;
            self.cuts_left -= u64::from(!aligned);
        }
        cut
    }
}

/// Cursors over all levels below the output.
pub(super) struct Deeper<'a> {
    version: &'a Version,
    level: usize,
    /// For each level, the first table that does not end before the current key.
    at: [usize; LEVELS],
}

impl<'a> Deeper<'a> {
    pub(super) fn new(version: &'a Version, level: usize) -> Deeper<'a> {
        Deeper { version, level, at: [0; LEVELS] }
    }

    /// True if no table of a deeper level may hold `key`. Keys come in ascending order.
    pub(super) fn is_bottom(&mut self, key: &[u8]) -> bool {
        (self.level + 1..LEVELS).all(|level| {
            let tables = &self.version.levels[level];
            let at = &mut self.at[level];
            while tables.get(*at).is_some_and(|table| table.meta.largest[..] < *key) {
                *at += 1;
            }
            tables.get(*at).is_none_or(|table| table.meta.smallest[..] > *key)
        })
    }
}
