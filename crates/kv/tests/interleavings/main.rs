//! Tasks of a store in every order that `shuttle` comes up with: at each lock, wait and atomic of the engine, of the
//! medium and of the tests it decides who goes on.
//!
//! `cargo test -p vellum-kv --features shuttle --test interleavings`; `VELLUM_INTERLEAVINGS` says how many of each
//! test. What fails says how to see the same order again.

#![allow(missing_docs)]

#[path = "../doubtful.rs"]
#[expect(dead_code, reason = "not every fault is needed here")]
mod doubtful;
mod queued;
mod stirred;

use doubtful::Doubtful;
use shuttle::thread;
use std::sync::Arc;
use stirred::{StirredEnv, stir};
use vellum_base::{Geometry, Kind};
use vellum_kv::media::AreaKind;
use vellum_kv::{
    Batch, Bounds, Directory, DirectoryOptions, Durability, FlashMedia, Map, Media, Options, Store,
};
use vellum_media::nand::{Nand, NandParams};

fn open_with(files: &Doubtful, options: Options) -> vellum_base::Result<Store> {
    let directory = DirectoryOptions { table_bytes: 256 << 10 };
    Store::open(Directory::on(Arc::new(files.clone()), directory), StirredEnv::new(), options)
}

fn open(files: &Doubtful) -> Store {
    let options =
        Options { memtable_bytes: 64 << 10, cache_bytes: 64 << 10, level0_compact: 2, ..Options::default() };
    open_with(files, options).unwrap()
}

/// Both keys of a pair always have the same value.
fn put_pair(store: &Store, pair: u8, value: u8, durability: Durability) {
    let mut batch = Batch::new();
    batch.put(&[pair, b'a'], &[value; 40]).unwrap();
    batch.put(&[pair, b'z'], &[value; 40]).unwrap();
    store.write(&batch, durability).unwrap();
}

fn value_of(found: Option<Vec<u8>>) -> u8 {
    found.map_or(0, |value| value[0])
}

/// A pair as an iterator sees it.
fn pair_at(store: &Store, pair: u8) -> u8 {
    let mut iter = store.iter(Bounds::prefix(&[pair])).unwrap();
    iter.seek_to_first().unwrap();
    let mut values = Vec::new();
    while iter.is_valid() {
        values.push(iter.value()[0]);
        iter.next().unwrap();
    }
    assert!(
        matches!(values[..], [] | [_, _]) && values.windows(2).all(|two| two[0] == two[1]),
        "half a batch: {values:?}"
    );
    values.first().copied().unwrap_or(0)
}

/// Reads a pair in every way; what is read never goes back in time.
fn watch(store: &Store, pair: u8, looks: usize) {
    let mut newest = 0;
    for _ in 0..looks {
        let seen = value_of(store.get(&[pair, b'z']).unwrap());
        assert!(seen >= newest, "a get went back from {newest} to {seen}");
        let walked = pair_at(store, pair);
        assert!(walked >= seen, "an iterator saw {walked}, a get before it {seen}");
        let snapshot = store.snapshot();
        let first = value_of(snapshot.get(&[pair, b'a']).unwrap());
        let second = value_of(snapshot.get(&[pair, b'z']).unwrap());
        assert!(first == second && first >= walked, "a snapshot saw {first} and {second} after {walked}");
        newest = first;
    }
}

#[test]
fn readers_see_whole_batches_and_never_go_back() {
    stir(|| {
        let store = Arc::new(open(&Doubtful::default()));
        let writer = {
            let store = store.clone();
            thread::spawn(move || (1..6).for_each(|n| put_pair(&store, 1, n, Durability::Buffered)))
        };
        let reader = {
            let store = store.clone();
            thread::spawn(move || watch(&store, 1, 3))
        };
        watch(&store, 1, 3);
        [writer, reader].into_iter().for_each(|task| task.join().unwrap());
        assert_eq!(pair_at(&store, 1), 5);
    });
}

