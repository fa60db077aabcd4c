//! What became of data that a merge or a collection did not have to change.

use super::Totals;

/// Leaves, or units of a log store, that merges or collections kept unchanged (docs/decisions/0021).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReuseStat {
    /// Islands: runs of unchanged leaves that were kept.
    pub islands: u64,
    /// Bubbles written to keep them aligned.
    pub bubbles: u64,
    /// Bytes of these bubbles.
    pub bubble_bytes: u64,
    /// Bytes of bubbles of earlier merges inside kept leaves.
    pub inherited_bytes: u64,
    /// Bytes of kept leaves: what the medium, or a device below it, may avoid writing.
    pub kept_bytes: u64,
    /// Of these, bytes that the medium is known not to have written. What a deduplicating device below avoids is not
    /// known.
    pub relinked_bytes: u64,
}

impl ReuseStat {
    /// From the totals of a table's planner, and what its medium shared.
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

    /// Bytes of bubbles relative to bytes of islands, which [`crate::Caps::bubble`] bounds; 0 before the first.
    pub fn bubble_share(&self) -> f64 {
        share(self.bubble_bytes, self.kept_bytes)
    }

    /// Bytes of bubbles, inherited ones included, relative to all bytes that compaction emitted, which
    /// [`crate::Caps::global`] bounds.
    pub fn padding_share(&self, emitted_bytes: u64) -> f64 {
        share(self.bubble_bytes.saturating_add(self.inherited_bytes), emitted_bytes)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
