//! Random histories against a map, on every medium, with every way of reuse.

use super::harness::{assert_same, of_seed, open_with};
use crate::harness::{Model, Op, apply, batch_of, directory, flash};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use vellum_base::RealEnv;
use vellum_kv::{Durability, FlashMedia, Media};

fn key(rng: &mut SmallRng) -> Vec<u8> {
    match rng.random_range(0..20) {
        0 => Vec::new(),
        1 => vec![rng.random_range(0..3); rng.random_range(1..400)],
        _ => format!("user{:05}", rng.random_range(0..3000)).into_bytes(),
    }
}

fn value(rng: &mut SmallRng) -> Vec<u8> {
    let len = match rng.random_range(0..60) {
        0 => rng.random_range(3000..8000),
        1..4 => rng.random_range(0..3),
        _ => rng.random_range(20..300),
    };
    let byte: u8 = rng.random();
    (0..len).map(|i| (i as u8).wrapping_mul(7) ^ byte).collect()
}

fn ops(rng: &mut SmallRng) -> Vec<Op> {
    let count = if rng.random_range(0..10) == 0 { rng.random_range(2..12) } else { 1 };
    (0..count)
        .map(|_| match rng.random_range(0..4) {
            0 => Op::Delete(key(rng)),
            _ => Op::Put(key(rng), value(rng)),
        })
        .filter(|op| !matches!(op, Op::Put(_, value) if value.len() > 1000 && count > 1))
        .collect()
}

/// Random reads and writes beside the oracle; `reopen` gives the same medium again. Every seed has other options.
pub(crate) fn history(seed: u64, steps: usize, reopen: impl Fn() -> Arc<dyn Media>) {
    let options = of_seed(seed);
    let open = || open_with(reopen(), options.clone());
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut store = open().unwrap();
    let (mut model, mut work) = (Model::new(), 0);
    for step in 0..steps {
        let context = format!("seed {seed} step {step}");
        match rng.random_range(0..2000) {
            0 => store.flush().unwrap(),
            1 => {
                store.compact().unwrap_or_else(|e| panic!("{context}: {e}"));
                assert_same(&store, &model, &context);
            }
            2..5 => {
                work += store.stat().collections;
                store.close().unwrap();
                store = open().unwrap_or_else(|e| panic!("{context}: {e}"));
                assert_same(&store, &model, &context);
            }
            5 => assert_eq!(store.verify().unwrap().problems, Vec::<String>::new(), "{context}"),
            6..300 => {
                let probe = key(&mut rng);
                assert_eq!(store.get(&probe).unwrap(), model.get(&probe).cloned(), "{context}: {probe:?}");
            }
            _ => {
                let ops = ops(&mut rng);
                let durability = match rng.random_range(0..40) {
                    0 => Durability::Sync,
                    n if n % 2 == 0 => Durability::Buffered,
                    _ => Durability::None,
                };
                store.write(&batch_of(&ops), durability).unwrap_or_else(|e| panic!("{context}: {e}"));
                apply(&mut model, &ops);
            }
        }
    }
    assert_same(&store, &model, &format!("seed {seed} at the end"));
    store.compact().unwrap();
    assert_same(&store, &model, &format!("seed {seed} compacted"));
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new(), "seed {seed}");
    let stat = store.stat();
    work += stat.collections;
    assert!(work > 3, "seed {seed} did not exercise much: {stat:?}");
    assert_eq!((stat.garbage_bytes, stat.delete_bytes), (0, 0), "seed {seed}: {stat:?}");
    store.close().unwrap();
    let store = open().unwrap();
    assert_same(&store, &model, &format!("seed {seed} opened at the end"));
    let again = store.stat();
    assert_eq!((again.live_bytes, again.garbage_bytes), (stat.live_bytes, 0), "seed {seed}: {again:?}");
}

#[test]
fn a_log_store_in_a_directory_is_a_map() {
    vellum_sim::check(0..6, |seed| {
        let dir = tempfile::tempdir().unwrap();
        history(seed, 6_000, || directory(dir.path()));
    });
}

#[test]
fn a_log_store_on_flash_is_a_map() {
    vellum_sim::check(100..104, |seed| {
        let flash = flash(seed);
        history(seed, 8_000, || FlashMedia::open(flash.clone(), RealEnv::new()).unwrap());
    });
}

#[test]
fn a_log_store_on_zones_is_a_map() {
    for (seed, keeps_pointers) in [(200, true), (201, false)] {
        let (files, zones) = crate::zones::formatted(keeps_pointers, seed);
        history(seed, 9_000, || crate::zones::media(&files, &zones).unwrap());
    }
}
