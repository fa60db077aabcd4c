//! The interface through which the bench uses any store.

use super::peers::Settings;
use super::{log, ours, peers};
use std::path::PathBuf;
use std::sync::Arc;
use vellum_base::{Env, Error, Result};
use vellum_kv::{Durability, ReuseOptions};

/// A store in a directory. Each client has its own session.
pub trait Engine: Send + Sync {
    /// A client of the store.
    fn session(&self) -> Box<dyn Session + '_>;
    /// Makes all writes durable, and closes the store unless it has other users.
    fn close(self: Arc<Self>) -> Result<()>;
    /// Bytes written so far, if system calls do not account for them: on flash of its own, or in mapped files.
    fn programmed_bytes(&self) -> Option<u64> {
        None
    }
    /// Bytes of logs and manifests written so far to NVRAM, which neither of these accounts for.
    fn nvram_bytes(&self) -> u64 {
        0
    }
}

/// One client, with one request at a time.
pub trait Session {
    /// Sets a key, with the durability with which the store was opened.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Gets the value of a key; false if there is none.
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;
    /// Passes up to `records` keys and values from `key` on to `see`; returns their number.
    fn scan(&mut self, key: &[u8], records: u32, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<u32>;
}

/// An engine and its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EngineKind {
    /// Ours.
    Vellum,
    /// Ours, with files read and written by system calls instead of mapped into memory.
    VellumUnmapped,
    /// Ours on flash of its own, in an image file, without a file system.
    VellumFlash,
    /// Our log store, in a directory.
    VellumLog,
    /// RocksDB with defaults, except for memory and compression.
    RocksDbDefault,
    /// RocksDB tuned for such loads as its guide advises.
    RocksDbTuned,
    /// The same with tables mapped into memory. Mapping its log as well would make it slower.
    RocksDbMapped,
    /// LevelDB with defaults, except for memory and compression.
    LevelDbDefault,
    /// LevelDB with a filter and larger tables.
    LevelDbTuned,
}

/// Compression of values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// LZ4, everywhere.
    Lz4,
    /// Zstandard, everywhere.
    Zstd,
}

/// Settings common to all engines.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where the store is made.
    pub dir: PathBuf,
    /// Bytes of flash, for engines with flash of their own.
    pub flash_bytes: u64,
    /// Bytes of a memtable.
    pub memtable_bytes: usize,
    /// Maximum number of memtables, including the active one.
    pub memtables: usize,
    /// Bytes of cache.
    pub cache_bytes: usize,
    /// What acknowledged writes survive.
    pub durability: Durability,
    /// How values are compressed.
    pub compression: Compression,
    /// Filter bits per key, for engines with that option.
    pub filter_bits: u32,
    /// How our compaction treats leaves that it need not change.
    pub reuse: ReuseOptions,
    /// Further options for our engine, by name.
    pub vellum_options: Vec<(String, u64)>,
    /// Further options for the tuned RocksDB, in its own text form.
    pub rocksdb_options: String,
}

impl EngineKind {
    /// Every engine.
    pub const ALL: [EngineKind; 9] = [
        EngineKind::Vellum,
        EngineKind::VellumUnmapped,
        EngineKind::VellumFlash,
        EngineKind::VellumLog,
        EngineKind::RocksDbDefault,
        EngineKind::RocksDbTuned,
        EngineKind::RocksDbMapped,
        EngineKind::LevelDbDefault,
        EngineKind::LevelDbTuned,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            EngineKind::Vellum => "vellum",
            EngineKind::VellumUnmapped => "vellum-unmapped",
            EngineKind::VellumFlash => "vellum-flash",
            EngineKind::VellumLog => "vellum-log",
            EngineKind::RocksDbDefault => "rocksdb-default",
            EngineKind::RocksDbTuned => "rocksdb-tuned",
            EngineKind::RocksDbMapped => "rocksdb-mapped",
            EngineKind::LevelDbDefault => "leveldb-default",
            EngineKind::LevelDbTuned => "leveldb-tuned",
        }
    }

    /// The engines that `word` selects: one of them, `rocksdb` and `leveldb` for default and tuned, or `all` for these
    /// and `vellum`.
    pub fn named(word: &str) -> Vec<EngineKind> {
        let means = |kind: &EngineKind| {
            let is_apart = kind.name().starts_with("vellum-") || *kind == EngineKind::RocksDbMapped;
            let of_word = word == "all" || kind.name().split_once('-').is_some_and(|(of, _)| of == word);
            kind.name() == word || of_word && !is_apart
        };
        EngineKind::ALL.into_iter().filter(means).collect()
    }

    /// Its version, if known; an error if it is not installed on this machine.
    pub fn version(self) -> Result<String> {
        match self {
            EngineKind::RocksDbDefault | EngineKind::RocksDbTuned | EngineKind::RocksDbMapped => {
                peers::rocksdb_version()
            }
            EngineKind::LevelDbDefault | EngineKind::LevelDbTuned => peers::leveldb_version(),
            _ => Ok(env!("CARGO_PKG_VERSION").into()),
        }
    }

    /// Size of a memtable if `asked` was requested.
    pub fn memtable_bytes(self, asked: usize) -> usize {
        match self {
            EngineKind::VellumFlash => asked.min(ours::FLASH_MEMTABLE_BYTES_MAX),
            _ => asked,
        }
    }

    /// Whether it is compared with this configuration of a peer: mapped tables compete only with mapped files.
    pub fn competes_with(self, peer: EngineKind) -> bool {
        peer != EngineKind::RocksDbMapped || self == EngineKind::Vellum
    }

    /// Whether its keys are ordered.
    pub fn scans(self) -> bool {
        self != EngineKind::VellumLog
    }

    /// Opens a store of this engine, creating it if there is none.
    pub fn open(self, setup: &Setup, env: &Arc<dyn Env>) -> Result<Arc<dyn Engine>> {
        match self {
            EngineKind::Vellum => ours::open(setup, env, true),
            EngineKind::VellumUnmapped => ours::open(setup, env, false),
            EngineKind::VellumFlash => ours::open_on_flash(setup, env),
            EngineKind::VellumLog => log::open(setup, env),
            EngineKind::RocksDbDefault => peers::open_rocksdb(setup, Settings::Default),
            EngineKind::RocksDbTuned => peers::open_rocksdb(setup, Settings::Tuned),
            EngineKind::RocksDbMapped => peers::open_rocksdb(setup, Settings::Mapped),
            EngineKind::LevelDbDefault => peers::open_leveldb(setup, false),
            EngineKind::LevelDbTuned => peers::open_leveldb(setup, true),
        }
    }
}

impl Compression {
    /// Every kind.
    pub const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }
}

/// Error for a setting that an engine does not support.
pub(super) fn cannot(engine: &str, what: &str) -> Error {
    Error::new(vellum_base::Kind::Unsupported, format!("{engine} has no {what}"))
}
