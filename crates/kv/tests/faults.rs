//! Files that cannot be read where they are mapped: the process lives, and everything is right, or an error.

use crate::harness::{Model, directory, scattered, small};
use crate::mounted::Mounted;
use std::path::Path;
use vellum_base::{Env, Kind, Nanos, RealEnv, Result};
use vellum_kv::{Bounds, Directory, DirectoryOptions, Map, Options, Store, reason};

fn key(n: u32) -> Vec<u8> {
    scattered(n).to_vec()
}

/// Whole leaves, values in logs, and some that take several pages.
fn value(n: u32) -> Vec<u8> {
    vec![n as u8 | 1; if n.is_multiple_of(50) { 20_000 } else { 300 }]
}

/// Makes levels 0 and 1, and logs that level 0 points into.
fn fill(store: &Store) -> Model {
    let put = |n: u32| {
        store.put(&key(n), &value(n)).unwrap();
        (key(n), value(n))
    };
    let mut model: Model = (0..1500).map(put).collect();
    store.compact().unwrap();
    model.extend((1000..2000).map(put));
    store.flush().unwrap();
    // A merge of level 0 may have come before.
    for n in (2000..5000).step_by(100).take_while(|_| store.stat().kept_logs == 0) {
        model.extend((n..n + 100).map(put));
        store.flush().unwrap();
    }
    assert!(store.stat().kept_logs > 0 && store.stat().levels[1].tables > 0);
    model
}

/// What is read is right; returns how often it could not be.
fn failures(store: &Store, model: &Model, kind: Kind) -> usize {
    let failed = |result: Result<()>| match result {
        Ok(()) => 0,
        Err(error) => {
            assert_eq!(error.kind(), kind, "{error}");
            1
        }
    };
    let get = |(key, value): (&Vec<u8>, &Vec<u8>)| {
        failed(store.get(key).map(|found| assert_eq!(found.as_ref(), Some(value), "{key:?}")))
    };
    let gets: usize = model.iter().map(get).sum();
    let mut iter = store.iter(Bounds::all()).unwrap();
    let scan = |from: &Vec<u8>| {
        let mut walk = || {
            iter.seek(from)?;
            for (key, value) in model.range(from.clone()..).take(40) {
                assert!(iter.is_valid() && iter.key() == key && iter.value() == value, "from {from:?}");
                iter.next()?;
            }
            Ok(())
        };
        failed(walk())
    };
    gets + model.keys().step_by(20).map(scan).sum::<usize>()
}

fn cut_all(dir: &Path, ending: &str) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().ends_with(ending) {
            // One that was not needed any more may have gone.
            let Ok(file) = std::fs::File::options().write(true).open(path) else { continue };
            // Within a page there would be zeros, and no fault: what was checked just now is believed.
            file.set_len(file.metadata().unwrap().len() / 3 / 4096 * 4096).unwrap();
        }
    }
}

#[test]
fn files_that_are_cut_under_a_store_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let env = RealEnv::new();
    let store = Store::open(directory(dir.path()), env.clone(), small()).unwrap();
    let model = fill(&store);
    // Reads may have level 0 merged, and nobody has read the branches of new tables then, which are cut off.
    loop {
        let before = store.stat().since_opened.compactions();
        assert_eq!(failures(&store, &model, Kind::Corrupt), 0);
        env.sleep_until(env.now() + Nanos::from_ms(50));
        if store.stat().since_opened.compactions() == before {
            break;
        }
    }
    // One that stands in a table when that is cut.
    let mut iter = store.iter(Bounds::all()).unwrap();
    iter.seek_to_first().unwrap();
    cut_all(dir.path(), ".log");
    cut_all(dir.path(), ".table");
    let mut model_left = model.iter();
    while iter.is_valid() {
        let (key, value) = model_left.next().unwrap();
        assert!(iter.key() == key && iter.value() == value);
        if let Err(error) = iter.next() {
            let is_told = error.kind() == Kind::Io && error.is_because(reason::NOT_READ_MAPPED);
            assert!(is_told || error.kind() == Kind::Corrupt, "{error}");
            assert!(!iter.is_valid() && iter.value().is_empty());
            assert_eq!(iter.next().unwrap_err().kind(), Kind::Invalid, "it is nowhere");
            break;
        }
    }
    assert!(model_left.next().is_some());
    let failed = failures(&store, &model, Kind::Corrupt);
    assert!((100..model.len() + 100).contains(&failed), "{failed} reads failed");
    // Merges meet it, too, and the log that is open.
    let error = (0..5000).try_for_each(|n| store.put(&key(n), &value(n))).and_then(|()| store.compact());
    assert_eq!(error.unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn a_device_that_cannot_be_read_is_an_error() {
    let Some(disk) = Mounted::ext4(32 << 20) else { return };
    let path = disk.root.join("store");
    let store = Store::open(directory(&path), RealEnv::new(), small()).unwrap();
    let model = fill(&store);
    store.close().unwrap();
    disk.remount();
    let media = Directory::open_read_only(&path, DirectoryOptions::default()).unwrap();
    let store = Store::open(media, RealEnv::new(), Options { read_only: true, ..small() }).unwrap();
    disk.lose_all_but(1 << 20);
    let failed = failures(&store, &model, Kind::Io);
    assert!(failed > model.len(), "{failed} reads failed: the device has none of it");
}
