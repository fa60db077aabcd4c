//! What comes out of a merge, laid out in tables: entries, and leaves that nothing changed, which are kept as they are
//! where that is worth a bubble (Freewrite, sections 2 and 3.1).
//!
//! Invariant: leaves wait in `island` only while no entry that comes before them does, so order is kept.

use super::TableSink;
use super::room::GRANDPARENTS_MAX;
use crate::freewrite::{ReuseStat, Verdict};
use crate::journal::{LEVELS, TableMeta};
use crate::key::Stamp;
use crate::lsm::core::Core;
use crate::lsm::table::StoredLeaf;
use crate::lsm::version::Version;
use crate::options::{CachePolicy, Reuse, Rules};
use std::collections::VecDeque;
use vellum_base::Result;

/// See the module.
pub(crate) struct Layout<'a> {
    sink: TableSink<'a>,
    below: NextLevel<'a>,
    reuse: Reuse,
    policy: CachePolicy,
    /// Leaves of which it is not decided yet what becomes of them.
    island: VecDeque<StoredLeaf>,
    /// Whether the table should end before the first of them was asked.
    asked: bool,
    /// The island at hand is written anew, all of it.
    declined: bool,
}

impl<'a> Layout<'a> {
    /// For tables of `level`.
    pub(crate) fn new(core: &'a Core, version: &'a Version, level: usize, sink: TableSink<'a>) -> Layout<'a> {
        let below = NextLevel::new(core, version, level + 1);
        let (reuse, policy) = (core.reuse(), core.options.cache_policy);
        Layout { sink, below, reuse, policy, island: VecDeque::new(), asked: false, declined: false }
    }

    /// Adds the next entry.
    pub(crate) fn entry(&mut self, key: &[u8], stamp: Stamp, value: &[u8], is_hot: bool) -> Result<()> {
        self.settle(true)?;
        self.declined = false;
        self.cut_before(key)?;
        self.put(key, stamp, value, is_hot)
    }

    /// Adds the entries of a leaf that holds nothing else.
    pub(crate) fn leaf(&mut self, leaf: StoredLeaf) -> Result<()> {
        self.island.push_back(leaf);
        self.settle(false)
    }

    /// Ends the last table; all of them, in order, and what became of leaves.
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

    /// Decides what becomes of the leaves that wait, as far as that can be said; of all, if the island has ended.
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

    /// Writes the entries of a leaf anew.
    fn pack(&mut self, leaf: &StoredLeaf) -> Result<()> {
        self.declined = self.reuse == Reuse::Bubbles;
        leaf.each(|key, stamp, value| self.put(key, stamp, value, leaf.is_hot))
    }
}

/// The level below that of the output, followed in step with it.
struct NextLevel<'a> {
    version: &'a Version,
    level: usize,
    /// The first table that does not end before the key at hand.
    at: usize,
    /// Of the key at hand.
    keyspace: Option<u8>,
    /// Bytes of tables that the open output overlaps with.
    bytes: u64,
    table_bytes: u64,
    whole_tables: bool,
    rules: Rules,
}

impl<'a> NextLevel<'a> {
    fn new(core: &Core, version: &'a Version, level: usize) -> NextLevel<'a> {
        let (table_bytes, rules) = (core.limits.table_bytes, core.options.rules);
        let whole_tables = core.media.shape().whole_tables;
        NextLevel { version, level, at: 0, keyspace: None, bytes: 0, table_bytes, whole_tables, rules }
    }

    /// True if the open output should end before `key`: where a table of this level ends or another keyspace begins, if
    /// enough was written to make it worth while, or if it would overlap with too much. Keys come in order.
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
        // A table that takes a whole superblock should fill it.
        let enough = if self.whole_tables { capacity / 8 * 7 } else { capacity / 2 };
        let enough = if keyspace_ends && !self.whole_tables { capacity / 16 } else { enough };
        let passed = passed || keyspace_ends;
        let aligned = bytes >= enough && self.rules == Rules::Vellum;
        let cut = passed && (aligned || self.bytes > GRANDPARENTS_MAX * self.table_bytes);
        if cut {
            self.bytes = 0;
        }
        cut
    }
}

/// The levels below that of the output, followed in step with the merge.
pub(super) struct Deeper<'a> {
    version: &'a Version,
    level: usize,
    /// For each level, the first table that does not end before the key at hand.
    at: [usize; LEVELS],
}

impl<'a> Deeper<'a> {
    pub(super) fn new(version: &'a Version, level: usize) -> Deeper<'a> {
        Deeper { version, level, at: [0; LEVELS] }
    }

    /// True if no table below may hold `key`. Keys come in order.
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
