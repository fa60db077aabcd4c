//! Ingest, checkpoints, and stores that are only read.

use crate::harness::{Model, assert_same, directory, flash, forward, open, open_flash, small};
use std::path::Path;
use std::sync::Arc;
use vellum_base::{Env, Flash, Kind, RealEnv, Result};
use vellum_kv::{Bounds, Directory, DirectoryOptions, FlashMedia, Map, Media, Options, Store};

fn key(i: u32) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

fn ingest(store: &Store, range: std::ops::Range<u32>, byte: u8) -> Result<vellum_kv::Ingested> {
    let mut ingest = store.ingest()?;
    for i in range {
        ingest.put(&key(i), &[byte; 120])?;
    }
    ingest.finish()
}

#[test]
fn what_is_ingested_goes_as_deep_as_it_can() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(directory(dir.path())).unwrap();
    let first = ingest(&store, 0..20_000, 1).unwrap();
    assert!(first.entries == 20_000 && first.tables[..2] == [0, 0], "{first:?}");
    let before = store.stat().ledger.programmed_total();
    let again = ingest(&store, 30_000..40_000, 2).unwrap();
    let written = store.stat().ledger.programmed_total() - before;
    assert!(written < 2 * again.bytes && again.tables[..2] == [0, 0], "{again:?}, {written} bytes written");
    // Above what is older, below what is newer.
    let above = ingest(&store, 100..200, 3).unwrap();
    assert_eq!(above.tables[1..].iter().sum::<usize>(), 1, "{above:?}");
    store.put(&key(150), b"newer").unwrap();
    let newest = ingest(&store, 140..160, 4).unwrap();
    assert_eq!(newest.tables[0], 1, "{newest:?}");
    store.put(&key(155), b"newest").unwrap();
    let value = |i| store.get(&key(i)).unwrap().unwrap()[..].to_vec();
    assert_eq!((value(99)[0], value(100)[0], value(150)[0]), (1, 3, 4));
    assert_eq!(value(155), b"newest");
    let mut iter = store.iter(Bounds::from(&key(138))).unwrap();
    iter.seek_to_first().unwrap();
    for i in 138..162 {
        assert_eq!((iter.key(), iter.value()), (&key(i)[..], &value(i)[..]));
        iter.next().unwrap();
    }
    store.compact().unwrap();
    assert_eq!(store.stat().levels.iter().map(|level| level.entries).sum::<u64>(), 30_000);
}

#[test]
fn an_ingest_appears_at_once_or_not_at_all() {
    let store = open(FlashMedia::open(flash(3), RealEnv::new()).unwrap()).unwrap();
    store.put(&key(5), b"before").unwrap();
    let snapshot = store.snapshot();
    let mut half = store.ingest().unwrap();
    (0..5000).for_each(|i| half.put(&key(i), &[1; 100]).unwrap());
    assert_eq!(half.put(&key(7), b"").unwrap_err().kind(), Kind::Invalid);
    assert_eq!(half.put(&key(4999), b"").unwrap_err().kind(), Kind::Invalid);
    assert_eq!(store.get(&key(6)).unwrap(), None);
    let open_iter = store.iter(Bounds::all()).unwrap();
    store.put(&key(9), b"meanwhile").unwrap();
    half.finish().unwrap();
    assert_eq!(store.get(&key(9)).unwrap().unwrap(), vec![1; 100], "the ingest came last");
    assert_eq!(forward(open_iter).unwrap().len(), 1);
    assert_eq!(forward(snapshot.iter(Bounds::all()).unwrap()).unwrap().len(), 1);
    assert_eq!(snapshot.get(&key(6)).unwrap(), None);
    assert_eq!(forward(store.iter(Bounds::all()).unwrap()).unwrap().len(), 5000);
    let tables = store.stat().levels.map(|level| level.tables);
    let mut dropped = store.ingest().unwrap();
    (0..5000).for_each(|i| dropped.put(&key(i), &[2; 100]).unwrap());
    drop(dropped);
    assert_eq!(store.ingest().unwrap().finish().unwrap(), Default::default());
    assert_eq!(store.stat().levels.map(|level| level.tables), tables);
}

