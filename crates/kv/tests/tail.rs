//! The end of a log that is held in memory, or whose file grows ahead: whatever becomes of the process, the room, TAIL
//! and who opens it next.

use crate::doubtful::{Doubtful, Fault};
use crate::files::open;
use crate::harness::{batch_of, directory, of_seed, small};
use crate::history::{History, Style};
use crate::lives::end_at_every_call;
use crate::mounted::Mounted;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum_base::{Cause, Env, Kind, RealEnv};
use vellum_kv::{Batch, Directory, DirectoryOptions, Durability, Map, Media, Options, Snapshot, Store};
use vellum_sim::Sim;

const STYLE: Style = Style { keys: 400, value_bytes: 900 };

/// A store whose process dies at the `nth` call, and lives on three times until it dies again, or the power goes. What
/// was written and not synced is promised but for the power. With `grown`, runs of writes are synced one by one. True
/// if it died at that call.
fn life(seed: u64, nth: u64, grown: bool) -> bool {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    let (files, mut history) = (Doubtful::default(), History::default());
    let mut rng = SmallRng::seed_from_u64(seed ^ nth << 32);
    // With so much of it, room is taken for a whole log, whose end is held from one boundary to the next.
    files.0.lock().room = seed.is_multiple_of(2).then_some(1 << 30);
    sim.run(|| {
        let mut died = false;
        for round in 0..4 {
            let context = format!("seed {seed}, call {nth}, round {round}");
            if round == 0 {
                files.0.lock().left = Some(nth);
            }
            let (store, interrupted) = opened(&files, &env, seed, &mut rng, &context);
            history.settle(&store, &context);
            if round > 0 {
                files.0.lock().left = Some(rng.random_range(1..1500));
            }
            let is_cut = rng.random_ratio(1, 3);
            let ended = write(&store, &mut history, &mut rng, (is_cut, grown), &context);
            died |= round == 0 && (ended || interrupted);
            files.0.lock().off = true;
            drop(store);
            let state = &mut *files.0.lock();
            if is_cut {
                state.crash_by_chance(&mut rng);
            }
            (state.off, state.left) = (false, None);
        }
        died
    })
}

/// Opens it, as often as that is interrupted; true if it was.
fn opened(
    files: &Doubtful,
    env: &Arc<dyn Env>,
    seed: u64,
    rng: &mut SmallRng,
    context: &str,
) -> (Store, bool) {
    let mut interrupted = false;
    loop {
        match Store::open(files.directory(), env.clone(), of_seed(seed)) {
            Ok(store) if !files.0.lock().off => {
                return (store, interrupted);
            }
            Err(error) if error.kind() != Kind::PowerLost => panic!("{context}: {error}"),
            _ => {}
        }
        let state = &mut *files.0.lock();
        interrupted = true;
        state.off = false;
        state.left = rng.random::<bool>().then(|| rng.random_range(1..20));
    }
}

/// True if the process died.
fn write(
    store: &Store,
    history: &mut History,
    rng: &mut SmallRng,
    (is_cut, grown): (bool, bool),
    context: &str,
) -> bool {
    for step in 0..500 {
        let ops = history.next(rng, 1, &STYLE);
        let durability = match rng.random_range(0..40) {
            _ if grown && step % 100 < 50 => Durability::Sync,
            0 => Durability::Sync,
            1 => Durability::None,
            _ => Durability::Buffered,
        };
        let flushed = |()| if rng.random_ratio(1, 300) { store.flush() } else { Ok(()) };
        match store.write(&batch_of(&ops), durability).and_then(flushed) {
            Ok(()) if durability == Durability::Sync || durability == Durability::Buffered && !is_cut => {
                history.promise();
            }
            Ok(()) => {}
            Err(error) if error.kind() == Kind::PowerLost => return true,
            Err(error) => panic!("{context}: {error}"),
        }
    }
    let padding = store.stat().ledger.programmed_by(Cause::Padding);
    assert!(!grown || padding > 0, "{context}");
    false
}

#[test]
fn deaths_at_every_call_lose_nothing_that_was_written() {
    end_at_every_call(0..1, 100, |seed, nth| life(seed, nth, false));
}

#[test]
fn deaths_at_random_calls_lose_nothing_that_was_written() {
    vellum_sim::check(9000..9200, |seed| {
        life(seed, 1 + seed * 7919 % 2000, false);
    });
}

