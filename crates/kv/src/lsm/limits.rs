//! Limits of a store, which follow from its options and its medium.

use crate::batch::{Batch, at_most, check_value_bytes};
use crate::journal::PAYLOAD_BYTES_MAX;
use crate::key::KEY_BYTES_MAX;
use crate::lsm::compaction::longest_of_piece;
use crate::lsm::room::{Short, tables_of_merge};
use crate::media::Media;
use crate::options::{Options, VALUE_BYTES_MAX};
use vellum_base::Result;

/// Default size of level 1 in memtables: a little more than level 0 has when it is merged, as write amplification is
/// least if levels grow evenly (docs/decisions/0016).
const LEVEL1_MEMTABLES: u64 = 32;
/// Most logs that are replayed into the active memtable.
const REPLAYED_LOGS_MAX: usize = 64;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Size of a memtable while there is plenty of room; that of the active one is in
    /// [`Core`](crate::lsm::core::Core::memtable_bytes_max).
    pub memtable_bytes: usize,
    /// Merges end a table at this size, unless a single entry makes it longer.
    pub table_bytes: u64,
    pub log_bytes: u64,
    /// Most logs that are replayed into the active memtable when the store is opened.
    pub replayed_logs_max: usize,
    /// Most logs of all memtables: another begins when a flush has removed some.
    pub logs_max: usize,
    pub key_bytes_max: usize,
    pub value_bytes_max: usize,
    pub batch_bytes_max: usize,
    /// Target size of level 1 while there is plenty of room.
    pub level1_bytes: u64,
    /// Most tables that merging one table with another may create, in the unit of [`Room`](crate::lsm::room::Room).
    pub merge_tables: u64,
    /// Upper limit of the spare tables that a flush on request requires.
    pub spare_tables_max: u64,
    pub short: Short,
}

impl Limits {
    /// What fits a store on `media` with these options, while there is plenty of room.
    pub(crate) fn new(media: &dyn Media, options: &Options) -> Limits {
        let shape = media.shape();
        let all = media.all_bytes().unwrap_or(u64::MAX);
        let log = usize::try_from(shape.log_bytes).unwrap_or(usize::MAX);
        // A memtable should fill one table, and no more.
        let table = usize::try_from(shape.table_bytes).unwrap_or(usize::MAX);
        // More than a hundred should fit the medium where room is short, or nothing could be reserved for compaction.
        let share = usize::try_from(all / 128).unwrap_or(usize::MAX);
        let memtable_of = |bytes: usize| bytes.max(64 << 10).min(log / 8 * 7).min(table / 8 * 7);
        let small = memtable_of(options.memtable_bytes.min(share));
        let uses_spare_room = options.rules.begin().uses_spare_room();
        let memtable_bytes = if uses_spare_room { memtable_of(options.memtable_bytes) } else { small };
        // A table of one entry may contain its key up to nine times by the estimates used, and the value twice.
        let key_bytes_max = KEY_BYTES_MAX.min(table / 16).min(log / 4);
        let value_bytes_max = VALUE_BYTES_MAX.min(table / 8).min(log / 4);
        let level1_bytes = match options.level1_bytes {
            0 => (LEVEL1_MEMTABLES * memtable_bytes as u64)
                .max(4 * if shape.whole_tables { shape.table_bytes } else { 0 }),
            bytes => bytes,
        };
        // On media that count bytes, one table in terms of room is what a memtable becomes.
        let table_bytes = shape.table_bytes.min((all / 64).max(2 * small as u64));
        let counted =
            |bytes: u64| if media.room_bytes().is_some() { bytes.div_ceil(small as u64) } else { 1 };
        let two = counted(table_bytes) + counted(longest_of_piece(table_bytes));
        // In addition to the batch a log has its head, a mark, and the head of the record.
        let batch_bytes_max = (log - 128).min(PAYLOAD_BYTES_MAX);
        Limits {
            memtable_bytes,
            table_bytes,
            log_bytes: shape.log_bytes,
            replayed_logs_max: 1,
            logs_max: usize::MAX,
            key_bytes_max,
            value_bytes_max,
            batch_bytes_max,
            level1_bytes,
            merge_tables: tables_of_merge(two),
            spare_tables_max: u64::MAX,
            short: Short { memtable_bytes: small, level0_compact: usize::MAX, level1_bytes },
        }
    }

