//! Level 0 that points into logs (docs/decisions/0026): what is spared, what is kept and for how long, and what is said
//! when a log is gone.

use crate::files;
use crate::harmed::copy_of_open;
use crate::harness::{Model, assert_same, directory, flash, of_seed, open, repair, small};
use crate::history::Style;
use crate::lives::{end_at_every_call, life_in_directory};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_base::{Avoided, Env, Kind, Nanos, RealEnv};
use vellum_kv::media::AreaKind;
use vellum_kv::{Bounds, Directory, DirectoryOptions, FlashMedia, Map, Media, Options, Store};

pub(crate) fn key(i: u32) -> Vec<u8> {
    format!("key{:05}", i * 7919 % 1000).into_bytes()
}

fn put(store: &Store, model: &mut Model, range: std::ops::Range<u32>, byte: u8) {
    for i in range {
        // One in five is too small for a pointer.
        let value = vec![byte; if i % 5 == 0 { 20 } else { 200 }];
        store.put(&key(i), &value).unwrap();
        model.insert(key(i), value);
    }
}

/// A store with three tables in level 0, all of which point, and one in level 1.
pub(crate) fn pointing(path: &Path) -> (Store, Model) {
    let store = open(directory(path)).unwrap();
    let mut model = Model::new();
    put(&store, &mut model, 0..200, 1);
    store.compact().unwrap();
    for round in 2..5 {
        put(&store, &mut model, u32::from(round) * 50..u32::from(round) * 50 + 200, round);
        store.delete(&key(u32::from(round))).unwrap();
        model.remove(&key(u32::from(round)));
        store.flush().unwrap();
    }
    let stat = store.stat();
    assert!(stat.levels[0].tables == 3 && stat.kept_logs == 3, "{stat:?}");
    assert_eq!(stat.pointed_bytes, 3 * 160 * 200);
    assert_eq!(stat.ledger.avoided_by(Avoided::InLog), stat.pointed_bytes);
    assert!(stat.kept_log_bytes > stat.pointed_bytes && stat.levels[0].bytes < stat.pointed_bytes);
    (store, model)
}

pub(crate) fn logs(path: &Path) -> Vec<PathBuf> {
    let mut all: Vec<_> = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.retain(|file| file.extension().is_some_and(|ending| ending == "log"));
    all.sort();
    all
}

#[test]
fn logs_stay_until_level_0_is_merged_and_nobody_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let (store, model) = pointing(dir.path());
    assert_same(&store, &model, "pointing");
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    store.close().unwrap();
    let store = open(directory(dir.path())).unwrap();
    assert_same(&store, &model, "opened again");
    let mut iter = store.iter(Bounds::all()).unwrap();
    iter.seek_to_first().unwrap();
    store.compact().unwrap();
    assert_eq!((store.stat().kept_logs, store.stat().pointed_bytes), (0, 0));
    assert!(logs(dir.path()).len() > 3, "an iterator reads from them");
    let mut found = Model::new();
    while iter.is_valid() {
        found.insert(iter.key().to_vec(), iter.value().to_vec());
        iter.next().unwrap();
    }
    assert!(found == model);
    drop(iter);
    assert_same(&store, &model, "merged");
    store.close().unwrap();
    assert!(logs(dir.path()).len() <= 1, "{:?}", logs(dir.path()));
}

#[test]
fn nothing_points_where_that_is_turned_off_or_data_comes_in_order() {
    for level0_in_log in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(directory(dir.path()), RealEnv::new(), Options { level0_in_log, ..small() });
        let store = store.unwrap();
        for i in 0..2000u32 {
            let key = if level0_in_log { i.to_be_bytes().to_vec() } else { key(i) };
            store.put(&key, &[7; 200]).unwrap();
        }
        store.flush().unwrap();
        let stat = store.stat();
        assert!(stat.since_opened.flushes() > 3 && stat.kept_logs == 0, "{stat:?}");
        assert_eq!(stat.ledger.avoided_by(Avoided::InLog), 0);
        store.close().unwrap();
    }
}

/// A memtable in which little is left of what was written keeps no log.
#[test]
fn a_log_that_is_mostly_garbage_is_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (store, mut model) = pointing(dir.path());
    store.close().unwrap();
    // Else the fourth table of level 0 has all of them merged, sooner or later.
    let patient = Options { level0_compact: 8, ..small() };
    let store = Store::open(directory(dir.path()), RealEnv::new(), patient).unwrap();
    (0..4).for_each(|round| put(&store, &mut model, 0..40, 10 + round));
    store.flush().unwrap();
    assert_eq!(store.stat().kept_logs, 3);
    assert_same(&store, &model, "not kept");
}

