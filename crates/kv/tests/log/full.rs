//! A full medium refuses by name, loses nothing, and is won back by deleting; a full disk while segments are collected
//! changes nothing.

use super::harness::{assert_same, of_seed, open_with, small};
use crate::doubtful::{Doubtful, Fault};
use crate::harness::{Model, flash};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use vellum_base::{Env, Kind, Nanos, RealEnv};
use vellum_kv::log::{Options, Store};
use vellum_kv::{Directory, DirectoryOptions, FlashMedia, Map, Reuse};
use vellum_sim::Sim;

fn key(n: u32) -> Vec<u8> {
    format!("key{:08}", n.wrapping_mul(2_654_435_761) % 100_000_000).into_bytes()
}

/// Puts new keys until one is refused.
fn fill_up(store: &Store, model: &mut Model, from: u32) -> vellum_base::Error {
    let refused = (from..).find_map(|n| {
        let result = store.put(&key(n), &[n as u8; 900]);
        if result.is_ok() {
            model.insert(key(n), vec![n as u8; 900]);
        }
        result.err()
    });
    refused.unwrap()
}

#[test]
fn a_log_store_on_full_flash_takes_deletes_and_then_puts() {
    for (seed, part) in [(1, 2), (2, 4), (3, 8)] {
        let flash = flash(seed);
        let options = Options { segment_bytes: 1 << 20, ..of_seed(seed) };
        let open = || open_with(FlashMedia::open(flash.clone(), RealEnv::new()).unwrap(), options.clone());
        let (mut store, mut model) = (open().unwrap(), Model::new());
        for round in 0..3 {
            let context = format!("one of {part} deleted, round {round}");
            let before = model.len();
            let error = fill_up(&store, &mut model, round * 1_000_000);
            assert_eq!(error.kind(), Kind::NoSpace, "{context}: {error}");
            assert!(model.len() > before + 300, "{context}: {before} keys, then {}", model.len());
            assert_same(&store, &model, &context);
            store.close().unwrap();
            store = open().unwrap();
            let gone: Vec<Vec<u8>> = model.keys().step_by(part).cloned().collect();
            for key in gone {
                store.delete(&key).unwrap_or_else(|e| panic!("{context}: {e}"));
                model.remove(&key);
            }
            store.compact().unwrap_or_else(|e| panic!("{context}: {e}"));
            assert_same(&store, &model, &context);
        }
    }
}

/// There is no room from the `nth` call on that takes some; later there is again.
fn full_for_a_while(nth: u64, reuse: Reuse) -> bool {
    let files = Doubtful::default();
    let env: Arc<dyn Env> = RealEnv::new();
    let options = Options { reuse: reuse.into(), garbage_share: 1.1, collect_max: 1, ..small() };
    let open = || {
        let how = DirectoryOptions { table_bytes: 64 << 10 };
        Store::open(Directory::on(Arc::new(files.clone()), how), env.clone(), options.clone())
    };
    let (store, mut model) = (open().unwrap(), Model::new());
    for n in 0..900u32 {
        let n = if n % 3 == 0 { n / 3 } else { n };
        store.put(&key(n), &[n as u8; 300]).unwrap();
        model.insert(key(n), vec![n as u8; 300]);
    }
    store.flush().unwrap();
    {
        let mut state = files.0.lock();
        (state.fault, state.left) = (Fault::Full, Some(nth));
    }
    let context = format!("{reuse:?}, call {nth}");
    let refused = match store.compact() {
        Ok(()) => false,
        Err(e) if e.kind() == Kind::NoSpace => true,
        Err(e) => panic!("{context}: {e}"),
    };
    assert_same(&store, &model, &context);
    files.0.lock().left = None;
    store.put(b"more", b"room").unwrap();
    model.insert(b"more".to_vec(), b"room".to_vec());
    store.compact().unwrap_or_else(|e| panic!("{context}: {e}"));
    assert_same(&store, &model, &context);
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new(), "{context}");
    store.close().unwrap();
    assert_same(&open().unwrap(), &model, &context);
    refused
}

