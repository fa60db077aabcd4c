//! What a log store says of itself.

use super::core::Core;
use crate::lifetime::Lifetime;
use crate::lsm::stat::ReuseStat;
use crate::media::Sharing;
use crate::options::Reuse;
use vellum_base::LedgerSnapshot;
use vellum_base::sync::atomic::Ordering::Relaxed;

/// What a log store holds, and what it did since it was opened.
#[derive(Clone, Debug)]
pub struct StoreStat {
    /// Keys.
    pub keys: u64,
    /// Segments, those in memory included.
    pub segments: usize,
    /// Bytes of the tables that segments are.
    pub segment_bytes: u64,
    /// Bytes of records that the index points to.
    pub live_bytes: u64,
    /// Bytes of deletes.
    pub delete_bytes: u64,
    /// Bytes of records that nobody needs any more.
    pub garbage_bytes: u64,
    /// Bytes of bubbles.
    pub bubble_bytes: u64,
    /// Segments with a record that does not check out, perhaps: they are not collected.
    pub segments_skipped: usize,
    /// Memory of the index.
    pub index_bytes: usize,
    /// Memory of segments that are not yet on the medium.
    pub open_bytes: u64,
    /// Segments on their way to the medium.
    pub segments_waiting: usize,
    /// Records that gets read.
    pub records_read: u64,
    /// Of these, records of other keys.
    pub records_wrong: u64,
    /// Bytes of keys and values that writers brought.
    pub user_bytes: u64,
    /// What was written, by cause.
    pub ledger: LedgerSnapshot,
    /// Segments that became tables.
    pub seals: u64,
    /// Times that segments were collected.
    pub collections: u64,
    /// Bytes of segments that were collected.
    pub collected_bytes: u64,
    /// Bytes of segments that were made of them.
    pub copied_bytes: u64,
    /// Times that writers had to wait, and for how long.
    pub stalls: u64,
    /// For how long.
    pub stalled_ns: u64,
    /// Units that collecting kept.
    pub reuse: ReuseStat,
    /// What collecting does with units that it need not change; never [`Reuse::Auto`].
    pub reuse_mode: Reuse,
    /// How it has them in two tables; known only where that was asked for.
    pub sharing: Sharing,
    /// The same since the store was made.
    pub lifetime: Lifetime,
    since_opened: Lifetime,
}

impl StoreStat {
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
        let all = view.in_order();
        let ledger = self.media.ledger();
        let (collected, counts) = (*self.collected.lock(), &self.counts);
        let sum =
            |of: &dyn Fn(&super::segment::Segment) -> u64| all.iter().map(|segment| of(segment)).sum::<u64>();
        let live_bytes = sum(&|segment| segment.account.live.load(Relaxed));
        let delete_bytes = sum(&|segment| segment.account.deletes.load(Relaxed));
        let bubble_bytes = sum(&|segment| segment.meta().map_or(0, |meta| meta.bubble_bytes));
        let data_bytes = sum(&|segment| segment.data_bytes() - super::segment::START_BYTES as u64);
        let reuse = counts.reused.lock().stat();
        StoreStat {
            keys: self.index.len(),
            segments: all.len(),
            segment_bytes: sum(&|segment| segment.meta().map_or(0, |meta| meta.bytes)),
            live_bytes,
            delete_bytes,
            garbage_bytes: data_bytes.saturating_sub(live_bytes + delete_bytes + bubble_bytes),
            bubble_bytes,
            segments_skipped: all.iter().filter(|segment| segment.account.is_skipped.load(Relaxed)).count(),
            index_bytes: self.index.memory_bytes(),
            open_bytes: sum(&|segment| if segment.meta().is_none() { segment.data_bytes() } else { 0 }),
            segments_waiting: self.state.lock().frozen.len(),
            records_read: self.looks.records.load(Relaxed),
            records_wrong: self.looks.wrong.load(Relaxed),
            user_bytes: counts.user_bytes.load(Relaxed),
            ledger,
            seals: counts.flushes.load(Relaxed),
            collections: counts.compactions.load(Relaxed),
            collected_bytes: collected.taken,
            copied_bytes: collected.made,
            stalls: counts.stalls.load(Relaxed),
            stalled_ns: counts.stalled_ns.load(Relaxed),
            reuse,
            reuse_mode: self.options.reuse,
            sharing: self.sharing,
            lifetime: self.lifetime(),
            since_opened: Lifetime::default().with(counts, self.sharing, &ledger),
        }
    }
}
