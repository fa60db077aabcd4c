//! Stores that were damaged in every place in turn, repaired: they open, they verify, nothing in them is wrong, and
//! what the damage did not hit is there.

use crate::harmed::{copy_of_open, copy_with, each_flipped, each_spoiled, ends_with, files_of, is_manifest};
use crate::harness::{Model, directory, flash, forward, open, open_flash, repair, small};
use crate::rot::{fill, pair};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_base::{BlockAddr, Env, Flash, Kind, RealEnv, Result};
use vellum_kv::{Batch, Bounds, Durability, FlashMedia, Map, Media, Options, Repaired, Store};

/// Entries that fit in a leaf, and in a torn log behind damage.
const LEAF_ENTRIES_MAX: usize = 120;

pub(crate) fn mend(media: &Arc<dyn Media>) -> Result<Repaired> {
    let env: Arc<dyn Env> = RealEnv::new();
    repair(media, &env, &small())
}

/// Every value is one that its key once had. Returns how many keys differ from the newest state.
fn differences(store: &Store, model: &Model, context: &str) -> usize {
    let found = forward(store.iter(Bounds::all()).unwrap()).unwrap_or_else(|e| panic!("{context}: {e}"));
    for (key, value) in &found {
        let once = (0..900).map(pair).any(|(k, v)| k == *key && v == *value);
        assert!(once, "{context}: a value that {key:?} never had");
    }
    let changed = model.iter().filter(|(key, value)| found.get(*key) != Some(*value)).count();
    changed + found.keys().filter(|key| !model.contains_key(*key)).count()
}

/// Repairs what is damaged, if it is noticed at all. Returns how many keys differ afterwards.
fn repaired(media: impl Fn() -> Result<Arc<dyn Media>>, model: &Model, context: &str) -> Option<usize> {
    let whole = |store: &Store| store.verify().is_ok_and(|verified| verified.problems.is_empty());
    if open(media().ok()?).is_ok_and(|store| whole(&store)) {
        return None;
    }
    let report = mend(&media().unwrap()).unwrap_or_else(|e| panic!("{context}: {e}"));
    assert!(!report.problems.is_empty(), "{context}: {report:?}");
    let store = open(media().unwrap()).unwrap_or_else(|e| panic!("{context}: {e}\n{report:?}"));
    let verified = store.verify().unwrap();
    assert!(verified.problems.is_empty(), "{context}: {verified:?}");
    let differ = differences(&store, model, context);
    store.put(b"key0000", &pair(0).1).unwrap();
    store.compact().unwrap();
    store.close().unwrap();
    let again = mend(&media().unwrap()).unwrap();
    assert!(again.problems.is_empty(), "{context}: {again:?}");
    Some(differ)
}

#[test]
fn sectors_of_each_file_flipped_and_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let model = fill(open(directory(dir.path())).unwrap());
    let mut count = 0;
    each_flipped(dir.path(), 11, |file, copy, context| {
        if let Some(differ) = repaired(|| Ok(directory(copy)), &model, context) {
            let most = if ends_with(file, ".table") { LEAF_ENTRIES_MAX } else { 1 };
            assert!(differ <= most, "{context}: {differ} keys differ");
            assert!(
                !is_manifest(file) || differ == 0,
                "{context}: {differ} lost, though every table is whole"
            );
            count += 1;
        }
    });
    assert!(count > 30, "only {count} damaged");
}

