//! Rot: each sector of a small log store flipped in turn gives the right answer or a named error, never wrong data.

use super::harness::{open_with, small, walked};
use crate::harmed::{copy_of, copy_with, files_of};
use crate::harness::{Model, directory, flash};
use std::path::Path;
use std::sync::Arc;
use vellum_base::{BlockAddr, Env, Flash, Kind, RealEnv, Result};
use vellum_kv::log::{Options, Store};
use vellum_kv::{Batch, Durability, FlashMedia, Map, Reuse};

fn options() -> Options {
    Options { reuse: Reuse::Relink.into(), garbage_share: 0.9, ..small() }
}

pub(crate) fn open(dir: &Path) -> Result<Store> {
    open_with(directory(dir), options())
}

/// A store with segments, collected ones among them, and a log, closed.
pub(crate) fn fill(store: Store) -> Model {
    let mut model = Model::new();
    for i in 0..900u32 {
        let (key, value) =
            (format!("key{:04}", i * 7 % 500).into_bytes(), vec![i as u8; 40 + i as usize % 300]);
        let mut batch = Batch::new();
        batch.put(&key, &value).unwrap();
        store.write(&batch, Durability::Buffered).unwrap();
        model.insert(key, value);
        if i % 9 == 0 {
            let gone = format!("key{:04}", i % 500).into_bytes();
            store.delete(&gone).unwrap();
            model.remove(&gone);
        }
        if i == 600 {
            store.compact().unwrap();
            store.sync().unwrap();
        }
    }
    let stat = store.stat();
    assert!(stat.segments > 2 && stat.open_bytes > 1000 && stat.since_opened.compactions() > 0, "{stat:?}");
    store.close().unwrap();
    model
}

pub(crate) fn read(store: &Store, model: &Model, context: &str) -> Result<()> {
    assert!(walked(store)? == *model, "{context}: wrong data met");
    for i in 0..500 {
        let key = format!("key{i:04}").into_bytes();
        assert_eq!(store.get(&key)?, model.get(&key).cloned(), "{context}: {key:?}");
    }
    Ok(())
}

/// Opens and reads a store in which something was flipped, writes to it and collects it. True if it noticed.
pub(crate) fn noticed(open: impl FnOnce() -> Result<Store>, model: &Model, context: &str) -> bool {
    let named = |e: vellum_base::Error| {
        // Where the magic of the NVRAM is gone, no store is to be seen.
        let named = e.kind() == Kind::Corrupt || e.to_string().contains("format it first");
        assert!(named, "{context}: {e}");
        true
    };
    let store = match open() {
        Ok(store) => store,
        Err(e) => return named(e),
    };
    let result = read(&store, model, context);
    let verified = store.verify().unwrap_or_else(|e| panic!("{context}: {e}"));
    assert!(result.is_ok() || !verified.problems.is_empty(), "{context}: verify saw nothing");
    let mut model = model.clone();
    let worked = result.and_then(|()| {
        store.put(b"key0000", b"new")?;
        model.insert(b"key0000".to_vec(), b"new".to_vec());
        store.compact()?;
        read(&store, &model, context)
    });
    worked.map_or_else(named, |()| !verified.problems.is_empty())
}

#[test]
fn each_sector_of_each_file_of_a_log_store_flipped_in_turn() {
    let dir = tempfile::tempdir().unwrap();
    let model = fill(open(dir.path()).unwrap());
    let all = files_of(dir.path());
    let places = [(37, 0), (0, 7), (511, 3), (4, 5), (260, 1)];
    let (mut seen, mut sectors) = (0, 0);
    for file in &all {
        let good = std::fs::read(file).unwrap();
        for (sector, (offset, bit)) in (0..good.len().div_ceil(512)).zip(places.into_iter().cycle()) {
            let at = (sector * 512 + offset).min(good.len() - 1);
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            let copy = copy_with(&all, file, Some(&bad));
            let context = format!("bit {bit} of byte {at} of {}", file.display());
            seen += noticed(|| open(copy.path()), &model, &context) as u32;
            sectors += 1;
        }
    }
    assert!(sectors > 250 && seen > sectors / 2, "{seen} of {sectors} noticed");
}

