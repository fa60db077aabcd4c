//! Files that are whole, but not what belongs there: tables and leaves of another store, and manifests of which a
//! sector with several edits is lost.

use crate::harmed::{copy_of_open, copy_with, ends_with, files_of};
use crate::harness::{Model, directory, forward, repair, repair_log, small};
use crate::log::harness as log;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_base::{Env, Kind, RealEnv, Result};
use vellum_kv::{Bounds, Map, Media, Options, Repaired, Store};

fn open(dir: &Path, level0_in_log: bool) -> Result<Store> {
    Store::open(directory(dir), RealEnv::new(), Options { level0_in_log, ..small() })
}

fn mend(dir: &Path) -> Repaired {
    let (media, env): (Arc<dyn Media>, Arc<dyn Env>) = (directory(dir), RealEnv::new());
    repair(&media, &env, &small()).unwrap()
}

fn all_of(store: &Store) -> Model {
    forward(store.iter(Bounds::all()).unwrap()).unwrap()
}

/// Two levels; what is written is alike but for the values. Returns what it holds.
fn fill(dir: &Path, value: u8, level0_in_log: bool) -> Model {
    let store = open(dir, level0_in_log).unwrap();
    for from in [0, 40] {
        (from..from + 80u8).for_each(|n| store.put(&[n], &[value; 300]).unwrap());
        if from == 0 { store.compact() } else { store.flush() }.unwrap();
    }
    let model = all_of(&store);
    store.close().unwrap();
    model
}

fn tables(dir: &Path) -> Vec<PathBuf> {
    files_of(dir).into_iter().filter(|file| ends_with(file, ".table")).collect()
}

#[test]
fn a_table_of_another_store_is_not_taken_for_one_that_is_alike() {
    for level0_in_log in [false, true] {
        let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let model = fill(own.path(), 1, level0_in_log);
        fill(other.path(), 2, level0_in_log);
        let (ours, theirs) = (tables(own.path()), tables(other.path()));
        assert!(ours.len() > 1 && ours.len() == theirs.len());
        for (our, their) in ours.iter().zip(&theirs) {
            let (bytes, context) = (std::fs::read(their).unwrap(), our.display());
            assert_eq!(bytes.len(), std::fs::read(our).unwrap().len());
            let copy = copy_with(&files_of(own.path()), our, Some(&bytes));
            let error = open(copy.path(), level0_in_log).map(drop).unwrap_err();
            assert!(error.to_string().contains("not the table that the manifest tells of"), "{error}");
            let report = mend(copy.path());
            let store = open(copy.path(), level0_in_log).unwrap();
            let found = all_of(&store);
            assert!(found.iter().all(|(key, value)| model[key] == *value), "{context}: {report:?}");
            assert!(report.entries_lost > 0 || found.len() == model.len(), "{context}: {report:?}");
            assert!(store.verify().unwrap().problems.is_empty());
        }
    }
}

/// Writes a segment in which records end where units do. Keys end with the value's first byte.
fn fill_log(dir: &Path, value: u8) {
    let store = log::open_with(directory(dir), log::small()).unwrap();
    let start = 16;
    for n in 0..12u8 {
        let head = if n == 0 { start } else { 0 };
        store.put(&[n, value], &vec![value; 4096 - 8 - 2 - 2 - head]).unwrap();
    }
    store.flush().unwrap();
    store.close().unwrap();
}

fn mend_log(dir: &Path) -> Repaired {
    let (media, env): (Arc<dyn Media>, Arc<dyn Env>) = (directory(dir), RealEnv::new());
    repair_log(&media, &env, &log::small()).unwrap()
}

#[test]
fn a_segment_of_another_store_is_not_read() {
    let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fill_log(own.path(), 1);
    fill_log(other.path(), 2);
    let (ours, theirs) = (tables(own.path()), tables(other.path()));
    assert_eq!(ours.len(), theirs.len());
    for (our, their) in ours.iter().zip(&theirs) {
        let copy = copy_with(&files_of(own.path()), our, Some(&std::fs::read(their).unwrap()));
        let error = log::open_with(directory(copy.path()), log::small()).map(drop).unwrap_err();
        assert!(error.to_string().contains("not the one that was written there"), "{error}");
        // It may be the only one that somebody has of that.
        let (media, env): (Arc<dyn Media>, Arc<dyn Env>) = (directory(copy.path()), RealEnv::new());
        let error = repair_log(&media, &env, &log::small()).unwrap_err();
        assert!(error.to_string().contains("is of another store"), "{error}");
    }
}

