//! Log stores whose medium refuses this and that.

use super::harness::{assert_same, open_with, small};
use crate::doubtful::Doubtful;
use crate::harmed::copy_of_open;
use crate::harness::{Model, directory};
use crate::reuse::Spy;
use std::sync::Arc;
use vellum_base::{Kind, RealEnv};
use vellum_kv::log::{Options, Store};
use vellum_kv::media::Tables;
use vellum_kv::{Batch, Directory, DirectoryOptions, Durability, Map};

fn on(files: &Doubtful, options: Options) -> Store {
    let how = DirectoryOptions { table_bytes: 64 << 10 };
    Store::open(Directory::on(Arc::new(files.clone()), how), RealEnv::new(), options).unwrap()
}

/// Puts 40 segments or so, of which a third is garbage.
fn fill(store: &Store) -> Model {
    let put = |n: u32| {
        let value = vec![n as u8; 1000];
        store.put(&n.to_be_bytes(), &value).unwrap();
        (n.to_be_bytes().to_vec(), value)
    };
    let mut model: Model = (0..1500).map(put).collect();
    model.extend((0..1500).step_by(3).map(put));
    store.flush().unwrap();
    model
}

/// Deleting what is gone already says that it is gone, as durably as was asked.
#[test]
fn a_delete_that_finds_nothing_hands_over_what_was_deleted_before() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_with(directory(dir.path()), small()).unwrap();
    store.put(b"k", b"v").unwrap();
    store.flush().unwrap();
    let mut batch = Batch::new();
    batch.delete(b"k").unwrap();
    store.write(&batch, Durability::None).unwrap();
    store.delete(b"k").unwrap();
    let killed = copy_of_open(dir.path());
    assert_eq!(open_with(directory(killed.path()), small()).unwrap().get(b"k").unwrap(), None);
}

#[test]
fn a_sync_that_fails_while_a_store_is_compacted_ends_it() {
    let files = Doubtful::default();
    let store = on(&files, Options { garbage_share: 1.1, ..small() });
    fill(&store);
    files.0.lock().syncs_before_failure = Some(0);
    assert_eq!(store.compact().unwrap_err().kind(), Kind::Io);
    assert_eq!(store.put(b"k", b"v").unwrap_err().kind(), Kind::Poisoned);
}

#[test]
fn a_segment_that_the_device_cannot_read_is_passed_by() {
    let files = Doubtful::default();
    let store = on(&files, Options { garbage_share: 1.1, collect_max: 1, ..small() });
    let mut model = fill(&store);
    let tables = files.0.lock().names_ending_in(".table");
    files.0.lock().unreadable = Some(tables[3].clone());
    for _ in 0..2 {
        while store.compact().is_err_and(|error| error.kind() == Kind::Corrupt) {}
        store.put(b"k", b"v").unwrap();
        assert_eq!(store.stat().segments_skipped, 1);
    }
    store.close().unwrap();
    let store = on(&files, Options { garbage_share: 0.1, collect_max: 1, ..small() });
    for n in (0..3000u32).map(|n| n % 500) {
        // Whoever overwrites a record reads it first.
        match store.put(&n.to_be_bytes(), b"again") {
            Ok(()) => drop(model.insert(n.to_be_bytes().into(), b"again".to_vec())),
            Err(error) => assert_eq!(error.kind(), Kind::Io),
        }
    }
    store.close().unwrap();
    files.0.lock().unreadable = None;
    model.insert(b"k".to_vec(), b"v".to_vec());
    assert_same(&on(&files, small()), &model, "read again");
}

#[test]
fn a_compaction_leaves_no_table_that_it_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let media = directory(dir.path());
    let store = open_with(media.clone(), Options { garbage_share: 1.1, ..small() }).unwrap();
    fill(&store);
    store.compact().unwrap();
    let (tables, segments) = (media.tables().unwrap().len(), store.stat().segments);
    // The open segment has one begun.
    assert!(tables <= segments, "{tables} tables of {segments} segments");
}

/// Segments are as long as is asked for, tables turn out to be shorter, and a segment that was opened again is nearly
/// as long as these.
#[test]
fn a_batch_that_the_begun_segment_cannot_take_goes_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let spy = Spy { capacity: Some(56 << 10), ..Spy::on(directory(dir.path())) };
        open_with(Arc::new(spy), small()).unwrap()
    };
    let store = open();
    (0..40u32).for_each(|n| store.put(&n.to_be_bytes(), &[1; 1000]).unwrap());
    store.close().unwrap();
    let store = open();
    let mut batch = Batch::new();
    (100..112u32).for_each(|n| batch.put(&n.to_be_bytes(), &[1; 1000]).unwrap());
    store.write(&batch, Durability::Buffered).unwrap();
    assert_eq!(store.len(), 52);
}
