//! How much room there is, and for what it is kept. Counted in tables ([`Room`]).
//!
//! A store may grow until merging all of levels 0 and 1 would no longer fit: that is the *reserve*. Tables that are
//! free beyond it are *spare*; writers have to leave some of these, too ([`Budget::spare_for`]).

use super::{Room, tables_of_merge};
use crate::journal::{BOUNDS_MANIFEST_BYTES, STORE_MANIFEST_BYTES, TABLE_MANIFEST_BYTES};
use crate::lsm::core::{Core, State};
use crate::lsm::table::Table;
use crate::lsm::version::Version;
use std::sync::Arc;
use vellum_base::{Error, Kind, Result};

/// Tables that puts must leave free for deletes, which take room until they are merged.
const DELETE_TABLES: u64 = 3;
/// Upper limit of what merges of deeper levels contribute to the threshold at which room counts as short: tables may be
/// many times as large as memtables.
const SHORT_MERGE_TABLES: u64 = 16;
/// Additional room that a flush on request must leave: for the manifest, and for the overhead of tables over their
/// entries.
const FLUSH_MARGIN_BYTES: u64 = 128 << 10;

/// Names of keyspaces may take at most one in so many bytes of a manifest in NVRAM.
const NAMES_PARTS: u64 = 4;

/// So many tables to come may have bounds as long as a manifest tells at all.
const LONG_BOUNDS_TABLES: usize = 16;

/// Approximate number of tables that memtables become.
const FLUSHED_TABLES: usize = 2;

/// The room of a store with this version, while its background work is in this state. The medium is asked once.
pub(crate) struct Budget<'a> {
    pub core: &'a Core,
    pub version: &'a Version,
    state: &'a State,
    /// What is free.
    pub room: Room,
}

impl Core {
    /// See [`Budget`].
    pub(crate) fn budget<'a>(&'a self, version: &'a Version, state: &'a State) -> Budget<'a> {
        Budget { core: self, version, state, room: self.room() }
    }

    /// The free room. On media that count bytes, a table here is as large as a memtable is while room is short.
    pub(crate) fn room(&self) -> Room {
        match self.media.room_bytes() {
            Some(bytes) => {
                let table_bytes = self.limits.short.memtable_bytes as u64;
                let tables = bytes / table_bytes;
                Room { tables, listed: u64::MAX, table_bytes, whole_tables: false, is_tight: false }
            }
            None => {
                let table_bytes = self.media.shape().table_bytes;
                let (tables, listed) = (self.media.tables_free(), self.manifest_tables(0));
                Room { tables, listed, table_bytes, whole_tables: true, is_tight: false }
            }
        }
    }

    /// Additional tables that the manifest has room to describe beside `more` bytes, where it is limited to a slot of
    /// NVRAM. Their keys are assumed to take as much as any in it.
    fn manifest_tables(&self, more: usize) -> u64 {
        let shape = self.media.shape();
        if shape.areas_are_files {
            return u64::MAX;
        }
        let version = self.view.load().version.clone();
        let longer = LONG_BOUNDS_TABLES * (BOUNDS_MANIFEST_BYTES - version.bounds_bytes);
        let needed = version.manifest_bytes + STORE_MANIFEST_BYTES + longer + more;
        let left = shape.manifest_bytes.saturating_sub(needed as u64);
        left / (TABLE_MANIFEST_BYTES + version.bounds_bytes) as u64
    }

    /// An error if a manifest in NVRAM has no room for another keyspace name: names would exceed their part of it, or
    /// leave too little to describe the tables that merges may need.
    pub(crate) fn check_manifest_room(&self, name_bytes: usize) -> Result<()> {
        let (version, shape) = (self.view.load().version.clone(), self.media.shape());
        let names = (version.keyspaces.manifest_bytes() + name_bytes) as u64;
        let state = self.state.lock();
        let budget = self.budget(&version, &state);
        let needed = budget.reserve() + budget.spare_for(false);
        drop(state);
        let is_short = names > shape.manifest_bytes / NAMES_PARTS;
        match shape.areas_are_files || !is_short && self.manifest_tables(name_bytes) >= needed {
            true => Ok(()),
            false => Err(Error::new(
                Kind::NoSpace,
                "the manifest, a slot of NVRAM, has no room for another name: drop a keyspace, or take shorter names",
            )),
        }
    }
}

