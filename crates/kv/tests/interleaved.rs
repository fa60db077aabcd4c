//! One memtable becomes several tables of level 0, some versions of a key in one, older ones in the next, which has
//! newer entries of other keys: the newest is found all the same.

use crate::doubtful::Doubtful;
use crate::harness::{Model, assert_same, directory, open, small};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use vellum_base::RealEnv;
use vellum_kv::{Directory, DirectoryOptions, Map, Media, Options, Rules, Snapshot, Store};

const VERSIONS: u8 = 20;

#[test]
fn a_copy_with_smaller_tables_has_the_newest_of_a_key() {
    for deleted in [false, true] {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let large = Directory::open(from.path(), DirectoryOptions { table_bytes: 4 << 20 }).unwrap();
        let options = Options { memtable_bytes: 2 << 20, ..small() };
        let store = Store::open(large, RealEnv::new(), options).unwrap();
        (0..VERSIONS).for_each(|version| store.put(b"k", &[version; 30_000]).unwrap());
        if deleted {
            store.delete(b"k").unwrap();
        }
        store.put(b"z", b"").unwrap();
        let into: Arc<dyn Media> = directory(to.path());
        store.checkpoint(&into).unwrap();
        let copy = open(into).unwrap();
        let newest = copy.get(b"k").unwrap().map(|value| value[0]);
        assert_eq!(newest, (!deleted).then_some(VERSIONS - 1));
        let levels = copy.stat().levels;
        assert_eq!(
            levels.map(|level| level.entries).iter().sum::<u64>(),
            2,
            "what nobody can see was copied"
        );
    }
}

/// A store whose memtables are larger than its tables.
fn of_large_memtables(rules: Rules) -> Store {
    let files = Doubtful::default();
    files.0.lock().room = Some(8 << 20);
    let options =
        Options { memtable_bytes: 192 << 10, level0_compact: 12, level1_bytes: 0, rules, ..small() };
    Store::open(files.directory(), RealEnv::new(), options).unwrap()
}

#[test]
fn versions_that_snapshots_hold_are_not_taken_for_the_newest() {
    for rules in [Rules::Vellum, Rules::LevelDb] {
        let store = of_large_memtables(rules);
        let mut snapshots = Vec::new();
        for version in 0..VERSIONS {
            store.put(b"k", &[version; 8000]).unwrap();
            snapshots.push(store.snapshot());
        }
        store.put(b"z", b"").unwrap();
        store.flush().unwrap();
        let tables = store.stat().levels[0].tables;
        assert!(tables > 1, "{tables}: the memtable fits into a table");
        let first = |value: Option<Vec<u8>>| value.unwrap()[0];
        assert_eq!(first(store.get(b"k").unwrap()), VERSIONS - 1, "{rules:?}");
        for (version, snapshot) in snapshots.iter().enumerate() {
            assert_eq!(first(snapshot.get(b"k").unwrap()), version as u8, "{rules:?}");
        }
    }
}

/// Few keys with long values, written and deleted while snapshots come and go.
#[test]
fn gets_and_scans_of_tables_that_interleave_say_the_same() {
    for seed in 0..8 {
        let store = of_large_memtables(Rules::Vellum);
        let mut rng = SmallRng::seed_from_u64(seed);
        let (mut model, mut held) = (Model::new(), Vec::<(Snapshot, Model)>::new());
        for step in 0..1500 {
            let key = vec![rng.random_range(b'a'..b'i')];
            if rng.random_range(0..5) == 0 {
                store.delete(&key).unwrap();
                model.remove(&key);
            } else {
                let value = vec![rng.random(); rng.random_range(10..9000)];
                store.put(&key, &value).unwrap();
                model.insert(key, value);
            }
            match rng.random_range(0..60) {
                0 => held.push((store.snapshot(), model.clone())),
                1 => held.truncate(held.len() / 2),
                2 => {
                    store.flush().unwrap();
                    assert_same(&store, &model, &format!("seed {seed}, step {step}"));
                }
                _ => {}
            }
            if step % 50 == 0 {
                for (snapshot, then) in &held {
                    for key in b'a'..b'i' {
                        assert_eq!(snapshot.get(&[key]).unwrap().as_ref(), then.get(&[key][..]));
                    }
                }
            }
        }
    }
}
