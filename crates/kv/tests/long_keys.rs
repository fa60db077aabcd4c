//! Long keys: what they take of a manifest in NVRAM, which has two of each table, and keys that are longer than the
//! limit is now.

use crate::harness::{flash, open_flash, small};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use vellum_base::{Kind, RealEnv};
use vellum_kv::{Directory, DirectoryOptions, FlashMedia, Map, Media, Options, Store};

fn random(seed: u64, bytes: usize) -> Vec<u8> {
    let mut key = vec![0; bytes];
    SmallRng::seed_from_u64(seed).fill(&mut key[..]);
    key
}

/// Its tables are in no manifest before it is finished.
#[test]
fn an_ingest_leaves_room_in_the_manifest_for_deletes() {
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
        assert!(refused, "{key_bytes}: the manifest never filled");
    }
}

/// The manifest cannot list what a merge of long keys makes, though it lists short ones: each try programs all of it.
/// The task that is woken tries it, and so may the request.
#[test]
fn a_merge_that_cannot_be_installed_is_not_tried_for_each_level() {
    let media = FlashMedia::open(flash(7), RealEnv::new()).unwrap();
    let options = Options { memtable_bytes: 192 << 10, level0_compact: 12, level1_bytes: 0, ..small() };
    let store = Store::open(media.clone(), RealEnv::new(), options).unwrap();
    // Every memtable begins and ends with a short key.
    let [first, long, last] = ["a", "b", "c"].map(|name| store.create_keyspace(name).unwrap());
    let put = |n: u32| {
        first.put(&n.to_be_bytes(), b"1")?;
        last.put(&n.to_be_bytes(), b"3")?;
        long.put(&random(n.into(), 4000), &[7; 100])
    };
    assert!((0..5000).any(|n| put(n).is_err()), "it never filled");
    let held: u64 = store.stat().levels.iter().map(|level| level.bytes).sum();
    let (before, made) = (media.ledger().programmed_total(), store.stat().since_opened);
    let compacted = store.compact();
    let programmed = media.ledger().programmed_total() - before;
    assert!(programmed < 6 * held, "{programmed} bytes programmed of {held}: {compacted:?}");
    if compacted.is_err() {
        assert_eq!(store.stat().since_opened.compactions(), made.compactions(), "none was installed");
    }
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
