//! Programs that flush, ingest and drop as they like, on media that get full: deletes and merges win room back.

use crate::doubtful::{Doubtful, Fault};
use crate::harness::{flash, open_flash, scattered as key, small};
use crate::lives::Power;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use vellum_base::{Env, Kind, Nanos, RealEnv};
use vellum_kv::{Directory, DirectoryOptions, Map, Options, Store};

const ROOM: u64 = 16 << 20;

/// A file system with so much room.
fn little() -> Doubtful {
    let files = Doubtful::default();
    files.0.lock().room = Some(ROOM);
    files
}

fn open(files: &Doubtful, options: Options) -> Store {
    Store::open(files.directory(), RealEnv::new(), options).unwrap()
}

fn tables(store: &Store) -> usize {
    store.stat().levels.iter().map(|level| level.tables).sum()
}

fn empty(store: &Store, mut keys: impl Iterator<Item = [u8; 4]>) {
    let deleted = keys.try_for_each(|key| store.delete(&key));
    let levels = || store.stat().levels.iter().map(|level| (level.tables, level.bytes)).collect::<Vec<_>>();
    deleted.unwrap_or_else(|error| panic!("{error}: {:?}", levels()));
    store.compact().unwrap();
    assert_eq!(tables(store), 0);
}

#[test]
fn flushes_before_memtables_are_full_leave_room_to_merge() {
    for level0_in_log in [false, true] {
        let files = little();
        let store = open(&files, Options { level0_in_log, ..small() });
        let mut written = 0;
        let mut put = |_| {
            written += 1;
            store.put(&key(written), &[7; 900])
        };
        let error = loop {
            assert!(files.0.lock().room_left() > 64 << 10, "nothing is refused");
            if let Err(error) = (0..55).try_for_each(&mut put).and_then(|()| store.flush()) {
                break error;
            }
        };
        assert_eq!(error.kind(), Kind::NoSpace);
        assert!(written > 6000, "{written} records of {} bytes: {:?}", 900, store.stat().levels);
        empty(&store, (1..=written).map(key));
    }
}

#[test]
fn puts_after_compactions_leave_room_to_merge() {
    for level0_in_log in [false, true] {
        let files = little();
        let store = open(&files, Options { level0_in_log, ..small() });
        let mut written = 0;
        for round in 0..4 {
            while store.put(&key(written + 1), &[7; 900]).is_ok() {
                written += 1;
                assert!(written < 20_000, "nothing is refused");
            }
            let compacted = store.compact();
            assert!(compacted.is_ok() || round > 0, "{compacted:?}");
        }
        empty(&store, (1..=written).map(key));
    }
}

/// All that is ingested overlaps with a table of level 0 that holds next to nothing.
fn is_emptied_after_an_ingest(store: &Store) {
    let key = u32::to_be_bytes;
    store.put(&key(0), b"low").unwrap();
    store.put(&key(u32::MAX), b"high").unwrap();
    store.flush().unwrap();
    let mut ingest = store.ingest().unwrap();
    let mut written = 0;
    let all = (1..9000).try_for_each(|n| {
        written = n;
        ingest.put(&key(n), &[7; 900])
    });
    match all.and_then(|()| ingest.finish()) {
        Ok(ingested) => assert!(ingested.tables[0] > 20, "{ingested:?}"),
        Err(error) => panic!("{error} after {written}"),
    }
    store.put(&key(5), b"and more").unwrap();
    empty(store, (0..9000).chain([u32::MAX]).map(key));
}

#[test]
fn an_ingest_above_level_0_can_be_merged() {
    is_emptied_after_an_ingest(&open_flash(&flash(3), RealEnv::new()).unwrap());
    is_emptied_after_an_ingest(&open(&little(), small()));
}

/// Others fill the file system while the store flushes, at the `nth` call that takes room. True if it rests then; there
/// is room again, but nobody tells it.
fn rests(files: &Doubtful, store: &Store, nth: u64) -> bool {
    store.compact().unwrap();
    store.put(b"one more", b"1").unwrap();
    (files.0.lock().fault, files.0.lock().left) = (Fault::Full, Some(nth));
    let flushed = store.flush();
    files.disarm();
    flushed.is_err_and(|error| error.to_string().starts_with("flush"))
}

