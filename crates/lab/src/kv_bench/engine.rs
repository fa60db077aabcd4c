//! What is asked of a store, whosever it is.

use super::peers::Settings;
use super::{log, ours, peers};
use std::path::PathBuf;
use std::sync::Arc;
use vellum_base::{Env, Error, Result};
use vellum_kv::{Caps, Durability, Reuse};

/// A store in a directory. Its clients have a session each.
pub trait Engine: Send + Sync {
    /// A client of the store.
    fn session(&self) -> Box<dyn Session + '_>;
    /// Makes all that was written safe, and closes it, if nobody else holds it.
    fn close(self: Arc<Self>) -> Result<()>;
    /// Bytes written so far, where calls of the system do not tell: on flash of its own, or in mapped files.
    fn programmed_bytes(&self) -> Option<u64> {
        None
    }
}

/// One client, one request at a time.
pub trait Session {
    /// Sets a key, with the durability that the store was opened with.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;
    /// The value of a key; false if there is none.
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;
    /// Shows up to `records` keys and values from `key` on; returns how many there were.
    fn scan(&mut self, key: &[u8], records: u32, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<u32>;
}

/// An engine, and how it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EngineKind {
    /// Ours.
    Vellum,
    /// Ours with its files not mapped into memory, but read and written by calls.
    VellumUnmapped,
    /// Ours on flash of its own, an image file, without a file system in between.
    VellumFlash,
    /// Our log store, in a directory.
    VellumLog,
    /// RocksDB as it is when nothing is set but memory and compression.
    RocksDbDefault,
    /// RocksDB with what its tuning guide advises for such loads.
    RocksDbTuned,
    /// The same with its tables mapped into memory. To map its log, too, makes it slower.
    RocksDbMapped,
    /// LevelDB as it is when nothing is set but memory and compression.
    LevelDbDefault,
    /// LevelDB with a filter and larger tables.
    LevelDbTuned,
}

/// How values are compressed on their way to the medium.
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

/// What all engines are given alike.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where the store is made.
    pub dir: PathBuf,
    /// Bytes of flash, for who has its own.
    pub flash_bytes: u64,
    /// Bytes of a memtable.
    pub memtable_bytes: usize,
    /// Memtables at a time, the one that is written to included.
    pub memtables: usize,
    /// Bytes of cache.
    pub cache_bytes: usize,
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// How values are compressed.
    pub compression: Compression,
    /// Filter bits a key, where an engine is told.
    pub filter_bits: u32,
    /// What compaction of ours does with leaves that it need not change, within which caps, and from how many bytes
    /// on.
    pub reuse: Reuse,
    /// See [`vellum_kv::Options::caps`].
    pub caps: Caps,
    /// See [`vellum_kv::Options::unit_bytes`].
    pub unit_bytes: Option<u64>,
    /// See [`vellum_kv::Options::island_bytes_min`].
    pub island_bytes_min: Option<u64>,
    /// More options for ours, by name.
    pub vellum_options: Vec<(String, u64)>,
    /// More options for the tuned RocksDB, in its own text form.
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

    /// As on the command line.
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

    /// The engines that a word means: one of them, `rocksdb` and `leveldb` for default and tuned, or `all` those that
    /// live in a directory and have an order.
    pub fn named(word: &str) -> Vec<EngineKind> {
        let means = |kind: &EngineKind| {
            let is_apart = kind.name().starts_with("vellum-") || *kind == EngineKind::RocksDbMapped;
            let of_word = word == "all" || kind.name().split_once('-').is_some_and(|(of, _)| of == word);
            kind.name() == word || of_word && !is_apart
        };
        EngineKind::ALL.into_iter().filter(means).collect()
    }

    /// Its version, as far as it says one; an error if it is not on this machine.
    pub fn version(self) -> Result<String> {
        match self {
            EngineKind::RocksDbDefault | EngineKind::RocksDbTuned | EngineKind::RocksDbMapped => {
                peers::rocksdb_version()
            }
            EngineKind::LevelDbDefault | EngineKind::LevelDbTuned => peers::leveldb_version(),
            _ => Ok(env!("CARGO_PKG_VERSION").into()),
        }
    }

    /// Bytes of a memtable, if so many were asked for.
    pub fn memtable_bytes(self, asked: usize) -> usize {
        match self {
            EngineKind::VellumFlash => asked.min(ours::FLASH_MEMTABLE_BYTES_MAX),
            _ => asked,
        }
    }

    /// Whether it is compared with that setting of a peer: with tables that are mapped only if its own files are.
    pub fn competes_with(self, peer: EngineKind) -> bool {
        peer != EngineKind::RocksDbMapped || self == EngineKind::Vellum
    }

    /// Whether its keys have an order.
    pub fn scans(self) -> bool {
        self != EngineKind::VellumLog
    }

    /// Opens a store of this engine; makes it if there is none.
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
    /// Every way.
    pub const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

    /// As on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }
}

/// That an engine cannot be set as all are to be.
pub(super) fn cannot(engine: &str, what: &str) -> Error {
    Error::new(vellum_base::Kind::Unsupported, format!("{engine} has no {what}"))
}
