//! Stores that are opened again after a sync that failed, and lose the power only then. What that sync should have made
//! safe is still in the system's memory, looks like the file's, and no later sync writes it (fsync in Linux).

use crate::doubtful::Doubtful;
use crate::{harness, log};
use std::sync::Arc;
use vellum_base::{Env, RealEnv, Result};
use vellum_kv::{Batch, Durability, Map, Store};

fn put(store: &dyn Map, key: u32, durability: Durability) -> Result<()> {
    let mut batch = Batch::new();
    batch.put(&key.to_be_bytes(), &[7; 700])?;
    store.write(&batch, durability)
}

/// Puts until the sync fails. Returns the keys of which it was said that they are safe.
fn until_it_fails(store: &dyn Map) -> Vec<u32> {
    let mut promised = Vec::new();
    for key in 0..3000 {
        let durability = if key % 3 == 0 { Durability::Sync } else { Durability::Buffered };
        if put(store, key, durability).is_err() || key % 250 == 249 && store.compact().is_err() {
            return promised;
        }
        promised.extend((durability == Durability::Sync).then_some(key));
    }
    panic!("no sync failed");
}

fn promises_hold(open: impl Fn(&Doubtful) -> Result<Box<dyn Map>>, compacts: bool) {
    for syncs in (0..40).chain((40..400).step_by(9)) {
        let files = Doubtful::default();
        let store = open(&files).unwrap();
        files.0.lock().syncs_before_failure = Some(syncs);
        let mut promised = until_it_fails(&*store);
        drop(store);
        let store = open(&files).unwrap_or_else(|error| panic!("after sync {syncs}: {error}"));
        put(&*store, 10_000, Durability::Sync).unwrap();
        promised.push(10_000);
        if compacts {
            store.compact().unwrap();
        }
        files.0.lock().off = true;
        drop(store);
        files.0.lock().crash(|_| true, |_, _| 0);
        let store = open(&files).unwrap_or_else(|error| panic!("cut after sync {syncs}: {error}"));
        for key in promised {
            let value = store.get(&key.to_be_bytes()).unwrap();
            assert_eq!(value.as_deref(), Some(&[7; 700][..]), "key {key}, sync {syncs}");
        }
    }
}

#[test]
fn what_is_synced_after_a_failed_sync_is_safe() {
    let open = |files: &Doubtful| {
        let env: Arc<dyn Env> = RealEnv::new();
        Store::open(files.directory(), env, harness::small()).map(|store| Box::new(store) as Box<dyn Map>)
    };
    promises_hold(open, false);
    promises_hold(open, true);
}

#[test]
fn what_is_synced_after_a_failed_sync_is_safe_in_a_log_store() {
    let open = |files: &Doubtful| {
        let opened = log::harness::open_with(files.directory(), log::harness::small());
        opened.map(|store| Box::new(store) as Box<dyn Map>)
    };
    promises_hold(open, false);
    promises_hold(open, true);
}
