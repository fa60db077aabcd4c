//! The write ledger: every programmed byte is counted under a cause, every avoided byte under a reason.
//!
//! Invariant: the sum over causes equals `pages_programmed × page_bytes` of the device below. It is checked
//! in every test that writes, and by `vellum disk check`.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! named_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$vmeta])* $variant,)* }

        impl $name {
            /// Every value, in the order shown to people.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
            /// How many there are.
            pub const COUNT: usize = $name::ALL.len();
            /// Stable name, as in `--json` and metrics.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }
    };
}

named_enum! {
    /// Why bytes were programmed to flash. Values are part of the on-media format: add at the end only.
    Cause {
        /// Sectors written by the host.
        HostData = "host_data",
        /// Moved to empty an erase block.
        Gc = "gc",
        /// Moved to even out wear.
        WearLevel = "wear_level",
        /// Moved because its bits were failing, or its block was retired.
        Refresh = "refresh",
        /// Map changes that programs do not record themselves, and small sectors packed among them.
        MapLog = "map_log",
        /// Map nodes and roots.
        Checkpoint = "checkpoint",
        /// Filler: where a page had to be programmed before it was full, and zeros ahead of a log that is synced often.
        Padding = "padding",
        /// Programs that failed or were torn, and were repeated elsewhere.
        Failed = "failed",
        /// Programmed before a power cut that came before the cause was recorded.
        BeforePowerCut = "before_power_cut",
        /// Write-ahead log of a key-value store.
        Log = "log",
        /// Memtable flush to level 0.
        Flush = "flush",
        /// Compaction into level 1 (and so on).
        Compaction1 = "compaction_l1",
        /// Compaction into level 2.
        Compaction2 = "compaction_l2",
        /// Compaction into level 3.
        Compaction3 = "compaction_l3",
        /// Compaction into level 4.
        Compaction4 = "compaction_l4",
        /// Compaction into level 5.
        Compaction5 = "compaction_l5",
        /// Compaction into level 6.
        Compaction6 = "compaction_l6",
        /// RAID parity.
        Parity = "parity",
        /// A read miss brought into a cache.
        CacheFill = "cache_fill",
        /// A write kept in a cache.
        CacheWrite = "cache_write",
        /// A delta kept in a cache.
        Delta = "delta",
        /// Tables and logs of a cache.
        CacheMetadata = "cache_metadata",
        /// Padding that keeps an island aligned.
        Bubble = "bubble",
        /// A key-value store's manifest, and the pages that say which table a superblock holds.
        StoreMetadata = "store_metadata",
    }
}

named_enum! {
    /// Why bytes were not programmed. Values are part of the on-media format: add at the end only.
    Avoided {
        /// All zeros: mapped, never programmed.
        Zero = "zero",
        /// The sector already held these bytes.
        SameContent = "same_content",
        /// The bytes were already in a file system's journal.
        JournalCopy = "journal_copy",
        /// The bytes were already stored elsewhere, found while they were written.
        Duplicate = "duplicate",
        /// Mostly zeros: packed with others (the bytes saved, not those stored).
        Packed = "packed",
        /// The host asked for a remap instead of a write.
        Remap = "remap",
        /// Trimmed while still valid: no GC will ever copy it.
        Trim = "trim",
        /// A parity update that was deferred.
        DeferredParity = "deferred_parity",
        /// Duplicates found after they were programmed: the bytes freed, which no GC will ever copy.
        DuplicateOffline = "duplicate_offline",
        /// Values that a table points to in a log instead of storing them (without the pointers).
        InLog = "in_log",
    }
}

/// Counters of bytes by [`Cause`] and [`Avoided`], shared by all tasks of an engine.
#[derive(Debug, Default)]
pub struct Ledger {
    host_read_bytes: AtomicU64,
    host_written_bytes: AtomicU64,
    programmed: [AtomicU64; Cause::COUNT],
    avoided: [AtomicU64; Avoided::COUNT],
}

