//! Statistics of a store.

use crate::freewrite::Reuse;
use crate::journal::LEVELS;
use crate::lifetime::Lifetime;
use crate::lsm::core::Core;
use crate::media::{Placement, Sharing};
use std::collections::BTreeMap;
use vellum_base::LedgerSnapshot;
use vellum_base::sync::atomic::Ordering::Relaxed;

/// One level of the LSM tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelStat {
    /// Tables.
    pub tables: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Entries in them, including deletes and overwritten versions.
    pub entries: u64,
    /// Deletes among these entries.
    pub deletes: u64,
    /// Among these entries, those of which their table has a newer version, too: they were kept for snapshots.
    pub older: u64,
    /// Smallest unit of any of these tables, in bytes; 0 without tables.
    pub unit_bytes_min: usize,
    /// Largest unit of any of these tables, in bytes; 0 without tables.
    pub unit_bytes_max: usize,
}

/// What a store holds, and what it did.
#[derive(Clone, Debug)]
pub struct StoreStat {
    /// Levels, from 0.
    pub levels: [LevelStat; LEVELS],
    /// Approximate memory of all memtables, in bytes.
    pub memtable_bytes: usize,
    /// Bytes of keys and values in the memtables.
    pub unflushed_bytes: u64,
    /// Memory in use by the cache, in bytes.
    pub cache_bytes: usize,
    /// Cache lookups of leaves, branches and values in logs that hit.
    pub cache_hits: u64,
    /// Cache lookups that missed.
    pub cache_misses: u64,
    /// Leaf lookups that a filter made unnecessary.
    pub filter_stopped: u64,
    /// False positives: leaf lookups that a filter let through although the key was absent.
    pub filter_wrong: u64,
    /// Open snapshots; the entries visible to them are kept.
    pub snapshots: usize,
    /// Full memtables that wait to be flushed.
    pub memtables_waiting: usize,
    /// Bytes written since the medium was opened, by cause.
    pub ledger: LedgerSnapshot,
    /// Tables erased unread because they held only dropped keyspaces.
    pub discarded: u64,
    /// What compaction does with leaves that it does not have to change; never [`Reuse::Auto`].
    pub reuse_mode: Reuse,
    /// How the medium shares bytes between two tables; [`Sharing::None`] unless relinking was asked for.
    pub sharing: Sharing,
    /// Unit of new tables, in bytes ([`crate::ReuseOptions::unit_bytes`]).
    pub unit_bytes: u64,
    /// How tables are placed on superblocks; `None` except on flash.
    pub placement: Option<Placement>,
    /// Logs kept because tables of level 0 point to values in them.
    pub kept_logs: usize,
    /// Their bytes.
    pub kept_log_bytes: u64,
    /// Of these, bytes of the values that tables point to.
    pub pointed_bytes: u64,
    /// Counters since the store was opened.
    pub since_opened: Lifetime,
    /// Counters since the store was created.
    pub lifetime: Lifetime,
}

impl StoreStat {
    /// False positive rate of the filters, from 0 to 1: of the lookups of absent keys, the share that a filter let
    /// through. 0 before the first.
    pub fn filter_wrong_share(&self) -> f64 {
        match self.filter_stopped + self.filter_wrong {
            0 => 0.0,
            looks => self.filter_wrong as f64 / looks as f64,
        }
    }
}

impl Core {
    pub(crate) fn stat(&self) -> StoreStat {
        let view = self.view.load_full();
        let levels = std::array::from_fn(|level| {
            let tables = &view.version.levels[level];
            LevelStat {
                tables: tables.len(),
                bytes: view.version.bytes(level),
                entries: tables.iter().map(|table| table.meta.entries).sum(),
                deletes: tables.iter().map(|table| table.meta.deletes).sum(),
                older: tables.iter().map(|table| table.meta.older).sum(),
                unit_bytes_min: tables.iter().map(|table| table.unit_bytes).min().unwrap_or(0),
                unit_bytes_max: tables.iter().map(|table| table.unit_bytes).max().unwrap_or(0),
            }
        });
        let kept: BTreeMap<u64, u64> = view.version.logs().map(|log| (log.number, log.bytes)).collect();
        let memtables = || std::iter::once(&view.active).chain(&view.frozen);
        let (cache_hits, cache_misses) = self.library.cache.hits_and_misses();
        let (filter_stopped, filter_wrong) = self.library.filters.totals();
        StoreStat {
            levels,
            memtable_bytes: memtables().map(|memtable| memtable.bytes()).sum(),
            unflushed_bytes: memtables().map(|memtable| memtable.user_bytes()).sum(),
            cache_bytes: self.library.cache.bytes(),
            cache_hits,
            cache_misses,
            filter_stopped,
            filter_wrong,
            snapshots: self.snapshots.lock().values().sum(),
            memtables_waiting: view.frozen.len(),
            ledger: self.media.ledger(),
            discarded: self.counts.discarded.load(Relaxed),
            reuse_mode: self.reuse(),
            sharing: if self.media.sharing_refused() { Sharing::None } else { self.sharing },
            unit_bytes: self.options.reuse.unit_bytes.unwrap_or(self.media.shape().unit_bytes),
            placement: self.media.placement(),
            kept_logs: kept.len(),
            kept_log_bytes: kept.values().sum(),
            pointed_bytes: view.version.levels[0].iter().map(|table| table.meta.pointed_bytes).sum(),
            lifetime: self.lifetime(),
            since_opened: Lifetime::default().with(&self.counts, self.sharing, &*self.media),
        }
    }
}
