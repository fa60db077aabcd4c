//! What the rest of the interface promises: tasks beside one another, copies, limits, read-only opening, kinds of
//! stores told apart.

use super::harness::{assert_same, open_with, small, walked};
use crate::doubtful::Doubtful;
use crate::harness::{Model, directory, flash, open};
use std::sync::Arc;
use vellum_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum_base::{Env, Kind, Nanos, RealEnv};
use vellum_kv::log::Options;
use vellum_kv::{Batch, Directory, DirectoryOptions, Durability, FlashMedia, Map, Media, Reuse};

fn pair(n: u32, round: u32) -> (Vec<u8>, Vec<u8>) {
    (
        format!("key{n:05}").into_bytes(),
        [&round.to_le_bytes()[..], &vec![n as u8; 100 + n as usize % 300]].concat(),
    )
}

/// Each writer has keys of its own, and batches of two keys that are always the same; readers and walks beside them.
#[test]
fn writers_readers_and_collecting_beside_one_another() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { reuse: Reuse::Bubbles.into(), garbage_share: 0.2, ..small() };
    let store = open_with(directory(dir.path()), options.clone()).unwrap();
    let keys = 400;
    std::thread::scope(|scope| {
        for writer in 0..3u32 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..12u32 {
                    for n in (0..keys).filter(|n| n % 3 == writer) {
                        let (mut batch, (key, value)) = (Batch::new(), pair(n, round));
                        batch.put(&key, &value).unwrap();
                        batch.put(&[&key[..], b"-twin"].concat(), &value).unwrap();
                        let durability = if n % 50 == 0 { Durability::Sync } else { Durability::None };
                        store.write(&batch, durability).unwrap();
                        assert_eq!(store.get(&key).unwrap(), Some(value));
                    }
                }
            });
        }
        scope.spawn(|| {
            for step in 0..6_000u32 {
                let (key, value) = pair(step * 7 % keys, 0);
                if let Some(found) = store.get(&key).unwrap() {
                    assert_eq!(found[4..], value[4..], "{key:?}");
                    // The batch is visible as a whole: what is read later is no older.
                    let twin = store.get(&[&key[..], b"-twin"].concat()).unwrap().unwrap();
                    assert!(twin[0] >= found[0], "{key:?} is newer than its twin");
                }
                if step % 1000 == 0 {
                    walked(&store).unwrap();
                    store.compact().unwrap();
                }
            }
        });
    });
    let expected: Model = (0..keys)
        .map(|n| pair(n, 11))
        .flat_map(|(key, value)| [([&key[..], b"-twin"].concat(), value.clone()), (key, value)])
        .collect();
    assert_same(&store, &expected, "at the end");
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    assert!(store.stat().since_opened.compactions() > 3, "{:?}", store.stat());
    store.close().unwrap();
    assert_same(&open_with(directory(dir.path()), options).unwrap(), &expected, "opened again");
}