#[test]
fn a_keyspace_that_is_dropped_wins_room_for_a_store_that_rests() {
    let mut rested = 0;
    for nth in 1..8 {
        let (files, env) = (little(), RealEnv::new());
        let store = open(&files, small());
        let big = store.create_keyspace("big").unwrap();
        (0..6000).try_for_each(|n| big.put(&key(n), &[1; 900])).unwrap();
        (0..1500).try_for_each(|n| store.put(&key(n), &[1; 900])).unwrap();
        if !rests(&files, &store, nth) {
            continue;
        }
        rested += 1;
        let others = files.0.lock().room_left() - (400 << 10);
        files.0.lock().room = Some(ROOM - others);
        let before = tables(&store);
        store.drop_keyspace("big").unwrap();
        let until = env.now() + Nanos::from_ms(30_000);
        while tables(&store) > before / 2 && env.now() < until {
            env.sleep_until(env.now() + Nanos::from_ms(10));
        }
        assert!(tables(&store) <= before / 2, "nothing was erased");
        (0..2000).try_for_each(|n| store.put(&key(n), &[2; 900])).unwrap();
    }
    assert!(rested > 0);
}

/// There is room, though less than is kept free of puts.
#[test]
fn who_deletes_wakes_a_store_that_rests() {
    let mut rested = 0;
    for nth in 1..8 {
        let files = little();
        let store = open(&files, small());
        (0..7000).try_for_each(|n| store.put(&key(n), &[1; 900])).unwrap();
        if !rests(&files, &store, nth) {
            continue;
        }
        rested += 1;
        let others = files.0.lock().room_left() - (1200 << 10);
        files.0.lock().room = Some(ROOM - others);
        store.delete(b"one more").unwrap();
        empty(&store, (0..7000).map(key));
    }
    assert!(rested > 0);
}

/// It was opened when there was room for much, and holds next to nothing; tables would be far larger than memtables.
#[test]
fn a_store_of_little_asks_for_little_room() {
    for memtable_bytes in [64 << 10, 64 << 20] {
        let files = Doubtful::default();
        files.0.lock().room = Some(200 << 30);
        let media = Directory::on(Arc::new(files.clone()), DirectoryOptions::default());
        let store =
            Store::open(media, RealEnv::new(), Options { memtable_bytes, ..Options::default() }).unwrap();
        store.put(b"k", b"v").unwrap();
        files.0.lock().room = Some(100 << 20);
        store.put(b"l", b"v").unwrap();
        store.flush().unwrap();
        (0..3000u32).try_for_each(|n| store.put(&n.to_be_bytes(), &[1; 100])).unwrap();
        store.compact().unwrap();
    }
}

/// Others take and give back room in each moment; once they are quiet, nobody is left waiting.
#[test]
fn nobody_sleeps_through_room_that_comes_and_goes() {
    let (files, env) = (little(), RealEnv::new() as Arc<dyn Env>);
    let store = Arc::new(open(&files, small()));
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (of_task, told) = (store.clone(), (stop.clone(), done.clone()));
    let write = move || {
        let (mut rng, (stop, done)) = (SmallRng::seed_from_u64(5), told);
        while !stop.load(Relaxed) {
            let key = key(rng.random_range(0..9000));
            let result = match rng.random_range(0..400) {
                0 => of_task.flush(),
                1 => of_task.compact(),
                2..200 => of_task.delete(&key),
                _ => of_task.put(&key, &[1; 900]),
            };
            assert!(result.is_ok() || result.is_err_and(|error| error.kind() == Kind::NoSpace));
            done.fetch_add(1, Relaxed);
        }
    };
    let task = env.clone().spawn("writer", Box::new(write));
    let mut rng = SmallRng::seed_from_u64(6);
    for round in 0..2 {
        for _ in 0..5000 {
            let mut state = files.0.lock();
            let taken = state.room.unwrap() - state.room_left();
            state.room = Some(taken + rng.random_range(100 << 10..2 << 20));
            drop(state);
            env.sleep_until(env.now() + Nanos::from_us(30));
        }
        let (before, until) = (done.load(Relaxed), env.now() + Nanos::from_ms(20_000));
        while done.load(Relaxed) < before + 2 {
            assert!(env.now() < until, "round {round}: somebody waits for ever");
            env.sleep_until(env.now() + Nanos::from_ms(5));
        }
    }
    stop.store(true, Relaxed);
    task.join();
}
