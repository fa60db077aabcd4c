//! Damage in the middle of a log that was never synced: without `strict_log` it ends the log, with it it is an error,
//! and repairing finds what follows. A torn tail is one either way.

use crate::harmed::copy_of_open;
use crate::harness::{directory, flash, repair, small};
use std::path::Path;
use std::sync::Arc;
use vellum_base::{Env, Flash, Kind, RealEnv, Result};
use vellum_kv::{Batch, Durability, FlashMedia, Map, Media, Options, Store, log};
use vellum_media::nand::Nand;

/// Batches of a log.
const BATCHES: u32 = 40;

fn key(i: u32) -> Vec<u8> {
    format!("key{i:03}").into_bytes()
}

fn write(store: &impl Map, numbers: std::ops::Range<u32>) {
    for i in numbers {
        let mut batch = Batch::new();
        batch.put(&key(i), &vec![i as u8; 20 + i as usize % 50]).unwrap();
        store.write(&batch, Durability::Buffered).unwrap();
    }
}

fn lsm(media: Arc<dyn Media>, strict_log: bool) -> Result<Store> {
    Store::open(media, RealEnv::new(), Options { strict_log, ..small() })
}

fn log_store(media: Arc<dyn Media>, strict_log: bool) -> Result<log::Store> {
    log::Store::open(media, RealEnv::new(), log::Options { strict_log, ..log::Options::default() })
}

/// Which batches a store has.
fn batches(store: &impl Map) -> Vec<u32> {
    (0..2 * BATCHES).filter(|i| store.get(&key(*i)).unwrap().is_some()).collect()
}

/// What became of damage to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    /// It hit nothing.
    Nothing,
    /// It was taken for a torn tail.
    Tail,
    /// Strictly, it is an error.
    Middle,
    /// It is an error anyway.
    Damage,
}

/// Opens a damaged store, which had all batches, as it comes and strictly.
fn judge<S: Map>(open: impl Fn(bool) -> Result<S>, context: &str) -> Seen {
    let strictly = match open(true) {
        Ok(store) => Ok(batches(&store)),
        Err(error) => Err(error),
    };
    let Ok(store) = open(false) else {
        assert!(strictly.is_err(), "{context}: strictly it is less than an error");
        return Seen::Damage;
    };
    let found = batches(&store);
    assert!(found.iter().copied().eq(0..found.len() as u32), "{context}: no prefix: {found:?}");
    match (strictly, found.len() as u32) {
        (Ok(strictly), BATCHES) if strictly == found => Seen::Nothing,
        (Ok(strictly), _) => {
            assert_eq!(
                (&strictly, found.len() as u32),
                (&found, BATCHES - 1),
                "{context}: it lost more than a tail"
            );
            Seen::Tail
        }
        (Err(error), len) => {
            assert!(error.kind() == Kind::Corrupt && len < BATCHES - 1, "{context}: {len}: {error}");
            assert!(error.to_string().contains("damaged in its middle"), "{context}: {error}");
            Seen::Middle
        }
    }
}

/// What happens if bits of the log in `from` are flipped in turn, each in a copy.
fn flipped<S: Map>(
    from: &Path,
    open: impl Fn(Arc<dyn Media>, bool) -> Result<S>,
    then: impl Fn(&Path, Seen, &str),
) -> Vec<Seen> {
    let files: Vec<_> = std::fs::read_dir(from).unwrap().map(|file| file.unwrap().path()).collect();
    let log = files.iter().find(|file| file.extension().is_some_and(|end| end == "log")).unwrap();
    let good = std::fs::read(log).unwrap();
    let mut all = Vec::new();
    let end = good.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    for at in (0..end + 40).step_by(23).filter(|at| *at < good.len()) {
        let copy = tempfile::tempdir().unwrap();
        let damage = || {
            for file in &files {
                std::fs::copy(file, copy.path().join(file.file_name().unwrap())).unwrap();
            }
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            std::fs::write(copy.path().join(log.file_name().unwrap()), bad).unwrap();
        };
        let context = format!("byte {at}");
        let open = |strict| {
            damage();
            open(directory(copy.path()), strict)
        };
        let seen = judge(open, &context);
        damage();
        then(copy.path(), seen, &context);
        all.push(seen);
    }
    all
}

