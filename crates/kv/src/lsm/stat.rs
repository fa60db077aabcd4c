//! What a store says of itself.

use crate::journal::LEVELS;
use crate::lifetime::Lifetime;
use crate::lsm::core::Core;
use crate::media::{Placement, Sharing};
use crate::options::Reuse;
use std::collections::BTreeMap;
use vellum_base::LedgerSnapshot;
use vellum_base::sync::atomic::Ordering::Relaxed;

/// One level of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelStat {
    /// Tables.
    pub tables: usize,
    /// Bytes of them.
    pub bytes: u64,
    /// Entries in them, deletes and hidden versions included.
    pub entries: u64,
    /// Deletes among them.
    pub deletes: u64,
    /// Bytes of a unit, of those tables whose are smallest; 0 without tables.
    pub unit_bytes_min: usize,
    /// The same of those whose are largest.
    pub unit_bytes_max: usize,
}

/// What a store holds and did.
#[derive(Clone, Debug)]
pub struct StoreStat {
    /// Levels, from 0.
    pub levels: [LevelStat; LEVELS],
    /// Memory of all memtables, about.
    pub memtable_bytes: usize,
    /// Bytes of keys and values in them.
    pub unflushed_bytes: u64,
    /// Memory of the cache.
    pub cache_bytes: usize,
    /// Lookups of leaves, branches and values in logs that the cache could answer.
    pub cache_hits: u64,
    /// Lookups that it could not.
    pub cache_misses: u64,
    /// Looks into leaves that filters saved.
    pub filter_stopped: u64,
    /// Looks that filters let pass, and the key was not there.
    pub filter_wrong: u64,
    /// Snapshots held; what they see is kept.
    pub snapshots: usize,
    /// Memtables on their way to tables.
    pub memtables_waiting: usize,
    /// Bytes written, by cause.
    pub ledger: LedgerSnapshot,
    /// Tables erased because they held nothing but dropped keyspaces.
    pub discarded: u64,
    /// What compaction does with leaves that it need not change; never [`Reuse::Auto`].
    pub reuse_mode: Reuse,
    /// How it has them in two tables; known only where that was asked for.
    pub sharing: Sharing,
    /// Bytes of a unit of tables that are written ([`crate::Options::unit_bytes`]).
    pub unit_bytes: u64,
    /// How tables lie on superblocks, on flash.
    pub placement: Option<Placement>,
    /// Logs that are kept because tables of level 0 have values in them, and their bytes.
    pub kept_logs: usize,
    /// See [`StoreStat::kept_logs`].
    pub kept_log_bytes: u64,
    /// Of these, bytes of values that the tables point to.
    pub pointed_bytes: u64,
    /// What the store did since it was opened.
    pub since_opened: Lifetime,
    /// The same since it was made.
    pub lifetime: Lifetime,
}

impl StoreStat {
    /// Of lookups of keys that were not there, the share that a filter let pass; 0 before the first.
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
            unit_bytes: self.options.unit_bytes.unwrap_or(self.media.shape().unit_bytes),
            placement: self.media.placement(),
            kept_logs: kept.len(),
            kept_log_bytes: kept.values().sum(),
            pointed_bytes: view.version.levels[0].iter().map(|table| table.meta.pointed_bytes).sum(),
            lifetime: self.lifetime(),
            since_opened: Lifetime::default().with(&self.counts, self.sharing, &*self.media),
        }
    }
}