/// Of seeds 2 and 3 only one holds logs in memory, too.
#[test]
fn deaths_at_every_call_lose_nothing_of_a_log_that_grew_ahead() {
    end_at_every_call(2..4, 300, |seed, nth| life(seed, nth, true));
}

#[test]
fn deaths_at_random_calls_lose_nothing_of_logs_that_grew_ahead() {
    vellum_sim::check(9200..9300, |seed| {
        life(seed, 1 + seed * 7919 % 2000, true);
    });
}

fn put(store: &Store, range: std::ops::Range<u32>) {
    range.for_each(|n| store.put(&n.to_be_bytes(), &[7; 100]).unwrap());
}

fn count(store: &Store) -> usize {
    (0..1000u32).filter(|n| store.get(&n.to_be_bytes()).unwrap().is_some()).count()
}

#[test]
fn room_is_taken_once_for_a_log_and_tail_mapped_once_for_all() {
    let sim = Sim::new(7);
    let (files, env): (_, Arc<dyn Env>) = (Doubtful::default(), sim.env());
    files.0.lock().room = Some(1 << 30);
    sim.run(|| {
        let (media, mut logs) = (files.directory(), 0);
        for _ in 0..2 {
            let store = Store::open(media.clone(), env.clone(), small()).unwrap();
            for n in 0..1000u32 {
                store.put(&n.to_be_bytes(), &[7; 900]).unwrap();
            }
            logs += store.stat().since_opened.flushes() + 1;
            store.close().unwrap();
        }
        let state = files.0.lock();
        assert!(logs > 10 && state.names.contains_key("TAIL"), "{logs}");
        assert_eq!(state.mappings, 1);
        assert!((logs / 2..=logs + 2).contains(&state.rooms_taken), "{} for {logs}", state.rooms_taken);
    });
}

/// A store of 200 records whose process is gone, the last of them in TAIL.
fn left_in_tail(env: &Arc<dyn Env>) -> Doubtful {
    let files = Doubtful::default();
    let store = open(&files, env).unwrap();
    put(&store, 0..100);
    store.sync().unwrap();
    put(&store, 100..200);
    files.0.lock().off = true;
    drop(store);
    files.0.lock().off = false;
    files
}

/// Nothing that was written is left out without a word, not by a repair either.
#[test]
fn an_unreadable_tail_is_an_error_until_it_is_removed() {
    let sim = Sim::new(7);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let files = left_in_tail(&env);
        files.0.lock().unreadable = Some("TAIL".into());
        let error = open(&files, &env).map(drop).unwrap_err();
        assert!(error.kind() == Kind::Io && error.to_string().contains("TAIL"), "{error}");
        let media: Arc<dyn Media> = files.directory();
        assert_eq!(crate::harness::repair(&media, &env, &small()).unwrap_err().kind(), Kind::Io);
        drop(media);
        files.0.lock().unreadable = None;
        assert_eq!(count(&open(&files, &env).unwrap()), 200);

        let files = left_in_tail(&env);
        vellum_kv::media::Files::remove(&files, "TAIL").unwrap();
        let there = count(&open(&files, &env).unwrap());
        assert!((100..200).contains(&there), "{there}");
    });
}

#[test]
fn a_repair_of_a_log_with_a_bad_sector_takes_tail() {
    let sim = Sim::new(7);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let files = left_in_tail(&env);
        let log = files.0.lock().names_ending_in(".log").pop();
        files.0.lock().unreadable = log;
        let media: Arc<dyn Media> = files.directory();
        crate::harness::repair(&media, &env, &small()).unwrap();
        drop(media);
        files.0.lock().unreadable = None;
        let store = open(&files, &env).unwrap();
        assert_eq!(store.get(&199u32.to_be_bytes()).unwrap(), Some(vec![7; 100]), "{} there", count(&store));
    });
}