fn count(all: &[Seen], seen: Seen) -> usize {
    all.iter().filter(|one| **one == seen).count()
}

/// Damage is seen for what it is wherever it is in the log.
fn assert_told_apart(all: &[Seen]) {
    let (middle, tail) = (count(all, Seen::Middle), count(all, Seen::Tail));
    assert!(middle > 50 && (1..10).contains(&tail), "{middle} in the middle, {tail} in the tail");
}

/// Who looks before the store is opened to write is told of what that gives up.
fn assert_remarked<S: Map>(open: impl FnOnce() -> Result<S>, seen: Seen, context: &str) {
    if seen < Seen::Damage {
        let verified = open().unwrap().verify().unwrap();
        assert!(verified.problems.is_empty(), "{context}: {verified:?}");
        assert_eq!(verified.remarks.len(), usize::from(seen == Seen::Middle), "{context}: {verified:?}");
    }
}

#[test]
fn damage_in_the_middle_of_a_log_is_told_from_a_torn_tail() {
    let dir = tempfile::tempdir().unwrap();
    let store = lsm(directory(dir.path()), false).unwrap();
    write(&store, 0..BATCHES);
    let all = flipped(copy_of_open(dir.path()).path(), lsm, |path, seen, context| {
        let env: Arc<dyn Env> = RealEnv::new();
        assert_remarked(
            || Store::open(directory(path), RealEnv::new(), Options { read_only: true, ..small() }),
            seen,
            context,
        );
        let media: Arc<dyn Media> = directory(path);
        let report = repair(&media, &env, &small()).unwrap();
        assert_eq!(report.problems.is_empty(), seen < Seen::Middle, "{context}: {report:?}");
        drop(media);
        let left = batches(&lsm(directory(path), true).unwrap()).len() as u32;
        let lost = BATCHES - left;
        assert!(lost <= (seen != Seen::Nothing) as u32, "{context}: {left} are left; {report:?}");
    });
    assert_told_apart(&all);
}

#[test]
fn so_it_is_in_a_log_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = log_store(directory(dir.path()), false).unwrap();
    write(&store, 0..BATCHES);
    let all = flipped(copy_of_open(dir.path()).path(), log_store, |path, seen, context| {
        let reading = log::Options { read_only: true, ..crate::log::harness::small() };
        assert_remarked(|| log::Store::open(directory(path), RealEnv::new(), reading.clone()), seen, context);
        if seen < Seen::Damage {
            let found = batches(&log_store(directory(path), false).unwrap());
            let strictly = log_store(directory(path), true).unwrap_or_else(|e| panic!("{context}: {e}"));
            assert_eq!(batches(&strictly), found, "{context}: who takes what there is has it for good");
        }
    });
    assert_told_apart(&all);
}

#[test]
fn so_it_is_in_nvram() {
    in_nvram(lsm);
}

#[test]
fn so_it_is_in_nvram_in_a_log_store() {
    in_nvram(log_store);
}

fn in_nvram<S: Map>(open: impl Fn(Arc<dyn Media>, bool) -> Result<S>) {
    let whole = flash(9);
    let open = |flash: &Arc<Nand>, strict| open(FlashMedia::open(flash.clone(), RealEnv::new())?, strict);
    let store = open(&whole, false).unwrap();
    write(&store, 0..BATCHES);
    let killed = whole.fork().unwrap();
    let flip = |at: usize| {
        let fork = Arc::new(killed.fork().unwrap());
        let mut byte = [0];
        fork.nvram().unwrap().read(at, &mut byte).unwrap();
        fork.nvram().unwrap().write(at, &[byte[0] ^ 4]).unwrap();
        fork
    };
    // Most of it is empty, and damage there of one kind.
    let mut bytes = vec![0; killed.nvram().unwrap().bytes()];
    killed.nvram().unwrap().read(0, &mut bytes).unwrap();
    let places = (0..bytes.len()).step_by(149).filter(|at| bytes[*at] != 0 || at % 20 == 0);
    let mut all = Vec::new();
    for at in places {
        let seen = judge(|strict| open(&flip(at), strict), &format!("byte {at}"));
        if seen == Seen::Middle {
            let flash = flip(at);
            let found = batches(&open(&flash, false).unwrap());
            let strictly = open(&flash, true).unwrap_or_else(|e| panic!("byte {at}: {e}"));
            assert_eq!(batches(&strictly), found, "byte {at}: who takes what there is has it for good");
        }
        all.push(seen);
    }
    assert!(count(&all, Seen::Middle) > 10, "{}", count(&all, Seen::Middle));
}

