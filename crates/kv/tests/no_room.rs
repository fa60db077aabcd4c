//! File systems without room: what is refused never was, nothing else is lost, and the store that is open goes on as
//! soon as there is room again.

use crate::doubtful::{Doubtful, Fault};
use crate::files::open as open_doubtful;
use crate::harness::{batch_of, forward, small};
use crate::history::{History, Style};
use crate::lives::{Power, end_at_every_call};
use crate::mounted::Mounted;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::sync::Arc;
use vellum_base::{Env, Kind, RealEnv, Result};
use vellum_kv::{Bounds, Directory, DirectoryOptions, Durability, Map, Options, Store, log};
use vellum_sim::Sim;

const STYLE: Style = Style { keys: 300, value_bytes: 900 };

/// Writes; whatever fails has to say that there is no room. Returns how many writes were refused.
fn write(store: &Store, history: &mut History, rng: &mut SmallRng, steps: usize, context: &str) -> usize {
    let mut refused = 0;
    for _ in 0..steps {
        let ops = history.next(rng, 1, &STYLE);
        let durability = match rng.random_range(0..9) {
            0 => Durability::Sync,
            1..5 => Durability::Buffered,
            _ => Durability::None,
        };
        match store.write(&batch_of(&ops), durability) {
            Ok(()) if durability == Durability::Sync => history.promise(),
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.kind(), Kind::NoSpace, "{context}: {error}");
                refused += 1;
                history.take_back();
            }
        }
        if rng.random_range(0..120) == 0
            && let Err(error) = store.flush()
        {
            assert_eq!(error.kind(), Kind::NoSpace, "{context}: {error}");
        }
    }
    refused
}

/// There is no room from the `nth` call that takes some, then there is; then the power goes. True if there was none.
fn life(seed: u64, nth: u64) -> bool {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    let (files, mut history) = (Doubtful::default(), History::default());
    let mut rng = SmallRng::seed_from_u64(seed);
    let context = format!("seed {seed}, no room from call {nth} on");
    sim.run(|| {
        (files.0.lock().left, files.0.lock().fault) = (Some(nth), Fault::Full);
        files.0.lock().no_memory = seed % 2 == 1;
        let store = match open_doubtful(&files, &env) {
            Ok(store) => store,
            Err(error) => {
                assert_eq!(error.kind(), Kind::NoSpace, "{context}: {error}");
                files.disarm();
                let store = open_doubtful(&files, &env).unwrap_or_else(|e| panic!("{context}: {e}"));
                history.settle(&store, &context);
                return true;
            }
        };
        let mut refused = write(&store, &mut history, &mut rng, 250, &context);
        let was_full = files.0.lock().left == Some(0);
        // As it is, full: everything that was taken is there to read.
        history.compare(&store, &context);
        files.disarm();
        store.compact().unwrap_or_else(|e| panic!("{context}: {e}"));
        refused += 1000 * write(&store, &mut history, &mut rng, 100, &context);
        assert!(refused < 1000, "{context}: it does not go on");
        history.compare(&store, &context);
        drop(store);
        files.0.lock().fault = Fault::Cut;
        files.cycle(&mut rng);
        let store = open_doubtful(&files, &env).unwrap_or_else(|e| panic!("{context}: {e}"));
        history.settle(&store, &context);
        was_full
    })
}

#[test]
fn no_room_from_every_call_on_and_then_there_is() {
    // What is held in memory has its room already.
    end_at_every_call(0..1, 40, life);
    end_at_every_call(1..2, 80, life);
}

#[test]
fn a_crash_while_there_is_no_room() {
    vellum_sim::check(100..160, |seed| {
        let sim = Sim::new(seed);
        let env: Arc<dyn Env> = sim.env();
        let (files, mut history) = (Doubtful::default(), History::default());
        let mut rng = SmallRng::seed_from_u64(seed);
        files.0.lock().no_memory = seed % 2 == 1;
        sim.run(|| {
            for round in 0..4 {
                let context = format!("seed {seed}, round {round}");
                let store = open_doubtful(&files, &env).unwrap_or_else(|e| panic!("{context}: {e}"));
                history.settle(&store, &context);
                (files.0.lock().left, files.0.lock().fault) = (Some(rng.random_range(1..600)), Fault::Full);
                write(&store, &mut history, &mut rng, 400, &context);
                files.0.lock().fault = Fault::Cut;
                files.0.lock().off = true;
                drop(store);
                files.cycle(&mut rng);
            }
        });
    });
}

