//! RocksDB and LevelDB for comparison, if the machine has their libraries (Debian: `librocksdb7.8`, `libleveldb1d`).

use super::c_api::{Database, LevelDbOptions, Library};
use super::engine::{Compression, Engine, Session, Setup, cannot};
use std::sync::Arc;
use vellum_base::Result;
use vellum_kv::Durability;

/// Later versions first; any of them will do.
const ROCKSDB: [&str; 8] = [
    "librocksdb.so",
    "librocksdb.so.11",
    "librocksdb.so.10",
    "librocksdb.so.9",
    "librocksdb.so.8",
    "librocksdb.so.7.8",
    "librocksdb.so.7",
    "librocksdb.so.6",
];
const LEVELDB: [&str; 2] = ["libleveldb.so", "libleveldb.so.1d"];

/// Size of the tables of a tuned LevelDB; the default is 2 MiB.
const LEVELDB_FILE_BYTES: usize = 64 << 20;

impl Engine for Database {
    fn session(&self) -> Box<dyn Session + '_> {
        Box::new(self)
    }

    fn close(self: Arc<Self>) -> Result<()> {
        Ok(())
    }
}

impl Session for &Database {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Database::put(self, key, value)
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        Database::get(self, key, value)
    }

    fn scan(&mut self, key: &[u8], records: u32, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<u32> {
        let mut place = self.seek(key);
        let mut seen = 0;
        while let Some((key, value)) = place.here()? {
            see(key, value);
            seen += 1;
            if seen == records {
                break;
            }
            place.next();
        }
        Ok(seen)
    }
}

/// Options of RocksDB besides memory and compression.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Settings {
    /// None.
    Default,
    /// A filter, level sizes derived from the last level and from memtables, several background jobs, larger reads in
    /// compactions, incremental write-back.
    Tuned,
    /// The same, with tables mapped into memory.
    Mapped,
}

/// Opens RocksDB.
pub fn open_rocksdb(setup: &Setup, settings: Settings) -> Result<Arc<dyn Engine>> {
    let library = Library::rocksdb(&ROCKSDB)?;
    let text = rocksdb_options(setup, settings);
    Ok(Arc::new(library.open_rocksdb(&setup.dir, &text, setup.durability == Durability::Sync)?))
}

/// Opens LevelDB. Tuned means with a filter and larger tables.
pub fn open_leveldb(setup: &Setup, tuned: bool) -> Result<Arc<dyn Engine>> {
    if setup.durability == Durability::None {
        return Err(cannot("LevelDB", "writes that wait in the process"));
    }
    let snappy = match setup.compression {
        Compression::None => false,
        // Its own fast codec, instead of LZ4.
        Compression::Lz4 => true,
        Compression::Zstd => return Err(cannot("LevelDB", "zstd")),
    };
    let options = LevelDbOptions {
        write_buffer_bytes: setup.memtable_bytes,
        cache_bytes: setup.cache_bytes,
        snappy,
        filter_bits: tuned.then_some(setup.filter_bits),
        file_bytes: tuned.then_some(LEVELDB_FILE_BYTES),
    };
    let library = Library::leveldb(&LEVELDB)?;
    Ok(Arc::new(library.open_leveldb(&setup.dir, options, setup.durability == Durability::Sync)?))
}

/// The version of the RocksDB that is installed.
pub fn rocksdb_version() -> Result<String> {
    Library::rocksdb(&ROCKSDB)?;
    Ok(loaded("librocksdb.so.").unwrap_or_else(|| "of unknown version".into()))
}

/// The version of the LevelDB that is installed.
pub fn leveldb_version() -> Result<String> {
    let version = Library::leveldb(&LEVELDB)?.leveldb_version();
    Ok(version.map_or_else(|| "of unknown version".into(), |(major, minor)| format!("{major}.{minor}")))
}

