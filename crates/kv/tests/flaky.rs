//! Repairs of which a read fails, once or for good: what a device does not hand out at that moment is not given up.

use crate::doubtful::Doubtful;
use crate::harmed::{bereft, copy_of_open, doubtful, ends_with, files_of, stored};
use crate::harness::{Model, directory, forward, open, small};
use crate::log::harness as log;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use vellum_base::{Error, Kind, RealEnv, Result};
use vellum_kv::media::{Files, Handle};
use vellum_kv::{Batch, Bounds, Directory, DirectoryOptions, Durability, Map, Media, Repaired, Store};

/// Files of which one read, opening, length or list fails once; and a sector of some that never can be read.
#[derive(Clone)]
struct Flaky {
    files: Doubtful,
    left: Arc<AtomicI64>,
    came: Arc<AtomicBool>,
    bad_sector: Option<(&'static str, u64)>,
}

struct FlakyFile {
    file: Arc<dyn Handle>,
    name: String,
    flaky: Flaky,
}

fn refused() -> Error {
    Error::new(Kind::Io, "input/output error")
}

impl Flaky {
    fn new(files: &Doubtful, nth: i64) -> Flaky {
        let left = Arc::new(AtomicI64::new(nth));
        Flaky { files: files.clone(), left, came: Arc::default(), bad_sector: None }
    }

    fn directory(&self) -> Arc<dyn Media> {
        Directory::on(Arc::new(self.clone()), DirectoryOptions { table_bytes: 256 << 10 })
    }

    fn call(&self) -> Result<()> {
        match self.left.fetch_sub(1, Relaxed) {
            1 => {
                self.came.store(true, Relaxed);
                Err(refused())
            }
            _ => Ok(()),
        }
    }

    fn handle(&self, file: Arc<dyn Handle>, name: &str) -> Arc<dyn Handle> {
        Arc::new(FlakyFile { file, name: name.into(), flaky: self.clone() })
    }
}

impl Files for Flaky {
    fn names(&self) -> Result<Vec<String>> {
        self.call()?;
        self.files.names()
    }
    fn create(&self, name: &str) -> Result<Arc<dyn Handle>> {
        Ok(self.handle(self.files.create(name)?, name))
    }
    fn open(&self, name: &str) -> Result<Arc<dyn Handle>> {
        self.call()?;
        Ok(self.handle(self.files.open(name)?, name))
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.files.remove(name)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.files.rename(from, to)
    }
    fn sync_names(&self) -> Result<()> {
        self.files.sync_names()
    }
    fn cut(&self, name: &str, bytes: u64) -> Result<()> {
        self.files.cut(name, bytes)
    }
    fn write(&self, name: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        self.files.write(name, offset, bytes)
    }
}

impl Handle for FlakyFile {
    fn len(&self) -> Result<u64> {
        self.flaky.call()?;
        self.file.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.flaky.call()?;
        let is_bad = |at: u64| (offset..offset + out.len() as u64).contains(&at);
        match self.flaky.bad_sector {
            Some((ending, at)) if self.name.ends_with(ending) && is_bad(at) => Err(refused()),
            _ => self.file.read(offset, out),
        }
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write(offset, bytes)
    }
    fn sync(&self) -> Result<()> {
        self.file.sync()
    }
    fn cut(&self, bytes: u64) -> Result<()> {
        self.file.cut(bytes)
    }
    fn forget_read(&self) {
        self.file.forget_read();
    }
}

type Mend = fn(&Arc<dyn Media>) -> Result<Repaired>;
type Content = fn(Arc<dyn Media>) -> Result<Model>;

fn mend(media: &Arc<dyn Media>) -> Result<Repaired> {
    vellum_kv::repair(media, &(RealEnv::new() as _), &small())
}

fn mend_log(media: &Arc<dyn Media>) -> Result<Repaired> {
    vellum_kv::log::repair(media, &(RealEnv::new() as _), &log::small())
}

/// What plain keys hold, and which keyspaces there are.
fn content(media: Arc<dyn Media>) -> Result<Model> {
    let store = open(media)?;
    let mut all = forward(store.iter(Bounds::all())?)?;
    all.extend(store.keyspaces().into_iter().map(|name| (format!("/{name}").into_bytes(), vec![])));
    Ok(all)
}

fn content_of_log(media: Arc<dyn Media>) -> Result<Model> {
    log::walked(&log::open_with(media, log::small())?)
}

/// A repair of which one call fails once does what it would have done, or is refused, and does it when begun again.
fn each_fails_once(stored: &[(String, Vec<u8>)], mend: Mend, content: Content) {
    let whole = doubtful(stored);
    let report = mend(&(whole.directory() as Arc<dyn Media>)).unwrap();
    let expected = content(whole.directory()).unwrap();
    assert!(!report.problems.is_empty() && !expected.is_empty());
    for nth in 1.. {
        let all = doubtful(stored);
        let flaky = Flaky::new(&all, nth);
        let first = mend(&flaky.directory());
        if !flaky.came.load(Relaxed) {
            assert!(nth > 20, "{nth} calls");
            return;
        }
        if first.is_err() {
            mend(&(all.directory() as Arc<dyn Media>)).unwrap();
        }
        let found = content(all.directory()).unwrap();
        assert!(found == expected, "call {nth}: {} of {} keys; {first:?}", found.len(), expected.len());
    }
}

fn key(n: u8) -> [u8; 4] {
    u32::from(n).to_be_bytes()
}

fn put_all(store: &impl Map, keys: std::ops::Range<u8>, value: u8) {
    keys.for_each(|n| store.put(&key(n), &[value; 300]).unwrap());
    store.write(&Batch::new(), Durability::Sync).unwrap();
}

/// Two flushes and a log, and a manifest of which the last edit does not check out.
fn without_last_edit(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = stored(copy_of_open(dir).path());
    let (_, bytes) = all.iter_mut().find(|(name, _)| name.ends_with(".manifest")).unwrap();
    let last = bytes.len() - 4;
    bytes[last] ^= 1;
    all
}

#[test]
fn a_repair_of_a_manifest_that_lost_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(directory(dir.path())).unwrap();
    [0..50, 50..100].into_iter().for_each(|keys| {
        put_all(&store, keys, 1);
        store.flush().unwrap();
    });
    put_all(&store, 100..110, 1);
    each_fails_once(&without_last_edit(dir.path()), mend, content);
}