/// The number of the store is in each head: what is left tells.
#[test]
fn without_current_and_the_head_of_the_manifest_a_store_keeps_its_number_and_its_names() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(directory(dir.path())).unwrap();
    let sheets = store.create_keyspace("sheets").unwrap();
    store.compact().unwrap();
    sheets.put(b"k", b"v").unwrap();
    let files = files_of(dir.path());
    let of_current = |dir: &Path| std::fs::read(dir.join("CURRENT")).unwrap()[20..].to_vec();
    let manifest = files.iter().find(|file| ends_with(file, ".manifest")).unwrap();
    let mut bad = std::fs::read(manifest).unwrap();
    bad[2] ^= 1;
    let copy = copy_with(&files, manifest, Some(&bad));
    std::fs::remove_file(copy.path().join("CURRENT")).unwrap();
    let media: Arc<dyn Media> = directory(copy.path());
    let report = mend(&media).unwrap();
    assert!(report.manifest_lost && report.batches == 1, "{report:?}");
    assert_eq!(of_current(copy.path()), of_current(dir.path()));
    let store = open(media).unwrap();
    assert_eq!(store.keyspaces(), ["default", "sheets"]);
    let sheets = store.keyspace("sheets").unwrap();
    assert_eq!(sheets.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
}

#[test]
fn each_file_missing_cut_or_overwritten_and_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let model = fill(open(directory(dir.path())).unwrap());
    each_spoiled(dir.path(), |file, copy, context| {
        let differ = repaired(|| Ok(directory(copy)), &model, context).unwrap_or(0);
        assert!(!is_manifest(file) || differ == 0, "{context}: {differ} lost, though every table is whole");
        assert!(differ < model.len(), "{context}: nothing is left");
    });
}

#[test]
fn pages_of_flash_flipped_and_repaired() {
    let whole = flash(0);
    let model = fill(open_flash(&whole, RealEnv::new()).unwrap());
    let mut count = 0;
    for block in 0..whole.geometry().blocks() {
        for page in 0..whole.report(BlockAddr(block)).pages_written {
            let fork = Arc::new(whole.fork().unwrap());
            fork.flip_bit(BlockAddr(block).page(page), 8 * 700 + 3).unwrap();
            let context = format!("page {page} of block {block}");
            let media = || Ok(FlashMedia::open(fork.clone(), RealEnv::new())? as Arc<dyn Media>);
            count +=
                repaired(media, &model, &context).is_some_and(|differ| differ <= LEAF_ENTRIES_MAX) as u32;
        }
    }
    assert!(count > 20, "only {count} damaged");
}

#[test]
fn names_of_keyspaces_survive_or_are_said_to_be_lost() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(directory(dir.path())).unwrap();
    let space = store.create_keyspace("sheets").unwrap();
    let mut ingest = space.ingest().unwrap();
    (0..900u32).for_each(|i| ingest.put(&i.to_be_bytes(), b"ingested").unwrap());
    ingest.finish().unwrap();
    (0..900u32).step_by(3).for_each(|i| space.put(&i.to_be_bytes(), b"put later").unwrap());
    space.put(b"k", b"v").unwrap();
    drop(space);
    store.close().unwrap();
    let files = files_of(dir.path());
    for gone in [".manifest", "CURRENT"] {
        let file = files.iter().find(|file| ends_with(file, gone)).unwrap();
        let copy = copy_with(&files, file, None);
        let report = mend(&(directory(copy.path()) as Arc<dyn Media>)).unwrap();
        let store = open(directory(copy.path())).unwrap();
        let names = store.keyspaces();
        let name = if gone == "CURRENT" { "sheets" } else { "lost-1" };
        assert_eq!(names, ["default", name], "{report:?}");
        let space = store.keyspace(name).unwrap();
        assert_eq!(space.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
        for i in 0..900u32 {
            let expected: &[u8] = if i % 3 == 0 { b"put later" } else { b"ingested" };
            assert_eq!(space.get(&i.to_be_bytes()).unwrap().as_deref(), Some(expected), "{gone}: {i}");
        }
    }
}

