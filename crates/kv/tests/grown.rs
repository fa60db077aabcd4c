//! Logs whose files grow ahead of what is appended, as their writer syncs often: on a real file system, with either
//! engine. What becomes of them in a power cut is in `tail.rs`.

use crate::harness::{directory, small};
use std::path::Path;
use std::sync::Arc;
use vellum_base::{Env, RealEnv};
use vellum_kv::{Batch, Directory, Durability, Glance, Map, Options, Store, log};

/// Bytes of the newest log's file, and about where what was written to it ends.
fn newest_log(path: &Path) -> (u64, u64) {
    let names = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let logs = names.filter(|name| name.extension().is_some_and(|ending| ending == "log"));
    let bytes = std::fs::read(logs.max().unwrap()).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    (bytes.len() as u64, end as u64)
}

/// With room for zeros.
fn is_ext4(path: &Path) -> bool {
    let stat = rustix::fs::statfs(path).unwrap();
    stat.f_type == 0xEF53 && stat.f_bavail * stat.f_bsize as u64 > 1 << 30
}

fn put(store: &dyn Map, keys: std::ops::Range<u32>, durability: Durability) {
    for n in keys {
        let mut batch = Batch::new();
        batch.put(&n.to_be_bytes(), &[7; 100]).unwrap();
        store.write(&batch, durability).unwrap();
    }
}

fn check(store: &dyn Map, count: u32) {
    for n in 0..count {
        assert_eq!(store.get(&n.to_be_bytes()).unwrap().as_deref(), Some(&[7; 100][..]), "{n}");
    }
    assert_eq!(store.get(&count.to_be_bytes()).unwrap(), None);
}

/// As a process that dies leaves it.
fn copied(path: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

fn grows_and_ends(open: impl Fn(&Path) -> Box<dyn Map>) {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    put(&*store, 0..6, Durability::Sync);
    let (bytes, end) = newest_log(dir.path());
    assert!(bytes < end + 64, "a few syncs are no habit: {bytes} {end}");
    put(&*store, 6..200, Durability::Sync);
    let (bytes, end) = newest_log(dir.path());
    let seen = Glance::of(&*Directory::look(dir.path()).unwrap()).unwrap().unwrap();
    let counted = seen.unflushed_log_bytes.unwrap();
    assert!((end - 64..=end).contains(&counted), "{counted} of {end}");
    if !is_ext4(dir.path()) {
        return println!("skipped: not on ext4, or nearly full");
    }
    assert!(bytes > end + 64, "{bytes} {end}");
    let copy = copied(dir.path());
    let again = open(copy.path());
    check(&*again, 200);
    put(&*again, 200..210, Durability::Sync);
    check(&*again, 210);
    drop((again, store));
    let (bytes, end) = newest_log(dir.path());
    assert!(bytes < end + 64, "after closing: {bytes} {end}");
    check(&*open(dir.path()), 200);
}

fn env() -> Arc<dyn Env> {
    RealEnv::new()
}

#[test]
fn a_log_grows_ahead_of_who_syncs_and_ends_when_the_store_is_closed() {
    for (map_files, strict_log) in [(true, false), (true, true), (false, true)] {
        let options = Options { map_files, strict_log, ..small() };
        grows_and_ends(|path| Box::new(Store::open(directory(path), env(), options.clone()).unwrap()));
    }
    let options = log::Options { strict_log: true, ..log::Options::default() };
    grows_and_ends(|path| Box::new(log::Store::open(directory(path), env(), options.clone()).unwrap()));
}

/// Who stops syncing gets a log that is held in memory, in a file that has nothing behind that.
#[test]
fn a_log_that_grew_is_held_once_nobody_syncs() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(directory(dir.path()), env(), Options { map_files: true, ..small() }).unwrap();
    put(&store, 0..100, Durability::Sync);
    let (bytes, end) = newest_log(dir.path());
    assert!(bytes > end + 64 || !is_ext4(dir.path()), "{bytes} {end}");
    put(&store, 100..400, Durability::Buffered);
    let (bytes, end) = newest_log(dir.path());
    assert!(bytes < end + 64, "{bytes} {end}");
    let died = |count| {
        let copy = copied(dir.path());
        check(&Store::open(directory(copy.path()), env(), small()).unwrap(), count);
    };
    died(400);
    put(&store, 400..500, Durability::Sync);
    died(500);
}