/// A store that could not be closed as it should is closed all the same: nobody makes room for it any more.
#[test]
fn closing_without_room_takes_no_more_writes() {
    let sim = Sim::new(5);
    let env: Arc<dyn Env> = sim.env();
    let files = Doubtful::default();
    sim.run(|| {
        let store = open_doubtful(&files, &env).unwrap();
        let space = store.keyspace("default").unwrap();
        space.put(b"first", b"1").unwrap();
        (files.0.lock().left, files.0.lock().fault) = (Some(0), Fault::Full);
        assert_eq!(store.close().unwrap_err().kind(), Kind::NoSpace);
        files.disarm();
        assert_eq!(space.put(b"second", b"2").unwrap_err().kind(), Kind::Poisoned);
        assert_eq!(space.get(b"first").unwrap().as_deref(), Some(&b"1"[..]));
        drop(space);
        let store = open_doubtful(&files, &env).unwrap();
        assert_eq!(store.get(b"first").unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(store.get(b"second").unwrap(), None);
    });
}

fn bytes_of(disk: &Mounted) -> u64 {
    let stat = rustix::fs::statvfs(&disk.root).unwrap();
    stat.f_blocks * stat.f_frsize
}

fn open(disk: &Mounted, options: Options) -> Result<Store> {
    let tables = DirectoryOptions { table_bytes: 512 << 10 };
    let media = Directory::open(&disk.root.join("store"), tables)?;
    Store::open(media, RealEnv::new(), options)
}

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

/// Puts keys until the file system is full; how many it took.
fn fill_up(store: &Store, from: u32) -> u32 {
    for n in from.. {
        match store.put(&key(n), &[n as u8; 900]) {
            Ok(()) => {}
            Err(e) if e.kind() == Kind::NoSpace => return n,
            Err(e) => panic!("{e}"),
        }
    }
    unreachable!("it must fill")
}

#[test]
fn a_full_file_system_is_emptied_by_deletes() {
    for small_disk in Mounted::all() {
        [false, true].into_iter().for_each(|map_files| emptied_by_deletes(&small_disk, map_files));
    }
}

fn emptied_by_deletes(small_disk: &Mounted, map_files: bool) {
    let options = || Options { map_files, ..Options::default() };
    let store = open(small_disk, options()).unwrap();
    let mut end = fill_up(&store, 0);
    let all = bytes_of(small_disk);
    assert!(u64::from(end) * 900 > all / 2, "only {end} entries of 900 bytes fit into {all} bytes");
    for round in 0..3 {
        let there = |n: u32| store.get(&key(n)).unwrap().is_some();
        let gone: Vec<u32> = (0..end).filter(|n| n % 2 == round % 2 && there(*n)).collect();
        for n in &gone {
            store.delete(&key(*n)).unwrap_or_else(|e| panic!("round {round}: delete {n}: {e}"));
        }
        store.compact().unwrap_or_else(|e| panic!("round {round}: {e}"));
        let before = end;
        end = fill_up(&store, end);
        let won = (end - before) as usize;
        assert!(won > gone.len() * 3 / 4, "round {round}: {} deleted, {won} written", gone.len());
    }
    let count = forward(store.iter(Bounds::all()).unwrap()).unwrap().len();
    store.close().unwrap();
    let store = open(small_disk, options()).unwrap();
    assert_eq!(forward(store.iter(Bounds::all()).unwrap()).unwrap().len(), count);
    assert!(store.verify().unwrap().problems.is_empty());
    drop(store);
    std::fs::remove_dir_all(small_disk.root.join("store")).unwrap();
}

#[test]
fn a_file_system_that_others_fill_is_gone_on_with_when_they_make_room() {
    for small_disk in Mounted::all() {
        [false, true].into_iter().for_each(|map_files| others_make_room(&small_disk, map_files));
    }
}

fn others_make_room(small_disk: &Mounted, map_files: bool) {
    let store = open(small_disk, Options { map_files, ..small() }).unwrap();
    for n in 0..5000 {
        store.put(&key(n), &[n as u8; 900]).unwrap();
    }
    let other = small_disk.root.join("other");
    fill_file(&other);
    let mut refused = 0;
    for n in 5000..6000 {
        match store.put(&key(n), &[n as u8; 900]) {
            Ok(()) => {}
            Err(e) => {
                assert_eq!(e.kind(), Kind::NoSpace, "{e}");
                refused += 1;
            }
        }
    }
    assert!(refused > 500, "only {refused} refused");
    // It may be that what is there is merged already.
    if let Err(error) = store.compact() {
        assert_eq!(error.kind(), Kind::NoSpace, "{error}");
    }
    let there = forward(store.iter(Bounds::all()).unwrap()).unwrap();
    assert_eq!(there.len(), 6000 - refused);
    std::fs::remove_file(&other).unwrap();
    for n in 5000..6000 {
        store.put(&key(n), &[n as u8; 900]).unwrap_or_else(|e| panic!("put {n}: {e}"));
    }
    store.compact().unwrap();
    store.close().unwrap();
    let store = open(small_disk, small()).unwrap();
    assert_eq!(forward(store.iter(Bounds::all()).unwrap()).unwrap().len(), 6000);
    drop(store);
    std::fs::remove_dir_all(small_disk.root.join("store")).unwrap();
}

#[test]
fn room_that_an_iterator_held_is_used_when_it_is_gone() {
    for small_disk in Mounted::all() {
        for (map_files, freed_bytes) in [(false, 0), (true, 0), (false, 1 << 20), (true, 1 << 20)] {
            let store = open(&small_disk, Options { map_files, ..small() }).unwrap();
            an_iterator_goes(&small_disk, &store, || store.iter(Bounds::all()).unwrap(), freed_bytes);
            drop(store);
            std::fs::remove_dir_all(small_disk.root.join("store")).unwrap();
        }
        for freed_bytes in [0, 1 << 20] {
            let tables = DirectoryOptions { table_bytes: 512 << 10 };
            let media = Directory::open(&small_disk.root.join("store"), tables).unwrap();
            let store = log::Store::open(media, RealEnv::new(), log::Options::default()).unwrap();
            an_iterator_goes(&small_disk, &store, || begun(store.iter()), freed_bytes);
            drop(store);
            std::fs::remove_dir_all(small_disk.root.join("store")).unwrap();
        }
    }
}

/// The file system is full when the iterator goes, but for what it held, and so many bytes that others have freed: too
/// few for a merge. No task has anything to do then.
fn an_iterator_goes<I>(small_disk: &Mounted, store: &dyn Map, iterate: impl Fn() -> I, freed_bytes: u64) {
    let put = |n: u32, byte: u8| store.put(&key(n), &[byte; 900]);
    (0..5000).for_each(|n| put(n, 1).unwrap());
    store.compact().unwrap();
    let iterator = iterate();
    (0..5000).for_each(|n| put(n, 2).unwrap());
    store.compact().unwrap();
    let other = small_disk.root.join("other");
    fill_file(&other);
    let (mut expected, mut refused) = ([2; 5000], 0);
    for n in (0..5000).chain(0..5000) {
        if n == 4999 && refused < 5000 {
            let other = std::fs::File::options().write(true).open(&other).unwrap();
            other.set_len(other.metadata().unwrap().len() - freed_bytes).unwrap();
        }
        match put(n, 3) {
            Ok(()) => expected[n as usize] = 3,
            Err(_) => refused += 1,
        }
    }
    drop(iterator);
    for n in 0..500 {
        put(n, 4).unwrap_or_else(|e| panic!("put {n}, {refused} refused before: {e}"));
        expected[n as usize] = 4;
    }
    let mut there = [0; 5000];
    let mut note = |key: &[u8], value: &[u8]| {
        there[u32::from_be_bytes(key.try_into().expect("four bytes")) as usize] = value[0];
        Ok(())
    };
    store.each(&mut note).unwrap();
    assert!(there == expected);
    std::fs::remove_file(&other).unwrap();
}

/// It holds what it reads from once it is asked for something.
fn begun(mut iter: log::Iter) -> log::Iter {
    iter.next().expect("a record").unwrap();
    iter
}

fn fill_file(path: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).unwrap();
    while file.write_all(&[7; 4096]).is_ok() {}
}

/// With the entry that found no room those are gone that were to be in its table: the others are not taken for all.
#[test]
fn an_ingest_that_lost_entries_is_not_finished() {
    let files = Doubtful::default();
    let env: Arc<dyn Env> = RealEnv::new();
    let store = open_doubtful(&files, &env).unwrap();
    let mut ingest = store.ingest().unwrap();
    (files.0.lock().left, files.0.lock().fault) = (Some(9), Fault::Full);
    let refused = (0..100_000u32).find_map(|i| ingest.put(&i.to_be_bytes(), &[7; 100]).err()).unwrap();
    assert_eq!(refused.kind(), Kind::NoSpace, "{refused}");
    files.disarm();
    assert_eq!(ingest.put(b"z", b"more").unwrap_err().kind(), Kind::Invalid);
    assert_eq!(ingest.finish().unwrap_err().kind(), Kind::Invalid);
    assert!(forward(store.iter(Bounds::all()).unwrap()).unwrap().is_empty());
    let mut again = store.ingest().unwrap();
    again.put(b"k", b"v").unwrap();
    assert_eq!(again.finish().unwrap().entries, 1);
}