/// A table from the first to the last of them says nothing of those between.
#[test]
fn keyspaces_in_the_middle_of_a_table_are_found_and_their_numbers_not_given_away() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(directory(dir.path())).unwrap();
    store.put(b"k", b"0").unwrap();
    for (name, value) in [("sheets", b"1"), ("index", b"2")] {
        store.create_keyspace(name).unwrap().put(b"k", value).unwrap();
    }
    store.compact().unwrap();
    assert_eq!(store.stat().levels.iter().map(|level| level.tables).sum::<usize>(), 1);
    store.close().unwrap();
    let files = files_of(dir.path());
    let manifest = files.iter().find(|file| ends_with(file, ".manifest")).unwrap();
    let copy = copy_with(&files, manifest, None);
    mend(&(directory(copy.path()) as Arc<dyn Media>)).unwrap();
    let store = open(directory(copy.path())).unwrap();
    assert_eq!(store.keyspaces(), ["default", "lost-1", "lost-2"]);
    let new = store.create_keyspace("new").unwrap();
    assert_eq!(new.get(b"k").unwrap(), None);
    for (name, value) in [("default", b"0"), ("lost-1", b"1"), ("lost-2", b"2")] {
        assert_eq!(store.keyspace(name).unwrap().get(b"k").unwrap().as_deref(), Some(&value[..]));
    }
    assert!(store.verify().unwrap().problems.is_empty());
}

/// The last edit of a manifest is taken for torn if it is damaged: it said that a log is a table now.
#[test]
fn a_table_that_the_last_edit_told_of_is_not_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { level0_in_log: false, ..small() };
    let env: Arc<dyn Env> = RealEnv::new();
    let store = Store::open(directory(dir.path()), env, options).unwrap();
    for from in [0, 50] {
        (from..from + 50u8).for_each(|n| store.put(&[n], &[n; 300]).unwrap());
        store.flush().unwrap();
    }
    (100..110u8).for_each(|n| store.put(&[n], &[n; 300]).unwrap());
    store.sync().unwrap();
    let copy = copy_of_open(dir.path());
    store.close().unwrap();
    let manifest = files_of(copy.path()).into_iter().find(|file| ends_with(file, ".manifest")).unwrap();
    let mut bytes = std::fs::read(&manifest).unwrap();
    let last = bytes.len() - 4;
    bytes[last] ^= 1;
    std::fs::write(&manifest, bytes).unwrap();
    assert_eq!(open(directory(copy.path())).map(drop).unwrap_err().kind(), Kind::Corrupt);
    let report = mend(&(directory(copy.path()) as Arc<dyn Media>)).unwrap();
    assert!(report.problems.iter().any(|problem| problem.contains("lost its end")), "{report:?}");
    let store = open(directory(copy.path())).unwrap();
    assert_eq!(forward(store.iter(Bounds::all()).unwrap()).unwrap().len(), 110, "{report:?}");
}

/// Nothing is erased by a manifest that names none of the tables.
#[test]
fn by_the_manifest_of_another_store_no_table_is_erased() {
    let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (dir, rounds) in [(&own, 1), (&other, 9)] {
        let (options, env) = (Options { level0_in_log: false, ..small() }, RealEnv::new() as Arc<dyn Env>);
        let store = Store::open(directory(dir.path()), env, options).unwrap();
        for round in 1..=rounds {
            (0..100u8).for_each(|n| store.put(&[n], &[round; 300]).unwrap());
            if rounds == 1 { store.flush() } else { store.compact() }.unwrap();
        }
        store.close().unwrap();
    }
    let words = |dir: &Path| files_of(dir).into_iter().filter(|file| is_manifest(file));
    words(own.path()).for_each(|file| std::fs::remove_file(file).unwrap());
    for log in files_of(own.path()).into_iter().filter(|file| ends_with(file, ".log")) {
        std::fs::remove_file(log).unwrap();
    }
    for file in words(other.path()) {
        std::fs::copy(&file, own.path().join(file.file_name().unwrap())).unwrap();
    }
    let before = files_of(own.path());
    let error = mend(&(directory(own.path()) as Arc<dyn Media>)).unwrap_err();
    assert!(error.kind() == Kind::Unsupported && error.to_string().contains("names is there"), "{error}");
    assert_eq!(files_of(own.path()), before);
    words(own.path()).for_each(|file| std::fs::remove_file(file).unwrap());
    mend(&(directory(own.path()) as Arc<dyn Media>)).unwrap();
    let store = open(directory(own.path())).unwrap();
    assert_eq!(store.get(&[7]).unwrap(), Some(vec![1; 300]));
}