#[test]
fn where_pointing_is_turned_off_later_nothing_points_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let (store, model) = pointing(dir.path());
    store.close().unwrap();
    let off = Options { level0_in_log: false, ..small() };
    let store = Store::open(directory(dir.path()), RealEnv::new(), off).unwrap();
    store.compact().unwrap();
    assert_eq!(store.stat().kept_logs, 0);
    store.close().unwrap();
    assert!(logs(dir.path()).len() <= 1, "{:?}", logs(dir.path()));
    assert_same(&open(directory(dir.path())).unwrap(), &model, "merged");
}

/// Each would keep its log, for a value.
#[test]
fn lives_too_short_to_fill_a_memtable_do_not_pile_up_logs() {
    let (dir, mut model) = (tempfile::tempdir().unwrap(), Model::new());
    for life in 0..300u32 {
        let store = Store::open(directory(dir.path()), RealEnv::new(), Options::default()).unwrap();
        let (key, value) = (vec![life as u8 % 100], vec![life as u8; 3000]);
        store.put(&key, &value).unwrap();
        model.insert(key, value);
        store.close().unwrap();
        assert!(logs(dir.path()).len() <= 140, "life {life}: {} logs", logs(dir.path()).len());
    }
    let store = Store::open(directory(dir.path()), RealEnv::new(), Options::default()).unwrap();
    assert_same(&store, &model, "after 300 lives");
    store.flush().unwrap();
    assert_eq!((logs(dir.path()).len(), store.stat().kept_logs), (1, 0));
}

#[test]
fn a_log_that_is_missing_or_short_is_named_and_its_values_are_told_of() {
    for cut in [None, Some(3000)] {
        let dir = tempfile::tempdir().unwrap();
        let (store, model) = pointing(dir.path());
        store.close().unwrap();
        let log = &logs(dir.path())[0];
        let bytes = std::fs::read(log).unwrap();
        std::fs::remove_file(log).unwrap();
        if let Some(cut) = cut {
            std::fs::write(log, &bytes[..cut]).unwrap();
        }
        let error = open(directory(dir.path())).map(drop).unwrap_err();
        let number: u64 = log.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        let named = error.to_string().contains("table ") && error.to_string().contains(&number.to_string());
        assert!(error.kind() == Kind::Corrupt && named, "{error}");
        let media: Arc<dyn Media> = directory(dir.path());
        let report = repair(&media, &(RealEnv::new() as Arc<_>), &small()).unwrap();
        assert!(report.problems.iter().any(|what| what.contains("values are lost")), "{report:?}");
        assert!(report.entries_lost > 50 && report.tables_kept == 3, "{report:?}");
        let store = open(media).unwrap();
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
        // What the other two flushes hold is there, and nothing is what nobody wrote.
        let whole = model.iter().filter(|(_, value)| value[0] > 2);
        whole.for_each(|(key, value)| assert_eq!(store.get(key).unwrap().as_ref(), Some(value)));
        let short = bytes.len() as u64 - cut.unwrap_or(0) as u64;
        assert!(report.entries_lost * 20 < short, "{report:?}");
    }
}

#[test]
fn a_table_that_points_is_not_moved_down_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (store, mut model) = (open(directory(dir.path())).unwrap(), Model::new());
    put(&store, &mut model, 0..200, 1);
    store.compact().unwrap();
    put(&store, &mut model, 100..300, 2);
    store.flush().unwrap();
    assert_eq!(store.stat().kept_logs, 1);
    store.close().unwrap();
    // What it overlaps with leaves level 1.
    let env: Arc<dyn Env> = RealEnv::new();
    let narrow = Options { level1_bytes: 1, ..small() };
    let store = Store::open(directory(dir.path()), env.clone(), narrow).unwrap();
    while store.stat().levels[1].tables > 0 {
        env.sleep_until(env.now() + Nanos::from_ms(1));
    }
    assert_eq!(store.stat().kept_logs, 1);
    store.compact().unwrap();
    assert_eq!(store.stat().kept_logs, 0);
    store.close().unwrap();
    assert_same(&open(directory(dir.path())).unwrap(), &model, "merged");
}