/// A store that goes on from the one here, and one that goes on from its copy.
fn two_of_one() -> (tempfile::TempDir, tempfile::TempDir) {
    let own = tempfile::tempdir().unwrap();
    fill_log(own.path(), 1);
    let other = copy_of_open(own.path());
    fill_log(own.path(), 2);
    fill_log(other.path(), 3);
    (own, other)
}

#[test]
fn a_segment_of_a_copy_that_went_on_is_not_read() {
    let (own, other) = two_of_one();
    let theirs = tables(other.path());
    let mut differ = 0;
    for our in tables(own.path()) {
        let bytes =
            std::fs::read(theirs.iter().find(|their| their.file_name() == our.file_name()).unwrap()).unwrap();
        if bytes == std::fs::read(&our).unwrap() {
            continue;
        }
        differ += 1;
        let copy = copy_with(&files_of(own.path()), &our, Some(&bytes));
        let error = log::open_with(directory(copy.path()), log::small()).map(drop).unwrap_err();
        assert!(error.to_string().contains("not the one that was written there"), "{error}");
        let report = mend_log(copy.path());
        assert!(report.entries_lost > 0, "{report:?}");
        let store = log::open_with(directory(copy.path()), log::small()).unwrap();
        assert!(store.iter().all(|entry| entry.unwrap().1[0] != 3));
    }
    assert!(differ > 0);
}

/// Everything in the place of a unit of one's own, and what `verify`, opening and repair make of that.
#[test]
fn a_unit_of_a_segment_of_a_copy_that_went_on_is_noticed() {
    let (own, other) = two_of_one();
    let (mut records, mut hints) = (0, 0);
    for (our, their) in tables(own.path()).iter().zip(&tables(other.path())) {
        let (ours, theirs) = (std::fs::read(our).unwrap(), std::fs::read(their).unwrap());
        let units = ours.chunks(4096).zip(theirs.chunks(4096)).enumerate();
        for (unit, (_, foreign)) in units.filter(|(_, (ours, theirs))| ours != theirs) {
            let mut bytes = ours.clone();
            bytes[unit * 4096..][..4096].copy_from_slice(foreign);
            let copy = copy_with(&files_of(own.path()), our, Some(&bytes));
            let store = match log::open_with(directory(copy.path()), log::small()) {
                Ok(store) => store,
                // Its foot, or a record that is cut in two.
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Corrupt, "unit {unit}");
                    continue;
                }
            };
            let problems = store.verify().unwrap().problems;
            let told = |what: &str| problems.iter().any(|problem| problem.contains(what));
            records += u32::from(told("not the one that was written there"));
            hints += u32::from(told("hint does not check out"));
            assert!(!problems.is_empty(), "unit {unit}");
            drop(store);
            let report = mend_log(copy.path());
            assert!(report.tables_rewritten == 1, "{report:?}");
            let is_told = report.entries_lost > 0 || report.tables_doubtful == 1;
            assert_eq!(is_told, !told("hint"), "unit {unit}: {report:?}");
            let store = log::open_with(directory(copy.path()), log::small()).unwrap();
            let all_own = store.iter().all(|entry| entry.unwrap().1[0] != 3);
            assert!(all_own || is_told, "unit {unit}");
        }
    }
    assert!(records > 0 && hints > 0, "{records} {hints}");
}

#[test]
fn a_leaf_of_another_table_is_noticed_by_who_reads_all() {
    let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fill(own.path(), 1, false);
    fill(other.path(), 2, false);
    for (our, their) in tables(own.path()).iter().zip(&tables(other.path())) {
        let (mut bytes, theirs) = (std::fs::read(our).unwrap(), std::fs::read(their).unwrap());
        bytes[4096..8192].copy_from_slice(&theirs[4096..8192]);
        let copy = copy_with(&files_of(own.path()), our, Some(&bytes));
        let store = open(copy.path(), false).unwrap();
        let problems = store.verify().unwrap().problems;
        let is_told = |problem: &String| problem.contains("a leaf is not the one that was written there");
        assert!(problems.iter().any(is_told), "{problems:?}");
        assert_eq!(store.compact().unwrap_err().kind(), Kind::Corrupt);
        drop(store);
        let report = mend(copy.path());
        assert!(report.problems.iter().any(is_told), "{report:?}");
        assert_eq!((report.entries_lost, report.tables_doubtful), (0, 1), "{report:?}");
    }
}