/// A manifest that a repair was writing when it was cut short is newer than the one in force, which CURRENT no longer
/// names.
#[test]
fn a_manifest_that_was_cut_short_is_not_taken_for_the_one_in_force() {
    let dir = tempfile::tempdir().unwrap();
    let model = fill(open(directory(dir.path())).unwrap());
    std::fs::remove_file(dir.path().join("CURRENT")).unwrap();
    let manifest = files_of(dir.path()).into_iter().find(|file| ends_with(file, ".manifest")).unwrap();
    let whole = std::fs::read(&manifest).unwrap();
    std::fs::write(dir.path().join("999999.manifest"), &whole[..whole.len() / 3]).unwrap();
    let report = mend(&(directory(dir.path()) as Arc<dyn Media>)).unwrap();
    assert!(!report.manifest_lost, "{report:?}");
    assert_eq!(differences(&open(directory(dir.path())).unwrap(), &model, "cut short"), 0);
}

#[test]
fn what_a_damaged_log_lost_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(directory(dir.path())).unwrap();
    store.put(b"before", b"1").unwrap();
    let mut batch = Batch::new();
    [&b"lost-a"[..], b"lost-b", b"lost-c"].iter().for_each(|key| batch.put(key, b"2").unwrap());
    store.write(&batch, Durability::Sync).unwrap();
    store.put(b"after", b"3").unwrap();
    store.close().unwrap();
    let holds = |file: &PathBuf| {
        let bytes = std::fs::read(file).unwrap();
        Some((file.clone(), bytes.windows(6).position(|six| six == b"lost-b")?))
            .filter(|_| ends_with(file, ".log"))
    };
    let (log, at) = files_of(dir.path()).iter().find_map(holds).unwrap();
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    let report = mend(&(directory(dir.path()) as Arc<dyn Media>)).unwrap();
    assert_eq!((report.entries_lost, report.logs_damaged, report.batches), (3, 1, 2), "{report:?}");
    let store = open(directory(dir.path())).unwrap();
    assert_eq!(forward(store.iter(Bounds::all()).unwrap()).unwrap().len(), 2);
}

#[test]
fn nothing_is_repaired_where_nothing_is_wrong_or_nothing_is() {
    let dir = tempfile::tempdir().unwrap();
    let media = directory(dir.path());
    assert_eq!(mend(&(media.clone() as Arc<dyn Media>)).unwrap_err().kind(), Kind::Invalid);
    let model = fill(open(media).unwrap());
    let before: Vec<_> = files_of(dir.path()).into_iter().map(|f| (std::fs::read(&f).unwrap(), f)).collect();
    let report = mend(&(directory(dir.path()) as Arc<dyn Media>)).unwrap();
    assert!(report.problems.is_empty() && report.tables_kept > 1, "{report:?}");
    let after: Vec<_> = files_of(dir.path()).into_iter().map(|f| (std::fs::read(&f).unwrap(), f)).collect();
    assert!(before == after);
    let store = open(directory(dir.path())).unwrap();
    assert_eq!(differences(&store, &model, "untouched"), 0);
    let verified = store.verify().unwrap();
    assert!(verified.problems.is_empty() && verified.tables > 1 && verified.entries > 400, "{verified:?}");
}

/// A copy of the files without its manifest and CURRENT, and without tables that `lost` says.
fn bereft(files: &[PathBuf], lost: impl Fn(&Path) -> bool) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let stays = |file: &&PathBuf| !is_manifest(file) && !lost(file);
    for file in files.iter().filter(stays) {
        match std::fs::copy(file, copy.path().join(file.file_name().unwrap())) {
            // The store that is open has erased it.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            other => drop(other.unwrap()),
        }
    }
    copy
}

