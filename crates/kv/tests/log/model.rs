//! Random histories against a map, on every medium, with every way of reuse.

use super::harness::{assert_same, of_seed, open_with};
use crate::harness::{Draw, Model, directory, flash};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use vellum_base::RealEnv;
use vellum_kv::{FlashMedia, Map, Media};

const DRAW: Draw = Draw { long: (60, 3000..8000), batch: 2..12 };

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
                work += store.stat().since_opened.compactions();
                store.close().unwrap();
                store = open().unwrap_or_else(|e| panic!("{context}: {e}"));
                assert_same(&store, &model, &context);
            }
            5 => assert_eq!(store.verify().unwrap().problems, Vec::<String>::new(), "{context}"),
            6..300 => DRAW.probe(&store, &model, &mut rng, &context),
            _ => DRAW.write(&store, &mut model, &mut rng, &context),
        }
    }
    assert_same(&store, &model, &format!("seed {seed} at the end"));
    store.compact().unwrap();
    assert_same(&store, &model, &format!("seed {seed} compacted"));
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new(), "seed {seed}");
    let stat = store.stat();
    work += stat.since_opened.compactions();
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