impl Ledger {
    /// A ledger whose counters start from `snapshot`.
    pub fn resume(snapshot: &LedgerSnapshot) -> Ledger {
        let ledger = Ledger::default();
        ledger.host_read_bytes.store(snapshot.host_read_bytes, Relaxed);
        ledger.host_written_bytes.store(snapshot.host_written_bytes, Relaxed);
        for (to, from) in ledger.programmed.iter().zip(snapshot.programmed) {
            to.store(from, Relaxed);
        }
        for (to, from) in ledger.avoided.iter().zip(snapshot.avoided) {
            to.store(from, Relaxed);
        }
        ledger
    }
    /// The host read `bytes`.
    pub fn host_read(&self, bytes: u64) {
        self.host_read_bytes.fetch_add(bytes, Relaxed);
    }
    /// The host wrote `bytes` (trims do not count, write-zeroes does).
    pub fn host_written(&self, bytes: u64) {
        self.host_written_bytes.fetch_add(bytes, Relaxed);
    }
    /// `bytes` were programmed because of `cause`.
    pub fn programmed(&self, cause: Cause, bytes: u64) {
        self.programmed[cause as usize].fetch_add(bytes, Relaxed);
    }
    /// Moves `bytes` from cause `from` to cause `to` (such as for a failed program).
    pub fn rebook(&self, from: Cause, to: Cause, bytes: u64) {
        self.programmed[from as usize].fetch_sub(bytes, Relaxed);
        self.programmed[to as usize].fetch_add(bytes, Relaxed);
    }
    /// `bytes` need not be programmed, for `reason`.
    pub fn avoided(&self, reason: Avoided, bytes: u64) {
        self.avoided[reason as usize].fetch_add(bytes, Relaxed);
    }
    /// The current values.
    pub fn snapshot(&self) -> LedgerSnapshot {
        LedgerSnapshot {
            host_read_bytes: self.host_read_bytes.load(Relaxed),
            host_written_bytes: self.host_written_bytes.load(Relaxed),
            programmed: std::array::from_fn(|i| self.programmed[i].load(Relaxed)),
            avoided: std::array::from_fn(|i| self.avoided[i].load(Relaxed)),
        }
    }
}

/// Values of a [`Ledger`] at one point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerSnapshot {
    /// Bytes the host read.
    pub host_read_bytes: u64,
    /// Bytes the host wrote.
    pub host_written_bytes: u64,
    /// Bytes programmed, by `Cause as usize`.
    pub programmed: [u64; Cause::COUNT],
    /// Bytes avoided, by `Avoided as usize`.
    pub avoided: [u64; Avoided::COUNT],
}

impl LedgerSnapshot {
    /// Bytes programmed because of `cause`.
    pub fn programmed_by(&self, cause: Cause) -> u64 {
        self.programmed[cause as usize]
    }
    /// Bytes avoided for `reason`.
    pub fn avoided_by(&self, reason: Avoided) -> u64 {
        self.avoided[reason as usize]
    }
    /// All bytes programmed: equals what the device counted.
    pub fn programmed_total(&self) -> u64 {
        self.programmed.iter().sum()
    }
    /// All bytes avoided.
    pub fn avoided_total(&self) -> u64 {
        self.avoided.iter().sum()
    }
    /// Write amplification: bytes programmed per byte the host wrote. 0 before the first write.
    pub fn waf(&self) -> f64 {
        match self.host_written_bytes {
            0 => 0.0,
            host => self.programmed_total() as f64 / host as f64,
        }
    }
    /// What happened since `earlier`.
    pub fn since(&self, earlier: &LedgerSnapshot) -> LedgerSnapshot {
        LedgerSnapshot {
            host_read_bytes: self.host_read_bytes - earlier.host_read_bytes,
            host_written_bytes: self.host_written_bytes - earlier.host_written_bytes,
            programmed: std::array::from_fn(|i| self.programmed[i] - earlier.programmed[i]),
            avoided: std::array::from_fn(|i| self.avoided[i] - earlier.avoided[i]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resumed_ledger_goes_on() {
        let a = Ledger::default();
        a.host_written(8192);
        a.programmed(Cause::HostData, 4096);
        a.avoided(Avoided::Zero, 4096);
        let b = Ledger::resume(&a.snapshot());
        b.programmed(Cause::Gc, 4096);
        let s = b.snapshot();
        assert_eq!((s.programmed_total(), s.avoided_total(), s.waf()), (8192, 4096, 1.0));
        assert_eq!(s.since(&a.snapshot()).programmed_by(Cause::Gc), 4096);
        assert_eq!(Cause::ALL[Cause::Bubble as usize].name(), "bubble");
    }
}
