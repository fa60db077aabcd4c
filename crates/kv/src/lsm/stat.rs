//! What a store says of itself.

use crate::journal::LEVELS;
use crate::lifetime::Lifetime;
use crate::lsm::core::Core;
use crate::media::Sharing;
use crate::options::Reuse;
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
}

/// Leaves that compaction did not change, since the store was opened (docs/decisions/0021).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReuseStat {
    /// Runs of leaves that were kept as they were.
    pub islands: u64,
    /// Bubbles left for them.
    pub bubbles: u64,
    /// Bytes of these.
    pub bubble_bytes: u64,
    /// Bytes of older bubbles in leaves that were kept.
    pub inherited_bytes: u64,
    /// Bytes of leaves that were kept: what the medium, or what is below it, need not write.
    pub kept_bytes: u64,
    /// Bytes of these that the medium did not write. A device below that deduplicates does not tell.
    pub relinked_bytes: u64,
}

impl ReuseStat {
    /// Bubbles as a share of the islands that they were left for, which the bubble cap is for; 0 before the first.
    pub fn bubble_share(&self) -> f64 {
        share(self.bubble_bytes, self.kept_bytes)
    }

    /// Bubbles, older ones included, as a share of all that compaction emitted, which the global cap is for.
    pub fn padding_share(&self, emitted_bytes: u64) -> f64 {
        share(self.bubble_bytes.saturating_add(self.inherited_bytes), emitted_bytes)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// What a store holds, and what it did since it was opened.
#[derive(Clone, Debug)]
pub struct StoreStat {
    /// Levels, from 0.
    pub levels: [LevelStat; LEVELS],
    /// Memory of all memtables, about.
    pub memtable_bytes: usize,
    /// Memory of the cache.
    pub cache_bytes: usize,
    /// Lookups of leaves and branches that the cache could answer.
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
    /// Bytes of keys and values that writers brought.
    pub user_bytes: u64,
    /// Bytes written, by cause.
    pub ledger: LedgerSnapshot,
    /// Memtables turned into tables.
    pub flushes: u64,
    /// Compactions that wrote something.
    pub compactions: u64,
    /// Tables moved down as they were.
    pub moves: u64,
    /// Bytes that moves did not write.
    pub moved_bytes: u64,
    /// Bytes of tables that were ingested.
    pub ingested_bytes: u64,
    /// Tables erased because they held nothing but dropped keyspaces.
    pub discarded: u64,
    /// Times that writers had to wait.
    pub stalls: u64,
    /// For how long.
    pub stalled_ns: u64,
    /// For how long writers were slowed down.
    pub slowed_ns: u64,
    /// Leaves that compaction kept.
    pub reuse: ReuseStat,
    /// What compaction does with leaves that it need not change; never [`Reuse::Auto`].
    pub reuse_mode: Reuse,
    /// How it has them in two tables; known only where that was asked for.
    pub sharing: Sharing,
    /// The same since the store was made.
    pub lifetime: Lifetime,
    since_opened: Lifetime,
}

impl StoreStat {
    /// Of lookups of keys that were not there, the share that a filter let pass; 0 before the first.
    pub fn filter_wrong_share(&self) -> f64 {
        match self.filter_stopped + self.filter_wrong {
            0 => 0.0,
            looks => self.filter_wrong as f64 / looks as f64,
        }
    }
    /// Its counters as those of a life that began when it was opened.
    pub fn since_opened(&self) -> Lifetime {
        self.since_opened.clone()
    }
    /// Bytes written for each byte that users wrote; 0 before the first.
    pub fn write_amplification(&self) -> f64 {
        match self.user_bytes {
            0 => 0.0,
            user => self.ledger.programmed_total() as f64 / user as f64,
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
            }
        });
        let memtables = std::iter::once(&view.active).chain(&view.frozen);
        let (cache_hits, cache_misses) = self.library.cache.hits_and_misses();
        let (filter_stopped, filter_wrong) = self.library.filters.totals();
        let counts = &self.counts;
        let reuse = counts.reused.lock().stat();
        StoreStat {
            levels,
            memtable_bytes: memtables.map(|memtable| memtable.bytes()).sum(),
            cache_bytes: self.library.cache.bytes(),
            cache_hits,
            cache_misses,
            filter_stopped,
            filter_wrong,
            snapshots: self.snapshots.lock().values().sum(),
            memtables_waiting: view.frozen.len(),
            user_bytes: counts.user_bytes.load(Relaxed),
            ledger: self.media.ledger(),
            flushes: counts.flushes.load(Relaxed),
            compactions: counts.compactions.load(Relaxed),
            moves: counts.moves.load(Relaxed),
            moved_bytes: counts.moved_bytes.load(Relaxed),
            ingested_bytes: counts.ingested_bytes.load(Relaxed),
            discarded: counts.discarded.load(Relaxed),
            stalls: counts.stalls.load(Relaxed),
            stalled_ns: counts.stalled_ns.load(Relaxed),
            slowed_ns: counts.slowed_ns.load(Relaxed),
            reuse,
            reuse_mode: self.options.reuse,
            sharing: self.sharing,
            lifetime: self.lifetime(),
            since_opened: Lifetime::default().with(counts, self.sharing, &self.media.ledger()),
        }
    }
}
