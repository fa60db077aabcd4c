//! How much room there is, and the sizes of memtables and upper levels that follow from it.
//!
//! A store may grow until merging all of levels 0 and 1 would no longer fit ([`Core::spare_tables`]). While there is
//! plenty of room, memtables and levels have the sizes asked for, which writes least. When room gets short they are
//! made smaller, so that less has to be reserved for merges. Room is counted in tables ([`Room`]).

use crate::journal::{STORE_MANIFEST_BYTES, TABLE_MANIFEST_BYTES};
use crate::lsm::compaction::{Room, Shape, Small, tables_of_merge};
use crate::lsm::core::{Core, State};
use crate::lsm::table::Table;
use crate::lsm::version::Version;
use crate::options::Rules;
use std::sync::Arc;
use vellum_base::sync::atomic::Ordering::Relaxed;
use vellum_base::{Error, Kind, Result};

/// Tables that puts must leave free for deletes, which take room until they are merged.
const DELETE_TABLES: u64 = 3;
/// Upper limit of what merges of deeper levels contribute to the threshold at which room counts as short: tables may be
/// many times as large as memtables.
const SHORT_MERGE_TABLES: u64 = 16;
/// Additional room that a flush on request must leave: for the manifest, and for the overhead of tables over their
/// entries.
const FLUSH_MARGIN_BYTES: u64 = 128 << 10;
/// A memtable takes one in so many parts of the spare room: it exists as a log, and then as a table.
const MEMTABLE_PARTS: u64 = 8;

/// Names of keyspaces may take at most one in so many bytes of a manifest in NVRAM.
const NAMES_PARTS: u64 = 4;

/// Fewest small tables that are gathered unasked, normally and where room is short.
const GATHERED: usize = 8;
const GATHERED_WHERE_SHORT: usize = 3;

/// Approximate number of tables that memtables become.
const FLUSHED_TABLES: usize = 2;

/// Sizes while room is short.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Short {
    pub memtable_bytes: usize,
    pub level0_compact: usize,
    pub level1_bytes: u64,
}

impl Core {
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
    /// NVRAM. Their keys are assumed to be as long as those in it, and some as long as the longest written.
    fn manifest_tables(&self, more: usize) -> u64 {
        let shape = self.media.shape();
        if shape.areas_are_files {
            return u64::MAX;
        }
        let version = self.view.load().version.clone();
        let longest = 2 * self.key_bytes_max.load(Relaxed);
        let longer = FLUSHED_TABLES * longest.saturating_sub(version.bounds_bytes);
        let needed = version.manifest_bytes + STORE_MANIFEST_BYTES + longer + more;
        let left = shape.manifest_bytes.saturating_sub(needed as u64);
        left / (TABLE_MANIFEST_BYTES + version.bounds_bytes) as u64
    }

    /// An error if a manifest in NVRAM has no room for another keyspace name: names would exceed their part of it, or
    /// leave too little to describe the tables that merges may need.
    pub(crate) fn check_manifest_room(&self, name_bytes: usize) -> Result<()> {
        let (version, shape) = (self.view.load().version.clone(), self.media.shape());
        let names = (version.keyspaces.manifest_bytes() + name_bytes) as u64;
        let reserve = self.reserve(&self.room(), &version, &self.state.lock());
        let needed = reserve + self.spare_for(false);
        let is_short = names > shape.manifest_bytes / NAMES_PARTS;
        match shape.areas_are_files || !is_short && self.manifest_tables(name_bytes) >= needed {
            true => Ok(()),
            false => Err(Error::new(
                Kind::NoSpace,
                "the manifest, a slot of NVRAM, has no room for another name: drop a keyspace, or take shorter names",
            )),
        }
    }

    /// Tables that a writer must leave free beyond the reserve. Puts must also leave enough to merge two tables of
    /// deeper levels.
    pub(crate) fn spare_for(&self, only_deletes: bool) -> u64 {
        DELETE_TABLES + if only_deletes { 0 } else { self.merge_tables() }
    }

