//! How large a table is that is being built, and how large it may become with the next entry or leaf.

use super::TableBuilder;
use crate::key::separator_bytes;
use crate::lsm::table::foot::FOOT_BYTES;
use crate::lsm::table::grain::Grain;
use crate::lsm::table::leaf_build::KEY_BYTES_SHORT;
use crate::lsm::table::object::OBJECT_BYTES_MAX;
use crate::lsm::table::stored::StoredLeaf;

impl TableBuilder {
    /// Most bytes of the table if it ended after this entry; `usize::MAX` if its root would be too large to be read.
    pub(crate) fn bytes_with(&self, key: &[u8], value: &[u8]) -> usize {
        let Grain { unit_bytes, leaf_bytes, .. } = self.grain;
        // Entries collected for compression may have to begin leaves of their own.
        let repeated = if self.is_packing() { self.leaf.repeated() } else { 0 };
        let leaf = (self.leaf.bytes() + repeated + key.len() + value.len() + 64).next_multiple_of(unit_bytes);
        let hashes = self.hashes.len() + self.leaf.count() + 1;
        let filter = hashes * self.bits_per_key as usize / 8 + 128 + unit_bytes;
        // No more leaves than entries.
        let leaves = (leaf / leaf_bytes + 1).min(self.leaf.count() + 1);
        let longest = key.len().max(self.closed_last_key.len()).max(self.leaf.longest_key());
        let (short, more) = match longest > KEY_BYTES_SHORT {
            true => (KEY_BYTES_SHORT, self.separators_bytes(key, leaves) + key.len()),
            false => (longest, 0),
        };
        let index = self.index.bytes() + leaves * (2 * short + 128) + more + unit_bytes;
        let root = self.root.bytes() + 3 * short + 128 + more + unit_bytes;
        if root > OBJECT_BYTES_MAX {
            return usize::MAX;
        }
        self.bytes() + 2 * leaf + filter + index + root + 2 * unit_bytes + FOOT_BYTES
    }

    /// Most bytes of the keys that tell the last leaves apart, if the open one becomes so many with the entry of
    /// `next`.
    fn separators_bytes(&self, next: &[u8], leaves: usize) -> usize {
        match (self.leaf.count(), &self.closed) {
            // Collected for compression, or to be cut between two runs.
            (2.., _) => {
                let last = separator_bytes(self.leaf.last_key(), next);
                (leaves - 1) * self.leaf.longest_separator().max(last).max(KEY_BYTES_SHORT)
            }
            (1, _) => separator_bytes(self.leaf.last_key(), next),
            (0, Some(_)) => separator_bytes(&self.closed_last_key, next),
            (0, None) => 0,
        }
    }

    /// Where the open leaf ends; an estimate if it is compressed. The next object would begin at the next unit. If the
    /// leaf has no room for another entry like its own, its whole last unit counts as used: that rest stays empty
    /// whatever comes next.
    pub(crate) fn tail(&self) -> usize {
        let open = match &self.packer {
            _ if self.leaf.is_empty() => 0,
            Some(packer) if !packer.is_resting() => packer.guess(self.leaf.bytes()),
            _ => {
                let (used, entries) = (self.leaf.bytes(), self.leaf.count());
                let whole = used.next_multiple_of(self.grain.unit_bytes);
                let is_full = whole >= self.leaf_room && whole - used < used / entries;
                if is_full { whole } else { used }
            }
        };
        self.bytes() + open
    }

    /// Most bytes of the table if it ended after this leaf.
    pub(crate) fn bytes_with_leaf(&self, leaf: &StoredLeaf) -> usize {
        let hashes = (self.hashes.len() + self.leaf.count()) + leaf.entries as usize;
        let filter = hashes * self.bits_per_key as usize / 8 + 128 + self.grain.unit_bytes;
        // In the index and in the root.
        let keys = 2 * (leaf.last.len() + separator_bytes(self.last_key(), &leaf.first));
        let more = leaf.bytes.len() + filter + keys + 128;
        self.bytes_with(&leaf.last, &[]).saturating_add(more)
    }
}
