//! Room on a medium, counted in tables.

use crate::lsm::compaction::{Claim, FINE_BYTES, GRANDPARENTS_MAX};
use crate::lsm::table::Table;
use crate::media::MediaShape;
use std::sync::Arc;
use vellum_base::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A table is small if it has less than one in so many bytes of a full one.
const SMALL_PARTS: u64 = 4;
/// Tables kept for flushes at any time.
const FLUSH_TABLES: u64 = 2;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Tables that can be created.
    pub tables: u64,
    /// Tables that the manifest can describe beyond those it does. Unlike the medium it never holds what a merge reads
    /// and what it writes at once.
    pub listed: u64,
    /// Bytes that count as one table.
    pub table_bytes: u64,
    /// A shorter table counts as a whole one, too.
    pub whole_tables: bool,
    /// Merges are planned with no allowance beyond their inputs.
    pub is_tight: bool,
}

impl Room {
    /// Less what flushes and the running jobs may still need.
    pub(crate) fn beside(self, running: &[Claim]) -> Room {
        let needed = running.iter().map(|claim| claim.to_come(&self)).sum::<u64>() + FLUSH_TABLES;
        Room {
            tables: self.tables.saturating_sub(needed),
            listed: self.listed.saturating_sub(needed),
            ..self
        }
    }

    /// With what [`Room::beside`] keeps for flushes, and without allowance for tables that are not full. If that turns
    /// out not to suffice, the merge is abandoned.
    pub(crate) fn in_the_end(self) -> Room {
        Room {
            tables: self.tables.saturating_add(FLUSH_TABLES),
            listed: self.listed.saturating_add(FLUSH_TABLES),
            is_tight: true,
            ..self
        }
    }

    /// Tables that can be created while none is replaced.
    pub(crate) fn free(&self) -> u64 {
        self.tables.min(self.listed)
    }

    /// True if a merge may create so many tables, in the place of `replaced` that are erased in the end.
    pub(crate) fn fits(&self, created: u64, replaced: usize) -> bool {
        created <= self.tables && created <= self.listed.saturating_add(replaced as u64)
    }

    /// Tables that merging these and `many` more may create. `below_bytes` is the size of the overlapping part of the
    /// level below the output, which causes cuts. Small inputs are joined into few tables, apart from such cuts; others
    /// result in about as many.
    pub(crate) fn merge_of<'a>(
        &self,
        tables: impl Iterator<Item = &'a Arc<Table>> + Clone,
        many: u64,
        below_bytes: u64,
    ) -> u64 {
        let counted = |table: &Arc<Table>| match table.meta.merged_bytes() {
            bytes if bytes * SMALL_PARTS < self.table_bytes && self.table_bytes >= FINE_BYTES => bytes,
            bytes => bytes.next_multiple_of(self.table_bytes),
        };
        let bytes: u64 = tables.clone().map(counted).sum();
        let cuts = below_bytes / self.table_bytes / GRANDPARENTS_MAX;
        let inputs = self.taken_by(tables).min(bytes.div_ceil(self.table_bytes) + cuts) + many;
        if self.is_tight { inputs } else { tables_of_merge(inputs) }
    }

    /// Approximate number of tables that `bytes` of entries fill; leaves leave some space unused.
    pub(crate) fn filled_by(&self, bytes: u64) -> u64 {
        (bytes + bytes / 8).div_ceil(self.table_bytes)
    }

    /// Room that these tables take.
    pub(crate) fn taken_by<'a>(&self, tables: impl IntoIterator<Item = &'a Arc<Table>>) -> u64 {
        // A table that shares superblocks may take more than one when it is rewritten.
        let bytes = tables.into_iter().map(|table| table.meta.merged_bytes());
        match self.whole_tables {
            true => bytes.map(|bytes| bytes.div_ceil(self.table_bytes)).sum(),
            false => bytes.sum::<u64>().div_ceil(self.table_bytes),
        }
    }
}

/// Room that a merge has taken so far: its outputs exist beside the tables that they replace.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoomTaken(Arc<AtomicU64>);

impl RoomTaken {
    /// Adds a finished table, `relinked` bytes of which are shared with others.
    pub(crate) fn add(&self, bytes: u64, relinked: u64, shape: &MediaShape) {
        let bytes = match (shape.whole_tables, relinked) {
            (true, 0) => shape.table_bytes,
            (true, _) => 0, // it shares superblocks: how many it has of its own is not known
            (false, _) => bytes.saturating_sub(relinked),
        };
        self.0.fetch_add(bytes, Relaxed);
    }

    /// Resets the count, as the output so far is erased.
    pub(crate) fn forget(&self) {
        self.0.store(0, Relaxed);
    }

    /// In tables.
    pub(crate) fn tables(&self, room: &Room) -> u64 {
        self.0.load(Relaxed) / room.table_bytes
    }
}

impl PartialEq for RoomTaken {
    fn eq(&self, other: &RoomTaken) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for RoomTaken {}

/// Tables that merging `inputs` may create: about as many, but not all of them full.
pub(crate) fn tables_of_merge(inputs: u64) -> u64 {
    inputs + inputs / 4 + 1
}