    /// Tables that merges of deeper levels must leave for deletes, and for merging these into level 1.
    pub(crate) fn kept_for_deletes(&self, state: &State) -> u64 {
        let merged = tables_of_merge(FLUSHED_TABLES as u64) + self.flush_tables(&self.room(), state);
        merged + self.spare_for(true).min(self.limits.spare_tables_max)
    }

    /// Tables that merging one table of a deeper level with another may create; no more than merging all of these
    /// levels, which count as at least two tables.
    pub(crate) fn merge_tables(&self) -> u64 {
        let version = self.view.load();
        let deeper = self.room().taken_by(version.version.levels[2..].iter().flatten());
        self.limits.merge_tables.min(tables_of_merge(deeper.max(2)))
    }

    /// Room counts as short if fewer tables than this are spare, so that sizes shrink before writers have to wait.
    fn short_tables(&self) -> u64 {
        2 * (DELETE_TABLES + self.limits.merge_tables.min(SHORT_MERGE_TABLES))
    }

    /// True if there is room for merges that are not needed to make room.
    pub(crate) fn has_plenty(&self, version: &Version, state: &State) -> bool {
        self.has_spare_tables(self.short_tables() / 3 * 4, version, state)
    }

    /// True if a memtable of `memtable_bytes` may be flushed on request: merging all of levels 0 and 1, and then two
    /// tables of deeper levels, has to fit afterwards. Media that count bytes are checked in bytes, as the memtable may
    /// be small.
    pub(crate) fn has_room_to_flush(&self, memtable_bytes: usize, version: &Version, state: &State) -> bool {
        let Some(left) = self.media.room_bytes() else {
            let spare = self.spare_for(false).min(self.limits.spare_tables_max);
            return self.has_spare_tables(spare, version, state);
        };
        let bytes_of =
            |levels: &[Vec<Arc<Table>>]| levels.iter().flatten().map(|t| t.meta.merged_bytes()).sum::<u64>();
        let waiting = state.frozen.iter().map(|frozen| frozen.bytes as u64).sum::<u64>();
        let flushed = memtable_bytes as u64 + waiting;
        let pair = self.merge_tables() * self.limits.short.memtable_bytes as u64;
        let merged = bytes_of(&version.levels[..2]) + flushed;
        left >= flushed
            + merged
            + merged / 4
            + pair.min(bytes_of(&version.levels[2..]) * 2)
            + FLUSH_MARGIN_BYTES
    }

    /// Free tables beyond the reserve.
    fn spare_tables(&self, version: &Version, state: &State) -> u64 {
        let room = self.room();
        room.free().saturating_sub(self.reserve(&room, version, state))
    }

    /// True if at least `spare` tables are free beyond the reserve.
    pub(crate) fn has_spare_tables(&self, spare: u64, version: &Version, state: &State) -> bool {
        let room = self.room();
        room.free() >= self.reserve(&room, version, state).saturating_add(spare)
    }

    /// True if a memtable of deletes only may be flushed although less is free than the reserve: nothing else is
    /// running, and the room left suffices to merge it, if only piece by piece, which frees room.
    pub(crate) fn has_room_for_deletes(&self, version: &Version, state: &State) -> bool {
        let room = self.room();
        let is_idle = state.running.is_empty() && state.frozen.is_empty();
        let tight = Room { is_tight: room.whole_tables, ..room };
        let piece = tight.merge_of(version.levels[0].iter(), FLUSHED_TABLES as u64, 0);
        is_idle && room.free() > self.upper_job(&room, version).min(piece)
    }

    /// The reserve: tables that flushing the memtables and merging levels 0 and 1 may need.
    fn reserve(&self, room: &Room, version: &Version, state: &State) -> u64 {
        self.upper_job(room, version) + self.flush_tables(room, state)
    }

