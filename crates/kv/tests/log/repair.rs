//! Log stores that were damaged in every place in turn, repaired: they open, they verify, nothing in them is wrong, and
//! what the damage did not hit is there.

use super::harness::{assert_same, of_seed, open_with, small, walked};
use super::rot::{fill, open};
use crate::harmed::{
    bereft, copy_of, copy_of_open, copy_with, each_flipped, each_spoiled, ends_with, files_of, is_manifest,
};
use crate::harness::{Model, directory, flash, repair_log};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_base::{BlockAddr, Env, Flash, Kind, RealEnv, Result};
use vellum_kv::log::{Options, Store};
use vellum_kv::{Batch, Durability, FlashMedia, Map, Media, Repaired, Reuse};

pub(crate) fn mend(media: &Arc<dyn Media>) -> Result<Repaired> {
    let env: Arc<dyn Env> = RealEnv::new();
    repair_log(media, &env, &small())
}

fn mend_in(dir: &Path) -> Repaired {
    mend(&(directory(dir) as Arc<dyn Media>)).unwrap()
}

pub(crate) fn once_was(key: &[u8], value: &[u8]) -> bool {
    let is_of = |i: u32| format!("key{:04}", i * 7 % 500).as_bytes() == key;
    (0..900).any(|i| is_of(i) && value == vec![i as u8; 40 + i as usize % 300])
}

/// Every value is one that its key once had. Returns how many keys differ from the newest state.
fn differences(store: &Store, model: &Model, context: &str) -> usize {
    let found = walked(store).unwrap_or_else(|e| panic!("{context}: {e}"));
    for (key, value) in &found {
        assert!(once_was(key, value), "{context}: a value that {key:?} never had");
    }
    let changed = model.iter().filter(|(key, value)| found.get(*key) != Some(*value)).count();
    changed + found.keys().filter(|key| !model.contains_key(*key)).count()
}

/// Repairs what is damaged, if it is noticed at all. Returns how many keys differ afterwards.
fn repaired(media: impl Fn() -> Result<Arc<dyn Media>>, model: &Model, context: &str) -> Option<usize> {
    let whole = |store: &Store| store.verify().is_ok_and(|verified| verified.problems.is_empty());
    let open = || open_with(media()?, small());
    // Else a segment that is damaged might be collected meanwhile.
    let look = || open_with(media()?, Options { read_only: true, ..small() });
    media().ok()?;
    if look().is_ok_and(|store| whole(&store) && walked(&store).is_ok_and(|found| found == *model)) {
        return None;
    }
    let report = mend(&media().unwrap()).unwrap_or_else(|e| panic!("{context}: {e}"));
    assert!(!report.problems.is_empty(), "{context}: {report:?}");
    let store = open().unwrap_or_else(|e| panic!("{context}: {e}\n{report:?}"));
    let verified = store.verify().unwrap();
    assert!(verified.problems.is_empty(), "{context}: {verified:?}");
    let differ = differences(&store, model, context);
    store.put(b"key0000", b"new").unwrap();
    store.compact().unwrap();
    assert_eq!(store.get(b"key0000").unwrap().as_deref(), Some(&b"new"[..]), "{context}");
    store.close().unwrap();
    let again = mend(&media().unwrap()).unwrap();
    assert!(again.problems.is_empty(), "{context}: {again:?}");
    Some(differ)
}

#[test]
fn sectors_of_each_file_of_a_log_store_flipped_and_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let model = fill(open(dir.path()).unwrap());
    let mut count = 0;
    each_flipped(dir.path(), 7, |file, copy, context| {
        if let Some(differ) = repaired(|| Ok(directory(copy)), &model, context) {
            assert!(differ <= usize::from(!is_manifest(file)), "{context}: {differ} keys differ");
            count += 1;
        }
    });
    assert!(count > 30, "only {count} damaged");
}

#[test]
fn each_file_of_a_log_store_missing_cut_or_overwritten_and_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let model = fill(open(dir.path()).unwrap());
    each_spoiled(dir.path(), |file, copy, context| {
        let differ = repaired(|| Ok(directory(copy)), &model, context).unwrap_or(0);
        assert!(!is_manifest(file) || differ == 0, "{context}: {differ} lost, though every segment is whole");
        assert!(differ < model.len(), "{context}: nothing is left");
    });
}

