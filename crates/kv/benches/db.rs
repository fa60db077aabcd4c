//! Throughput of a store in a directory: fillrandom, overwrite, readrandom, readseq, as `db_bench` of RocksDB and
//! LevelDB names them.
//!
//! `cargo bench -p vellum-kv --bench db -- [--keys N] [--value BYTES] [--threads N] [--dir PATH]`. Keys are 16 bytes,
//! drawn uniformly with repetition; values are half compressible. Prints operations a second of wall time, and bytes
//! written.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use vellum_base::RealEnv;
use vellum_kv::{Batch, Bounds, Directory, DirectoryOptions, Durability, Options, Store};

struct Arguments {
    keys: u64,
    value: usize,
    threads: u64,
    dir: Option<PathBuf>,
}

fn arguments() -> Arguments {
    let mut found = Arguments { keys: 200_000, value: 128, threads: 1, dir: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|n| n.parse().ok()).expect("a number follows");
        match word.as_str() {
            "--keys" => found.keys = number(),
            "--value" => found.value = number() as usize,
            "--threads" => found.threads = number(),
            "--dir" => found.dir = words.next().map(PathBuf::from),
            _ => {} // what cargo adds
        }
    }
    found
}

/// splitmix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ *state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

fn key(number: u64) -> [u8; 16] {
    let mut key = [b'0'; 16];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key
}

fn write(store: &Store, seed: u64, count: u64, keys: u64, noise: &[u8], value: usize) {
    let (mut state, mut batch, mut body) = (seed, Batch::new(), vec![0; value]);
    for _ in 0..count {
        let at = random(&mut state) as usize % (noise.len() - value);
        body[..value / 2].copy_from_slice(&noise[at..at + value / 2]);
        batch.clear();
        batch.put(&key(random(&mut state) % keys), &body).expect("within limits");
        store.write(&batch, Durability::Buffered).expect("write");
    }
}

fn read(store: &Store, seed: u64, count: u64, keys: u64) -> u64 {
    let (mut state, mut value, mut found) = (seed, Vec::new(), 0);
    for _ in 0..count {
        found += store.get_into(&key(random(&mut state) % keys), &mut value).expect("read") as u64;
    }
    found
}

/// Reads `count` entries in order, over and over if there are fewer.
fn scan(store: &Store, count: u64) {
    let mut iter = store.iter(Bounds::all()).expect("iterate");
    for _ in 0..count {
        if iter.is_valid() { iter.next().expect("read") } else { iter.seek_to_first().expect("read") }
    }
}

#[expect(clippy::disallowed_methods, reason = "a bench measures real time on real threads")]
fn main() {
    let arguments = arguments();
    let Arguments { keys, value, threads, .. } = arguments;
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = arguments.dir.unwrap_or_else(|| scratch.path().join("store"));
    let media = Directory::open(&dir, DirectoryOptions::default()).expect("open");
    let store = Arc::new(Store::open(media, RealEnv::new(), Options::default()).expect("open"));
    let mut state = 1;
    let noise: Arc<Vec<u8>> = Arc::new((0..1 << 20).map(|_| random(&mut state) as u8).collect());
    for (round, name) in ["fillrandom", "overwrite", "readrandom", "readseq"].into_iter().enumerate() {
        let before = store.stat();
        let start = Instant::now();
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (store, noise) = (store.clone(), noise.clone());
                let seed = (round as u64) << 32 | thread;
                std::thread::spawn(move || match name {
                    "readrandom" => drop(read(&store, seed, keys / threads, keys)),
                    "readseq" => scan(&store, keys / threads),
                    _ => write(&store, seed, keys / threads, keys, &noise, value),
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().expect("worker"));
        let seconds = start.elapsed().as_secs_f64();
        let stat = store.stat();
        let bytes = stat.ledger.programmed_total() - before.ledger.programmed_total();
        println!(
            "{name:<11} {:>9.0} op/s  {:>6.2} GB written  {:>5} stalls {:>6.0} ms  slowed {:>6.0} ms  levels {:?}",
            keys as f64 / seconds,
            bytes as f64 / 1e9,
            stat.stalls - before.stalls,
            (stat.stalled_ns - before.stalled_ns) as f64 / 1e6,
            (stat.slowed_ns - before.slowed_ns) as f64 / 1e6,
            stat.levels.map(|level| level.tables)
        );
    }
}