/// Flushes and compacts beside readers, who see pairs that are whole.
fn change_beside_readers(store: &Arc<Store>, last: u8) {
    let task = |body: Box<dyn FnOnce(&Store) + Send>| {
        let store = store.clone();
        thread::spawn(move || body(&store))
    };
    let tasks = [
        task(Box::new(move |store| {
            for n in 1..=last {
                put_pair(store, 1, n, Durability::Buffered);
                store.flush().unwrap();
            }
        })),
        task(Box::new(|store| store.compact().unwrap())),
        task(Box::new(|store| watch(store, 1, 3))),
    ];
    watch(store, 2, 3);
    tasks.into_iter().for_each(|task| task.join().unwrap());
    assert_eq!((pair_at(store, 1), pair_at(store, 2)), (last, 9));
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

#[test]
fn flushes_and_compactions_change_nothing_for_readers() {
    stir(|| {
        let store = Arc::new(open(&Doubtful::default()));
        put_pair(&store, 2, 9, Durability::Buffered);
        let before = store.snapshot();
        change_beside_readers(&store, 4);
        assert_eq!(before.get(&[1, b'a']).unwrap(), None, "a snapshot saw what came after it");
    });
}

#[test]
fn gets_beside_flushes_and_an_ingest_never_go_back() {
    stir(|| {
        let store = Arc::new(open(&Doubtful::default()));
        store.put(b"k", &[1]).unwrap();
        store.flush().unwrap();
        let read = || {
            let store = store.clone();
            thread::spawn(move || {
                let mut newest = 0;
                for _ in 0..4 {
                    let seen = value_of(store.get(b"k").unwrap());
                    assert!(seen >= newest, "a get went back from {newest} to {seen}");
                    newest = seen;
                }
            })
        };
        let readers = [read(), read()];
        for value in 2..4 {
            store.put(b"k", &[value]).unwrap();
            store.flush().unwrap();
            assert_eq!(value_of(store.get(b"k").unwrap()), value);
        }
        let mut ingest = store.ingest().unwrap();
        ingest.put(b"k", &[4]).unwrap();
        ingest.finish().unwrap();
        assert_eq!(value_of(store.get(b"k").unwrap()), 4);
        readers.into_iter().for_each(|task| task.join().unwrap());
        assert_eq!(value_of(store.get(b"k").unwrap()), 4);
    });
}

#[test]
fn readers_of_leaves_that_come_and_go_from_the_cache() {
    stir(|| {
        // Of sixteen shards each holds one leaf and not two.
        let options = Options { cache_bytes: 16 * 6000, memtable_bytes: 64 << 10, ..Options::default() };
        let store = Arc::new(open_with(&Doubtful::default(), options).unwrap());
        for round in 0..3u8 {
            (0..9u8).for_each(|key| store.put(&[key], &[key ^ round; 3000]).unwrap());
            store.flush().unwrap();
        }
        let read = |from: u8| {
            let store = store.clone();
            thread::spawn(move || {
                for key in (0..9).map(|n| (n + from) % 9) {
                    assert_eq!(value_of(store.get(&[key]).unwrap()), key ^ 2);
                }
            })
        };
        let readers = [read(0), read(4)];
        store.compact().unwrap();
        readers.into_iter().for_each(|task| task.join().unwrap());
        assert!(store.stat().cache_bytes <= 16 * 6000);
    });
}

#[test]
fn what_a_group_synced_survives_a_cut() {
    stir(|| {
        let files = Doubtful::default();
        let store = Arc::new(open(&files));
        let write = |pair: u8| {
            let store = store.clone();
            thread::spawn(move || (1..4).for_each(|n| put_pair(&store, pair, n, Durability::Sync)))
        };
        let writers = [write(1), write(2)];
        store.flush().unwrap();
        put_pair(&store, 3, 7, Durability::Buffered);
        writers.into_iter().for_each(|task| task.join().unwrap());
        files.0.lock().off = true;
        drop(store);
        // Nothing stays that was not synced.
        files.0.lock().crash(|_| false, |_, _| 0);
        let store = open(&files);
        assert_eq!((pair_at(&store, 1), pair_at(&store, 2)), (3, 3));
        assert!(matches!(pair_at(&store, 3), 0 | 7));
    });
}

/// The system tells of what it could not write once, and then forgets it.
#[test]
fn behind_a_sync_that_failed_none_is_acknowledged() {
    stir(|| {
        let files = Doubtful::default();
        let store = Arc::new(open(&files));
        put_pair(&store, 3, 3, Durability::Sync);
        files.0.lock().syncs_before_failure = Some(0);
        let write = |key: u8| {
            let store = store.clone();
            thread::spawn(move || {
                let mut batch = Batch::new();
                batch.put(&[key], &[key]).unwrap();
                store.write(&batch, Durability::Sync).is_ok()
            })
        };
        let writers = [write(1), write(2)];
        let acknowledged = writers.map(|writer| writer.join().unwrap());
        files.0.lock().off = true;
        drop(store);
        files.0.lock().crash(|_| false, |_, _| 0);
        let store = open(&files);
        assert_eq!(pair_at(&store, 3), 3);
        for (key, acknowledged) in (1..).zip(acknowledged) {
            let found = store.get(&[key]).unwrap();
            assert!(!acknowledged || found.is_some(), "{key} was acknowledged and is gone");
        }
    });
}

/// Whoever sees the ingest sees its value, and whoever does not the one before: never none.
#[test]
fn a_key_is_there_while_it_is_ingested_anew() {
    stir(|| {
        let store = Arc::new(open(&Doubtful::default()));
        store.put(b"k", b"old").unwrap();
        store.flush().unwrap();
        let task = |body: fn(&Store)| {
            let store = store.clone();
            thread::spawn(move || body(&store))
        };
        let tasks = [
            task(|store| {
                let mut ingest = store.ingest().unwrap();
                ingest.put(b"k", b"new").unwrap();
                ingest.finish().unwrap();
            }),
            task(|store| store.compact().unwrap()),
            task(|store| (0..3).for_each(|_| assert!(store.get(b"k").unwrap().is_some()))),
        ];
        for _ in 0..3 {
            let snapshot = store.snapshot();
            let first = snapshot.get(b"k").unwrap();
            assert!(first.is_some() && snapshot.get(b"k").unwrap() == first);
        }
        tasks.into_iter().for_each(|task| task.join().unwrap());
        assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"new"[..]));
    });
}