#[test]
fn a_checkpoint_is_a_store_of_its_own() {
    let (from, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open_with(directory(from.path()), small()).unwrap();
    let mut model = Model::new();
    for n in 0..900 {
        let (key, value) = pair(n % 500, n);
        store.put(&key, &value).unwrap();
        model.insert(key, value);
    }
    let on_flash: Arc<dyn Media> = FlashMedia::open(flash(5), RealEnv::new()).unwrap();
    let linked: Arc<dyn Media> = directory(into.path());
    store.checkpoint(&linked).unwrap();
    store.checkpoint(&on_flash).unwrap();
    assert_eq!(store.checkpoint(&linked).unwrap_err().kind(), Kind::Invalid);
    (0..500).for_each(|n| store.delete(&pair(n, 0).0).unwrap());
    store.compact().unwrap();
    assert!(store.is_empty());
    for media in [linked, on_flash] {
        let copy = open_with(media, small()).unwrap();
        assert_same(&copy, &model, "the copy");
        assert_eq!(copy.verify().unwrap().problems, Vec::<String>::new());
        copy.put(b"its own", b"life").unwrap();
        copy.compact().unwrap();
        assert_eq!(copy.len(), model.len() as u64 + 1);
    }
}

/// The copy of a store on large zones, in a directory. Its first collection makes them as short as others there.
#[test]
fn a_checkpoint_goes_to_a_directory_with_smaller_tables() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str, table_bytes| {
        Directory::open(&dir.path().join(name), DirectoryOptions { table_bytes }).unwrap()
    };
    let options = Options { segment_bytes: 512 << 10, ..small() };
    // No link to a directory in memory: segments are copied, as they are from a device.
    let from = Directory::on(Arc::new(Doubtful::default()), DirectoryOptions { table_bytes: 1 << 20 });
    let store = open_with(from, options).unwrap();
    let mut model = Model::new();
    for n in 0..4000 {
        let (key, value) = pair(n % 3000, n);
        store.put(&key, &value).unwrap();
        model.insert(key, value);
    }
    let into: Arc<dyn Media> = at("copy", 100 << 10);
    store.checkpoint(&into).unwrap();
    drop(into);
    let longest = || {
        let files = std::fs::read_dir(dir.path().join("copy")).unwrap();
        let tables =
            files.map(|file| file.unwrap()).filter(|file| file.path().extension() == Some("table".as_ref()));
        tables.map(|file| file.metadata().unwrap().len()).max().unwrap()
    };
    assert!(longest() > 400 << 10, "{}", longest());
    let copy = open_with(at("copy", 100 << 10), small()).unwrap();
    assert_same(&copy, &model, "the copy");
    (0..3000).step_by(2).for_each(|n| copy.put(&pair(n, 0).0, b"short").unwrap());
    (0..3000).step_by(2).for_each(|n| drop(model.insert(pair(n, 0).0, b"short".to_vec())));
    copy.compact().unwrap();
    assert_same(&copy, &model, "collected");
    assert_eq!(copy.verify().unwrap().problems, Vec::<String>::new());
    copy.close().unwrap();
    assert!(longest() <= 100 << 10, "{}", longest());
    let copy = open_with(at("copy", 100 << 10), small()).unwrap();
    assert_same(&copy, &model, "opened again");
    // A table on flash has its size.
    let on_flash: Arc<dyn Media> = FlashMedia::open(flash(5), RealEnv::new()).unwrap();
    let error = store.checkpoint(&on_flash).unwrap_err();
    assert!(error.kind() == Kind::Unsupported && error.to_string().contains("at most"), "{error}");
}

/// Every copy has every key, whatever is overwritten and collected while it is made.
#[test]
fn checkpoints_beside_writers_miss_no_key() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { garbage_share: 0.05, collect_max: 1, ..small() };
    let store = open_with(directory(dir.path()), options).unwrap();
    let env: Arc<dyn Env> = RealEnv::new();
    let keys = 300;
    (0..keys).for_each(|n| store.put(&pair(n, 0).0, &pair(n, 0).1).unwrap());
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for step in (0u32..1_000_000).take_while(|_| !is_done.load(Relaxed)) {
                let (key, value) = pair(step.wrapping_mul(7919) % keys, step);
                store.put(&key, &value).unwrap();
                // So that few records are on their way, and those of them that hide others are missed.
                env.sleep_until(env.now() + Nanos::from_us(50));
            }
        });
        for round in 0..200 {
            let into = tempfile::tempdir().unwrap();
            let media: Arc<dyn Media> = directory(into.path());
            store.checkpoint(&media).unwrap();
            let copy = open_with(media, small()).unwrap();
            let missing: Vec<u32> =
                (0..keys).filter(|n| copy.get(&pair(*n, 0).0).unwrap().is_none()).collect();
            is_done.store(!missing.is_empty(), Relaxed);
            assert!(missing.is_empty(), "copy {round} misses {missing:?}");
            assert_eq!(copy.len(), keys as u64, "copy {round}");
        }
        is_done.store(true, Relaxed);
    });
    assert!(store.stat().since_opened.compactions() > 3, "{:?}", store.stat());
}