#[test]
fn a_full_medium_refuses_an_ingest_and_goes_on() {
    let store = open_flash(&flash(4), RealEnv::new()).unwrap();
    let mut model = Model::new();
    let error = (0..).find_map(|round: u32| {
        let error = ingest(&store, round * 3000..(round + 1) * 3000, round as u8).err();
        if error.is_none() {
            model.extend((round * 3000..(round + 1) * 3000).map(|i| (key(i), vec![round as u8; 120])));
        }
        error
    });
    assert_eq!(error.unwrap().kind(), Kind::NoSpace);
    assert_same(&store, &model, "full");
    let gone: Vec<_> = model.keys().take(model.len() / 2).cloned().collect();
    for key in &gone {
        // As the error says: delete what it takes, then compact.
        if store.delete(key).is_err_and(|e| e.kind() == Kind::NoSpace) {
            store.compact().unwrap();
            store.delete(key).unwrap();
        }
    }
    gone.iter().for_each(|key| drop(model.remove(key)));
    store.compact().unwrap();
    assert_same(&store, &model, "after a way out");
    ingest(&store, 900_000..903_000, 9).unwrap();
}

fn checkpoint_of(store: &Store, into: &Arc<dyn Media>, model: &Model, context: &str) {
    store.checkpoint(into).unwrap_or_else(|e| panic!("{context}: {e}"));
    let error = store.checkpoint(into).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{context}: {error}");
    let copy = open(into.clone()).unwrap_or_else(|e| panic!("{context}: {e}"));
    assert_same(&copy, model, context);
    assert_eq!(copy.keyspace("other").unwrap().get(b"k").unwrap().unwrap(), b"v");
    copy.put(b"only", b"here").unwrap();
    copy.compact().unwrap();
    copy.close().unwrap();
    assert_same(store, model, &format!("{context}: the original"));
}

#[test]
fn a_checkpoint_is_the_store_of_that_moment() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(directory(&dir.path().join("a"))).unwrap();
    let mut model = Model::new();
    store.create_keyspace("other").unwrap().put(b"k", b"v").unwrap();
    for i in 0..9000 {
        store.put(&key(i * 7 % 3000), &[i as u8; 90]).unwrap();
        model.insert(key(i * 7 % 3000), vec![i as u8; 90]);
    }
    let copy: Arc<dyn Media> = directory(&dir.path().join("b"));
    checkpoint_of(&store, &copy, &model, "links");
    let flash_copy: Arc<dyn Media> = FlashMedia::open(flash(1), RealEnv::new()).unwrap();
    checkpoint_of(&store, &flash_copy, &model, "copies on flash");
    let back: Arc<dyn Media> = directory(&dir.path().join("c"));
    let mut with_only = model.clone();
    with_only.insert(b"only".to_vec(), b"here".to_vec());
    let from_flash = open(flash_copy).unwrap();
    checkpoint_of(&from_flash, &back, &with_only, "back from flash");
    store.compact().unwrap();
    store.close().unwrap();
    let reopened = open(directory(&dir.path().join("a"))).unwrap();
    assert_same(&reopened, &model, "the original, opened again");
}

#[test]
fn a_checkpoint_goes_to_media_with_smaller_tables() {
    let dir = tempfile::tempdir().unwrap();
    let large = Directory::open(&dir.path().join("a"), DirectoryOptions { table_bytes: 4 << 20 }).unwrap();
    let options = Options { memtable_bytes: 2 << 20, ..small() };
    let store = Store::open(large, RealEnv::new(), options).unwrap();
    let mut model = Model::new();
    store.create_keyspace("other").unwrap().put(b"k", b"v").unwrap();
    ingest(&store, 0..9000, 1).unwrap();
    model.extend((0..9000).map(|i| (key(i), vec![1; 120])));
    for i in (0..12_000).step_by(5) {
        store.put(&key(i), &[i as u8; 90]).unwrap();
        model.insert(key(i), vec![i as u8; 90]);
    }
    let old = store.snapshot();
    store.flush().unwrap();
    for i in (0..12_000).step_by(7) {
        store.delete(&key(i)).unwrap();
        model.remove(&key(i));
    }
    store.flush().unwrap();
    let levels = store.stat().levels;
    assert!(levels.iter().any(|level| level.bytes > (400 << 10) * level.tables as u64), "{levels:?}");
    let flash_copy: Arc<dyn Media> = FlashMedia::open(flash(1), RealEnv::new()).unwrap();
    checkpoint_of(&store, &flash_copy, &model, "tables of 256 KiB");
    drop(old);
    let copy = open(flash_copy).unwrap();
    assert_eq!(copy.verify().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_checkpoint_beside_a_writer_is_a_prefix() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(directory(&dir.path().join("a"))).unwrap());
    let writer = {
        let store = store.clone();
        let write = move || (0..40_000u32).for_each(|i| store.put(&key(i), &i.to_be_bytes()).unwrap());
        RealEnv::new().spawn("writer", Box::new(write))
    };
    for round in 0..6 {
        let path = dir.path().join(format!("copy{round}"));
        let at_least = forward(store.iter(Bounds::all()).unwrap()).unwrap().len();
        store.checkpoint(&(directory(&path) as Arc<dyn Media>)).unwrap();
        let found = forward(open(directory(&path)).unwrap().iter(Bounds::all()).unwrap()).unwrap();
        assert!(found.len() >= at_least);
        assert!(found.keys().eq(&(0..found.len() as u32).map(key).collect::<Vec<_>>()), "not a prefix");
    }
    writer.join();
}

