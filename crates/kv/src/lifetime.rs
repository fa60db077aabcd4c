//! What a store did since it was created: counters that are kept in the manifest and continue at each opening.
//!
//! Invariant: the counters in the manifest are as of its last edit, whose own bytes are included. What happened between
//! that and a crash is not counted.

use crate::bytes::{Fields, put_varint};
use crate::freewrite::ReuseStat;
use crate::journal::LEVELS;
use crate::media::{Media, Sharing};
use std::collections::BTreeMap;
use vellum_base::Cause;
use vellum_base::sync::Mutex;
use vellum_base::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The bytes written for a cause are the counter with this number plus that of the cause.
const CAUSES_FROM: u8 = 64;

/// The ledger's cause for compaction into `level`; for level 0 that is a flush.
pub(crate) fn cause_of(level: usize) -> Cause {
    match level {
        0 => Cause::Flush,
        1 => Cause::Compaction1,
        2 => Cause::Compaction2,
        3 => Cause::Compaction3,
        4 => Cause::Compaction4,
        5 => Cause::Compaction5,
        _ => Cause::Compaction6,
    }
}

/// Counters since a store was created, or since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lifetime {
    /// By counter number; see docs/formats/kv-log.md.
    counters: BTreeMap<u8, u64>,
}

/// The numbers of counters. Part of the format: add at the end only.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Counter {
    UserBytes = 0,
    MovedBytes = 1,
    IngestedBytes = 2,
    Flushes = 3,
    Compactions = 4,
    Moves = 5,
    Stalls = 6,
    StalledNs = 7,
    SlowedNs = 8,
    Islands = 9,
    Bubbles = 10,
    BubbleBytes = 11,
    InheritedBytes = 12,
    KeptBytes = 13,
    RemappedBytes = 14,
    ReflinkedBytes = 15,
    LinkedBytes = 16,
    MediumBytes = 17,
    NvramBytes = 18,
}

/// Events counted since the store was opened.
#[derive(Default)]
pub(crate) struct Counts {
    pub user_bytes: AtomicU64,
    pub flushes: AtomicU64,
    pub compactions: AtomicU64,
    pub moves: AtomicU64,
    pub discarded: AtomicU64,
    pub ingested_bytes: AtomicU64,
    pub moved_bytes: AtomicU64,
    pub stalls: AtomicU64,
    pub stalled_ns: AtomicU64,
    pub slowed_ns: AtomicU64,
    pub reused: Mutex<ReuseStat>,
}

impl Lifetime {
    /// Bytes of keys and values that users wrote.
    pub fn user_bytes(&self) -> u64 {
        self.of(Counter::UserBytes)
    }
    /// Bytes of tables that moved to the next level without being rewritten.
    pub fn moved_bytes(&self) -> u64 {
        self.of(Counter::MovedBytes)
    }
    /// Bytes of ingested tables.
    pub fn ingested_bytes(&self) -> u64 {
        self.of(Counter::IngestedBytes)
    }
    /// Memtables turned into tables.
    pub fn flushes(&self) -> u64 {
        self.of(Counter::Flushes)
    }
    /// Compactions that rewrote tables; moves are counted apart.
    pub fn compactions(&self) -> u64 {
        self.of(Counter::Compactions)
    }
    /// Compactions that only moved a table to the next level.
    pub fn moves(&self) -> u64 {
        self.of(Counter::Moves)
    }
    /// How often writers, flushes on request and ingests waited for room, or for the background to catch up, and for
    /// how many nanoseconds in all. Writers that queue behind one that waits are not counted again.
    pub fn stalls(&self) -> (u64, u64) {
        (self.of(Counter::Stalls), self.of(Counter::StalledNs))
    }
    /// Nanoseconds by which writers were slowed down.
    pub fn slowed_ns(&self) -> u64 {
        self.of(Counter::SlowedNs)
    }
    /// Leaves that compaction kept unchanged.
    pub fn reuse(&self) -> ReuseStat {
        ReuseStat {
            islands: self.of(Counter::Islands),
            bubbles: self.of(Counter::Bubbles),
            bubble_bytes: self.of(Counter::BubbleBytes),
            inherited_bytes: self.of(Counter::InheritedBytes),
            kept_bytes: self.of(Counter::KeptBytes),
            relinked_bytes: [self.reflinked_bytes(), self.linked_bytes()]
                .into_iter()
                .fold(self.remapped_bytes(), u64::saturating_add),
        }
    }
    /// Bytes of kept leaves that a device mapped to a second address instead of storing them again.
    pub fn remapped_bytes(&self) -> u64 {
        self.of(Counter::RemappedBytes)
    }
    /// Bytes of kept leaves that a file system cloned.
    pub fn reflinked_bytes(&self) -> u64 {
        self.of(Counter::ReflinkedBytes)
    }
    /// Bytes of kept leaves that stayed where they are on flash.
    pub fn linked_bytes(&self) -> u64 {
        self.of(Counter::LinkedBytes)
    }
    /// Bytes of the output of compaction, or of the log store's collection: written (bubbles included) or shared. What
    /// the medium itself copied to collect superblocks is not included.
    pub fn emitted_bytes(&self) -> u64 {
        let causes = (1..LEVELS).map(cause_of).chain([Cause::Gc, Cause::Bubble]);
        let all = causes.map(|cause| self.written_for(cause));
        all.fold(self.reuse().relinked_bytes, u64::saturating_add)
            .saturating_sub(self.of(Counter::MediumBytes))
    }
    /// Bytes written for `cause`.
    pub fn written_for(&self, cause: Cause) -> u64 {
        self.counters.get(&(CAUSES_FROM + cause as u8)).copied().unwrap_or(0)
    }
    /// Bytes of logs and manifests that a device's NVRAM took. They are not among the written ones, as no flash was
    /// programmed for them.
    pub fn nvram_bytes(&self) -> u64 {
        self.of(Counter::NvramBytes)
    }
    /// Bytes written for all causes.
    pub fn written_bytes(&self) -> u64 {
        self.counters.range(CAUSES_FROM..).map(|(_, bytes)| *bytes).fold(0, u64::saturating_add)
    }
    /// Bytes written per byte that users wrote; 0 if they wrote none.
    pub fn write_amplification(&self) -> f64 {
        match self.user_bytes() {
            0 => 0.0,
            user => self.written_bytes() as f64 / user as f64,
        }
    }

