//! Reads that go through many tables of level 0 have them merged; then, and where nobody reads, nothing is written.

use crate::harness::{directory, small};
use std::path::Path;
use std::sync::Arc;
use vellum_base::{Cause, Env, Nanos};
use vellum_kv::{Bounds, Map, Options, Store};
use vellum_sim::Sim;

fn key(i: u32) -> Vec<u8> {
    format!("key{:05}", i * 7919 % 4000).into_bytes()
}

/// A store with a few tables in level 0, and one in level 1.
fn store_of(path: &Path, env: &Arc<dyn Env>) -> Store {
    let store = Store::open(directory(path), env.clone(), Options { level0_compact: 12, ..small() }).unwrap();
    (0..1000).for_each(|i| store.put(&key(i), &[i as u8; 200]).unwrap());
    store.compact().unwrap();
    for i in 0..1500 {
        store.put(&key(i), &[i as u8; 200]).unwrap();
    }
    store.flush().unwrap();
    rest(env);
    assert!(store.stat().levels[0].tables >= 5 && store.stat().levels[1].tables > 0);
    store
}

fn rest(env: &Arc<dyn Env>) {
    env.sleep_until(env.now() + Nanos::from_ms(60_000));
}

fn merged(store: &Store) -> u64 {
    store.stat().ledger.programmed_by(Cause::Compaction1)
}

fn read_until_merged(store: &Store, env: &Arc<dyn Env>, read: impl Fn(u32)) -> u32 {
    let before = merged(store);
    (0..200_000)
        .find(|i| {
            read(*i);
            if i % 100 == 0 {
                env.sleep_until(env.now() + Nanos::from_ms(1));
            }
            merged(store) > before
        })
        .expect("reads have level 0 merged")
}

#[test]
fn reads_have_level_0_merged_and_then_all_is_quiet() {
    for scans in [true, false] {
        let (dir, sim) = (tempfile::tempdir().unwrap(), Sim::new(4));
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            let store = store_of(dir.path(), &env);
            let idle = store.stat().ledger;
            rest(&env);
            assert_eq!(store.stat().ledger, idle, "nobody reads");
            let reads = read_until_merged(&store, &env, |i| match scans {
                true => store.iter(Bounds::all()).unwrap().seek(&key(i)).unwrap(),
                false => drop(store.get(&key(i)).unwrap()),
            });
            assert!(reads > if scans { 10 } else { 1000 }, "merged before reads had paid: {reads}");
            rest(&env);
            let stat = store.stat();
            assert_eq!(stat.levels[0].tables, 0, "{stat:?}");
            for i in 0..20_000 {
                assert!(store.get(&key(i % 1500)).unwrap().is_some());
            }
            rest(&env);
            assert_eq!(store.stat().ledger, stat.ledger, "there is nothing left to merge");
            store.close().unwrap();
        });
    }
}

/// With as many writes as reads level 0 fills up as if nobody read.
#[test]
fn beside_writes_reads_change_nothing() {
    let merged_by = |reads: bool| {
        let (dir, sim) = (tempfile::tempdir().unwrap(), Sim::new(4));
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            let store = store_of(dir.path(), &env);
            for i in 0..6000 {
                store.put(&key(i), &[i as u8; 200]).unwrap();
                if reads {
                    store.get(&key(i * 3)).unwrap();
                }
            }
            merged(&store)
        })
    };
    assert_eq!(merged_by(true), merged_by(false));
}