#[test]
fn no_room_at_any_call_of_a_collection_changes_nothing() {
    for reuse in [Reuse::Off, Reuse::Relink] {
        let refused = (1..).take_while(|nth| full_for_a_while(*nth, reuse)).count();
        assert!(refused > 4, "{reuse:?}: refused only {refused} times");
    }
}

/// Deletes and puts of few keys on a disk that is full now and then, in the middle of collecting.
fn full_now_and_then(seed: u64) -> u32 {
    let files = Doubtful::default();
    let options = Options { garbage_share: 0.2, collect_max: 8, ..of_seed(seed) };
    let open = || {
        let how = DirectoryOptions { table_bytes: 128 << 10 };
        open_with(Directory::on(Arc::new(files.clone()), how), options.clone()).unwrap()
    };
    let (mut store, mut model, mut refused) = (open(), Model::new(), 0);
    let mut rng = SmallRng::seed_from_u64(seed);
    for round in 0..10 {
        let context = format!("seed {seed}, round {round}");
        for _ in 0..rng.random_range(100..500) {
            let (key, value) =
                (key(rng.random_range(0..1000)), vec![rng.random(); rng.random_range(200..1500)]);
            store.delete(&key).unwrap();
            model.remove(&key);
            if rng.random_range(0..4) > 0 {
                store.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        {
            let mut state = files.0.lock();
            (state.fault, state.left) = (Fault::FullOnce, Some(rng.random_range(1..24)));
        }
        // What found no room is done without sharing, or once others have won some.
        if let Err(error) = store.compact() {
            assert_eq!(error.kind(), Kind::NoSpace, "{context}: {error}");
        }
        assert_same(&store, &model, &context);
        refused += u32::from(files.0.lock().left.take().is_none());
        if rng.random() {
            store.compact().unwrap_or_else(|error| panic!("{context}: {error}"));
        }
        if rng.random() {
            store.close().unwrap_or_else(|error| panic!("{context}: {error}"));
            store = open();
            assert_same(&store, &model, &format!("{context}, opened again"));
        }
    }
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new(), "seed {seed}");
    refused
}

#[test]
fn a_disk_that_is_full_now_and_then_loses_nothing_and_brings_nothing_back() {
    let refused: u32 = (0..36).map(full_now_and_then).sum();
    assert!(refused > 36, "refused only {refused} times");
}

#[test]
fn an_idle_log_store_writes_nothing() {
    let flash = flash(2);
    let sim = Sim::new(2);
    let env = sim.env();
    let open = || Store::open(FlashMedia::open(flash.clone(), env.clone()).unwrap(), env.clone(), small());
    sim.run(|| {
        use vellum_base::Flash;
        let store = open().unwrap();
        for n in 0..3000 {
            store.put(&key(n % 700), &[n as u8; 300]).unwrap();
        }
        env.sleep_until(Nanos::from_ms(1000));
        let before = (flash.counters(), store.stat().ledger);
        env.sleep_until(Nanos::from_ms(3_600_000));
        assert_eq!(before, (flash.counters(), store.stat().ledger));
        store.close().unwrap();
        let closed = flash.counters();
        let store = open().unwrap();
        assert!(store.get(&key(5)).unwrap().is_some());
        store.close().unwrap();
        assert_eq!(flash.counters().pages_programmed, closed.pages_programmed, "opening and closing writes");
        assert_eq!(open().unwrap().stat().keys, 700);
    });
}

#[test]
fn the_ledger_of_a_log_store_equals_the_device() {
    use vellum_base::Flash;
    let flash = flash(1);
    let media = FlashMedia::open(flash.clone(), RealEnv::new()).unwrap();
    let options = Options { segment_bytes: 1 << 20, reuse: Reuse::Relink.into(), ..small() };
    let store = open_with(media.clone(), options).unwrap();
    for n in 0..9000 {
        store.put(&key(n * 7919 % 4000), &[n as u8; 300]).unwrap();
    }
    store.compact().unwrap();
    assert!(
        store.stat().since_opened.write_amplification() > 0.9 && store.stat().since_opened.compactions() > 0,
        "{:?}",
        store.stat()
    );
    store.close().unwrap();
    use vellum_kv::Media;
    assert_eq!(media.ledger().programmed_total(), flash.counters().pages_programmed * 4096);
}
