//! Values in logs that level 0 points into, as clients read them: from the cache, or mapped into memory.

use crate::harness::{Model, assert_same, directory, small};
use crate::pointing::{key, logs, pointing};
use std::path::Path;
use vellum_base::{Env, Kind, Nanos, RealEnv};
use vellum_kv::{Bounds, Map, Options, Store};

/// A store that points, opened anew so that nothing is cached.
fn opened(path: &Path, options: Options) -> (Store, Model) {
    let (store, model) = pointing(path);
    store.close().unwrap();
    let options = Options { level0_compact: 12, ..options };
    (Store::open(directory(path), RealEnv::new(), options).unwrap(), model)
}

/// Keys whose values are in logs: of the last flush, as nothing is newer.
fn pointed(model: &Model) -> Vec<Vec<u8>> {
    let newest = (200..400).map(key).filter(|key| model.get(key).is_some_and(|value| value == &[4; 200]));
    let newest: Vec<_> = newest.collect();
    assert!(newest.len() > 100);
    newest
}

/// Every bit of every log is another.
fn rot(path: &Path) {
    for log in logs(path) {
        let bytes: Vec<u8> = std::fs::read(&log).unwrap().iter().map(|byte| !byte).collect();
        std::fs::OpenOptions::new()
            .write(true)
            .open(&log)
            .and_then(|mut file| {
                use std::io::Write;
                file.write_all(&bytes)
            })
            .unwrap();
    }
}

#[test]
fn a_value_in_a_log_is_read_once_and_then_cached() {
    let dir = tempfile::tempdir().unwrap();
    let (store, model) = opened(dir.path(), Options { cache_bytes: 8 << 20, map_files: false, ..small() });
    let keys = pointed(&model);
    let (known, unknown) = keys.split_at(keys.len() / 2);
    known.iter().for_each(|key| assert_eq!(store.get(key).unwrap().as_ref(), model.get(key)));
    // The leaves, too, are in the cache now.
    let before = store.stat();
    rot(dir.path());
    known.iter().for_each(|key| assert_eq!(store.get(key).unwrap().as_ref(), model.get(key)));
    let after = store.stat();
    assert_eq!(after.cache_misses, before.cache_misses);
    assert!(after.cache_hits - before.cache_hits >= 2 * known.len() as u64, "leaf and value");
    // A scan has them from there, too.
    let mut iter = store.iter(Bounds::from(&known[0])).unwrap();
    iter.seek(&known[0]).unwrap();
    assert_eq!(iter.value(), model[&known[0]]);
    for key in unknown {
        let error = store.get(key).unwrap_err();
        let named = error.to_string().contains("of log ") && error.to_string().contains("checksum");
        assert!(error.kind() == Kind::Corrupt && named, "{error}");
    }
}

#[test]
fn values_of_a_log_leave_the_cache_with_it_and_keep_to_its_bytes() {
    for cache_bytes in [8 << 20, 64 << 10] {
        let dir = tempfile::tempdir().unwrap();
        let (store, model) = opened(dir.path(), Options { cache_bytes, map_files: false, ..small() });
        let keys = pointed(&model);
        for _ in 0..3 {
            keys.iter().for_each(|key| assert_eq!(store.get(key).unwrap().as_ref(), model.get(key)));
        }
        let full = store.stat().cache_bytes;
        assert!(full <= cache_bytes, "{full} of {cache_bytes}");
        assert!(full >= (keys.len() * 200).min(cache_bytes / 2), "{full} bytes cached");
        // With all that is merged gone, leaves of what comes of it do not take their place.
        model.keys().for_each(|key| store.delete(key).unwrap());
        store.compact().unwrap();
        assert_eq!(store.stat().kept_logs, 0);
        // Tasks may still have the tables that pointed there for a moment.
        let (env, is_left) = (RealEnv::new(), || store.stat().cache_bytes >= 5000);
        let deadline = env.now() + Nanos(10_000_000_000);
        while is_left() && env.now() < deadline {
            env.sleep_until(env.now() + Nanos(1_000_000));
        }
        assert!(!is_left(), "{} bytes of {full} are left", store.stat().cache_bytes);
    }
}

#[test]
fn mapped_logs_are_read_where_they_are_and_checked_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let (store, model) = opened(dir.path(), small());
    let keys = pointed(&model);
    keys.iter().for_each(|key| assert_eq!(store.get(key).unwrap().as_ref(), model.get(key)));
    assert_same(&store, &model, "mapped");
    let before = store.stat();
    keys.iter().for_each(|key| assert_eq!(store.get(key).unwrap().as_ref(), model.get(key)));
    assert_eq!(store.stat().cache_misses, before.cache_misses, "nothing is looked for in the cache");
    rot(dir.path());
    for key in &keys {
        let error = store.get(key).unwrap_err();
        assert!(error.kind() == Kind::Corrupt && error.to_string().contains("checksum"), "{error}");
    }
}
