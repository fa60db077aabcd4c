//! How a store is opened, and how writes are asked for.

use crate::freewrite::ReuseOptions;
use crate::journal::LEVELS;
use vellum_base::{Error, Nanos, Result};

/// Upper limit in bytes of a value, on any medium. The limit of a store ([`crate::Map::value_bytes_max`]) is lower
/// where tables or logs are short: at most an eighth of a table, which is 8 MiB in a directory with the default
/// [`crate::DirectoryOptions::table_bytes`]. A write that exceeds it fails with an error that states the limit.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

/// How a store is opened. The defaults suit a directory on a machine with a few GiB to spare.
///
/// Memory, at most: `memtable_bytes` × (1 + `memtables_max`), plus a quarter for filters and spare capacity of indexes;
/// `cache_bytes`; for each compaction task twice `compaction_bytes`, or 192 KiB for each table of level 0 if that is
/// more, and 2 MiB of output buffers; about a ten-thousandth of the bytes of all tables, for their roots. In addition:
/// up to 1 + `memtables_max` memtables for each iterator that is held while as many are written; buffers of calls in
/// progress (a batch; a value or two for each table that a scan reads from); 256 KiB of buffers for each thread that
/// reads or compacts; a 32nd of the cache, as buffers are a little longer than compressed leaves; a leaf of keys for
/// each run of a table, where keys are long; and what the allocator does not return to the system. That of glibc caches
/// memory for each thread, most of all where files are not mapped; `MALLOC_ARENA_MAX=1` prevents that.
///
/// Open files, in a directory: one for each table (about one per 64 MiB of data), one for each log, and ten more. When
/// the process reaches its limit of open files, operations fail with [`vellum_base::Kind::NoSpace`]; they succeed again
/// once it may open more.
#[derive(Clone, Debug)]
pub struct Options {
    /// Make the store if there is none.
    pub create_if_missing: bool,
    /// Never write to the medium, not even to recover. Operations that would write return an error.
    pub read_only: bool,
    /// Refuse to open a store whose log is damaged in the middle: a record fails its check, and valid records follow
    /// it. Where a sync mark or a clean close proves that the record was durable, that is an error with or without this
    /// option. Otherwise it may be damage, or what a power loss leaves of writes that were not synced, or that were
    /// being synced. Without this option the log then ends before that record, as at a torn tail; with it, opening
    /// fails and changes nothing, and `repair` can still recover what follows.
    pub strict_log: bool,
    /// Size in bytes at which a memtable is flushed to a table. Smaller where a log or a table cannot hold as much, or
    /// where the medium is nearly full.
    pub memtable_bytes: usize,
    /// Most full memtables that wait to be flushed, at least one. A write that would add another one blocks. With two
    /// or more, writes are slowed down to what flushes achieve while as many wait.
    pub memtables_max: usize,
    /// How leaves are compressed, by level. Data does not stay in levels 0 and 1 for long, but is written there as
    /// often as to others: without compression on these two, a fill is up to a third faster and writes a quarter more
    /// (docs/decisions/0019).
    pub compression: [Compression; LEVELS],
    /// Capacity in bytes of the cache for leaves, branches, and values read from logs.
    pub cache_bytes: usize,
    /// Memory-map the files of a store that has files. Uncompressed leaves, and values in logs, are then read from the
    /// kernel's page cache and not cached a second time; a leaf is verified once in ten seconds, not at each read; and
    /// most writes that are not synced take no system call. Up to 8 MiB of room are allocated ahead for the log. How
    /// much memory tables occupy is up to the kernel. A read error of the device is still returned as an error: the
    /// store installs a SIGBUS handler, which passes on signals that are not its own; threads that read must not block
    /// SIGBUS. Without this option, each leaf that is not in the cache is read by a system call and verified.
    pub map_files: bool,
    /// Filter bits per key, at most 64. With 10 the rate of false positives is about one in a hundred, with 16 one in a
    /// thousand.
    pub filter_bits_per_key: u32,
    /// Compaction tasks, at least one; one more task flushes.
    pub compaction_tasks: usize,
    /// Read buffers of a compaction task in bytes, shared evenly by its inputs. Each input has two, one of them being
    /// read ahead, of 64 KiB to 2 MiB. 0 for the size of a memtable.
    pub compaction_bytes: usize,
    /// Number of tables in level 0 that starts a compaction. Fewer start one when reads have cost as much as it would,
    /// and where the medium is nearly full. A larger number writes less, and makes scans merge more tables; logs that
    /// tables of level 0 point into take as many memtables of room, and up to `level0_stop` beside many writers.
    pub level0_compact: usize,
    /// Number of tables in level 0 from which writes are slowed down, more with each further table. All writers share
    /// the rate that is left, and none is delayed for more than a tenth of a second at a time.
    pub level0_slow: usize,
    /// Number of tables in level 0 at which writes block.
    pub level0_stop: usize,
    /// Target size of level 1 in bytes; each deeper level may have `level_factor` times as many. 0 for thirty-two
    /// memtables, fewer where the medium is nearly full.
    pub level1_bytes: u64,
    /// Where logs are files, flushes leave values in the log, and tables of level 0 store pointers to them
    /// (docs/decisions/0026); this saves one write of each value. A log is kept as long as a table of level 0 points
    /// into it.
    pub level0_in_log: bool,
    /// Ratio of the target sizes of a level and the one above it.
    pub level_factor: u64,
    /// While few requests are writes, let compactions into levels below 1 write to half of the channels at a time
    /// (FlashKV, section 3.3).
    pub adaptive_parallelism: bool,
    /// How compaction uses the cache.
    pub cache_policy: CachePolicy,
    /// What compaction does with leaves that it does not have to change.
    pub reuse: ReuseOptions,
    /// Which rules decide what is compacted, and when.
    pub rules: Rules,
    /// Modelled processor time of work, in virtual time.
    pub cpu: CpuModel,
}

