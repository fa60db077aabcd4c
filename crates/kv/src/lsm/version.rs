//! The tables that make up the store, by level, and its keyspaces.
//!
//! Invariants
//! 1. Level 0 is ordered by the newest entry of each table, newest first; its tables may overlap. If one memtable
//!    became several tables these interleave: older versions of a key may be in the first of them, so gets must go on
//!    searching.
//! 2. Other levels are ordered by key, and their tables do not overlap, except that neighbours may share one key whose
//!    versions fill more than a table, newer versions first.
//! 3. Of two entries of a key, the newer one is in a lower-numbered level or, except in level 0, earlier in the order
//!    of its level.

use crate::journal::{Edit, LEVELS, TableMeta};
use crate::key::{LookupKey, Stamp};
use crate::lsm::fences::Fences;
use crate::lsm::kept_log::KeptLog;
use crate::lsm::keyspace::Keyspaces;
use crate::lsm::table::{Library, Table};
use crate::media::Media;
use std::collections::BTreeSet;
use std::sync::Arc;
use vellum_base::{Error, Result};

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct Version {
    pub levels: [Vec<Arc<Table>>; LEVELS],
    pub keyspaces: Keyspaces,
    /// Of each level; used for levels other than 0.
    pub fences: [Fences; LEVELS],
    /// A table of level 0 has an entry older than one of the next table.
    pub interleaves: bool,
    /// Most bytes that a manifest needs to describe it.
    pub manifest_bytes: usize,
    /// Of these, the most for the two keys of a table.
    pub bounds_bytes: usize,
}

impl Version {
    /// This version after `edit`.
    pub(crate) fn apply(&self, edit: &Edit, library: &Arc<Library>, media: &dyn Media) -> Result<Version> {
        let mut next = self.clone();
        let mut moved = Vec::new();
        for (level, number) in &edit.removed {
            let tables = &mut next.levels[*level as usize];
            let Some(at) = tables.iter().position(|table| table.meta.number == *number) else {
                return Err(Error::corrupt(format!("manifest: table {number} is not in level {level}")));
            };
            moved.push(tables.remove(at));
        }
        for (level, meta) in &edit.added {
            // A table that moves to another level is open already.
            let open = moved.iter().find(|table| table.meta.number == meta.number).cloned();
            let table = match open {
                Some(table) => table,
                None => Table::on(library, media, meta.clone())?,
            };
            next.levels[*level as usize].push(table);
        }
        next.keyspaces.apply(edit);
        next.sort();
        Ok(next)
    }

    /// Restores the order of all levels after tables were added.
    pub(crate) fn sort(&mut self) {
        self.levels[0].sort_by_key(|table| std::cmp::Reverse((table.meta.seq_max, table.meta.number)));
        for level in &mut self.levels[1..] {
            level.sort_by(|a, b| {
                let order = a.meta.smallest.cmp(&b.meta.smallest).then(a.meta.largest.cmp(&b.meta.largest));
                order.then(b.meta.seq_max.cmp(&a.meta.seq_max))
            });
        }
        self.interleaves = self.levels[0].windows(2).any(|two| two[0].meta.seq_min <= two[1].meta.seq_max);
        let metas = self.levels.iter().flatten().map(|table| &table.meta);
        self.manifest_bytes =
            self.keyspaces.manifest_bytes() + metas.clone().map(TableMeta::manifest_bytes).sum::<usize>();
        self.bounds_bytes = metas.map(TableMeta::bounds_bytes).max().unwrap_or(0);
        self.fences =
            self.levels.each_ref().map(|level| Fences::new(level.iter().map(|t| &t.meta.largest[..])));
    }

