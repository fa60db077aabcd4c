//! Statistics of a log store.

use super::core::Core;
use crate::freewrite::Reuse;
use crate::lifetime::Lifetime;
use crate::media::{Placement, Sharing};
use vellum_base::LedgerSnapshot;
use vellum_base::sync::atomic::Ordering::Relaxed;

/// What a log store holds, and what it did.
#[derive(Clone, Debug)]
pub struct StoreStat {
    /// Number of keys.
    pub keys: u64,
    /// Segments, including those in memory.
    pub segments: usize,
    /// Bytes of the segments that are stored in tables.
    pub segment_bytes: u64,
    /// Bytes of records of current values.
    pub live_bytes: u64,
    /// Bytes of records of deletes.
    pub delete_bytes: u64,
    /// Bytes of records that are no longer needed.
    pub garbage_bytes: u64,
    /// Bytes of bubbles.
    pub bubble_bytes: u64,
    /// Segments that are not collected because a record in them appears to be damaged.
    pub segments_skipped: usize,
    /// Memory of the index, in bytes.
    pub index_bytes: usize,
    /// Bytes of records whose segment is not in a table yet.
    pub open_bytes: u64,
    /// Full segments that wait to be written to tables.
    pub segments_waiting: usize,
    /// Records read by gets.
    pub records_read: u64,
    /// Of these, records of other keys, read because of hash collisions.
    pub records_wrong: u64,
    /// Bytes written since the medium was opened, by cause.
    pub ledger: LedgerSnapshot,
    /// Bytes of segments that were collected.
    pub collected_bytes: u64,
    /// Bytes of the segments written in their place.
    pub copied_bytes: u64,
    /// What collection does with units that it does not have to change; never [`Reuse::Auto`].
    pub reuse_mode: Reuse,
    /// How the medium shares bytes between two tables; [`Sharing::None`] unless relinking was asked for.
    pub sharing: Sharing,
    /// Bytes of a unit ([`crate::ReuseOptions::unit_bytes`]).
    pub unit_bytes: u64,
    /// How segments are placed on superblocks; `None` except on flash.
    pub placement: Option<Placement>,
    /// Counters since the store was opened. Flushes are segments written to tables, compactions are collections.
    pub since_opened: Lifetime,
    /// Counters since the store was created.
    pub lifetime: Lifetime,
}

impl Core {
    pub(crate) fn stat(&self) -> StoreStat {
        let view = self.view.load_full();
        let all = view.in_order();
        let ledger = self.media.ledger();
        let collected = *self.collected.lock();
        let sum =
            |of: &dyn Fn(&super::segment::Segment) -> u64| all.iter().map(|segment| of(segment)).sum::<u64>();
        let live_bytes = sum(&|segment| segment.account.live.load(Relaxed));
        let delete_bytes = sum(&|segment| segment.account.deletes.load(Relaxed));
        let bubble_bytes = sum(&|segment| segment.meta().map_or(0, |meta| meta.bubble_bytes));
        let data_bytes = sum(&|segment| segment.data_bytes() - super::segment::START_BYTES as u64);
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
            open_bytes: sum(&|segment| match segment.meta() {
                None => segment.data_bytes() - super::segment::START_BYTES as u64,
                Some(_) => 0,
            }),
            segments_waiting: self.state.lock().frozen.len(),
            records_read: self.looks.records.load(Relaxed),
            records_wrong: self.looks.wrong.load(Relaxed),
            ledger,
            collected_bytes: collected.taken,
            copied_bytes: collected.made,
            reuse_mode: self.reuse(),
            sharing: if self.media.sharing_refused() { Sharing::None } else { self.sharing },
            unit_bytes: self.unit_bytes(),
            placement: self.media.placement(),
            lifetime: self.lifetime(),
            since_opened: Lifetime::default().with(&self.counts, self.sharing, &*self.media),
        }
    }
}