/// How the leaves of a table are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// Fast, moderate ratio.
    Lz4,
    /// Slower, higher ratio. The level, 1 to 22; 0 is zstd's default.
    Zstd(i32),
}

/// How compaction uses the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CachePolicy {
    /// It bypasses the cache and reads batches of up to 2 MiB, one batch ahead; leaves of tables that it replaced are
    /// evicted at once (FlashKV, section 3.4).
    #[default]
    CompactionAware,
    /// It reads through the cache like a client, with the read-ahead that a kernel would do. For comparison.
    Lru,
}

/// Which rules decide what is compacted, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// Picks the table that overlaps least with the next level; splits a merge among idle tasks; flushes concurrently;
    /// slows writers down gradually.
    #[default]
    Vellum,
    /// Those of LevelDB 1.14, on which FlashKV is built: picks tables round-robin, or a table that gets often searched
    /// in vain; the task that compacts also flushes; each write is slowed down by a millisecond. For comparison.
    LevelDb,
}

/// Processor time of the modelled host, charged in virtual time. Zero in production.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuModel {
    /// A get.
    pub get: Nanos,
    /// A batch written.
    pub put: Nanos,
    /// An entry flushed or merged.
    pub merge: Nanos,
    /// A KiB of entries flushed or merged.
    pub merge_kib: Nanos,
}

/// Larger values are taken for typing errors: they would need more memory than any machine has.
const CACHE_BYTES_MAX: usize = 1 << 44;
const FILTER_BITS_MAX: u32 = 64;
const TASKS_MAX: usize = 1024;
const ZSTD_MAX: i32 = 22;

impl Options {
    /// An error if an option is beyond its limit.
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
            level0_compact: 24,
            level0_slow: 40,
            level0_stop: 56,
            level1_bytes: 0,
            level0_in_log: true,
            level_factor: 10,
            adaptive_parallelism: true,
            cache_policy: CachePolicy::default(),
            reuse: ReuseOptions::default(),
            rules: Rules::default(),
            cpu: CpuModel::default(),
        }
    }
}

/// What a write survives once it has returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: it may be buffered in the process. Lost if the process dies.
    None,
    /// The end of the process, however it ends. Lost if the power fails.
    #[default]
    Buffered,
    /// Loss of power.
    Sync,
}