/// What is held has its room, whoever takes the rest, also behind zeros that were ahead and are cut off.
#[test]
fn no_room_while_bytes_are_held_refuses_puts_and_nothing_else() {
    for (dies, grown) in [(false, false), (true, false), (false, true), (true, true)] {
        let sim = Sim::new(7);
        let (files, env): (_, Arc<dyn Env>) = (Doubtful::default(), sim.env());
        sim.run(|| {
            let store = open(&files, &env).unwrap();
            if grown {
                put(&store, 0..60);
                (0..12u32).for_each(|n| {
                    put(&store, n..n + 1);
                    store.sync().unwrap();
                });
                assert!(store.stat().ledger.programmed_by(Cause::Padding) > 0);
            }
            put(&store, 0..100);
            (files.0.lock().left, files.0.lock().fault) = (Some(0), Fault::Full);
            let refused = (100..1000u32).find(|n| store.put(&n.to_be_bytes(), &[7; 100]).is_err());
            let there = refused.expect("a put is refused") as usize;
            if dies {
                files.0.lock().off = true;
                drop(store);
                files.0.lock().off = false;
                // As its process left it, the medium full.
                let mut options = small();
                options.read_only = true;
                assert_eq!(count(&Store::open(files.directory(), env.clone(), options).unwrap()), there);
            } else {
                store.sync().unwrap();
                (files.0.lock().left, files.0.lock().fault) = (None, Fault::Cut);
                put(&store, 999..1000);
                drop(store);
            }
            (files.0.lock().left, files.0.lock().fault) = (None, Fault::Cut);
            assert_eq!(count(&open(&files, &env).unwrap()), there + usize::from(!dies));
        });
    }
}

/// Of two records that were being synced the power leaves the second, as zeros make room for each by itself.
#[test]
fn strictly_a_log_that_the_power_left_out_of_order_is_refused_and_else_it_ends() {
    let sim = Sim::new(7);
    let (files, env): (_, Arc<dyn Env>) = (Doubtful::default(), sim.env());
    sim.run(|| {
        let store = open(&files, &env).unwrap();
        (0..20u32).for_each(|n| {
            put(&store, n..n + 1);
            store.sync().unwrap();
        });
        put(&store, 20..22);
        files.0.lock().off = true;
        drop(store);
        let mut written = 0;
        files.0.lock().crash(
            |_| true,
            |name, bytes| {
                written += usize::from(name.ends_with(".log"));
                if written == 2 { bytes } else { 0 }
            },
        );
        assert_eq!(written, 2);
        let strict = Options { strict_log: true, ..small() };
        let refused = Store::open(files.directory(), env.clone(), strict).map(drop);
        assert_eq!(refused.unwrap_err().kind(), Kind::Corrupt);
        assert_eq!(count(&open(&files, &env).unwrap()), 20);
    });
}

/// The same on real file systems, beside a file that takes all that is free.
#[test]
fn somebody_else_takes_all_room_while_bytes_are_held() {
    for mount in Mounted::all() {
        for round in 0..4 {
            let root = mount.root.join("store");
            let media = Directory::open(&root, DirectoryOptions { table_bytes: 512 << 10 }).unwrap();
            let options = Options { memtable_bytes: 8 << 20, ..small() };
            let store = Store::open(media, RealEnv::new(), options).unwrap();
            put(&store, 0..400);
            let (full, stop, other) =
                (AtomicBool::new(false), AtomicBool::new(false), mount.root.join("other"));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut file = std::fs::File::create(&other).unwrap();
                    while !stop.load(Relaxed) {
                        while std::io::Write::write(&mut file, &[7; 4096]).is_ok() {}
                        full.store(true, Relaxed);
                    }
                });
                while !full.load(Relaxed) {
                    std::thread::yield_now();
                }
                let refused =
                    (400..).map(|n: u32| store.put(&n.to_be_bytes(), &[7; 100])).find_map(Result::err);
                assert_eq!(refused.map(|error| error.kind()), Some(Kind::NoSpace), "round {round}");
                let synced = store.sync();
                stop.store(true, Relaxed);
                synced.unwrap();
            });
            std::fs::remove_file(&other).unwrap();
            store.put(b"again", b"1").unwrap();
            drop(store);
            std::fs::remove_dir_all(root).unwrap();
        }
    }
}

/// A store of 200 records that fails and is opened again in its process, while a snapshot keeps the failed one alive.
fn opened_beside_the_failed(
    files: &Doubtful,
    env: &Arc<dyn Env>,
    fail: impl FnOnce(&Store),
) -> (Store, Snapshot) {
    let media = files.directory();
    let store = Store::open(media.clone(), env.clone(), small()).unwrap();
    put(&store, 0..200);
    let snapshot = store.snapshot();
    fail(&store);
    drop(store);
    (Store::open(media, env.clone(), small()).unwrap(), snapshot)
}

