//! How a store is opened, and how writes are asked for.

use crate::freewrite::Caps;
use crate::journal::LEVELS;
use vellum_base::{Error, Nanos, Result};

/// Most bytes of a value, wherever the store is. Less where tables or logs are shorter: 8 MiB in a directory, an eighth
/// of [`crate::DirectoryOptions::table_bytes`]. A write that has more is refused, and told how much it may have.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

/// How a store is opened. The defaults suit a directory on a machine with a few GiB to spare.
///
/// Memory, at most: `memtable_bytes` × (1 + `memtables_max`), a fourth more for filters and what indexes hold in
/// reserve; `cache_bytes`; for each compaction task twice `compaction_bytes`, and 2 MiB for what it writes; about a
/// ten-thousandth of the tables for their roots. On top of that come up to 1 + `memtables_max` memtables for each
/// iterator that is held while as many are written, what threads have in their hands (a batch, a value or two for each
/// table that a scan reads from), a leaf of keys for each run of a table where keys are long, and what an allocator
/// keeps for later: glibc's keeps some for each thread, which is most where files are not mapped
/// (`MALLOC_ARENA_MAX=1` ends that).
///
/// Files, in a directory: one for each table, which is as good as one for each 64 MiB, for each log, and ten more are
/// open. A process that may not open so many is refused with [`vellum_base::Kind::NoSpace`], and goes on when it may.
#[derive(Clone, Debug)]
pub struct Options {
    /// Make the store if there is none.
    pub create_if_missing: bool,
    /// Write nothing to the medium, whatever is found; what would write is refused.
    pub read_only: bool,
    /// Refuse a log that is damaged in its middle: in which a record does not check out, and others follow. Where a
    /// mark or a closing says that it was durable, that is an error anyway. Else it may be what a loss of power leaves
    /// of writes that were not synced, or damage: without this the store goes on with what is before, as at a torn
    /// tail; with it nothing is changed, and `repair` finds what follows.
    pub strict_log: bool,
    /// Bytes of a memtable before it becomes a table. Less, where the log or a table holds less, or room is short.
    pub memtable_bytes: usize,
    /// Memtables that may wait to become tables. Writes wait when there are so many; at least one.
    pub memtables_max: usize,
    /// How leaves are compressed, level by level. Levels 0 and 1 do not last, but are written as often as others:
    /// without compression there, a fill is up to a third faster and writes a quarter more (docs/decisions/0019).
    pub compression: [Compression; LEVELS],
    /// Bytes of leaves, branches and values in logs kept in memory.
    pub cache_bytes: usize,
    /// Map files into memory where a store has any. Tables, and logs that they point into: values in logs, and leaves
    /// that are not compressed, are then read where the kernel has them and not cached, and leaves are checked once in
    /// ten seconds. And the end of the open log: most writes that are not synced are then no system call. What a device
    /// cannot read is an error all the same: the store takes over SIGBUS, which no thread that reads may have blocked,
    /// and passes on what is not its own. How much memory tables take is the kernel's to say. Without, each leaf that
    /// is not in the cache is read by a call and checked.
    pub map_files: bool,
    /// Bits of filter a key, 64 at most. 10 lets one in a hundred through, 16 one in a thousand.
    pub filter_bits_per_key: u32,
    /// Tasks that compact, besides the one that flushes; at least one.
    pub compaction_tasks: usize,
    /// Bytes that a compaction task reads at a time, of all its inputs together; 64 KiB an input at least and 2 MiB at
    /// most, twice (the next is read ahead). 0 for as many as a memtable has.
    pub compaction_bytes: usize,
    /// Tables in level 0 that start a compaction. Fewer do where reads cross them so often that a merge pays, and where
    /// room is short. The more, the less is written, and the more sources a scan has.
    pub level0_compact: usize,
    /// Tables in level 0 from which on writes are slowed down, more with each.
    pub level0_slow: usize,
    /// Tables in level 0 at which writes wait.
    pub level0_stop: usize,
    /// Bytes of level 1; each level below has `level_factor` times as many. 0 for sixteen memtables, or fewer where
    /// room is short.
    pub level1_bytes: u64,
    /// Where logs are files beside tables, flushes leave values in them, and tables of level 0 point there
    /// (docs/decisions/0026): each is written once less. Logs stay as long as tables of level 0 that need them.
    pub level0_in_log: bool,
    /// How many times larger than the level above a level is.
    pub level_factor: u64,
    /// While few requests are writes, write compactions below level 1 to half the channels at a time (FlashKV, section
    /// 3.3).
    pub adaptive_parallelism: bool,
    /// What compaction does to the cache.
    pub cache_policy: CachePolicy,
    /// What compaction does with leaves that it need not change.
    pub reuse: Reuse,
    /// How much padding it may leave for that.
    pub caps: Caps,
    /// Leaves of new tables are whole units of so many bytes, a power of two up to 64 KiB: the block of a file system
    /// that clones, or has a device below that deduplicates, where that is more than the 4 KiB of `None` (64 bytes on
    /// flash that relinks). What is in smaller units is written anew by the merges it comes to. At most a sixteenth of
    /// a table: an error where they are never so large, and less is taken where they are not for want of room.
    pub unit_bytes: Option<u64>,
    /// Fewer unmodified bytes in a row are not shared but written anew: more of it favours time, where sharing is a
    /// transaction of the file system, less favours wear. `None` for what suits the medium: 32 KiB with reflinks, or 0.
    pub island_bytes_min: Option<u64>,
    /// Whose rules say what is compacted, and when.
    pub rules: Rules,
    /// What work costs the processor in virtual time.
    pub cpu: CpuModel,
}

