//! What a repair believes where several things could be true, and what it does not give up.

use crate::doubtful::Doubtful;
use crate::harmed::{copy_of_open, doubtful, ends_with, files_of, is_manifest, stored};
use crate::harness::{directory, open, small};
use crate::pressed::{Call, Hooked};
use crate::repair::mend;
use std::path::Path;
use std::sync::Arc;
use vellum_base::{Error, Kind};
use vellum_kv::{Batch, Durability, Map, Media, Options, Store};

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

fn put(store: &Store, byte: u8) {
    (0..200).for_each(|n| store.put(&key(n), &[byte; 300]).unwrap());
}

/// A repair that began with the manifest keeps the logs of tables that it wrote anew; the next one has none.
#[test]
fn a_log_that_was_left_behind_does_not_hide_what_is_newer() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(directory(dir.path())).unwrap();
    put(&store, 1);
    let with_log = copy_of_open(dir.path());
    store.flush().unwrap();
    (0..100).for_each(|n| store.put(&key(n), &[2; 300]).unwrap());
    store.delete(&key(150)).unwrap();
    store.compact().unwrap();
    store.close().unwrap();
    let log = files_of(with_log.path()).into_iter().find(|file| ends_with(file, ".log")).unwrap();
    std::fs::copy(&log, dir.path().join(log.file_name().unwrap())).unwrap();
    files_of(dir.path())
        .iter()
        .filter(|file| is_manifest(file))
        .for_each(|f| std::fs::remove_file(f).unwrap());
    let report = mend(&(directory(dir.path()) as Arc<dyn Media>)).unwrap();
    assert!(report.manifest_lost && report.batches > 0, "{report:?}");
    let store = open(directory(dir.path())).unwrap();
    for n in (0..200).filter(|n| *n != 150) {
        let byte = if n < 100 { 2 } else { 1 };
        assert_eq!(store.get(&key(n)).unwrap(), Some(vec![byte; 300]), "{n}");
    }
}

/// As a copy of a store in use may be: CURRENT is from before the manifests.
#[test]
fn a_manifest_that_is_newer_than_current_is_believed_where_the_named_one_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let current = dir.path().join("CURRENT");
    let store = open(directory(dir.path())).unwrap();
    put(&store, 1);
    store.close().unwrap();
    let before = std::fs::read(&current).unwrap();
    let store = open(directory(dir.path())).unwrap();
    put(&store, 2);
    (0..50).for_each(|n| store.delete(&key(n)).unwrap());
    store.compact().unwrap();
    store.close().unwrap();
    assert_ne!(std::fs::read(&current).unwrap(), before);
    std::fs::write(&current, before).unwrap();
    assert_eq!(open(directory(dir.path())).unwrap_err().kind(), Kind::Corrupt);
    let report = mend(&(directory(dir.path()) as Arc<dyn Media>)).unwrap();
    assert!(!report.manifest_lost && report.problems[0].contains("CURRENT names"), "{report:?}");
    let store = open(directory(dir.path())).unwrap();
    let there = (0..200).filter(|n| store.get(&key(*n)).unwrap() == Some(vec![2; 300])).count();
    assert_eq!(there, 150, "{report:?}");
    assert!(mend_is_content(dir.path(), store));
}

fn mend_is_content(dir: &Path, store: Store) -> bool {
    store.close().unwrap();
    mend(&(directory(dir) as Arc<dyn Media>)).unwrap().problems.is_empty()
}

/// A store in memory of which a table of level 0 cannot be read in its first leaf, and points into a log. The last
/// entry of the batch in that log was of a keyspace that is dropped.
fn with_a_damaged_table() -> Doubtful {
    let dir = tempfile::tempdir().unwrap();
    let store = open(directory(dir.path())).unwrap();
    put(&store, 1);
    store.compact().unwrap();
    let dropped = store.create_keyspace("dropped").unwrap();
    let mut batch = Batch::new();
    (0..100).for_each(|n| batch.put(&key(n), &[2; 300]).unwrap());
    batch.put_in(&dropped, b"gone", b"soon").unwrap();
    store.write(&batch, Durability::Sync).unwrap();
    store.drop_keyspace("dropped").unwrap();
    store.flush().unwrap();
    assert!(store.stat().pointed_bytes > 0);
    let files = doubtful(&stored(copy_of_open(dir.path()).path()));
    let table = files.0.lock().names_ending_in(".table").pop();
    files.0.lock().unreadable = table;
    files
}

#[test]
fn what_a_table_lost_is_taken_from_a_batch_that_goes_on_behind_it() {
    let files = with_a_damaged_table();
    let report = mend(&(files.directory() as Arc<dyn Media>)).unwrap();
    assert_eq!((report.entries_lost, report.tables_rewritten), (0, 1), "{report:?}");
    let store = open(files.directory()).unwrap();
    assert!((0..100).all(|n| store.get(&key(n)).unwrap() == Some(vec![2; 300])), "{report:?}");
}

/// More files are open than may be: the next one may be able to read it.
#[test]
fn what_cannot_be_opened_now_is_not_given_up() {
    for ending in [".log", ".table"] {
        let files = with_a_damaged_table();
        let damaged = files.0.lock().unreadable.clone().unwrap();
        let before = files.0.lock().names_ending_in("");
        let is_refused = move |name: &str| match ending {
            ".log" => name.ends_with(".log"),
            _ => name == damaged,
        };
        let hook = move |call, name: &str| match call == Call::Open && is_refused(name) {
            true => Err(Error::new(Kind::NoSpace, "too many open files")),
            false => Ok(()),
        };
        let media: Arc<dyn Media> = Hooked::directory(&files, Arc::new(hook));
        assert_eq!(mend(&media).unwrap_err().kind(), Kind::NoSpace, "{ending}");
        assert_eq!(files.0.lock().names_ending_in(""), before, "{ending}");
        mend(&(files.directory() as Arc<dyn Media>)).unwrap();
        let store =
            Store::open(files.directory(), vellum_base::RealEnv::new(), Options { ..small() }).unwrap();
        assert!((0..100).all(|n| store.get(&key(n)).unwrap() == Some(vec![2; 300])), "{ending}");
    }
}