/// What was written with larger segments is collected with smaller ones.
#[test]
fn segments_may_be_smaller_when_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { segment_bytes: 1 << 20, garbage_share: 1.1, ..small() };
    let media = |table_bytes| Directory::open(dir.path(), DirectoryOptions { table_bytes }).unwrap();
    let store = open_with(media(1 << 20), options.clone()).unwrap();
    let value = |n: u8| vec![n; 100_000];
    (0..40u8).for_each(|n| store.put(&[n], &value(n)).unwrap());
    store.close().unwrap();
    let store = open_with(media(1 << 20), Options { segment_bytes: 64 << 10, ..options }).unwrap();
    assert!(store.value_bytes_max() < 10_000);
    (0..40u8).step_by(2).for_each(|n| store.delete(&[n]).unwrap());
    store.compact().unwrap();
    let expected: Model = (1..40u8).step_by(2).map(|n| (vec![n], value(n))).collect();
    assert_same(&store, &expected, "collected");
    let stat = store.stat();
    assert!(stat.segment_bytes < 21 * (110 << 10), "{stat:?}");
}

/// Segments become fewer and more by turns: there is an order for each.
#[test]
fn segments_become_fewer_and_more_again_and_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut model = Model::new();
    for round in 0..16u32 {
        let segment_bytes = if round.is_multiple_of(2) { 1 << 20 } else { 64 << 10 };
        let options = Options { segment_bytes, garbage_share: 1.1, collect_max: 8, ..small() };
        let media = Directory::open(dir.path(), DirectoryOptions { table_bytes: 1 << 20 }).unwrap();
        let store = open_with(media, options).unwrap();
        for n in 0..400u32 {
            if n % 7 == round % 7 || round == 0 {
                let (key, value) = (n.to_be_bytes().to_vec(), vec![round as u8; 4000]);
                store.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        store.flush().unwrap();
        store.compact().unwrap();
        assert_same(&store, &model, &format!("round {round}"));
        let stat = store.stat();
        assert_eq!(stat.segments_skipped, 0, "round {round}: {stat:?}");
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
        store.close().unwrap();
    }
}

#[test]
fn limits_of_a_log_store_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_with(directory(dir.path()), Options { segment_bytes: 256 << 10, ..small() }).unwrap();
    let most = store.value_bytes_max();
    store.put(b"", &vec![1; most]).unwrap();
    store.put(&[7; 20_000], b"a long key").unwrap();
    for (key, value) in [(&b"k"[..], most + 1), (&[0; vellum_kv::KEY_BYTES_MAX + 1], 1)] {
        assert_eq!(store.put(key, &vec![0; value]).unwrap_err().kind(), Kind::Invalid);
    }
    let mut batch = Batch::new();
    (0..100u32).for_each(|n| batch.put(&n.to_le_bytes(), &vec![0; most / 2]).unwrap());
    assert_eq!(store.write(&batch, Durability::Sync).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(store.get(&[0; 1 << 17]).unwrap_err().kind(), Kind::Invalid);
    store.compact().unwrap();
    assert_eq!(store.get(b"").unwrap().map(|value| value.len()), Some(most));
    assert_eq!(store.len(), 2);
}

#[test]
fn kinds_of_stores_are_told_apart_and_reading_changes_nothing() {
    let (log, lsm) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open_with(directory(log.path()), small()).unwrap();
    (0..800).for_each(|n| store.put(&pair(n, 1).0, &pair(n, 1).1).unwrap());
    store.close().unwrap();
    open(directory(lsm.path())).unwrap().put(b"k", b"v").unwrap();
    let told = open(directory(log.path())).map(drop).unwrap_err();
    assert!(told.kind() == Kind::Unsupported && told.to_string().contains("log store"), "{told}");
    let told = open_with(directory(lsm.path()), small()).map(drop).unwrap_err();
    assert!(told.kind() == Kind::Unsupported && told.to_string().contains("engine lsm"), "{told}");
    let media: Arc<dyn Media> = directory(log.path());
    let env: Arc<dyn vellum_base::Env> = RealEnv::new();
    let told = vellum_kv::repair(&media, &env, &crate::harness::small()).unwrap_err();
    assert_eq!(told.kind(), Kind::Unsupported, "{told}");
    let read_only = Options { read_only: true, ..small() };
    let store = open_with(media.clone(), read_only).unwrap();
    assert_eq!((store.len(), walked(&store).unwrap().len()), (800, 800));
    assert_eq!(store.put(b"k", b"v").unwrap_err().kind(), Kind::Invalid);
    assert_eq!(store.compact().unwrap_err().kind(), Kind::Invalid);
    store.close().unwrap();
    assert_eq!(media.ledger().programmed_total(), 0);
}
