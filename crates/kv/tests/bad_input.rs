//! Media that fail under a store that goes on running, and directories that are not what they should be: clear errors,
//! no panic, and what was synced is safe.

use crate::doubtful::{Doubtful, Fault};
use crate::files::open as open_doubtful;
use crate::harness::{Model, Op, apply, assert_same, batch_of, directory, open, skipped};
use crate::history::{History, Style};
use crate::lives::end_at_every_call;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use vellum_base::{Env, Error, Kind, RealEnv};
use vellum_kv::{Bounds, Directory, DirectoryOptions, Durability, Map, Options, Store};
use vellum_sim::Sim;

const STYLE: Style = Style { keys: 300, value_bytes: 900 };

fn assert_clear(error: &Error, context: &str) {
    assert!(matches!(error.kind(), Kind::Io | Kind::Poisoned), "{context}: {error}");
}

/// Writes until something fails, and then some more.
fn write(store: &Store, history: &mut History, rng: &mut SmallRng, context: &str) {
    for step in 0..250 {
        let ops = history.next(rng, 1, &STYLE);
        let durability = if rng.random_range(0..8) == 0 { Durability::Sync } else { Durability::Buffered };
        let flush = step % 90 == 89;
        let result = store.write(&batch_of(&ops), durability);
        match result.and_then(|()| if flush { store.flush() } else { Ok(()) }) {
            Ok(()) if durability == Durability::Sync || flush => history.promise(),
            Ok(()) => {}
            Err(error) => {
                assert_clear(&error, context);
                for again in [store.put(b"k", b"v"), store.sync(), store.flush(), store.compact()] {
                    assert_clear(&again.expect_err(context), context);
                }
                // Reading goes on, as far as the medium does.
                let _ = (store.get(b"key0001"), store.verify(), store.stat());
                let mut iter = store.iter(Bounds::all()).unwrap();
                let _ = iter.seek_to_first();
                return;
            }
        }
    }
}

/// True if the fault came to pass; how often something was put into memory goes to `puts`.
fn life(seed: u64, nth: u64, fault: Fault, puts: &AtomicU32) -> bool {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    let (files, mut history) = (Doubtful::default(), History::default());
    let mut rng = SmallRng::seed_from_u64(seed);
    let context = format!("seed {seed}, {fault:?} at call {nth}");
    sim.run(|| {
        (files.0.lock().left, files.0.lock().fault) = (Some(nth), fault);
        files.0.lock().no_memory = seed % 2 == 1;
        let closed = open_doubtful(&files, &env).and_then(|store| {
            write(&store, &mut history, &mut rng, &context);
            store.close()
        });
        if let Err(error) = closed {
            assert_clear(&error, &context);
        }
        // Where there is no memory that is no failure: the log is written by calls then.
        let came_to_pass = files.0.lock().left.is_none();
        puts.fetch_add(files.0.lock().puts, Relaxed);
        if files.0.lock().off {
            files.0.lock().crash_by_chance(&mut rng);
        }
        files.0.lock().left = None;
        let store = open_doubtful(&files, &env).unwrap_or_else(|e| panic!("{context}: {e}"));
        history.settle(&store, &context);
        store.put(b"key0001", b"goes on").unwrap_or_else(|e| panic!("{context}: {e}"));
        came_to_pass
    })
}

fn at_every_call(fault: Fault) {
    let puts = AtomicU32::new(0);
    end_at_every_call(0..2, 150, |seed, nth| life(seed, nth, fault, &puts));
    assert!(puts.load(Relaxed) > 10_000, "{puts:?} in memory");
}

#[test]
fn a_device_that_is_pulled_at_every_call() {
    at_every_call(Fault::Pulled);
}

#[test]
fn an_error_at_every_call() {
    at_every_call(Fault::Once);
}

#[test]
fn a_directory_that_takes_no_writes() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(directory(dir.path())).unwrap();
    store.put(b"k", b"v").unwrap();
    store.close().unwrap();
    let mode = |mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0o555);
    if std::fs::write(dir.path().join("probe"), b"").is_ok() {
        skipped("this user may write everywhere");
        std::fs::remove_file(dir.path().join("probe")).unwrap();
    } else {
        let writes = Directory::open(dir.path(), DirectoryOptions::default()).and_then(|media| open(media));
        assert_eq!(writes.map(drop).unwrap_err().kind(), Kind::Io);
    }
    let media = Directory::open_read_only(dir.path(), DirectoryOptions::default()).unwrap();
    let options = Options { read_only: true, ..Options::default() };
    let store = Store::open(media, RealEnv::new(), options).unwrap();
    assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    drop(store);
    mode(0o755);
}