/// The failed store would write to its log when it goes.
#[test]
fn a_store_that_failed_and_is_opened_again_in_its_process_writes_nothing_more() {
    let sim = Sim::new(7);
    let (files, env): (_, Arc<dyn Env>) = (Doubtful::default(), sim.env());
    sim.run(|| {
        let (store, snapshot) = opened_beside_the_failed(&files, &env, |store| {
            files.0.lock().syncs_before_failure = Some(0);
            assert!(store.create_keyspace("x").is_err());
            files.0.lock().syncs_before_failure = None;
        });
        assert_eq!(count(&store), 200);
        let mut batch = Batch::new();
        batch.put(b"synced", b"1").unwrap();
        store.write(&batch, Durability::Sync).unwrap();
        drop(snapshot);
        files.0.lock().off = true;
        drop(store);
        files.0.lock().crash(|_| false, |_, _| 0);
        let store = open(&files, &env).unwrap();
        assert_eq!((count(&store), store.get(b"synced").unwrap()), (200, Some(b"1".to_vec())));
    });
}

/// A write that fails leaves part of a record behind the end of the log, which the next opening may find to be whole,
/// and continue. Room was allocated behind it.
#[test]
fn a_log_that_another_opening_continued_is_not_cut() {
    let sim = Sim::new(7);
    let (files, env): (_, Arc<dyn Env>) = (Doubtful::default(), sim.env());
    sim.run(|| {
        let (store, snapshot) = opened_beside_the_failed(&files, &env, |store| {
            store.sync().unwrap();
            (files.0.lock().left, files.0.lock().fault) = (Some(1), Fault::Once);
            assert_eq!(store.put(b"refused", &[7; 500]).unwrap_err().kind(), Kind::Io);
            (files.0.lock().left, files.0.lock().fault) = (None, Fault::Cut);
        });
        put(&store, 200..300);
        store.sync().unwrap();
        drop(snapshot);
        files.0.lock().off = true;
        drop(store);
        files.0.lock().off = false;
        assert_eq!(count(&open(&files, &env).unwrap()), 300);
    });
}

/// Somebody fills the file system when room was allocated for the log.
#[test]
fn a_flush_has_the_room_that_the_log_does_not_use() {
    let Some(mount) = Mounted::ext4(128 << 20) else { return };
    let options = DirectoryOptions { table_bytes: 512 << 10 };
    let media = Directory::open(&mount.root.join("store"), options).unwrap();
    let options = Options { memtable_bytes: 8 << 20, ..small() };
    let store = Store::open(media, RealEnv::new(), options).unwrap();
    put(&store, 0..500);
    let mut other = std::fs::File::create(mount.root.join("other")).unwrap();
    for bytes in [1 << 20, 4096] {
        while std::io::Write::write_all(&mut other, &vec![7; bytes]).is_ok() {}
    }
    store.flush().unwrap();
    store.close().unwrap();
}

/// Links of logs are the source's files.
#[test]
fn a_checkpoint_beside_a_tail_leaves_the_source_alone() {
    let (dir, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = crate::harness::open(directory(dir.path())).unwrap();
    for round in 0..3u8 {
        (0..55u32).for_each(|n| store.put(&n.to_be_bytes(), &[n as u8 + round; 800]).unwrap());
        store.flush().unwrap();
    }
    let log = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.unwrap().file_name().to_str()?.strip_suffix(".log")?.parse::<u64>().ok()
    };
    let kept = std::fs::read_dir(dir.path()).unwrap().filter_map(log).min().unwrap();
    let mut tail = [&b"VKTA"[..], &1u32.to_le_bytes(), &kept.to_le_bytes(), &0u64.to_le_bytes()].concat();
    let held = [0xEE; 20_000];
    let crc = vellum_codes::crc32c(&[&tail[..], &held].concat());
    tail.extend([&20_000u32.to_le_bytes()[..], &crc.to_le_bytes(), &[0; 32], &held].concat());
    std::fs::write(into.path().join("TAIL"), &tail).unwrap();
    let media: Arc<dyn Media> = directory(into.path());
    store.checkpoint(&media).unwrap();
    drop(media);
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    let copy = crate::harness::open(directory(into.path())).unwrap();
    for store in [&store, &copy] {
        assert_eq!(store.get(&7u32.to_be_bytes()).unwrap(), Some(vec![9; 800]));
    }
}