/// How the leaves of a table are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// Quick.
    Lz4,
    /// Small; by level of effort, 1 to 22, 0 for zstd's own choice.
    Zstd(i32),
}

/// What compaction does with leaves that it need not change (docs/decisions/0021).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// Writes them anew, packed with their neighbours.
    #[default]
    Off,
    /// Keeps them as they are, so that a device that deduplicates recognises them. Where a bubble would pass the
    /// caps, the whole island is written anew (Freewrite, section 2). [`Reuse::Off`] where tables are superblocks of
    /// flash or zones: there is no such device below.
    Bubbles,
    /// Keeps them as they are, and tells the medium where they are stored, which may have them in two tables without
    /// writing them. Where a bubble would pass the caps, one leaf more is written anew.
    Relink,
    /// [`Reuse::Relink`] where the medium can share bytes, else [`Reuse::Off`]. A foreign device that deduplicates does
    /// not tell: say [`Reuse::Bubbles`] for it.
    Auto,
}

impl Reuse {
    /// Stable name, as in `--json`.
    pub const fn name(self) -> &'static str {
        match self {
            Reuse::Off => "off",
            Reuse::Bubbles => "bubbles",
            Reuse::Relink => "relink",
            Reuse::Auto => "auto",
        }
    }
}

/// What compaction does to the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CachePolicy {
    /// It reads past the cache, in batches of 2 MiB and one batch ahead; leaves of tables that it replaced leave at
    /// once (FlashKV, section 3.4).
    #[default]
    CompactionAware,
    /// It reads through the cache, as if it were a client, with the read-ahead of a kernel. For comparison.
    Lru,
}

/// Whose rules say what is compacted, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// What overlaps least; in parts, by all idle tasks; flushes beside it; writers are slowed down smoothly.
    #[default]
    Vellum,
    /// Those of LevelDB 1.14, which FlashKV is built on: tables in turn, tables in which gets look in vain, flushes by
    /// a task that compacts, writers slowed down by a millisecond each. For comparison.
    LevelDb,
}

/// Time that the modelled host's processor takes in virtual time. Zero in production.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuModel {
    /// A get.
    pub get: Nanos,
    /// A batch written.
    pub put: Nanos,
    /// An entry that is flushed or merged.
    pub merge: Nanos,
    /// A KiB of entries that are flushed or merged.
    pub merge_kib: Nanos,
}

/// Beyond these, an option is a slip of the pen, for which nobody has the memory.
const CACHE_BYTES_MAX: usize = 1 << 44;
const FILTER_BITS_MAX: u32 = 64;
const TASKS_MAX: usize = 1024;
const ZSTD_MAX: i32 = 22;

impl Options {
    /// An error if one of them cannot be meant.
    pub(crate) fn check(&self) -> Result<()> {
        let zstd = self.compression.iter().filter_map(|how| match how {
            Compression::Zstd(effort) => Some(*effort),
            _ => None,
        });
        let what = match self {
            _ if self.cache_bytes > CACHE_BYTES_MAX => format!("a cache has at most {CACHE_BYTES_MAX} bytes"),
            _ if self.filter_bits_per_key > FILTER_BITS_MAX => {
                format!("filters have at most {FILTER_BITS_MAX} bits a key")
            }
            _ if self.compaction_tasks > TASKS_MAX => format!("at most {TASKS_MAX} tasks compact"),
            _ if zstd.max().is_some_and(|effort| effort > ZSTD_MAX) => {
                format!("levels of zstd go to {ZSTD_MAX}")
            }
            _ => return Ok(()),
        };
        Err(Error::invalid(what))
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            create_if_missing: true,
            read_only: false,
            strict_log: false,
            memtable_bytes: 64 << 20,
            memtables_max: 2,
            cache_bytes: 64 << 20,
            map_files: true,
            compression: [Compression::Lz4; LEVELS],
            filter_bits_per_key: 12,
            compaction_tasks: 2,
            compaction_bytes: 0,
            level0_compact: 12,
            level0_slow: 28,
            level0_stop: 44,
            level1_bytes: 0,
            level0_in_log: true,
            level_factor: 10,
            adaptive_parallelism: true,
            cache_policy: CachePolicy::default(),
            reuse: Reuse::default(),
            caps: Caps::default(),
            unit_bytes: None,
            island_bytes_min: None,
            rules: Rules::default(),
            cpu: CpuModel::default(),
        }
    }
}

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Nothing yet: it may wait in the process until there is more to write. Lost if the process dies.
    None,
    /// The end of the process. Lost if the power goes.
    #[default]
    Buffered,
    /// The loss of power.
    Sync,
}
