//! A device that disappears under a key-value store.

use super::host::{beside, can_mount, try_sh, wait_until};
use crate::support::Home;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use vellum::base::Kind;
use vellum::kv::Map;
use vellum::kv::{Batch, Durability, Options, Store};

fn options() -> Options {
    Options { memtable_bytes: 256 << 10, ..Options::default() }
}

/// Sets keys in order, each durable before the next, until the store refuses. Returns the error.
fn write_until_it_fails(store: &Store, from: u64, synced: &AtomicU64) -> vellum::base::Error {
    for number in from.. {
        let mut batch = Batch::new();
        batch.put(&number.to_be_bytes(), &[number as u8; 3000]).unwrap();
        match store.write(&batch, Durability::Sync) {
            Ok(()) => synced.store(number + 1, SeqCst),
            Err(error) => return error,
        }
    }
    unreachable!("it goes on until it fails")
}

/// The device under the tables disappears repeatedly: its server is killed, as if it had been pulled.
#[test]
fn a_device_that_is_pulled_under_a_store_costs_nothing_that_was_synced() {
    if !can_mount(&[]) {
        return;
    }
    let home = Home::new();
    home.ok("disk create d --size 96MiB");
    let synced = Arc::new(AtomicU64::new(0));
    for round in 0..3 {
        let (server, _) = home.start("disk serve d --fuse file");
        if round == 0 {
            Store::format_on(home.path("s"), &home.path("file"), 1 << 20, false).unwrap();
        }
        let store =
            Arc::new(Store::open(home.path("s"), options()).unwrap_or_else(|e| panic!("{round}: {e}")));
        let promised = synced.load(SeqCst);
        for number in 0..promised {
            let found = store.get(&number.to_be_bytes()).unwrap_or_else(|e| panic!("{round}: {e}"));
            assert_eq!(found.as_deref(), Some(&[number as u8; 3000][..]), "round {round}: key {number}");
        }
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new(), "round {round}");
        let writer = {
            let (store, synced) = (store.clone(), synced.clone());
            beside(move || write_until_it_fails(&store, promised, &synced))
        };
        wait_until("a thousand keys are written", || synced.load(SeqCst) > promised + 1000);
        server.kill();
        let error = writer.join().unwrap();
        assert!(matches!(error.kind(), Kind::Io | Kind::Poisoned), "round {round}: {error}");
        assert!(store.put(b"more", b"").is_err(), "round {round}: it takes more");
        let _ = store.get(&1u64.to_be_bytes());
        drop(store);
        try_sh(&format!("umount -l {}", home.path("file").display()));
    }
    assert!(synced.load(SeqCst) > 3000);
}
