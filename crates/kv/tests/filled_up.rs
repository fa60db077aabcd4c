//! Small file systems that are filled over many openings, each of which finds less room than the one before: deletes
//! and a compaction win back what they take.

use crate::harness::Model;
use crate::mounted::Mounted;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use vellum_base::{Kind, RealEnv, Result};
use vellum_kv::{Directory, DirectoryOptions, Map, Options, Store, log};

const KEYS: u32 = 60_000;
/// Writes between two openings.
const WRITES: usize = 1500;

fn key(n: u32) -> Vec<u8> {
    format!("key{n:07}").into_bytes()
}

/// Writes keys at random; false once one is refused.
fn overwrites(store: &dyn Map, model: &mut Model, rng: &mut SmallRng) -> bool {
    (0..WRITES).all(|_| {
        let mut value = vec![0; rng.random_range(100..300)];
        rng.fill(&mut value[..]);
        let key = key(rng.random_range(0..KEYS));
        match store.put(&key, &value) {
            Ok(()) => drop(model.insert(key, value)),
            Err(error) => {
                assert_eq!(error.kind(), Kind::NoSpace, "{error}");
                return false;
            }
        }
        true
    })
}

fn assert_same(store: &dyn Map, model: &Model, context: &str) {
    let mut found = Model::new();
    let mut note = |key: &[u8], value: &[u8]| {
        found.insert(key.to_vec(), value.to_vec());
        Ok(())
    };
    store.each(&mut note).unwrap();
    assert!(found == *model, "{context}: {} keys, {} expected", found.len(), model.len());
}

fn filled_up<S: Map>(what: &str, open: impl Fn() -> Result<S>) {
    let (mut model, mut rng) = (Model::new(), SmallRng::seed_from_u64(1));
    for round in 0..2 {
        let context = format!("{what}, round {round}");
        let openings = (0..300).take_while(|_| overwrites(&open().unwrap(), &mut model, &mut rng)).count();
        assert!((1..300).contains(&openings), "{context}: full after {openings} openings");
        let store = open().unwrap();
        let gone: Vec<_> = model.keys().skip(round).step_by(2).cloned().collect();
        for key in &gone {
            store.delete(key).unwrap_or_else(|e| panic!("{context}: {e}"));
            model.remove(key);
        }
        store.compact().unwrap_or_else(|e| panic!("{context}: {e}"));
        assert_same(&store, &model, &context);
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new(), "{context}");
    }
}

#[test]
fn a_file_system_that_was_filled_over_many_openings_is_emptied_by_deletes() {
    let Some(disk) = Mounted::ext4(24 << 20) else { return };
    // Others have the rest.
    std::fs::write(disk.root.join("other"), vec![7; 10 << 20]).unwrap();
    let media = || Directory::open(&disk.root.join("store"), DirectoryOptions::default());
    filled_up("a tree", || Store::open(media()?, RealEnv::new(), Options::default()));
    std::fs::remove_dir_all(disk.root.join("store")).unwrap();
    filled_up("a log", || log::Store::open(media()?, RealEnv::new(), log::Options::default()));
}