    /// An error if the range of a table whose first or last key is damaged ([`Table::on`]) reaches into a neighbour:
    /// keys could be looked for in the wrong one.
    pub(crate) fn check_guesses(&self) -> Result<()> {
        let mut pairs = self.levels[1..].iter().flat_map(|level| level.windows(2));
        let is_doubtful = |pair: &&[Arc<Table>]| {
            let (left, right) = (&pair[0].meta, &pair[1].meta);
            (left.is_cut || right.is_cut) && left.largest >= right.smallest
        };
        match pairs.find(is_doubtful) {
            None => Ok(()),
            Some(pair) => {
                let damaged =
                    pair.iter().find(|table| table.meta.is_cut).map_or(0, |table| table.meta.number);
                Err(Error::corrupt(format!("table {damaged}: its first or last key is damaged")))
            }
        }
    }

    /// The whole version, as the first edit of a manifest.
    pub(crate) fn whole(&self) -> Edit {
        let levels = self.levels.iter().enumerate();
        let tables =
            levels.flat_map(|(level, tables)| tables.iter().map(move |t| (level as u8, t.meta.clone())));
        let mut whole = Edit { added: tables.collect(), ..Edit::default() };
        self.keyspaces.describe(&mut whole);
        whole
    }

    /// Logs that tables of level 0 point into, once for each table.
    pub(crate) fn logs(&self) -> impl Iterator<Item = &Arc<KeptLog>> {
        self.levels[0].iter().flat_map(|table| &table.logs)
    }

    /// Those that no table of `other` points into.
    pub(crate) fn logs_without(&self, other: &Version) -> impl Iterator<Item = &Arc<KeptLog>> {
        let kept: BTreeSet<u64> = other.logs().map(|log| log.number).collect();
        self.logs().filter(move |log| !kept.contains(&log.number))
    }

    /// Bytes of a level.
    pub(crate) fn bytes(&self, level: usize) -> u64 {
        self.levels[level].iter().map(|table| table.meta.bytes).sum()
    }

    /// Tables of a level that hold keys from `smallest` to `largest`, both included.
    pub(crate) fn overlap(&self, level: usize, smallest: &[u8], largest: &[u8]) -> Vec<Arc<Table>> {
        let tables = &self.levels[level];
        let inside = |t: &&Arc<Table>| t.meta.smallest[..] <= *largest && t.meta.largest[..] >= *smallest;
        if level == 0 {
            return tables.iter().filter(inside).cloned().collect();
        }
        let first = tables.partition_point(|table| table.meta.largest[..] < *smallest);
        tables[first..].iter().take_while(inside).cloned().collect()
    }

    /// Finds an entry. Its value goes to `out`.
    pub(crate) fn get(&self, wanted: LookupKey<'_>, out: &mut Vec<u8>) -> Result<Option<Stamp>> {
        let key = wanted.key;
        for (at, table) in self.levels[0].iter().enumerate() {
            if table.meta.has(key)
                && let Some(found) = table.get(wanted, out)?
            {
                return self.newest(at + 1, wanted, found, out).map(Some);
            }
        }
        for (tables, fences) in self.levels.iter().zip(&self.fences).skip(1) {
            let first = fences.first(key, |at| &tables[at].meta.largest);
            for table in tables[first..].iter().take_while(|table| table.meta.smallest[..] <= *key) {
                if let Some(found) = table.get(wanted, out)? {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// The newer of `found`, whose value is in `out`, and what tables of level 0 have from the one at `next` on.
    pub(crate) fn newest(
        &self,
        next: usize,
        wanted: LookupKey<'_>,
        mut found: Stamp,
        out: &mut Vec<u8>,
    ) -> Result<Stamp> {
        if !self.interleaves {
            return Ok(found);
        }
        let mut other = Vec::new();
        for table in &self.levels[0][next..] {
            if table.meta.seq_max <= found.seq() {
                break;
            }
            if table.meta.has(wanted.key)
                && let Some(newer) = table.get(wanted, &mut other)?
                && newer.seq() > found.seq()
            {
                found = newer;
                std::mem::swap(out, &mut other);
            }
        }
        Ok(found)
    }
}