    /// What fits, and when room on `media` is short. Options beyond it are put into its bounds.
    pub(crate) fn fit(media: &dyn Media, options: &mut Options) -> Result<Limits> {
        let mut limits = Limits::new(media, options);
        limits.bound_logs(options, media.shape().logs_max);
        if options.compaction_bytes == 0 {
            options.compaction_bytes = limits.memtable_bytes;
        }
        if let Some(all) = tables_of(media, options, &limits)? {
            limits.bound_levels(media, options, all);
        }
        // Whoever is slowed down or waits for fewer tables waits for a merge, which must be due then.
        options.level0_slow = options.level0_slow.max(options.level0_compact);
        options.level0_stop = options.level0_stop.max(options.level0_compact).max(1);
        // A flush writes a table, too, and perhaps an ingest does.
        let merged_max = media.tables_written_max().saturating_sub(2).max(1);
        options.compaction_tasks = options.compaction_tasks.min(merged_max);
        Ok(limits)
    }

    fn bound_logs(&mut self, options: &mut Options, logs_max: usize) {
        options.memtables_max = options.memtables_max.clamp(1, (logs_max - 2) / 2);
        // Each memtable that may wait, and the active one, has a log, and perhaps one from before this opening.
        let logs_of_memtables = options.memtables_max.saturating_add(1).saturating_mul(2);
        self.replayed_logs_max = logs_max.saturating_sub(logs_of_memtables).clamp(1, REPLAYED_LOGS_MAX);
        self.logs_max = logs_max.min(logs_of_memtables.saturating_add(2 * REPLAYED_LOGS_MAX));
    }

    /// Writes are refused while merging levels 0 and 1 would not fit, so both have to be small where room is short. The
    /// medium can hold `all` tables.
    fn bound_levels(&mut self, media: &dyn Media, options: &Options, all: u64) {
        let tables = usize::try_from(all / 16).unwrap_or(usize::MAX).max(4);
        self.spare_tables_max = all / 10;
        self.short.level0_compact = tables;
        if options.level1_bytes == 0 {
            let counted_in_bytes = media.room_bytes().is_some();
            let memtable_bytes = self.short.memtable_bytes as u64;
            let table_bytes = if counted_in_bytes { memtable_bytes } else { media.shape().table_bytes };
            self.short.level1_bytes = self.level1_bytes.min(tables as u64 * table_bytes);
        }
    }

    /// An error if key or value exceeds its limit.
    pub(crate) fn check_entry(&self, key_bytes: usize, value_bytes: usize) -> Result<()> {
        at_most("a key", key_bytes, self.key_bytes_max)?;
        check_value_bytes(value_bytes, self.value_bytes_max)
    }

    /// An error if a batch, or an entry of it, exceeds its limit.
    pub(crate) fn check_batch(&self, batch: &Batch) -> Result<()> {
        // Longer keys may be there from a time when the limit was higher: they can be deleted.
        self.check_entry(batch.put_key_bytes_max(), batch.value_bytes_max())?;
        at_most("a batch", batch.bytes(), self.batch_bytes_max)
    }
}

/// Number of tables that the medium can hold, if known.
fn tables_of(media: &dyn Media, options: &Options, limits: &Limits) -> Result<Option<u64>> {
    if options.read_only {
        return Ok(None);
    }
    Ok(match (media.all_bytes(), media.tables_free()) {
        (Some(bytes), _) => Some(bytes / limits.short.memtable_bytes as u64),
        (None, u64::MAX) => None,
        (None, free) => Some(free + media.tables()?.len() as u64),
    })
}