/// Kept logs are not replayed over what is newer.
#[test]
fn without_a_manifest_values_come_from_logs_and_nothing_old_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let (store, mut model) = pointing(dir.path());
    store.close().unwrap();
    let lazy = Options { level0_compact: 12, ..small() };
    let store = Store::open(directory(dir.path()), RealEnv::new(), lazy).unwrap();
    // Newer, and in a table that does not point.
    for i in 0..300 {
        store.put(&key(i), &[9; 20]).unwrap();
        model.insert(key(i), vec![9; 20]);
    }
    store.flush().unwrap();
    assert_eq!(store.stat().kept_logs, 3);
    put(&store, &mut model, 900..1000, 10);
    store.close().unwrap();
    let files = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    for file in files.filter(|file| file.extension().is_some_and(|ending| ending == "manifest")) {
        std::fs::remove_file(file).unwrap();
    }
    let media: Arc<dyn Media> = directory(dir.path());
    let report = repair(&media, &(RealEnv::new() as Arc<_>), &small()).unwrap();
    assert!(report.manifest_lost && report.entries_lost == 0, "{report:?}");
    let store = open(media).unwrap();
    assert_same(&store, &model, "without a manifest");
    assert_eq!(store.stat().kept_logs, 0);
}

#[test]
fn checkpoints_and_readers_have_the_logs() {
    let dir = tempfile::tempdir().unwrap();
    let (store, model) = pointing(dir.path());
    let copies = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let linked: Arc<dyn Media> = directory(copies[0].path());
    let on_flash: Arc<dyn Media> = FlashMedia::open(flash(8), RealEnv::new()).unwrap();
    let in_memory = files::in_memory();
    for (media, kept) in [(&linked, 3), (&on_flash, 0), (&in_memory, 3)] {
        store.checkpoint(media).unwrap();
        let copy = open(media.clone()).unwrap();
        assert_eq!(copy.stat().kept_logs, kept);
        assert_same(&copy, &model, "a copy");
        assert_eq!(copy.verify().unwrap().problems, Vec::<String>::new());
        copy.put(b"its own", &[1; 99]).unwrap();
        copy.compact().unwrap();
        copy.close().unwrap();
    }
    assert_same(&store, &model, "copied");
    store.close().unwrap();
    let media = Directory::open_read_only(dir.path(), DirectoryOptions { table_bytes: 256 << 10 }).unwrap();
    let reader = Store::open(media, RealEnv::new(), Options { read_only: true, ..small() }).unwrap();
    assert_same(&reader, &model, "read only");
}

/// Logs that nothing points into any more are there until nobody reads the tables that did: they are not replayed, and
/// do not count as parts of the copy's own log.
#[test]
fn a_copy_opens_while_logs_outlive_the_tables_that_pointed_into_them() {
    let dir = tempfile::tempdir().unwrap();
    let (store, model) = pointing(dir.path());
    for puts in [false, true] {
        let mut model = model.clone();
        let copy = tempfile::tempdir().unwrap();
        let media: Arc<dyn Media> = directory(copy.path());
        store.checkpoint(&media).unwrap();
        let copied = open(media).unwrap();
        let reader = copied.iter(Bounds::all()).unwrap();
        copied.compact().unwrap();
        let kept = (copied.stat().kept_logs, logs(copy.path()).len());
        assert_eq!(kept, (0, 4), "three, and the copy's own");
        if puts {
            put(&copied, &mut model, 0..9, 77);
        }
        let killed = copy_of_open(copy.path());
        drop(reader);
        let reopened = open(directory(killed.path())).unwrap();
        assert_same(&reopened, &model, "killed");
        reopened.close().unwrap();
        assert!(logs(killed.path()).len() <= 2, "{:?}", logs(killed.path()));
    }
}

/// The power goes at every call of lives of flushes and merges: what is left opens, and no log stays for nothing.
#[test]
fn a_cut_at_every_call_while_tables_point() {
    const STYLE: Style = Style { keys: 150, value_bytes: 900 };
    let pointed = Cell::new(0);
    end_at_every_call(20..22, 300, |seed, nth| {
        life_in_directory((seed, 450, nth), &STYLE, |media, env| {
            let store = Store::open(media.clone(), env, Options { map_files: false, ..of_seed(seed) })?;
            let stat = store.stat();
            let logs = media.areas()?.into_iter().filter(|area| area.kind == AreaKind::Log).count();
            // Besides what is kept: of the active memtable, of those on their way, and what was just replaced.
            assert!(logs <= stat.kept_logs + 12, "{logs} logs, {} kept", stat.kept_logs);
            pointed.set(pointed.get() + u64::from(stat.kept_logs > 0));
            Ok(store)
        })
    });
    assert!(pointed.get() > 300, "only {} openings found tables that point", pointed.get());
}
