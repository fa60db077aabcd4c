//! Random histories against an ordered map, on every medium: snapshots, both directions, bounds, flushes, compactions,
//! reopening.

use crate::harness::{
    Draw, Model, assert_same, backward, flash, forward, of_seed, open, packed, small, wander_from,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use vellum_base::RealEnv;
use vellum_kv::{Bounds, CachePolicy, FlashMedia, Map, Media, Options, Rules, Snapshot, Store};

const DRAW: Draw = Draw { long: (40, 4000..20_000), batch: 2..30 };

fn within(model: &Model, lower: &[u8], upper: &[u8]) -> Model {
    model
        .iter()
        .filter(|(k, _)| k[..] >= *lower && k[..] < *upper)
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect()
}

/// Steps to and fro from a random key, beside the model.
fn wander(store: &Store, model: &Model, rng: &mut SmallRng) {
    let target = DRAW.key(rng);
    let mut iter = store.iter(Bounds::all()).unwrap();
    let at = if rng.random() {
        iter.seek(&target).unwrap();
        model.range(..target.clone()).count() as isize
    } else {
        iter.seek_for_prev(&target).unwrap();
        model.range(..=target.clone()).count() as isize - 1
    };
    wander_from(&mut iter, model, at, 30, rng);
}

/// Random reads and writes beside the oracle; `reopen` gives the same medium again. Every seed has other options.
pub(crate) fn history(seed: u64, steps: usize, reopen: impl Fn() -> Arc<dyn Media>) {
    history_with(seed, steps, of_seed(seed), reopen);
}

/// The same with these options.
pub(crate) fn history_with(seed: u64, steps: usize, options: Options, reopen: impl Fn() -> Arc<dyn Media>) {
    let open = |media| Store::open(media, RealEnv::new(), options.clone());
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut store = open(reopen()).unwrap();
    let mut work = 0;
    let (mut model, mut snapshots): (Model, Vec<(Snapshot, Model)>) = Default::default();
    for step in 0..steps {
        let context = format!("seed {seed} step {step}");
        match rng.random_range(0..2000) {
            0 => store.flush().unwrap(),
            1 if rng.random_range(0..4) == 0 => store.compact().unwrap(),
            2..5 => {
                snapshots.clear();
                work += store.stat().since_opened.flushes() + store.stat().since_opened.compactions();
                store.close().unwrap();
                store = open(reopen()).unwrap_or_else(|e| panic!("{context}: {e}"));
                assert_same(&store, &model, &context);
            }
            5..10 => snapshots.push((store.snapshot(), model.clone())),
            10..18 if !snapshots.is_empty() => {
                let (snapshot, then) = snapshots.swap_remove(rng.random_range(0..snapshots.len()));
                assert!(forward(snapshot.iter(Bounds::all()).unwrap()).unwrap() == then, "{context}");
                assert!(backward(snapshot.iter(Bounds::all()).unwrap()).unwrap() == then, "{context}");
                let probe = DRAW.key(&mut rng);
                assert_eq!(snapshot.get(&probe).unwrap(), then.get(&probe).cloned(), "{context}");
            }
            18..25 => {
                let (a, b) = (DRAW.key(&mut rng), DRAW.key(&mut rng));
                let (lower, upper) = if a < b { (a, b) } else { (b, a) };
                let bounds = Bounds::from(&lower).until(&upper);
                let expected = within(&model, &lower, &upper);
                assert!(forward(store.iter(bounds.clone()).unwrap()).unwrap() == expected, "{context}");
                assert!(backward(store.iter(bounds).unwrap()).unwrap() == expected, "{context}");
            }
            25..60 => wander(&store, &model, &mut rng),
            60..300 => DRAW.probe(&store, &model, &mut rng, &context),
            _ => DRAW.write(&store, &mut model, &mut rng, &context),
        }
    }
    assert_same(&store, &model, &format!("seed {seed} at the end"));
    snapshots.clear();
    store.compact().unwrap();
    assert_same(&store, &model, &format!("seed {seed} compacted"));
    let stat = store.stat();
    work += stat.since_opened.flushes() + stat.since_opened.compactions();
    assert!(work > 10, "seed {seed} did not exercise much: {stat:?}");
    let entries: u64 = stat.levels.iter().map(|level| level.entries).sum();
    assert_eq!(entries, model.len() as u64, "seed {seed}: something hidden or deleted stays");
}

#[test]
fn a_store_whose_compaction_reads_through_the_cache_is_an_ordered_map() {
    let options = Options { cache_policy: CachePolicy::Lru, ..packed() };
    let flash = flash(300);
    history_with(300, 8_000, options, || FlashMedia::open(flash.clone(), RealEnv::new()).unwrap());
}

#[test]
fn a_store_under_leveldbs_rules_is_an_ordered_map() {
    for (seed, compaction_tasks) in [(400, 1), (401, 2)] {
        let rules = Options { rules: Rules::LevelDb, compaction_tasks, memtables_max: 1, ..small() };
        let options = Options { level0_slow: 8, level0_stop: 12, ..rules };
        let flash = flash(seed);
        history_with(seed, 4_000, options, || FlashMedia::open(flash.clone(), RealEnv::new()).unwrap());
    }
}

#[test]
fn prefixes_bound_an_iterator() {
    let flash = flash(1);
    let store = open(FlashMedia::open(flash, RealEnv::new()).unwrap()).unwrap();
    let keys: [&[u8]; 7] = [b"", b"a", b"ab", b"ab\xFF", b"ab\xFF\xFF\x01", b"ac", b"\xFF\xFF"];
    keys.iter().for_each(|k| store.put(k, b"v").unwrap());
    for prefix in [&b""[..], b"a", b"ab", b"ab\xFF", b"\xFF", b"\xFF\xFF\xFF"] {
        let expected: Vec<&[u8]> = keys.iter().copied().filter(|k| k.starts_with(prefix)).collect();
        let found = forward(store.iter(Bounds::prefix(prefix)).unwrap()).unwrap();
        assert_eq!(found.keys().map(|k| &k[..]).collect::<Vec<_>>(), expected, "{prefix:?}");
        assert_eq!(backward(store.iter(Bounds::prefix(prefix)).unwrap()).unwrap(), found);
    }
}