#[test]
fn each_file_of_a_log_store_cut_short_or_missing() {
    let dir = tempfile::tempdir().unwrap();
    let model = fill(open(dir.path()).unwrap());
    let all = files_of(dir.path());
    let mut seen = 0;
    for file in &all {
        let copy = copy_of(&all, Some(file));
        let context = format!("without {}", file.display());
        assert!(noticed(|| open(copy.path()), &model, &context), "{context}: not noticed");
        let good = std::fs::read(file).unwrap();
        for step in 0..12 {
            let cut = good.len() * step / 12;
            let copy = copy_with(&all, file, Some(&good[..cut]));
            let context = format!("{} cut at {cut}", file.display());
            seen += noticed(|| open(copy.path()), &model, &context) as u32;
        }
    }
    assert!(seen > 40, "only {seen} noticed");
}

#[test]
fn each_page_of_a_log_store_on_flash_flipped_in_turn() {
    let whole = flash(3);
    let env: Arc<dyn Env> = RealEnv::new();
    let open = |flash| Store::open(FlashMedia::open(flash, env.clone())?, env.clone(), options());
    let model = fill(open(whole.clone()).unwrap());
    let (mut seen, mut pages) = (0, 0);
    for block in 0..whole.geometry().blocks() {
        for page in 0..whole.report(BlockAddr(block)).pages_written {
            let fork = Arc::new(whole.fork().unwrap());
            let at = BlockAddr(block).page(page);
            fork.flip_bit(at, [5, 8 * 700 + 3, 8 * 4000][page as usize % 3]).unwrap();
            seen += noticed(|| open(fork), &model, &format!("a bit of {at}")) as u32;
            pages += 1;
        }
    }
    // How many there are depends on how far collecting came.
    assert!(pages > 20 && seen > pages / 4, "{seen} of {pages} noticed");
}

/// Index and segment meet the same record: it is one problem.
#[test]
fn a_damaged_record_is_named_once() {
    let dir = tempfile::tempdir().unwrap();
    fill(open(dir.path()).unwrap());
    let segments =
        files_of(dir.path()).into_iter().filter(|file| file.extension().is_some_and(|e| e == "table"));
    let mut damaged = 0;
    for file in segments {
        let copy = copy_of(&files_of(dir.path()), Some(&file));
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[700] ^= 8;
        std::fs::write(copy.path().join(file.file_name().unwrap()), bytes).unwrap();
        let problems = open(copy.path()).unwrap().verify().unwrap().problems;
        let once: std::collections::BTreeSet<&String> = problems.iter().collect();
        assert!(once.len() == problems.len(), "{problems:?}");
        damaged += problems.iter().any(|problem| problem.contains("does not check out")) as u32;
    }
    assert!(damaged > 1);
}

/// A hint that does not check out is made anew from the records, and no answer changes.
#[test]
fn a_store_without_its_hints_is_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let model = fill(open(dir.path()).unwrap());
    let segments =
        files_of(dir.path()).into_iter().filter(|file| file.extension().is_some_and(|e| e == "table"));
    for (number, file) in segments.enumerate() {
        let mut bytes = std::fs::read(&file).unwrap();
        let units = bytes.len() / 4096;
        // Of some the foot, of others the hint.
        let at = (units - 1 - number % 2) * 4096 + 20;
        bytes[at] ^= 8;
        std::fs::write(&file, bytes).unwrap();
    }
    let store = open(dir.path()).unwrap();
    read(&store, &model, "without hints").unwrap();
    assert!(store.verify().unwrap().problems.len() > 1);
    store.compact().unwrap();
    read(&store, &model, "collected").unwrap();
}