#[test]
fn pages_of_a_log_store_on_flash_flipped_and_repaired() {
    let whole = flash(3);
    let env: Arc<dyn Env> = RealEnv::new();
    let media = FlashMedia::open(whole.clone(), env.clone()).unwrap();
    let model = fill(open_with(media, small()).unwrap());
    let mut count = 0;
    for block in 0..whole.geometry().blocks() {
        for page in 0..whole.report(BlockAddr(block)).pages_written {
            let fork = Arc::new(whole.fork().unwrap());
            fork.flip_bit(BlockAddr(block).page(page), 8 * 700 + 3).unwrap();
            let context = format!("page {page} of block {block}");
            let media = || Ok(FlashMedia::open(fork.clone(), RealEnv::new())? as Arc<dyn Media>);
            let differ = repaired(media, &model, &context);
            // A page that cannot be read has some records.
            assert!(differ.is_none_or(|differ| differ < 100), "{context}: {differ:?}");
            count += differ.is_some() as u32;
        }
    }
    assert!(count > 5, "only {count} damaged");
}

fn tables(dir: &Path) -> Vec<PathBuf> {
    files_of(dir).into_iter().filter(|file| ends_with(file, ".table")).collect()
}

/// Segments say their order, also those that were collected into others later than newer ones were written.
#[test]
fn without_any_manifest_all_is_as_it_was() {
    let mut rng = SmallRng::seed_from_u64(5);
    for seed in 0..6 {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { garbage_share: 0.9, ..of_seed(seed) };
        let (store, mut model) = (open_with(directory(dir.path()), options).unwrap(), Model::new());
        for step in 0..3000u32 {
            let key = rng.random_range(0..200u32).to_be_bytes().to_vec();
            if rng.random_ratio(1, 4) {
                store.delete(&key).unwrap();
                model.remove(&key);
            } else {
                let value = vec![step as u8; rng.random_range(0..600)];
                store.put(&key, &value).unwrap();
                model.insert(key, value);
            }
            // Little is written behind the last: nothing is collected while the files are copied.
            if step % 700 == 699 || step == 2950 {
                store.compact().unwrap();
            }
        }
        assert!(store.stat().since_opened.compactions() > 1);
        store.sync().unwrap();
        let killed = bereft(dir.path());
        store.close().unwrap();
        for (copy, how) in [(killed, "killed"), (bereft(dir.path()), "closed")] {
            let report = mend_in(copy.path());
            assert!(
                report.manifest_lost && report.tables_lost == 0 && report.entries_lost == 0,
                "{report:?}"
            );
            let again = open(copy.path()).unwrap();
            assert_same(&again, &model, &format!("seed {seed}, {how}: {report:?}"));
            assert!(again.verify().unwrap().problems.is_empty());
        }
    }
}

/// A small store has no segment yet, and is taken for no other.
#[test]
fn a_store_of_logs_alone_is_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    (0..20u8).for_each(|n| store.put(&[n], &[n; 30]).unwrap());
    store.close().unwrap();
    let all = files_of(dir.path());
    let manifest = all.iter().find(|file| ends_with(file, ".manifest")).unwrap();
    let mut bad = std::fs::read(manifest).unwrap();
    (40..bad.len()).step_by(8).for_each(|at| bad[at] ^= 1);
    let damaged = copy_with(&all, manifest, Some(&bad));
    for copy in [damaged, copy_of(&all, Some(manifest)), bereft(dir.path())] {
        let media: Arc<dyn Media> = directory(copy.path());
        let env: Arc<dyn Env> = RealEnv::new();
        let other = vellum_kv::repair(&media, &env, &crate::harness::small()).unwrap_err();
        assert_eq!(other.kind(), Kind::Unsupported, "{other}");
        let report = mend(&media).unwrap();
        assert_eq!((report.batches, report.manifest_lost), (20, true), "{report:?}");
        drop(media);
        assert_eq!(walked(&open(copy.path()).unwrap()).unwrap().len(), 20);
    }
}

/// The last edit of a manifest is taken for torn if it is damaged: it said that a log is a segment now.
#[test]
fn a_segment_that_the_last_edit_told_of_is_not_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
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
    assert_eq!(open(copy.path()).map(drop).unwrap_err().kind(), Kind::Corrupt);
    let report = mend_in(copy.path());
    assert!(report.problems.iter().any(|problem| problem.contains("lost its end")), "{report:?}");
    assert_eq!(walked(&open(copy.path()).unwrap()).unwrap().len(), 110, "{report:?}");
}

