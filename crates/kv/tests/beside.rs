//! What is asked for ends beside those who write, and who writes waits for nothing that never comes.

use crate::harness::{directory, small};
use crate::log::harness as of_log;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use vellum_base::RealEnv;
use vellum_kv::{Map, Options, Store, log};

/// Runs `ask` while two threads overwrite what is in the store.
fn beside_writers<M: Map + Sync>(store: &M, keys: u32, ask: impl FnOnce()) {
    let (is_done, written) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_done.load(Relaxed) {
                    let number = written.fetch_add(1, Relaxed);
                    let key = number.wrapping_mul(0x9E37_79B1) % keys;
                    store.put(&key.to_be_bytes(), &[number as u8; 600]).unwrap();
                }
            });
        }
        while written.load(Relaxed) < 2 * keys {
            std::thread::yield_now();
        }
        ask();
        is_done.store(true, Relaxed);
    });
}

#[test]
fn a_flush_ends_when_what_was_written_before_it_is_in_tables() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { memtables_max: 2, ..small() };
    let store = Store::open(directory(dir.path()), RealEnv::new(), options).unwrap();
    beside_writers(&store, 1000, || {
        for _ in 0..20 {
            let before = store.stat().since_opened.flushes();
            store.flush().unwrap();
            let flushes = store.stat().since_opened.flushes() - before;
            // Those that waited, the active one, and the next ones while it is told.
            assert!(flushes < 20, "{flushes} flushes for one");
        }
    });
}

#[test]
fn a_compaction_of_a_log_store_takes_what_was_there_when_it_began() {
    let dir = tempfile::tempdir().unwrap();
    let options = log::Options { collect_max: 1, ..of_log::small() };
    let store = of_log::open_with(directory(dir.path()), options).unwrap();
    // Who went on with what came meanwhile would not end: each segment has some garbage as soon as it is a table.
    beside_writers(&store, 100, || (0..3).for_each(|_| store.compact().unwrap()));
}

#[test]
fn writers_do_not_wait_for_a_merge_that_is_never_due() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { level0_compact: 8, level0_slow: 1, level0_stop: 2, ..small() };
    let store = Store::open(directory(dir.path()), RealEnv::new(), options).unwrap();
    (0..2000u32).for_each(|n| store.put(&n.to_be_bytes(), &[1; 600]).unwrap());
    assert!(store.stat().since_opened.flushes() > 10);
}
