//! Few keys of many versions each, some of them newer than what is looked at, some deleted: what an iterator passes in
//! leaps it must land behind.

use crate::harness::{Model, backward, directory, forward, small, wander_from};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use vellum_base::RealEnv;
use vellum_kv::{Bounds, Map, Options, Snapshot, Store};

/// Versions of one key after another; rarely one goes into tables.
fn overwrite(store: &Store, model: &mut Model, rng: &mut SmallRng) {
    let key = vec![b'k', rng.random_range(0..6)];
    for _ in 0..rng.random_range(1..30) {
        let value = vec![rng.random(); rng.random_range(0..300)];
        match rng.random_range(0..5) {
            0 => {
                store.delete(&key).unwrap();
                model.remove(&key);
            }
            _ => {
                store.put(&key, &value).unwrap();
                model.insert(key.clone(), value);
            }
        }
    }
    match rng.random_range(0..12) {
        0 => store.compact().unwrap(),
        1 | 2 => store.flush().unwrap(),
        _ => {}
    }
}

/// To and fro from each key.
fn wander(snapshot: &Snapshot, model: &Model, rng: &mut SmallRng) {
    let mut iter = snapshot.iter(Bounds::all()).unwrap();
    for n in 0..6 {
        let key = vec![b'k', n];
        iter.seek(&key).unwrap();
        wander_from(&mut iter, model, model.range(..key).count() as isize, 12, rng);
    }
}

#[test]
fn iterators_find_their_version_among_many() {
    for seed in 0..40 {
        let (dir, mut rng) = (tempfile::tempdir().unwrap(), SmallRng::seed_from_u64(seed));
        let options = Options { level0_in_log: seed % 2 == 0, map_files: seed % 3 > 0, ..small() };
        let store = Store::open(directory(dir.path()), RealEnv::new(), options).unwrap();
        let (mut model, mut held) = (Model::new(), Vec::new());
        for step in 0..60 {
            overwrite(&store, &mut model, &mut rng);
            if step % 10 == 0 {
                held.push((store.snapshot(), model.clone()));
            }
        }
        held.push((store.snapshot(), model.clone()));
        for (snapshot, model) in &held {
            assert_eq!(forward(snapshot.iter(Bounds::all()).unwrap()).unwrap(), *model, "seed {seed}");
            assert_eq!(backward(snapshot.iter(Bounds::all()).unwrap()).unwrap(), *model, "seed {seed}");
            wander(snapshot, model, &mut rng);
        }
    }
}