/// Data that are ingested, then the word that they are there.
#[test]
fn an_iterator_that_sees_what_was_put_after_an_ingest_sees_the_ingest() {
    stir(|| {
        let store = Arc::new(open(&Doubtful::default()));
        store.put(b"z", &[0]).unwrap();
        let writer = store.clone();
        let writer = thread::spawn(move || {
            for n in 1..3u8 {
                let mut ingest = writer.ingest().unwrap();
                ingest.put(&[n], &[n; 40]).unwrap();
                ingest.finish().unwrap();
                writer.put(b"z", &[n]).unwrap();
            }
        });
        for _ in 0..3 {
            let mut iter = store.iter(Bounds::all()).unwrap();
            iter.seek(b"z").unwrap();
            let told = iter.value()[0];
            let missing = (1..=told).find(|n| iter.seek(&[*n]).is_err() || iter.key() != [*n]);
            assert_eq!(missing, None, "told of {told} ingests");
        }
        writer.join().unwrap();
    });
}

/// A batch with more versions of a key than are passed one by one, while the way back to what is before it begins.
#[test]
fn the_way_back_beside_a_writer_passes_no_key_twice() {
    stir(|| {
        let store = Arc::new(open(&Doubtful::default()));
        let other = store.create_keyspace("other").unwrap();
        other.put(b"y", b"v").unwrap();
        [b"a", b"b"].into_iter().for_each(|key| store.put(key, b"v").unwrap());
        let writer = store.clone();
        let writer = thread::spawn(move || {
            let mut batch = Batch::new();
            (0..9).for_each(|_| batch.put(b"b", b"w").unwrap());
            (0..9).for_each(|_| batch.put_in(&other, b"y", b"w").unwrap());
            writer.write(&batch, Durability::None).unwrap();
        });
        let mut iter = store.iter(Bounds::all()).unwrap();
        iter.seek(b"b").unwrap();
        iter.prev().unwrap();
        assert_eq!(iter.key(), b"a");
        iter.seek_to_last().unwrap();
        assert_eq!(iter.key(), b"b");
        iter.seek_for_prev(b"aa").unwrap();
        assert_eq!(iter.key(), b"a");
        writer.join().unwrap();
    });
}

#[test]
fn a_keyspace_that_is_dropped_takes_all_of_itself_along() {
    stir(|| {
        let files = Doubtful::default();
        let store = Arc::new(open(&files));
        let space = store.create_keyspace("sheets").unwrap();
        space.put(b"k", b"v").unwrap();
        let writer = {
            let space = space.clone();
            thread::spawn(move || {
                for n in 0..4u8 {
                    if let Err(error) = space.put(b"k", &[n]) {
                        assert_eq!(error.kind(), Kind::Invalid, "{error}");
                    }
                }
            })
        };
        let flusher = {
            let store = store.clone();
            thread::spawn(move || store.flush().unwrap())
        };
        store.drop_keyspace("sheets").unwrap();
        assert!(space.get(b"k").is_err());
        let again = store.create_keyspace("sheets").unwrap();
        assert_eq!(again.get(b"k").unwrap(), None, "a keyspace came back from the dead");
        again.put(b"new", b"v").unwrap();
        [writer, flusher].into_iter().for_each(|task| task.join().unwrap());
        store.compact().unwrap();
        assert_eq!(again.get(b"k").unwrap(), None);
        assert_eq!(again.get(b"new").unwrap().as_deref(), Some(&b"v"[..]));
    });
}