#[test]
fn so_it_is_in_a_log_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = crate::log::rot::open(dir.path()).unwrap();
    [0..50, 50..100].into_iter().for_each(|keys| {
        put_all(&store, keys, 1);
        store.flush().unwrap();
    });
    put_all(&store, 100..110, 1);
    each_fails_once(&without_last_edit(dir.path()), mend_log, content_of_log);
}

/// Segments that hold older and newer values of the same keys, and deletes.
#[test]
fn a_repair_of_a_log_store_without_a_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let options = vellum_kv::log::Options { garbage_share: 2.0, ..log::small() };
    let store = log::open_with(directory(dir.path()), options).unwrap();
    for round in 0..3 {
        put_all(&store, 0..80, round);
        (0..10).for_each(|n| store.delete(&key(10 * round + n)).unwrap());
        store.flush().unwrap();
    }
    put_all(&store, 70..74, 77);
    each_fails_once(&stored(bereft(dir.path()).path()), mend_log, content_of_log);
}

/// Tables of level 0 that have their values in logs, above others.
fn pointing(dir: &Path) -> Store {
    let store = open(directory(dir)).unwrap();
    put_all(&store, 0..200, 1);
    store.compact().unwrap();
    put_all(&store, 0..100, 2);
    store.flush().unwrap();
    assert!(store.stat().pointed_bytes > 0);
    store
}

#[test]
fn a_repair_of_a_table_with_values_in_a_log() {
    let dir = tempfile::tempdir().unwrap();
    let _store = pointing(dir.path());
    let mut all = stored(copy_of_open(dir.path()).path());
    let (_, bytes) = all.iter_mut().rev().find(|(name, _)| name.ends_with(".table")).unwrap();
    bytes[300] ^= 1;
    each_fails_once(&all, mend, content);
    // A sector of the log is lost for good: what is around it is not.
    let pointed = all.iter().filter(|(name, _)| name.ends_with(".log")).map(|(_, bytes)| bytes.len()).max();
    let files = doubtful(&all);
    let flaky =
        Flaky { bad_sector: Some((".log", pointed.unwrap() as u64 - 100)), ..Flaky::new(&files, i64::MAX) };
    mend(&flaky.directory()).unwrap();
    assert_eq!(content(files.directory()).unwrap().len(), 201);
}