#[test]
fn what_was_merged_away_does_not_bring_deleted_keys_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(directory(dir.path())).unwrap();
    let key = |n: u32| n.to_be_bytes();
    let tables =
        || -> Vec<PathBuf> { files_of(dir.path()).into_iter().filter(|f| ends_with(f, ".table")).collect() };
    (0..400).for_each(|n| store.put(&key(n), &[1; 60]).unwrap());
    store.flush().unwrap();
    let with_puts = tables();
    (0..200).for_each(|n| store.delete(&key(n)).unwrap());
    store.flush().unwrap();
    let with_deletes: Vec<PathBuf> = tables().into_iter().filter(|file| !with_puts.contains(file)).collect();
    // Somebody still reads the old tables, so they are there when the manifest is lost.
    let held = store.iter(vellum_kv::Bounds::all()).unwrap();
    store.compact().unwrap();
    let lost = |file: &Path| with_deletes.iter().any(|lost| lost == file);
    // After one merge an erased input tells that the others count no more; after the second its tables say so.
    let once = bereft(&files_of(dir.path()), lost);
    (200..300).for_each(|n| store.delete(&key(n)).unwrap());
    store.compact().unwrap();
    let left_behind = tables();
    assert!(with_puts.iter().chain(&with_deletes).all(|file| left_behind.contains(file)), "nothing is");
    let twice = bereft(&files_of(dir.path()), lost);
    let whole = bereft(&files_of(dir.path()), |_| false);
    for (copy, expected) in [(once, 200), (twice, 100), (whole, 100)] {
        let report = mend(&(directory(copy.path()) as Arc<dyn Media>)).unwrap();
        let found = open(directory(copy.path())).unwrap();
        let found = forward(found.iter(vellum_kv::Bounds::all()).unwrap()).unwrap().len();
        assert_eq!(found, expected, "{report:?}");
        for said in ["left out", "no manifest says"] {
            assert!(report.problems.iter().any(|problem| problem.contains(said)), "{report:?}");
        }
    }
    drop(held);
    store.close().unwrap();
}

/// Leaves that check out, each in the place of another: what is left out for that is said.
/// A table of an ingest has no number of its own before that is finished, and only the manifest says that it was.
#[test]
fn without_a_manifest_it_is_said_which_tables_were_ingested() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(directory(dir.path())).unwrap();
    store.put(b"k", b"put").unwrap();
    store.flush().unwrap();
    let mut ingest = store.ingest().unwrap();
    (0..2000u32).for_each(|n| ingest.put(&n.to_be_bytes(), &[7; 200]).unwrap());
    ingest.finish().unwrap();
    store.close().unwrap();
    let copy = bereft(&files_of(dir.path()), |_| false);
    let media: Arc<dyn Media> = directory(copy.path());
    let report = repair(&media, &(RealEnv::new() as Arc<dyn Env>), &small()).unwrap();
    let said = report.problems.iter().filter(|problem| problem.contains("was ingested")).count();
    assert!(report.manifest_lost && (1..report.tables_kept).contains(&said), "all but the first: {report:?}");
}

#[test]
fn what_is_found_out_of_place_is_counted_and_said() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(directory(dir.path())).unwrap();
    let value = |n: u32| n.to_be_bytes().repeat(250);
    (0..60u32).for_each(|n| store.put(&n.to_be_bytes(), &value(n)).unwrap());
    store.compact().unwrap();
    store.close().unwrap();
    let file = files_of(dir.path()).into_iter().find(|file| ends_with(file, ".table")).unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes.copy_within(5 * 4096..6 * 4096, 2 * 4096);
    std::fs::write(&file, bytes).unwrap();
    let report = mend(&(directory(dir.path()) as Arc<dyn Media>)).unwrap();
    let said =
        format!("{} entries are left out that were found in values, or out of order", report.entries_lost);
    assert!(report.problems.iter().any(|problem| problem.contains(&said)), "{report:?}");
    assert!((1..9).contains(&report.entries_lost), "{report:?}");
    let found = forward(open(directory(dir.path())).unwrap().iter(Bounds::all()).unwrap()).unwrap();
    assert_eq!(found.len() as u64, 60 - report.entries_lost);
    assert!((0..60u32).all(|n| found.get(&n.to_be_bytes()[..]).is_none_or(|found| *found == value(n))));
}