/// A log ends where the next one says, not before.
#[test]
fn a_log_that_is_shorter_than_the_next_one_says_is_damaged_if_that_holds_anything() {
    let dir = tempfile::tempdir().unwrap();
    let store = lsm(directory(dir.path()), false).unwrap();
    write(&store, 0..BATCHES / 2);
    let killed = copy_of_open(dir.path());
    let first = logs_of(killed.path()).pop().unwrap();
    let store = lsm(directory(killed.path()), true).unwrap();
    write(&store, BATCHES / 2..BATCHES);
    let open_damaged = |strict| {
        let copy = copy_of_open(killed.path());
        assert_eq!(logs_of(copy.path()).len(), 2);
        let (path, mut bytes) = (copy.path().join(&first), std::fs::read(copy.path().join(&first)).unwrap());
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        bytes[end] ^= 1;
        std::fs::write(path, bytes).unwrap();
        lsm(directory(copy.path()), strict).map(|store| batches(&store).len() as u32)
    };
    assert_eq!(open_damaged(false).unwrap(), BATCHES / 2 - 1);
    let error = open_damaged(true).unwrap_err().to_string();
    assert!(error.contains("damaged in its middle: records follow in log"), "{error}");
}

fn logs_of(dir: &Path) -> Vec<std::ffi::OsString> {
    let names = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().file_name());
    names.filter(|name| Path::new(name).extension().is_some_and(|end| end == "log")).collect()
}

/// Records and marks in a value are what somebody keeps there: of a log that is torn in it they say nothing.
#[test]
fn a_log_of_another_store_that_is_kept_in_a_value_is_no_part_of_this_one() {
    let (theirs, ours) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = lsm(directory(theirs.path()), false).unwrap();
    write(&store, 0..BATCHES);
    store.sync().unwrap();
    write(&store, BATCHES..2 * BATCHES);
    let log = logs_of(theirs.path()).pop().unwrap();
    let mut value = std::fs::read(theirs.path().join(&log)).unwrap();
    value.truncate(value.iter().rposition(|byte| *byte != 0).unwrap() + 1);
    let store = lsm(directory(ours.path()), false).unwrap();
    write(&store, 0..9);
    let mut batch = Batch::new();
    batch.put(b"their log", &value).unwrap();
    store.write(&batch, Durability::Buffered).unwrap();
    let killed = copy_of_open(ours.path());
    assert_eq!(logs_of(killed.path()), std::slice::from_ref(&log), "another number");
    let whole = std::fs::read(killed.path().join(&log)).unwrap();
    let end = whole.iter().rposition(|byte| *byte != 0).unwrap();
    for (cut, zeros) in (end - value.len()..end).step_by(97).flat_map(|cut| [(cut, 0), (cut, 5000)]) {
        let copy = copy_of_open(killed.path());
        std::fs::write(copy.path().join(&log), [&whole[..cut], &vec![0; zeros]].concat()).unwrap();
        let media: Arc<dyn Media> = directory(copy.path());
        let env: Arc<dyn Env> = RealEnv::new();
        let report = repair(&media, &env, &small()).unwrap();
        assert!(report.problems.is_empty(), "cut at {cut}: {report:?}");
        let store = lsm(media, true).unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
        assert_eq!(batches(&store).len(), 9, "cut at {cut}");
    }
}
