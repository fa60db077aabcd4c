//! Who comes too late, to a store that was closed or failed meanwhile, and what is left of what nobody needs any more.

use crate::doubtful::{Doubtful, Fault};
use crate::harness::{directory, flash, scattered as key, small};
use crate::lives::Power;
use crate::reuse::Spy;
use crate::under_way::{Gate, asked, beside};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use vellum_base::{Env, Kind, Nanos, RealEnv, Task};
use vellum_kv::media::Tables;
use vellum_kv::{Batch, Bounds, Durability, FlashMedia, Map, Media, Options, Store};

fn open(media: &Arc<dyn Media>) -> Store {
    Store::open(media.clone(), RealEnv::new(), small()).unwrap()
}

/// Its tables would have the numbers that whoever opened the store again gives its own.
#[test]
fn an_ingest_of_a_store_that_was_closed_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let on_flash = FlashMedia::open(flash(1), RealEnv::new()).unwrap();
    for media in [directory(dir.path()) as Arc<dyn Media>, on_flash] {
        let store = open(&media);
        let space = store.create_keyspace("space").unwrap();
        let mut ingest = space.ingest().unwrap();
        (0..100u32).for_each(|n| ingest.put(&n.to_be_bytes(), &[1; 900]).unwrap());
        store.close().unwrap();
        let store = open(&media);
        let error = (100..3000u32).find_map(|n| ingest.put(&n.to_be_bytes(), &[1; 900]).err());
        assert_eq!(error.map(|error| error.kind()), Some(Kind::Poisoned));
        (0..3000).for_each(|n| store.put(&key(n), &[2; 900]).unwrap());
        assert_eq!(ingest.finish().unwrap_err().kind(), Kind::Poisoned);
        store.compact().unwrap();
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
        store.close().unwrap();
        let store = open(&media);
        (0..3000).for_each(|n| assert_eq!(store.get(&key(n)).unwrap(), Some(vec![2; 900])));
    }
}

/// What was waited for is a merge, and that fails.
#[test]
fn a_write_that_waited_until_the_store_failed_is_refused() {
    const ROOM: u64 = 64 << 20;
    let files = Doubtful::default();
    files.0.lock().room = Some(ROOM);
    let (level0_compact, level0_slow, level0_stop) = (100, 200, 300);
    let options = Options { level0_in_log: false, level0_compact, level0_slow, level0_stop, ..small() };
    let store = Arc::new(Store::open(files.directory(), RealEnv::new(), options).unwrap());
    for round in 0..4 {
        (0..300).try_for_each(|n| store.put(&key(n), &[round; 900])).unwrap();
        if round == 0 { store.compact() } else { store.flush() }.unwrap();
    }
    let gate = Gate::at(&files, ".table", true);
    let compaction = beside(&store, |store| assert_eq!(store.compact().unwrap_err().kind(), Kind::Poisoned));
    gate.wait_for_somebody();
    let others = files.0.lock().room_left() - (1200 << 10);
    files.0.lock().room = Some(ROOM - others);
    let (put, of_put) = asked(&store, |store| store.put(b"l", b"w"));
    let env = RealEnv::new();
    env.sleep_until(env.now() + Nanos::from_ms(50));
    assert!(of_put.lock().is_none(), "there is room");
    (files.0.lock().fault, files.0.lock().left) = (Fault::Once, Some(1));
    gate.open();
    [compaction, put].into_iter().for_each(Task::join);
    files.disarm();
    assert_eq!(of_put.lock().take().unwrap().unwrap_err().kind(), Kind::Poisoned);
}

/// The room of a log that was removed is free once nobody has it open.
#[test]
fn a_log_that_is_in_tables_is_not_held_open() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(directory(dir.path()), RealEnv::new(), small()).unwrap();
    let mut batch = Batch::new();
    batch.put(b"k", b"v").unwrap();
    store.write(&batch, Durability::Buffered).unwrap();
    store.flush().unwrap();
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let open = open.filter_map(|file| std::fs::read_link(file.path()).ok());
    let held: Vec<_> = open
        .filter(|file| file.starts_with(dir.path()) && file.to_string_lossy().contains("(deleted)"))
        .collect();
    assert!(held.is_empty(), "{held:?}");
}

/// A sync may find no free handle; the tables that were written meanwhile are not left behind.
#[test]
fn a_flush_whose_logs_cannot_be_synced_now_leaves_no_tables() {
    let dir = tempfile::tempdir().unwrap();
    let spy = Arc::new(Spy { keeps_areas: true, ..Spy::on(directory(dir.path())) });
    let store = Store::open(spy.clone() as Arc<dyn Media>, RealEnv::new(), small()).unwrap();
    for round in 0..3 {
        (0..100).for_each(|n| store.put(&key(n), &[round; 400]).unwrap());
        spy.no_handle.store(round > 0, SeqCst);
        if store.flush().is_err() {
            store.flush().unwrap();
        }
        assert!(!spy.no_handle.load(SeqCst), "no log was synced");
    }
    let named: usize = store.stat().levels.iter().map(|level| level.tables).sum();
    assert_eq!(spy.tables().unwrap().len(), named);
}

/// An iterator let go of tables: a keyspace can be dropped with the room that they leave.
#[test]
fn a_keyspace_is_dropped_with_the_room_of_what_was_replaced() {
    let files = Doubtful::default();
    let store = Store::open(files.directory(), RealEnv::new(), small()).unwrap();
    ["one", "two"].into_iter().for_each(|name| drop(store.create_keyspace(name).unwrap()));
    (0..300).for_each(|n| store.put(&key(n), &[1; 900]).unwrap());
    store.compact().unwrap();
    let iter = store.iter(Bounds::all()).unwrap();
    (0..300).for_each(|n| store.put(&key(n), &[2; 900]).unwrap());
    store.compact().unwrap();
    store.sync().unwrap();
    drop(iter);
    (files.0.lock().fault, files.0.lock().left) = (Fault::FullOnce, Some(1));
    store.drop_keyspace("one").unwrap();
    assert_eq!(files.0.lock().left, None, "there was room");
}

#[test]
fn an_iterator_that_is_nowhere_shows_no_key() {
    let files = Doubtful::default();
    let store = Store::open(files.directory(), RealEnv::new(), small()).unwrap();
    ["a", "b"].into_iter().for_each(|key| store.put(key.as_bytes(), b"v").unwrap());
    store.delete(b"a").unwrap();
    let mut iter = store.iter(Bounds::all().until(b"b")).unwrap();
    iter.seek(b"a").unwrap();
    assert_eq!((iter.is_valid(), iter.key()), (false, &b""[..]));
    let mut iter = store.iter(Bounds::all()).unwrap();
    iter.seek_to_first().unwrap();
    assert_eq!(iter.key(), b"b");
    iter.next().unwrap();
    assert_eq!((iter.is_valid(), iter.key()), (false, &b""[..]));
}