/// What was merged away is still there, as somebody reads it.
#[test]
fn a_repair_without_a_manifest_beside_what_was_merged_away() {
    let dir = tempfile::tempdir().unwrap();
    let store = pointing(dir.path());
    let mut held = store.iter(Bounds::all()).unwrap();
    held.seek_to_first().unwrap();
    (0..40).for_each(|n| store.delete(&key(n)).unwrap());
    store.compact().unwrap();
    store.sync().unwrap();
    each_fails_once(&stored(bereft(dir.path()).path()), mend, content);
}

#[test]
fn a_repair_of_names_and_of_what_was_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(directory(dir.path())).unwrap();
    let (kept, dropped) = (store.create_keyspace("kept").unwrap(), store.create_keyspace("dropped").unwrap());
    (0..100).for_each(|n| [&kept, &dropped].iter().for_each(|space| space.put(&key(n), &[1; 100]).unwrap()));
    store.flush().unwrap();
    drop(dropped);
    store.drop_keyspace("dropped").unwrap();
    put_all(&store, 0..10, 1);
    let mut all = stored(copy_of_open(dir.path()).path());
    let (_, bytes) = all.iter_mut().find(|(name, _)| name.ends_with(".manifest")).unwrap();
    bytes[3] ^= 1;
    each_fails_once(&all, mend, content);
}

/// Which of two logs is of this store its newest says.
#[test]
fn a_repair_without_a_manifest_beside_a_log_of_another_store() {
    let [ours, theirs] = [7, 9].map(|value| {
        let dir = tempfile::tempdir().unwrap();
        let store = open(directory(dir.path())).unwrap();
        put_all(&store, 0..value, value);
        if value == 7 {
            store.flush().unwrap();
            put_all(&store, 20..30, value);
        }
        stored(bereft(dir.path()).path())
    });
    let newest = ours.iter().filter(|(name, _)| name.ends_with(".log")).map(|(name, _)| name.clone()).max();
    assert!(newest.unwrap() > "000002.log".into());
    let other = theirs.into_iter().find(|(name, _)| name.ends_with(".log")).unwrap();
    let own = ours.into_iter().filter(|(name, _)| *name != "000002.log");
    let all: Vec<_> = own.chain([("000002.log".into(), other.1)]).collect();
    each_fails_once(&all, mend, content);
}

/// What follows the head of a log proves that it was there: it is durable before anything follows.
#[test]
fn a_log_that_lost_its_head_is_damaged_and_saved() {
    for log_store in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let fill = |store: &dyn Map| {
            (0..100).for_each(|n| store.put(&key(n), &[n; 30]).unwrap());
            store.sync().unwrap();
        };
        let (mend, content): (Mend, Content) =
            if log_store { (mend_log, content_of_log) } else { (mend, content) };
        let copy = match log_store {
            true => {
                let store = crate::log::rot::open(dir.path()).unwrap();
                fill(&store);
                copy_of_open(dir.path())
            }
            false => {
                let store = open(directory(dir.path())).unwrap();
                fill(&store);
                copy_of_open(dir.path())
            }
        };
        let log = files_of(copy.path()).into_iter().find(|file| ends_with(file, ".log")).unwrap();
        let mut bytes = std::fs::read(&log).unwrap();
        bytes[20] ^= 1;
        std::fs::write(&log, bytes).unwrap();
        let error = content(directory(copy.path())).unwrap_err();
        assert!(error.to_string().contains("lost its head"), "{error}");
        assert_eq!(mend(&(directory(copy.path()) as Arc<dyn Media>)).unwrap().batches, 100);
        assert!(content(directory(copy.path())).unwrap().len() >= 100);
    }
}

/// A number above all that are given would be passed on to a log that nobody finds again.
#[test]
fn a_file_with_a_number_that_none_can_follow_is_named() {
    let dir = tempfile::tempdir().unwrap();
    open(directory(dir.path())).unwrap().close().unwrap();
    let stray = dir.path().join(format!("{}.table", 1u64 << 47));
    std::fs::write(&stray, b"").unwrap();
    let error = open(directory(dir.path())).map(drop).unwrap_err();
    assert!(error.to_string().contains("has the number 140737488355328"), "{error}");
    std::fs::rename(&stray, dir.path().join(format!("{}.table", 1u64 << 48))).unwrap();
    put_all(&open(directory(dir.path())).unwrap(), 0..1, 1);
}
