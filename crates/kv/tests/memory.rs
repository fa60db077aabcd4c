//! Memory of a store, in a process of its own: no more than the documentation of its options says.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use vellum_base::{Env, Nanos, RealEnv};
use vellum_kv::{
    Batch, Bounds, Compression, Directory, DirectoryOptions, Durability, Map, Options, Store, log,
};

/// Tells the child where to write, and how.
const CHILD: &str = "VELLUM_KV_MEMORY_CHILD";
const MIB: u64 = 1 << 20;
/// Bytes of keys and values.
const DATA_BYTES: u64 = 80 * MIB;

/// Memory of this process that is no file's.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn options(how: &str) -> Options {
    Options {
        memtable_bytes: 4 << 20,
        memtables_max: 2,
        cache_bytes: 8 << 20,
        map_files: how.contains("mapped"),
        level0_compact: 8, // several merges, one of them into a level 1 of several tables
        compression: [if how.contains("lz4") { Compression::Lz4 } else { Compression::None }; _],
        ..Options::default()
    }
}

/// What [`Options`] say, for tables of so many bytes.
fn most(options: &Options, tables: u64) -> u64 {
    let memtables = (options.memtable_bytes * (1 + options.memtables_max)) as u64 * 5 / 4;
    // As many bytes of batches as a memtable has.
    let tasks = options.compaction_tasks as u64 * (2 * options.memtable_bytes as u64 + 2 * MIB);
    memtables + options.cache_bytes as u64 + tasks + tables / 10_000
}

fn log_options() -> log::Options {
    log::Options { segment_bytes: 2 << 20, ..log::Options::default() }
}

/// What [`log::Options`] say.
fn most_of_log(options: &log::Options, keys: u64) -> u64 {
    8 * keys + (128 << 10) + 8 * options.segment_bytes + 2 * MIB
}

#[test]
#[ignore = "a process of its own, which another test starts"]
fn child() {
    let Ok(said) = std::env::var(CHILD) else { return };
    let (dir, how) = said.rsplit_once('|').unwrap();
    let value_bytes: usize = how.split(' ').next().unwrap().parse().unwrap();
    let media = Directory::open(Path::new(dir), DirectoryOptions::default()).unwrap();
    let (env, before) = (RealEnv::new(), memory());
    let (peak, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let most = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                peak.fetch_max(memory(), Relaxed);
                env.sleep_until(env.now() + Nanos::from_ms(2));
            }
        });
        let most = if how.contains("log") {
            let options = log_options();
            let store = log::Store::open(media, RealEnv::new(), options.clone()).unwrap();
            most_of_log(&options, work(&store, value_bytes))
        } else {
            let options = options(how);
            let store = Store::open(media, RealEnv::new(), options.clone()).unwrap();
            work(&store, value_bytes);
            scan(&store);
            most(&options, store.stat().levels.iter().map(|level| level.bytes).sum())
        };
        done.store(true, Relaxed);
        most
    });
    println!("took {} of {most} bytes", peak.into_inner() - before);
}

/// Fills it in any order, and reads it meanwhile and afterwards. Returns how many keys it has.
fn work(store: &impl Map, value_bytes: usize) -> u64 {
    let mut rng = SmallRng::seed_from_u64(1);
    let keys = DATA_BYTES / value_bytes as u64;
    let key = |number: u64| (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % keys).to_be_bytes();
    for number in 0..keys {
        let mut batch = Batch::new();
        let value: Vec<u8> = (0..value_bytes).map(|i| if i % 2 == 0 { rng.random() } else { 0 }).collect();
        batch.put(&key(number), &value).unwrap();
        store.write(&batch, Durability::Buffered).unwrap();
        if number % 8 == 0 {
            store.get(&key(rng.random_range(0..=number))).unwrap();
        }
    }
    for _ in 0..20_000 {
        store.get(&key(rng.random_range(0..keys))).unwrap();
    }
    keys
}

fn scan(store: &Store) {
    let mut iter = store.iter(Bounds::all()).unwrap();
    iter.seek_to_first().unwrap();
    while iter.is_valid() {
        iter.next().unwrap();
    }
}

#[test]
fn a_store_takes_no_more_memory_than_its_options_say() {
    for how in ["100 mapped", "100 read", "1000 mapped lz4", "1000 read lz4", "100 log", "3000 log"] {
        let dir = tempfile::tempdir().unwrap();
        let out = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "memory::child", "--ignored", "--nocapture"])
            .env(CHILD, format!("{}|{how}", dir.path().display()))
            // What an allocator keeps for each thread is not ours.
            .env("MALLOC_ARENA_MAX", "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        let (_, said) = said.split_once("took ").unwrap_or_else(|| panic!("{how}: {said}"));
        let numbers: Vec<u64> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
        let (took, most) = (numbers[0], numbers[1]);
        println!("{how}: {} of {} MiB", took / MIB, most / MIB);
        assert!(took <= most, "{how}: {} of {} MiB", took / MIB, most / MIB);
        assert!(took > most / 8, "{how}: only {} of {} MiB: the test lost its teeth", took / MIB, most / MIB);
    }
}
