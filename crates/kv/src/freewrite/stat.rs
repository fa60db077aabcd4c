//! What became of units that need not change.

use super::Totals;

/// Units that merging or collecting did not change (docs/decisions/0021).
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
    /// By the plan of a table, and what its medium told.
    pub(crate) fn new(planned: Totals, relinked_bytes: u64) -> ReuseStat {
        let Totals { islands, bubbles, bubble_bytes, inherited, kept } = planned;
        let (inherited_bytes, kept_bytes) = (inherited, kept);
        ReuseStat { islands, bubbles, bubble_bytes, inherited_bytes, kept_bytes, relinked_bytes }
    }

    pub(crate) fn add(&mut self, other: &ReuseStat) {
        self.islands += other.islands;
        self.bubbles += other.bubbles;
        self.bubble_bytes += other.bubble_bytes;
        self.inherited_bytes += other.inherited_bytes;
        self.kept_bytes += other.kept_bytes;
        self.relinked_bytes += other.relinked_bytes;
    }

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