#[test]
fn a_store_that_is_closed_beside_a_writer_keeps_what_it_acknowledged() {
    stir(|| {
        let files = Doubtful::default();
        let store = open(&files);
        let space = store.create_keyspace("sheets").unwrap();
        let writer = {
            let space = space.clone();
            thread::spawn(move || (1..6u8).take_while(|n| space.put(b"k", &[*n]).is_ok()).count() as u8)
        };
        store.close().unwrap();
        let acknowledged = writer.join().unwrap();
        drop(space);
        let found = open(&files).keyspace("sheets").unwrap().get(b"k").unwrap();
        assert_eq!(found.map_or(0, |value| value[0]), acknowledged);
    });
}

/// On flash with so little NVRAM that a manifest is full after a few edits: each that follows it is whole, also for who
/// verifies meanwhile, and what was acknowledged is there in the next life.
#[test]
fn manifests_that_follow_each_other_beside_readers_and_writers() {
    stir(|| {
        let flash = Arc::new(flash());
        let media = FlashMedia::open(flash.clone(), StirredEnv::new()).unwrap();
        let options = Options { memtable_bytes: 16 << 10, level0_compact: 2, ..Options::default() };
        let store = Arc::new(Store::open(media.clone(), StirredEnv::new(), options.clone()).unwrap());
        put_pair(&store, 1, 1, Durability::Buffered);
        store.flush().unwrap();
        let first = manifest_of(&*media);
        let task = |body: fn(&Store)| {
            let store = store.clone();
            thread::spawn(move || body(&store))
        };
        let tasks = [
            task(|store| {
                for n in 2..10 {
                    put_pair(store, 1, n, Durability::Buffered);
                    store.flush().unwrap();
                }
            }),
            task(|store| {
                let name = "k".repeat(250);
                for _ in 0..32 {
                    store.create_keyspace(&name).unwrap();
                    store.drop_keyspace(&name).unwrap();
                }
            }),
            task(|store| {
                for _ in 0..2 {
                    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
                }
            }),
        ];
        watch(&store, 1, 3);
        tasks.into_iter().for_each(|task| task.join().unwrap());
        assert!(manifest_of(&*media) > first, "the manifest was never full");
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
        // The power goes: nothing is closed.
        flash.power_cut_at(1);
        drop((store, media));
        flash.power_on();
        let media = FlashMedia::open(flash, StirredEnv::new()).unwrap();
        let store = Store::open(media, StirredEnv::new(), options).unwrap();
        assert_eq!((pair_at(&store, 1), store.keyspaces().len()), (9, 1));
    });
}

fn flash() -> Nand {
    let geometry = Geometry {
        channels: 2,
        dies_per_channel: 1,
        blocks_per_die: 40,
        pages_per_block: 10,
        page_bytes: 4096,
        oob_bytes: 0,
    };
    let nand = Nand::ram(geometry, NandParams { nvram_bytes: 64 << 10, ..NandParams::default() }).unwrap();
    FlashMedia::format(&nand).unwrap();
    nand
}

/// The number of the newest.
fn manifest_of(media: &dyn Media) -> u64 {
    let areas = media.areas().unwrap().into_iter();
    areas.filter(|area| area.kind == AreaKind::Manifest).map(|area| area.number).max().unwrap()
}

/// The number of the one that is dropped is given to the other.
#[test]
fn a_handle_of_a_dropped_keyspace_sees_nothing_of_the_one_that_has_its_number() {
    stir(|| {
        let files = Doubtful::default();
        let store = Arc::new(open(&files));
        let dropped = store.create_keyspace("dropped").unwrap();
        let reader = thread::spawn(move || {
            for _ in 0..4 {
                assert_eq!(dropped.get(b"key").unwrap_or_default(), None);
            }
        });
        store.drop_keyspace("dropped").unwrap();
        store.create_keyspace("other").unwrap().put(b"key", b"of the other").unwrap();
        reader.join().unwrap();
    });
}
