//! Tables: leaves, branches, a root and a foot. See docs/formats/kv-table.md.
//!
//! Invariants
//! 1. Foot and root of an open table were verified; everything else is verified when it is read. Only objects within
//!    the table and of possible size are read.
//! 2. A table marked obsolete is listed in [`crate::obsolete::Obsolete`] when its last holder drops it, and erased from
//!    there.

mod ahead;
mod batches;
mod buffer;
mod build;
mod cached;
mod check;
mod cursor;
mod entry_fences;
mod filter;
mod foot;
pub(crate) mod fuzzed;
mod get;
mod grain;
mod leaf;
mod leaf_build;
mod leaves_read;
mod lineage;
mod mapped;
mod object;
mod objects;
mod open;
mod pack;
mod pins;
mod pointed;
mod runs;
mod salvage;
mod stored;
mod stream;
mod warm;

pub(crate) use build::TableBuilder;
pub(crate) use cached::Object;
pub(crate) use cursor::TableCursor;
pub(crate) use filter::hash;
pub(crate) use foot::Foot;
pub(crate) use grain::Grain;
pub(crate) use leaves_read::LeavesRead;
pub(crate) use lineage::Lineage;
pub(crate) use pins::Pins;
pub(crate) use salvage::{Salvaged, foot_of, salvage};
#[cfg(test)]
pub(crate) use stored::leaf_of;
pub(crate) use stored::{StoredLeaf, StoredSpan};
pub(crate) use stream::{StreamOptions, TableStream};
pub(crate) use warm::Warmed;

use crate::journal::TableMeta;
use crate::key::Stamp;
use crate::lsm::cache::Cache;
use crate::lsm::compaction::MergeRange;
use crate::lsm::kept_log::{KeptLog, KeptLogs};
use crate::lsm::striped::Striped;
use crate::lsm::units::Blocks;
use crate::media::TableReader;
use crate::obsolete::Obsolete;
use crate::options::CachePolicy;
use filter::FilterCounts;
use leaf::{Leaf, LeafCursor};
use mapped::Mapped;
use std::sync::Arc;
use vellum_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum_base::{Env, IoClass, Result};

/// State shared by all tables of a store.
pub(crate) struct Library {
    pub env: Arc<dyn Env>,
    pub cache: Cache,
    pub policy: CachePolicy,
    /// See [`crate::Options::map_files`].
    pub map_files: bool,
    pub obsolete: Obsolete,
    pub filters: FilterCounts,
    pub warmed: Warmed,
    pub kept_logs: KeptLogs,
    /// Number of values that clients read from logs, as they were neither mapped nor cached.
    pub pointed_reads: Arc<Striped>,
}

/// An open table.
pub(crate) struct Table {
    pub meta: TableMeta,
    /// Bytes of a unit.
    pub unit_bytes: usize,
    library: Arc<Library>,
    reader: Arc<dyn TableReader>,
    mapped: Option<Mapped>,
    root: Leaf,
    root_bytes: Box<[u8]>,
    pins: Arc<Pins>,
    /// Data leaves and branches are below this unit.
    root_unit: usize,
    /// The sequence number of every entry, if the table was ingested; else 0.
    own_seq: u64,
    /// Bytes of its keys and values, uncompressed.
    pub data_bytes: u64,
    obsolete: AtomicBool,
    /// First units of objects that went to the cache, and others near them.
    cached: Blocks,
    /// The logs that it points into.
    pub logs: Vec<Arc<KeptLog>>,
}

impl Table {
    /// The stamp of an entry, given the one stored in the table.
    #[inline]
    fn stamp(&self, stored: Stamp) -> Stamp {
        match self.own_seq {
            0 => stored.shown(),
            seq => stored.shown().of(seq),
        }
    }

    /// Reads whole units as they are on the medium.
    pub(crate) fn read_raw(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let at = self.reader.read(offset, out, IoClass::Background)?;
        self.library.env.sleep_until(at);
        Ok(())
    }

    /// Marks the table obsolete, to be erased when nobody holds it any more.
    pub(crate) fn retire(&self) {
        self.obsolete.store(true, Relaxed);
        self.library.obsolete.retire(self.meta.number);
    }

    /// For each run, a key at or after its last one, in order.
    pub(crate) fn run_ends(&self) -> Result<Vec<Vec<u8>>> {
        let (mut ends, mut run) = (Vec::new(), LeafCursor::default());
        run.first(&self.root, &self.root_bytes)?;
        while run.is_valid() {
            ends.push(run.key().to_vec());
            run.next(&self.root, &self.root_bytes)?;
        }
        Ok(ends)
    }

    /// Units of the runs that may hold keys of a piece: from (inclusive), until (exclusive).
    fn units_of(&self, piece: &MergeRange) -> Result<(usize, usize)> {
        let (mut from, mut at, mut run) = (None, 0, LeafCursor::default());
        run.first(&self.root, &self.root_bytes)?;
        while run.is_valid() {
            let place = self.branch_place(run.value(&self.root_bytes))?;
            if piece.after.as_ref().is_none_or(|after| run.key() > &after[..]) {
                from.get_or_insert(at);
            }
            at = place.unit + place.filter_units + place.index_units;
            // A run that ends with the last key may be followed by older versions of it.
            if piece.until.as_ref().is_some_and(|until| run.key() > &until[..]) {
                break;
            }
            run.next(&self.root, &self.root_bytes)?;
        }
        let end = if run.is_valid() { at } else { self.root_unit };
        Ok((from.unwrap_or(end).min(end), end))
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if self.obsolete.load(Relaxed) {
            if self.library.policy == CachePolicy::CompactionAware {
                self.library.cache.remove_units(self.meta.number, self.cached.units());
            }
            self.logs.clear(); // those that no other table points into are buried first
            self.library.obsolete.add_table(self.meta.number);
        }
    }
}