    /// Tables that merging all of levels 0 and 1 may create.
    fn upper_job(&self, room: &Room, version: &Version) -> u64 {
        room.merge_of(version.levels[..2].iter().flatten(), 1, version.bytes(2))
    }

    /// Tables that the memtables may become; each may end with one that is not full.
    fn flush_tables(&self, room: &Room, state: &State) -> u64 {
        let tables = |bytes: usize| (bytes as u64).div_ceil(room.table_bytes) + 1;
        let active = self.memtable_bytes_max();
        tables(active) + state.frozen.iter().map(|frozen| tables(frozen.bytes)).sum::<u64>()
    }

    /// True if writers would soon have to wait for room even if the running merges were done.
    fn is_short_of_room(&self, version: &Version, state: &State) -> bool {
        let room = self.room();
        // The output of running merges exists beside the tables that it replaces, whose room will be free again unless
        // somebody reads from them.
        let lent: u64 = state.running.iter().map(|claim| claim.to_give_back(&room)).sum();
        room.free().saturating_add(lent) < self.reserve(&room, version, state) + self.short_tables()
    }

    /// The sizes at which levels are merged: smaller where room is short.
    pub(crate) fn shape(&self, version: &Version, state: &State) -> Shape {
        let roomy = Shape {
            level0_compact: self.options.level0_compact,
            level1_bytes: self.limits.level1_bytes,
            level_factor: self.options.level_factor,
            small: self.small(false),
        };
        let short = self.limits.short;
        let differs = short.level0_compact < roomy.level0_compact || short.level1_bytes < roomy.level1_bytes;
        let is_short = || self.options.rules == Rules::LevelDb || self.is_short_of_room(version, state);
        if !(differs || self.media.shape().whole_tables) || !is_short() {
            return roomy;
        }
        // A table that was flushed while there was plenty of room counts as several.
        let level0 = &version.levels[0];
        let is_full = self.room().taken_by(level0) >= short.level0_compact as u64;
        let level0_compact =
            if is_full { level0.len().min(short.level0_compact) } else { short.level0_compact };
        Shape {
            level0_compact: level0_compact.min(roomy.level0_compact),
            level1_bytes: short.level1_bytes,
            small: self.small(true),
            ..roomy
        }
    }

    /// Which tables count as small, and how many are gathered.
    pub(crate) fn small(&self, is_short: bool) -> Small {
        let table_bytes = self.limits.table_bytes;
        let whole_tables = self.media.shape().whole_tables;
        // More than this might be cut into two tables.
        let all = table_bytes / 4 * 3;
        // Where tables are files, the output is cut at the end of a keyspace from a sixteenth of a table on; anything
        // larger is not small.
        let each = if whole_tables { all } else { table_bytes / 17 };
        // Gathering frees no room as long as somebody reads from replaced tables.
        let gains = whole_tables && is_short && !self.library.obsolete.is_any_held();
        let (count, in_steps) = if gains { (GATHERED_WHERE_SHORT, false) } else { (GATHERED, true) };
        Small { count, in_steps, each, all, table_bytes }
    }

    /// Sets the size of a new memtable: as large as room allows.
    pub(crate) fn begin_memtable(&self, version: &Version, state: &State) {
        let (most, least) = (self.limits.memtable_bytes, self.limits.short.memtable_bytes);
        self.memtable_bytes_max.store(least, Relaxed);
        if least < most {
            let part = self.spare_tables(version, state) * least as u64 / MEMTABLE_PARTS;
            let bytes = usize::try_from(part).unwrap_or(usize::MAX).clamp(least, most);
            self.memtable_bytes_max.store(bytes, Relaxed);
        }
    }

    /// Most bytes of the active memtable.
    pub(crate) fn memtable_bytes_max(&self) -> usize {
        self.memtable_bytes_max.load(Relaxed)
    }
}