/// Eight tables of level 0, of which each has all keys: their merge is split by key.
fn fill_level_0(dir: &Path, value: u8) {
    let options = Options {
        level0_in_log: false,
        level0_compact: 100,
        level0_slow: 200,
        level0_stop: 300,
        compaction_tasks: 2,
        ..small()
    };
    let store = Store::open(directory(dir), RealEnv::new(), options).unwrap();
    for _ in 0..8 {
        (0..80u8).for_each(|n| store.put(&[n], &[value; 300]).unwrap());
        store.flush().unwrap();
    }
    store.close().unwrap();
}

/// Neither part of the merge reads all of the table.
#[test]
fn a_leaf_of_another_table_is_noticed_by_a_merge_in_parts() {
    let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fill_level_0(own.path(), 1);
    fill_level_0(other.path(), 2);
    for (our, their) in tables(own.path()).iter().zip(&tables(other.path())) {
        let (mut bytes, theirs) = (std::fs::read(our).unwrap(), std::fs::read(their).unwrap());
        bytes[4096..8192].copy_from_slice(&theirs[4096..8192]);
        let copy = copy_with(&files_of(own.path()), our, Some(&bytes));
        let options = Options { level0_compact: 100, level0_in_log: false, ..small() };
        let store = Store::open(directory(copy.path()), RealEnv::new(), options).unwrap();
        let error = store.compact().unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
        assert!(error.to_string().contains("a leaf is not the one that was written there"), "{error}");
    }
    let copy = copy_of_open(own.path());
    open(copy.path(), false).unwrap().compact().unwrap();
}

#[test]
fn a_table_of_which_only_the_foot_is_of_another_is_taken() {
    let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let model = fill(own.path(), 1, false);
    fill(other.path(), 2, false);
    for (our, their) in tables(own.path()).iter().zip(&tables(other.path())) {
        let (mut bytes, theirs) = (std::fs::read(our).unwrap(), std::fs::read(their).unwrap());
        let foot = bytes.len() - 4096;
        bytes[foot..].copy_from_slice(&theirs[foot..]);
        let copy = copy_with(&files_of(own.path()), our, Some(&bytes));
        open(copy.path(), false).map(drop).unwrap_err();
        let report = mend(copy.path());
        let told = (report.tables_rewritten, report.entries_lost, report.tables_doubtful);
        assert_eq!(told, (1, 0, 0), "{report:?}");
        assert_eq!(all_of(&open(copy.path(), false).unwrap()), model);
    }
}

/// With noise for its last bytes, more and more of them, the manifest looks torn.
fn without_its_end(store: &Path, mut show: impl FnMut(&Path, &str)) {
    let killed = copy_of_open(store);
    let files = files_of(killed.path());
    let manifest = files.iter().find(|file| ends_with(file, ".manifest")).unwrap();
    let whole = std::fs::read(manifest).unwrap();
    for lost in (4..whole.len() - 60).step_by(9) {
        let mut bytes = whole.clone();
        bytes[whole.len() - lost..].iter_mut().for_each(|byte| *byte ^= 0xA5);
        let copy = copy_with(&files, manifest, Some(&bytes));
        show(copy.path(), &format!("{lost} of {} bytes of the manifest lost", whole.len()));
    }
}

/// Whatever the manifest loses at its end, what the store holds is there, if need be after a repair. Returns how often
/// that was.
fn loses_nothing(store: &Path, model: &Model, level0_in_log: bool) -> u32 {
    let mut mended = 0;
    without_its_end(store, |copy, context| {
        let report = open(copy, level0_in_log).map(drop).is_err().then(|| mend(copy));
        let again = open(copy, level0_in_log).unwrap_or_else(|e| panic!("{context}: {e}"));
        assert!(all_of(&again) == *model, "{context}, values in logs {level0_in_log}: {report:?}");
        mended += report.is_some() as u32;
    });
    mended
}