fn rocksdb_options(setup: &Setup, settings: Settings) -> String {
    let compression = match setup.compression {
        Compression::None => "kNoCompression",
        Compression::Lz4 => "kLZ4Compression",
        Compression::Zstd => "kZSTD",
    };
    let filter = match settings {
        Settings::Default => String::new(),
        _ => format!("filter_policy=bloomfilter:{}:false;", setup.filter_bits),
    };
    let mut text = format!(
        "write_buffer_size={};max_write_buffer_number={};compression={compression};manual_wal_flush={};\
         block_based_table_factory={{block_cache={};{filter}}};",
        setup.memtable_bytes,
        setup.memtables,
        setup.durability == Durability::None,
        setup.cache_bytes
    );
    if settings != Settings::Default {
        // As in its tuning guide: level 1 is as large as the input from level 0.
        let level1_bytes = 4 * setup.memtable_bytes;
        text.push_str(&format!(
            "max_background_jobs=4;level_compaction_dynamic_level_bytes=true;max_subcompactions=2;\
             compaction_readahead_size=2097152;bytes_per_sync=1048576;max_bytes_for_level_base={level1_bytes};\
             target_file_size_base={};allow_mmap_reads={};{}",
            (level1_bytes / 8).max(2 << 20),
            settings == Settings::Mapped,
            setup.rocksdb_options
        ));
    }
    text
}

/// Finds a loaded library in the memory map; returns what follows `name` in its file name.
fn loaded(name: &str) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| Some(line.split_once(name)?.1.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv_bench::EngineKind;
    use vellum_base::{Env, RealEnv};

    #[test]
    fn every_engine_here_keeps_what_it_is_given() {
        let env: Arc<dyn Env> = RealEnv::new();
        for kind in EngineKind::ALL {
            if let Err(e) = kind.version() {
                println!("skipped: {e}");
                continue;
            }
            let (dir, has_order) = (tempfile::tempdir().unwrap(), kind != EngineKind::VellumLog);
            let setup = Setup {
                flash_bytes: 64 << 20,
                dir: dir.path().join("store"),
                memtable_bytes: 1 << 20,
                memtables: 2,
                cache_bytes: 1 << 20,
                durability: Durability::Buffered,
                compression: Compression::None,
                filter_bits: 10,
                vellum_options: if has_order { vec![("level0_compact".into(), 3)] } else { Vec::new() },
                reuse: Default::default(),
                rocksdb_options: "level0_file_num_compaction_trigger=3".into(),
            };
            let engine = kind.open(&setup, &env).unwrap();
            let mut session = engine.session();
            for i in 0..5000u32 {
                session.put(&i.to_be_bytes(), &[i as u8; 400]).unwrap();
            }
            session.put(b"", b"").unwrap();
            drop(session);
            engine.close().unwrap();
            let engine = kind.open(&setup, &env).unwrap();
            let mut session = engine.session();
            let mut value = vec![9];
            for i in (0..5000u32).step_by(7) {
                assert!(session.get(&i.to_be_bytes(), &mut value).unwrap(), "{}: {i}", kind.name());
                assert_eq!(value, [i as u8; 400]);
            }
            assert!(session.get(b"", &mut value).unwrap() && value.is_empty());
            assert!(!session.get(b"absent", &mut value).unwrap());
            let mut keys = Vec::new();
            let mut see = |key: &[u8], value: &[u8]| {
                assert_eq!(value.len(), 400);
                keys.push(u32::from_be_bytes(key.try_into().unwrap()));
            };
            match has_order {
                true => {
                    assert_eq!(session.scan(&4996u32.to_be_bytes(), 3, &mut see).unwrap(), 3);
                    assert_eq!(session.scan(&4998u32.to_be_bytes(), 9, &mut see).unwrap(), 2);
                    assert_eq!(keys, [4996, 4997, 4998, 4998, 4999]);
                }
                false => assert!(session.scan(&4996u32.to_be_bytes(), 3, &mut see).is_err()),
            }
            drop(session);
            engine.close().unwrap();
        }
    }
}
