//! Sizes of memtables and upper levels. While there is plenty of room they have the sizes asked for, which writes
//! least. When room gets short they are smaller, so that less has to be reserved for merges ([`Budget`]).

use super::Budget;
use crate::lsm::compaction::{Shape, Small};
use crate::lsm::core::{Core, State};
use crate::lsm::version::Version;
use vellum_base::sync::atomic::Ordering::Relaxed;

/// A memtable takes one in so many parts of the spare room: it exists as a log, and then as a table.
const MEMTABLE_PARTS: u64 = 8;

/// Fewest small tables that are gathered unasked, normally and where room is short; two where nothing else fits.
const GATHERED: usize = 8;
const GATHERED_WHERE_SHORT: usize = 3;

/// Sizes while room is short.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Short {
    pub memtable_bytes: usize,
    pub level0_compact: usize,
    pub level1_bytes: u64,
}

impl Budget<'_> {
    /// The sizes at which levels are merged: smaller where room is short.
    pub(crate) fn shape(&self) -> Shape {
        let Core { options, limits, media, .. } = self.core;
        let roomy = Shape {
            level0_compact: options.level0_compact,
            level1_bytes: limits.level1_bytes,
            level_factor: options.level_factor,
            small: self.core.small(false),
        };
        let short = limits.short;
        let differs = short.level0_compact < roomy.level0_compact || short.level1_bytes < roomy.level1_bytes;
        let is_short = || !self.core.rules.uses_spare_room() || self.is_short();
        if !(differs || media.shape().whole_tables) || !is_short() {
            return roomy;
        }
        // A table that was flushed while there was plenty of room counts as several.
        let level0 = &self.version.levels[0];
        let is_full = self.room.taken_by(level0) >= short.level0_compact as u64;
        let level0_compact =
            if is_full { level0.len().min(short.level0_compact) } else { short.level0_compact };
        Shape {
            level0_compact: level0_compact.min(roomy.level0_compact),
            level1_bytes: short.level1_bytes,
            small: self.core.small(true),
            ..roomy
        }
    }
}

impl Core {
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

    /// Sets the size of the memtable that begins now: as large as room allows.
    pub(crate) fn size_next_memtable(&self, version: &Version, state: &State) {
        let (most, least) = (self.limits.memtable_bytes, self.limits.short.memtable_bytes);
        self.memtable_bytes_max.store(least, Relaxed);
        if least < most {
            let part = self.budget(version, state).spare() * least as u64 / MEMTABLE_PARTS;
            let bytes = usize::try_from(part).unwrap_or(usize::MAX).clamp(least, most);
            self.memtable_bytes_max.store(bytes, Relaxed);
        }
    }

    /// Most bytes of the active memtable.
    pub(crate) fn memtable_bytes_max(&self) -> usize {
        self.memtable_bytes_max.load(Relaxed)
    }
}