#[test]
fn whatever_a_manifest_loses_at_its_end_tables_that_count_are_not_erased() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), false).unwrap();
    let spaces = ["gone", "lost"].map(|name| store.create_keyspace(name).unwrap());
    for round in 0..4u8 {
        (round * 20..80).for_each(|n| store.put(&[n], &[round; 300]).unwrap());
        spaces.iter().for_each(|space| space.put(&[round], b"1").unwrap());
        store.compact().unwrap();
    }
    drop(spaces);
    // Merged again, and nothing else is, nor was anything logged: of the table that is left then the manifest knows
    // nothing that it was made of.
    for name in ["gone", "lost"] {
        store.drop_keyspace(name).unwrap();
        store.compact().unwrap();
    }
    store.put(b"last", b"1").unwrap();
    store.sync().unwrap();
    assert!(loses_nothing(dir.path(), &all_of(&store), false) > 20);
}

/// What was merged may be there when a log that has its values is gone.
#[test]
fn what_was_merged_of_a_table_whose_log_is_gone_is_not_erased() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), true).unwrap();
    for round in 0..3u8 {
        (round * 20..80).for_each(|n| store.put(&[n], &[round; 300]).unwrap());
        store.flush().unwrap();
    }
    let before = copy_of_open(dir.path());
    store.compact().unwrap();
    store.put(b"last", b"1").unwrap();
    store.sync().unwrap();
    let model = all_of(&store);
    let killed = copy_of_open(dir.path());
    for table in tables(before.path()) {
        std::fs::copy(&table, killed.path().join(table.file_name().unwrap())).unwrap();
    }
    // The last edits, which tell of the merge, are torn.
    assert!(loses_nothing(killed.path(), &model, true) > 3);
}

/// A manifest that names a table counts on no log as long as nothing was flushed: an ingest does not say where logs
/// begin. And with values in logs, the oldest stays where a later one is gone.
#[test]
fn what_was_flushed_and_merged_after_the_edits_that_are_left_is_not_erased() {
    for (level0_in_log, ingests) in [(false, true), (true, false), (true, true), (false, false)] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), level0_in_log).unwrap();
        if ingests {
            let mut ingest = store.ingest().unwrap();
            (200..250u8).for_each(|n| ingest.put(&[n], &[9; 300]).unwrap());
            ingest.finish().unwrap();
        }
        for round in 0..3u8 {
            (round * 20..80).for_each(|n| store.put(&[n], &[round; 300]).unwrap());
            store.flush().unwrap();
        }
        if level0_in_log == ingests {
            store.compact_range(Bounds::from(&[0]).until(&[100])).unwrap();
        }
        store.put(b"last", b"1").unwrap();
        store.sync().unwrap();
        assert!(loses_nothing(dir.path(), &all_of(&store), level0_in_log) > 3);
    }
}

#[test]
fn whatever_a_manifest_loses_at_its_end_segments_that_count_are_not_erased() {
    let dir = tempfile::tempdir().unwrap();
    let options = || vellum_kv::log::Options { garbage_share: 2.0, collect_max: 64, ..log::small() };
    let open = |dir: &Path| log::open_with(directory(dir), options());
    let store = open(dir.path()).unwrap();
    for round in 0..4u8 {
        (round * 20..80).for_each(|n| store.put(&[n], &[round; 300]).unwrap());
        store.compact().unwrap();
    }
    store.put(b"last", b"1").unwrap();
    store.sync().unwrap();
    let (model, mut mended) = (log::walked(&store).unwrap(), 0);
    without_its_end(dir.path(), |copy, context| {
        let repair = || {
            let (media, env): (Arc<dyn Media>, Arc<dyn Env>) = (directory(copy), RealEnv::new());
            repair_log(&media, &env, &options()).unwrap()
        };
        let report = open(copy).map(drop).is_err().then(repair);
        let again = open(copy).unwrap_or_else(|e| panic!("{context}: {e}: {report:?}"));
        assert!(log::walked(&again).unwrap() == model, "{context}: {report:?}");
        mended += report.is_some() as u32;
    });
    assert!(mended > 20, "{mended}");
}