/// Outputs of a collecting that was under way say less than what they were made of, which is all there.
#[test]
fn what_was_being_collected_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    // Collected when asked to.
    let options = Options { reuse: Reuse::Off.into(), garbage_share: 2.0, ..small() };
    let store = open_with(directory(dir.path()), options.clone()).unwrap();
    (0..60u8).for_each(|n| store.put(&[n], &[n; 900]).unwrap());
    store.flush().unwrap();
    // A delete, and a put that it must not hide.
    (0..60u8).for_each(|n| store.delete(&[n]).unwrap());
    (0..60u8).for_each(|n| store.put(&[n], &[n + 100; 900]).unwrap());
    (60..70u8).for_each(|n| store.put(&[n], &[n; 900]).unwrap());
    store.flush().unwrap();
    let before = bereft(dir.path());
    let model = walked(&store).unwrap();
    store.compact().unwrap();
    let left = tables(before.path());
    let made: Vec<PathBuf> = tables(dir.path())
        .into_iter()
        .filter(|file| !left.iter().any(|old| old.file_name() == file.file_name()))
        .collect();
    assert!(!made.is_empty());
    for file in made {
        std::fs::copy(&file, before.path().join(file.file_name().unwrap())).unwrap();
        let again = copy_of(&files_of(before.path()), None);
        let report = mend_in(again.path());
        assert!(report.problems.iter().any(|problem| problem.contains("is left out")), "{report:?}");
        assert_same(
            &open_with(directory(again.path()), options.clone()).unwrap(),
            &model,
            &format!("{report:?}"),
        );
    }
    store.close().unwrap();
}

/// A table that cannot be opened now is not given up, and nothing is left of the attempt.
#[test]
fn what_cannot_be_read_now_is_not_given_up() {
    let dir = tempfile::tempdir().unwrap();
    fill(open(dir.path()).unwrap());
    let all = tables(dir.path());
    let mut bytes = std::fs::read(&all[0]).unwrap();
    bytes[700] ^= 1;
    std::fs::write(&all[0], bytes).unwrap();
    // Of a directory with the name of a table no handle is to be had that reads.
    let last = all.last().unwrap();
    let kept = std::fs::read(last).unwrap();
    std::fs::remove_file(last).unwrap();
    std::fs::create_dir(last).unwrap();
    let before = tables(dir.path());
    let error = mend(&(directory(dir.path()) as Arc<dyn Media>)).unwrap_err();
    assert_ne!(error.kind(), Kind::Corrupt, "{error}");
    assert_eq!(tables(dir.path()), before);
    std::fs::remove_dir(last).unwrap();
    std::fs::write(last, kept).unwrap();
    let report = mend_in(dir.path());
    assert_eq!((report.tables_rewritten, report.tables_lost), (1, 0), "{report:?}");
}

/// Segments that were collected but not all erased when the power went.
#[test]
fn what_was_collected_does_not_bring_deleted_keys_back() {
    let dir = tempfile::tempdir().unwrap();
    // Collected when asked to, all together.
    let options = Options { garbage_share: 2.0, collect_max: 64, ..small() };
    let store = open_with(directory(dir.path()), options).unwrap();
    let key = |n: u32| n.to_be_bytes();
    (0..400).for_each(|n| store.put(&key(n), &[1; 300]).unwrap());
    store.flush().unwrap();
    (0..200).for_each(|n| store.delete(&key(n)).unwrap());
    (200..300).for_each(|n| store.put(&key(n), &[2; 300]).unwrap());
    let mut rng = SmallRng::seed_from_u64(9);
    let mut model: Model =
        (200..400u32).map(|n| (key(n).to_vec(), vec![1 + u8::from(n < 300); 300])).collect();
    for stage in 0..3u32 {
        (300 + stage * 10..305 + stage * 10).for_each(|n| store.delete(&key(n)).unwrap());
        model.retain(|k, _| !(300 + stage * 10..305 + stage * 10).any(|n| key(n)[..] == k[..]));
        // All are collected together, as the last has garbage, too.
        (0..9).for_each(|_| store.put(b"again", &[3; 300]).unwrap());
        model.insert(b"again".to_vec(), vec![3; 300]);
        store.flush().unwrap();
        let before = bereft(dir.path());
        store.compact().unwrap();
        assert_same(&store, &model, "before");
        let (after, inputs) = (tables(dir.path()), tables(before.path()));
        let is_gone = |old: &PathBuf| !after.iter().any(|new| new.file_name() == old.file_name());
        let inputs: Vec<PathBuf> = inputs.into_iter().filter(is_gone).collect();
        assert!(inputs.len() > 1, "little was collected");
        for round in 0..12 {
            let copy = bereft(dir.path());
            for old in inputs.iter().filter(|_| round == 0 || rng.random()) {
                std::fs::copy(old, copy.path().join(old.file_name().unwrap())).unwrap();
            }
            let report = mend_in(copy.path());
            let again = open(copy.path()).unwrap();
            assert_same(&again, &model, &format!("stage {stage}, round {round}: {report:?}"));
        }
    }
    store.close().unwrap();
}