#[test]
fn a_path_that_is_no_directory() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"mine").unwrap();
    for result in [
        Directory::open(&file, DirectoryOptions::default()),
        Directory::open_read_only(&file, DirectoryOptions::default()).and_then(|media| {
            let options = Options { read_only: true, ..Options::default() };
            Store::open(media.clone(), RealEnv::new(), options).map(|_| media)
        }),
        Directory::open_read_only(&dir.path().join("none"), DirectoryOptions::default()),
    ] {
        let error = result.map(drop).unwrap_err();
        assert!(matches!(error.kind(), Kind::Io), "{error}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
}

#[test]
fn the_longest_keys_go_all_the_way() {
    let dir = tempfile::tempdir().unwrap();
    // They share all but the last bytes, or nothing.
    let key = |n: u32| {
        let mut key = vec![(n % 2 * 9) as u8; vellum_kv::KEY_BYTES_MAX - 4];
        key.extend(n.to_be_bytes());
        key
    };
    let mut model = Model::new();
    let store = open(Directory::open(dir.path(), DirectoryOptions::default()).unwrap()).unwrap();
    for round in 0..4 {
        let puts = (0..24).map(|n| Op::Put(key(n), vec![round as u8; 50 * n as usize]));
        let ops: Vec<Op> = puts.chain([Op::Delete(key(round))]).collect();
        store.write(&batch_of(&ops), Durability::Buffered).unwrap();
        apply(&mut model, &ops);
        assert_same(&store, &model, "in the memtable");
        store.flush().unwrap();
    }
    assert_same(&store, &model, "in level 0");
    store.compact().unwrap();
    assert_same(&store, &model, "merged");
    let ops = [Op::Put(key(99), b"in the log".to_vec())];
    store.write(&batch_of(&ops), Durability::Buffered).unwrap();
    apply(&mut model, &ops);
    drop(store);
    let store = open(Directory::open(dir.path(), DirectoryOptions::default()).unwrap()).unwrap();
    assert_same(&store, &model, "opened again");
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

#[test]
fn tables_that_are_too_short_for_anything_are_refused_by_name() {
    for table_bytes in [0, 7, 4096] {
        let dir = tempfile::tempdir().unwrap();
        let media = || Directory::open(dir.path(), DirectoryOptions { table_bytes }).unwrap();
        let ordered = open(media()).unwrap_err();
        let of_log = vellum_kv::log::Store::open(media(), RealEnv::new(), Default::default());
        for error in [ordered, of_log.map(drop).unwrap_err()] {
            assert_eq!(error.kind(), Kind::Invalid);
            assert!(error.to_string().contains("8192 are the least"), "{error}");
        }
    }
}

#[test]
fn the_largest_entries_are_taken_to_the_deepest_level_or_refused_by_name() {
    for table_bytes in [256 << 10, DirectoryOptions::default().table_bytes] {
        let dir = tempfile::tempdir().unwrap();
        let media = Directory::open(dir.path(), DirectoryOptions { table_bytes }).unwrap();
        let store = open(media).unwrap();
        let (most, largest) =
            (vellum_kv::KEY_BYTES_MAX.min(table_bytes as usize / 16), store.value_bytes_max());
        for n in 0..3 {
            store.put(&vec![n; most], &vec![n; largest]).unwrap();
            store.put(&vec![n; most - 1], b"short").unwrap();
            store.flush().unwrap();
        }
        let error = store.put(&vec![0; most + 1], b"").unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        assert!(error.to_string().contains("a key of"), "{error}");
        store.compact().unwrap();
        for n in 0..3 {
            assert_eq!(store.get(&vec![n; most]).unwrap(), Some(vec![n; largest]));
            assert_eq!(store.get(&vec![n; most - 1]).unwrap().as_deref(), Some(&b"short"[..]));
        }
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn options_that_cannot_be_meant_are_refused() {
    let zstd = [vellum_kv::Compression::Zstd(99); _];
    for options in [
        Options { cache_bytes: usize::MAX, ..Options::default() },
        Options { filter_bits_per_key: 1_000_000_000, ..Options::default() },
        Options { compaction_tasks: usize::MAX, ..Options::default() },
        Options { compression: zstd, ..Options::default() },
    ] {
        let dir = tempfile::tempdir().unwrap();
        let error = Store::open(directory(dir.path()), RealEnv::new(), options).map(drop).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
    }
}