    /// The same with more bytes written for `cause`.
    pub(crate) fn plus(mut self, cause: Cause, bytes: u64) -> Lifetime {
        let total = self.counters.entry(CAUSES_FROM + cause as u8).or_default();
        *total = total.saturating_add(bytes);
        self
    }

    fn of(&self, counter: Counter) -> u64 {
        self.counters.get(&(counter as u8)).copied().unwrap_or(0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.counters.is_empty()
    }

    /// These counters plus the events of `counts` and the ledger of the medium.
    pub(crate) fn with(&self, counts: &Counts, sharing: Sharing, media: &dyn Media) -> Lifetime {
        let (mut sum, ledger) = (self.clone(), media.ledger());
        let placed = media.placement();
        let (collected, in_nvram) =
            placed.map_or((0, 0), |placed| (placed.collected_bytes, placed.nvram_bytes));
        let reuse = *counts.reused.lock();
        let shared = |way| if way == sharing { reuse.relinked_bytes } else { 0 };
        let reused = [
            (Counter::Islands, reuse.islands),
            (Counter::Bubbles, reuse.bubbles),
            (Counter::BubbleBytes, reuse.bubble_bytes),
            (Counter::InheritedBytes, reuse.inherited_bytes),
            (Counter::KeptBytes, reuse.kept_bytes),
            (Counter::RemappedBytes, shared(Sharing::Remap)),
            (Counter::ReflinkedBytes, shared(Sharing::Reflink)),
            (Counter::LinkedBytes, shared(Sharing::Relink)),
            (Counter::MediumBytes, collected),
            (Counter::NvramBytes, in_nvram),
        ];
        let since = [
            (Counter::UserBytes, &counts.user_bytes),
            (Counter::MovedBytes, &counts.moved_bytes),
            (Counter::IngestedBytes, &counts.ingested_bytes),
            (Counter::Flushes, &counts.flushes),
            (Counter::Compactions, &counts.compactions),
            (Counter::Moves, &counts.moves),
            (Counter::Stalls, &counts.stalls),
            (Counter::StalledNs, &counts.stalled_ns),
            (Counter::SlowedNs, &counts.slowed_ns),
        ];
        let since = since.map(|(counter, count)| (counter, count.load(Relaxed)));
        let since = since.into_iter().chain(reused).map(|(counter, count)| (counter as u8, count));
        let causes =
            Cause::ALL.iter().map(|cause| (CAUSES_FROM + *cause as u8, ledger.programmed_by(*cause)));
        for (number, count) in since.chain(causes).filter(|(_, count)| *count > 0) {
            let total = sum.counters.entry(number).or_default();
            *total = total.saturating_add(count);
        }
        sum
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        put_varint(out, self.counters.len() as u64);
        for (number, count) in &self.counters {
            out.push(*number);
            put_varint(out, *count);
        }
    }

    pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Lifetime> {
        let count = fields.varint().filter(|count| *count <= 256)?;
        let counters = (0..count).map(|_| Some((fields.u8()?, fields.varint()?)));
        Some(Lifetime { counters: counters.collect::<Option<_>>()? })
    }

    #[cfg(test)]
    pub(crate) fn for_test(counters: BTreeMap<u8, u64>) -> Lifetime {
        Lifetime { counters }
    }
}