/// A power cut may leave some of the logs that became segments: they are not replayed on top of these.
#[test]
fn logs_that_a_repair_took_are_not_taken_again() {
    let dir = tempfile::tempdir().unwrap();
    for life in 0..3u8 {
        let store = open(dir.path()).unwrap();
        store.put(b"key", &[life]).unwrap();
        store.close().unwrap();
    }
    let logs: Vec<PathBuf> =
        files_of(dir.path()).into_iter().filter(|file| ends_with(file, ".log")).collect();
    assert!(logs.len() > 1, "{logs:?}");
    for left in 1..=logs.len() {
        let copy = bereft(dir.path());
        mend_in(copy.path());
        let again = bereft(copy.path());
        for log in &logs[..left] {
            std::fs::copy(log, again.path().join(log.file_name().unwrap())).unwrap();
        }
        let report = mend_in(again.path());
        let found = open(again.path()).unwrap().get(b"key").unwrap();
        assert_eq!(found.as_deref(), Some(&[2][..]), "{left} logs left: {report:?}");
    }
}

#[test]
fn what_a_damaged_log_of_a_log_store_lost_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    store.put(b"before", b"1").unwrap();
    let mut batch = Batch::new();
    [&b"lost-a"[..], b"lost-b", b"lost-c"].iter().for_each(|key| batch.put(key, b"2").unwrap());
    store.write(&batch, Durability::Sync).unwrap();
    store.put(b"after", b"3").unwrap();
    store.close().unwrap();
    let log = files_of(dir.path()).into_iter().find(|file| ends_with(file, ".log")).unwrap();
    let mut bytes = std::fs::read(&log).unwrap();
    let at = bytes.windows(6).position(|six| six == b"lost-b").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    let report = mend_in(dir.path());
    assert_eq!((report.entries_lost, report.logs_damaged, report.batches), (3, 1, 2), "{report:?}");
    let store = open(dir.path()).unwrap();
    assert_eq!(walked(&store).unwrap().len(), 2);
}

/// Nothing says the seed any more: twins that were told by it mean nothing, and hashes that meet must hide nothing.
#[test]
fn a_store_without_manifest_and_feet_keeps_its_records() {
    let dir = tempfile::tempdir().unwrap();
    let model = fill(open(dir.path()).unwrap());
    let copy = bereft(dir.path());
    for table in tables(copy.path()) {
        let mut bytes = std::fs::read(&table).unwrap();
        let foot = bytes.len() - 4096;
        bytes[foot + 20] ^= 1;
        std::fs::write(&table, bytes).unwrap();
    }
    let report = mend_in(copy.path());
    assert!(report.tables_kept == 0 && report.tables_rewritten > 1 && report.batches > 0, "{report:?}");
    let store = open(copy.path()).unwrap();
    assert!(store.verify().unwrap().problems.is_empty());
    // Which is newer is not known of all, but all keys are there.
    differences(&store, &model, "without feet");
    let found = walked(&store).unwrap();
    assert!(model.keys().all(|key| found.contains_key(key)), "{report:?}");
}

/// Nothing of another store is taken, and nothing is erased that may be all that somebody has of it.
#[test]
fn segments_of_another_store_are_refused() {
    let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let model = fill(open(own.path()).unwrap());
    let store = open(other.path()).unwrap();
    store.put(b"of", b"another").unwrap();
    store.flush().unwrap();
    store.close().unwrap();
    let (to, from) = (&tables(own.path())[0], &tables(other.path())[0]);
    let kept = std::fs::read(to).unwrap();
    std::fs::copy(from, to).unwrap();
    let before = tables(own.path());
    let error = mend(&(directory(own.path()) as Arc<dyn Media>)).unwrap_err();
    assert!(error.kind() == Kind::Unsupported && error.to_string().contains("of another store"), "{error}");
    assert_eq!(tables(own.path()), before);
    std::fs::write(to, kept).unwrap();
    assert!(mend_in(own.path()).problems.is_empty());
    assert_eq!(differences(&open(own.path()).unwrap(), &model, "put back"), 0);
}

#[test]
fn nothing_of_a_log_store_is_repaired_where_nothing_is_wrong_or_nothing_is() {
    let dir = tempfile::tempdir().unwrap();
    let media: Arc<dyn Media> = directory(dir.path());
    assert_eq!(mend(&media).unwrap_err().kind(), Kind::Invalid);
    drop(media);
    fill(open(dir.path()).unwrap());
    let read = || -> Vec<_> {
        files_of(dir.path()).into_iter().map(|file| (std::fs::read(&file).unwrap(), file)).collect()
    };
    let before = read();
    let report = mend_in(dir.path());
    assert!(report.problems.is_empty() && report.tables_kept > 1, "{report:?}");
    assert!(before == read());
}
