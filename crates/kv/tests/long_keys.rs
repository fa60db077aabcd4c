//! Long keys: a manifest in NVRAM has only the beginnings of the first and last key of a table, which has them whole.
//! And keys that are longer than the limit is now.

use crate::harness::{Model, assert_same, flash, open_flash, repair, small};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use vellum_base::{BlockAddr, Env, Flash, Kind, RealEnv};
use vellum_kv::{Directory, DirectoryOptions, FlashMedia, Map, Media, Store};

fn random(seed: u64, bytes: usize) -> Vec<u8> {
    let mut key = vec![0; bytes];
    SmallRng::seed_from_u64(seed).fill(&mut key[..]);
    key
}

/// Its tables are in no manifest before it is finished.
#[test]
fn an_ingest_leaves_room_for_deletes() {
    for key_bytes in [1000, 2000, 4000] {
        let key = |n: u64| [&(n as u32).to_be_bytes()[..], &random(n, key_bytes - 4)].concat();
        let mut refused = false;
        for tables in (2..60).step_by(2) {
            let flash = flash(9);
            let store = open_flash(&flash, RealEnv::new()).unwrap();
            let mut ingest = store.ingest().unwrap();
            let keys = tables * 8; // as many fit into a table
            let put = (0..keys).try_for_each(|n| ingest.put(&key(n), &[7; 28_000]));
            if let Err(error) = put.and_then(|()| ingest.finish().map(drop)) {
                assert_eq!(error.kind(), Kind::NoSpace, "{error}");
                refused = true;
                break;
            }
            store.close().unwrap();
            let store = open_flash(&flash, RealEnv::new()).unwrap();
            for n in 0..keys {
                if store.delete(&key(n)).is_err() {
                    let compacted = store.compact();
                    let deleted = store.delete(&key(n));
                    assert!(deleted.is_ok(), "{key_bytes}: {tables} tables, {n}: {deleted:?}, {compacted:?}");
                }
            }
            store.compact().unwrap();
        }
        assert!(refused, "{key_bytes}: it never filled");
    }
}

/// Before, a slot of 64 KiB had room for five such tables.
#[test]
fn tables_of_long_keys_fill_the_flash_not_the_manifest() {
    let flash = flash(7);
    let open = || open_flash(&flash, RealEnv::new()).unwrap();
    let store = open();
    let long = |n: u64| random(n, 4000);
    let mut model = Model::new();
    let put = |n: u64| store.put(&long(n), &[7; 100]);
    let error = (0..9000).find_map(|n| put(n).map(|()| drop(model.insert(long(n), vec![7; 100]))).err());
    assert_eq!(error.unwrap().kind(), Kind::NoSpace);
    let tables: usize = store.stat().levels.iter().map(|level| level.tables).sum();
    assert!(tables > 40, "{tables}");
    store.close().unwrap();
    let store = open();
    assert_same(&store, &model, "opened again");
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    for key in model.keys() {
        if store.delete(key).is_err() {
            store.compact().unwrap();
            store.delete(key).unwrap();
        }
    }
    store.compact().unwrap();
    assert_same(&store, &Model::new(), "emptied");
}

/// Opening a table then reads more of it. Where the beginnings of its keys tell it from its neighbours, as where keys
/// are random, a store with a damaged first or last leaf opens all the same.
#[test]
fn each_page_of_tables_that_know_their_bounds_flipped_in_turn() {
    let alike = |n: u64| [vec![b'k'; 100], random(n, 2900)].concat();
    let of_random = flip_each_page(|n| random(n, 3000));
    let of_alike = flip_each_page(alike);
    assert!(of_random < of_alike, "{of_random} and {of_alike} of these do not open");
}

/// Returns how often the store did not open.
fn flip_each_page(key: impl Fn(u64) -> Vec<u8>) -> u32 {
    let whole = flash(3);
    let store = open_flash(&whole, RealEnv::new()).unwrap();
    let mut model = Model::new();
    for n in 0..270u64 {
        let (key, value) = (key(n % 200), vec![n as u8; 500]);
        store.put(&key, &value).unwrap();
        model.insert(key, value);
        match n {
            220 => store.compact().unwrap(),
            260 => store.flush().unwrap(),
            _ => {}
        }
    }
    store.close().unwrap();
    let (mut unopened, env) = (0, RealEnv::new() as Arc<dyn Env>);
    for block in 0..whole.geometry().blocks() {
        for page in 0..whole.report(BlockAddr(block)).pages_written {
            let fork = Arc::new(whole.fork().unwrap());
            fork.flip_bit(BlockAddr(block).page(page), 8 * 700 + 3).unwrap();
            let read = |store: Store| {
                let (mut there, mut lost) = (0, 0);
                for (key, value) in &model {
                    match store.get(key) {
                        Ok(got) => there += u32::from(got.unwrap() == *value),
                        Err(error) => lost += u32::from(error.kind() == Kind::Corrupt),
                    }
                }
                assert_eq!(there + lost, 200, "{there} right, {lost} known to be lost");
                lost
            };
            let opened = open_flash(&fork, env.clone());
            unopened += u32::from(opened.is_err());
            match opened.map(read) {
                Ok(0) => continue,
                Ok(_) => {}
                Err(error) => assert_eq!(error.kind(), Kind::Corrupt, "{error}"),
            }
            let media: Arc<dyn Media> = FlashMedia::open(fork.clone(), env.clone()).unwrap();
            repair(&media, &env, &small()).unwrap();
            drop(media);
            let store = open_flash(&fork, env.clone()).unwrap();
            assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
            let there = model.keys().filter(|key| store.get(key).unwrap().is_some()).count();
            assert!(there >= 150, "{there} of 200 keys are there after a repair");
        }
    }
    unopened
}

/// A medium with larger tables took longer keys.
#[test]
fn keys_that_are_longer_than_the_limit_is_now_can_be_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let open = |table_bytes: u64| {
        let media = Directory::open(dir.path(), DirectoryOptions { table_bytes }).unwrap();
        Store::open(media, RealEnv::new(), small()).unwrap()
    };
    let key = random(1, 20_000);
    let store = open(1 << 20);
    store.put(&key, b"v").unwrap();
    store.close().unwrap();
    let store = open(128 << 10);
    assert_eq!(store.put(&key, b"v").unwrap_err().kind(), Kind::Invalid);
    assert!(store.get(&key).unwrap().is_some());
    store.delete(&key).unwrap();
    assert!(store.get(&key).unwrap().is_none());
    store.compact().unwrap();
}
