//! A store stays in the directory that it was opened in and holds the lock of, and nobody writes without that lock.

use crate::harness::{directory, forward, open, small};
use std::path::Path;
use std::sync::Arc;
use vellum_base::{Kind, RealEnv, Result};
use vellum_kv::media::Tables;
use vellum_kv::{Bounds, Directory, DirectoryOptions, Map, Media, Options, Store, log};

fn put_all(store: &Store, numbers: std::ops::Range<u32>) {
    numbers.for_each(|n| store.put(&n.to_be_bytes(), &[n as u8; 100]).unwrap());
}

fn is_refused<T>(opened: Result<T>) {
    let error = opened.map(drop).unwrap_err();
    assert!(error.kind() == Kind::Invalid && error.to_string().contains("opened to read"), "{error}");
}

/// Names were looked up anew by the path: both stores wrote to the second directory.
#[test]
fn a_directory_that_is_renamed_while_its_store_is_open_keeps_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| dir.path().join(name));
    let renamed = open(directory(&old)).unwrap();
    put_all(&renamed, 0..2000);
    std::fs::rename(&old, &new).unwrap();
    let other = open(directory(&old)).unwrap();
    put_all(&other, 10_000..12_000);
    put_all(&renamed, 2000..8000);
    [&renamed, &other].iter().for_each(|store| store.compact().unwrap());
    let copy = dir.path().join("copy");
    renamed.checkpoint(&(directory(&copy) as Arc<dyn Media>)).unwrap();
    renamed.close().unwrap();
    other.close().unwrap();
    let count = |path: &Path| {
        let store = open(directory(path)).unwrap();
        let all = (0..12_000u32).filter(|n| store.get(&n.to_be_bytes()).unwrap().is_some());
        let (low, high): (Vec<u32>, Vec<u32>) = all.partition(|n| *n < 10_000);
        (low.len(), high.len())
    };
    assert_eq!([&new, &copy, &old].map(|path| count(path)), [(8000, 0), (8000, 0), (0, 2000)]);
}

/// With a shared lock, or none, it wrote beside the store that holds the lock, and each replaced the other's CURRENT.
#[test]
fn a_directory_that_was_opened_to_read_takes_no_store_that_writes() {
    let dir = tempfile::tempdir().unwrap();
    let writer = open(directory(dir.path())).unwrap();
    put_all(&writer, 0..3000);
    let look = || Directory::look(dir.path()).unwrap();
    is_refused(Store::open(look(), RealEnv::new(), small()));
    is_refused(log::Store::open(look(), RealEnv::new(), log::Options::default()));
    is_refused(look().set_current(b"anything"));
    is_refused(look().erase_table(1));
    writer.close().unwrap();
    let shared = || Directory::open_read_only(dir.path(), DirectoryOptions::default()).unwrap();
    let reader = Store::open(shared(), RealEnv::new(), Options { read_only: true, ..small() }).unwrap();
    is_refused(Store::open(shared(), RealEnv::new(), small()));
    assert_eq!(forward(reader.iter(Bounds::all()).unwrap()).unwrap().len(), 3000);
}