fn bytes_of(path: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(path)
        .unwrap()
        .map(|e| e.unwrap().path())
        .map(|p| (p.clone(), std::fs::read(p).unwrap()))
        .collect();
    files.sort();
    files
}

fn only_read(media: Arc<dyn Media>) -> Result<Store> {
    Store::open(media, RealEnv::new(), Options { read_only: true, ..small() })
}

#[test]
fn a_store_that_is_only_read_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let files = || Directory::open_read_only(dir.path(), DirectoryOptions::default());
    assert_eq!(only_read(files().unwrap()).map(drop).unwrap_err().kind(), Kind::Invalid);
    let store = open(directory(dir.path())).unwrap();
    assert_eq!(files().map(drop).unwrap_err().kind(), Kind::Busy);
    let mut model = Model::new();
    for i in 0..5000 {
        store.put(&key(i), &[i as u8; 90]).unwrap();
        model.insert(key(i), vec![i as u8; 90]);
    }
    let space = store.create_keyspace("s").unwrap();
    drop((space, store));
    // What a crash may have left lies about, too.
    std::fs::write(dir.path().join("000999.table"), b"half a table").unwrap();
    std::fs::write(dir.path().join("000998.log"), b"half a log").unwrap();
    let before = bytes_of(dir.path());
    let (first, second) = (only_read(files().unwrap()).unwrap(), only_read(files().unwrap()).unwrap());
    assert_same(&first, &model, "first reader");
    assert_same(&second, &model, "second reader");
    assert_same_refusals(&first);
    let busy = Directory::open(dir.path(), DirectoryOptions::default()).map(drop).unwrap_err();
    assert_eq!(busy.kind(), Kind::Busy);
    let copy = tempfile::tempdir().unwrap();
    second.checkpoint(&(directory(copy.path()) as Arc<dyn Media>)).unwrap();
    assert_same(&open(directory(copy.path())).unwrap(), &model, "copy of a reader");
    first.close().unwrap();
    drop(second);
    assert!(bytes_of(dir.path()) == before, "something was written");
    assert_same(&open(directory(dir.path())).unwrap(), &model, "opened to write again");
}

fn assert_same_refusals(store: &Store) {
    let refusals = [
        store.put(b"k", b"v"),
        store.delete(b"k"),
        store.sync(),
        store.flush(),
        store.compact(),
        store.compact_range(Bounds::all()),
        store.create_keyspace("t").map(drop),
        store.drop_keyspace("s"),
        store.ingest().map(drop),
        store.keyspace("s").unwrap().put(b"k", b"v"),
    ];
    for (at, refusal) in refusals.into_iter().enumerate() {
        let error = refusal.unwrap_err();
        assert!(error.kind() == Kind::Invalid && error.to_string().contains("read-only"), "{at}: {error}");
    }
}

#[test]
fn flash_that_is_only_read_is_not_written() {
    let flash = flash(6);
    let store = open_flash(&flash, RealEnv::new()).unwrap();
    (0..5000).for_each(|i| store.put(&key(i), &[i as u8; 90]).unwrap());
    drop(store);
    let before = (flash.counters(), flash.nvram().unwrap().bytes());
    let mut nvram = vec![0; before.1];
    flash.nvram().unwrap().read(0, &mut nvram).unwrap();
    let store = only_read(FlashMedia::open(flash.clone(), RealEnv::new()).unwrap()).unwrap();
    assert_eq!(forward(store.iter(Bounds::all()).unwrap()).unwrap().len(), 5000);
    assert_same_refusals_on_flash(&store);
    drop(store);
    let mut after = vec![0; before.1];
    flash.nvram().unwrap().read(0, &mut after).unwrap();
    assert!(nvram == after);
    assert_eq!(flash.counters().pages_programmed, before.0.pages_programmed);
}

fn assert_same_refusals_on_flash(store: &Store) {
    for error in [store.put(b"k", b"v"), store.flush()].into_iter().map(Result::unwrap_err) {
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
    }
}