impl Budget<'_> {
    /// True if the store has no table.
    pub(crate) fn has_no_table(&self) -> bool {
        self.version.levels.iter().all(Vec::is_empty)
    }

    /// Free tables beyond the reserve.
    pub(crate) fn spare(&self) -> u64 {
        self.room.free().saturating_sub(self.reserve())
    }

    /// True if at least `spare` tables are free beyond the reserve.
    pub(crate) fn has_spare(&self, spare: u64) -> bool {
        self.room.free() >= self.reserve().saturating_add(spare)
    }

    /// True if nobody lacks room if so many bytes are written, running merges included.
    pub(crate) fn may_take(&self, bytes: u64) -> bool {
        let room = self.room.beside(&self.state.running);
        room.free() >= self.reserve().saturating_add(room.filled_by(bytes))
    }

    /// True if another table may be ingested, and listed with those that the ingest has written.
    pub(crate) fn may_ingest(&self, listed: usize) -> bool {
        self.has_spare(self.spare_for(false) + 1) && self.may_list(listed)
    }

    /// True if the manifest may list tables that take so many bytes of it, and are in no version yet.
    pub(crate) fn may_list(&self, bytes: usize) -> bool {
        self.core.manifest_tables(bytes) >= self.reserve().saturating_add(self.spare_for(false))
    }

    /// Tables that a writer must leave free beyond the reserve. Puts must also leave enough to merge two tables of
    /// deeper levels.
    pub(crate) fn spare_for(&self, only_deletes: bool) -> u64 {
        DELETE_TABLES + if only_deletes { 0 } else { self.merge_tables() }
    }

    /// Tables that merging one table of a deeper level with another may create; no more than merging all of these
    /// levels, which count as at least two tables.
    pub(crate) fn merge_tables(&self) -> u64 {
        let deeper = self.room.taken_by(self.version.levels[2..].iter().flatten());
        self.core.limits.merge_tables.min(tables_of_merge(deeper.max(2)))
    }

    /// Tables that merges of deeper levels must leave for deletes, and for merging these into level 1.
    pub(crate) fn kept_for_deletes(&self) -> u64 {
        let merged = tables_of_merge(FLUSHED_TABLES as u64) + self.flush_tables();
        merged + self.spare_for(true).min(self.core.limits.spare_tables_max)
    }

    /// True if there is room for merges that are not needed to make room.
    pub(crate) fn has_plenty(&self) -> bool {
        self.has_spare(self.short_tables() / 3 * 4)
    }

    /// True if writers would soon have to wait for room even if the running merges were done.
    pub(crate) fn is_short(&self) -> bool {
        // The output of running merges exists beside the tables that it replaces, whose room will be free again unless
        // somebody reads from them.
        let lent: u64 = self.state.running.iter().map(|claim| claim.to_give_back(&self.room)).sum();
        self.room.free().saturating_add(lent) < self.reserve() + self.short_tables()
    }

    /// True if a memtable of `memtable_bytes` may be flushed on request: merging all of levels 0 and 1, and then two
    /// tables of deeper levels, has to fit afterwards. Media that count bytes are checked in bytes, as the memtable may
    /// be small.
    pub(crate) fn may_flush(&self, memtable_bytes: usize) -> bool {
        let Some(left) = self.core.media.room_bytes() else {
            return self.has_spare(self.spare_for(false).min(self.core.limits.spare_tables_max));
        };
        let bytes_of =
            |levels: &[Vec<Arc<Table>>]| levels.iter().flatten().map(|t| t.meta.merged_bytes()).sum::<u64>();
        let waiting = self.state.frozen.iter().map(|frozen| frozen.bytes as u64).sum::<u64>();
        let flushed = memtable_bytes as u64 + waiting;
        let pair = self.merge_tables() * self.room.table_bytes;
        let merged = bytes_of(&self.version.levels[..2]) + flushed;
        left >= flushed
            + merged
            + merged / 4
            + pair.min(bytes_of(&self.version.levels[2..]) * 2)
            + FLUSH_MARGIN_BYTES
    }

    /// True if a memtable that is full of deletes may be flushed: some room is spare, or it can at least be merged.
    pub(crate) fn may_flush_deletes(&self) -> bool {
        let spare = self.spare_for(true).min(self.core.limits.spare_tables_max);
        self.has_spare(spare) || self.may_merge_deletes()
    }

    /// True if, although less is free than the reserve, nothing else is running, and the room left suffices to flush
    /// deletes and to merge them, if only piece by piece, which frees room.
    fn may_merge_deletes(&self) -> bool {
        let is_idle = self.state.running.is_empty() && self.state.frozen.is_empty();
        let tight = Room { is_tight: self.room.whole_tables, ..self.room };
        let piece = tight.merge_of(self.version.levels[0].iter(), FLUSHED_TABLES as u64, 0);
        is_idle && self.room.free() > self.upper_job().min(piece)
    }

    /// Room counts as short if fewer tables than this are spare, so that sizes shrink before writers have to wait.
    fn short_tables(&self) -> u64 {
        2 * (DELETE_TABLES + self.core.limits.merge_tables.min(SHORT_MERGE_TABLES))
    }

    /// The reserve: tables that flushing the memtables and merging levels 0 and 1 may need.
    fn reserve(&self) -> u64 {
        self.upper_job() + self.flush_tables()
    }

    /// Tables that merging all of levels 0 and 1 may create.
    fn upper_job(&self) -> u64 {
        self.room.merge_of(self.version.levels[..2].iter().flatten(), 1, self.version.bytes(2))
    }

    /// Tables that the memtables may become; each may end with one that is not full.
    fn flush_tables(&self) -> u64 {
        let tables = |bytes: usize| (bytes as u64).div_ceil(self.room.table_bytes) + 1;
        let active = self.core.memtable_bytes_max();
        tables(active) + self.state.frozen.iter().map(|frozen| tables(frozen.bytes)).sum::<u64>()
    }
}
