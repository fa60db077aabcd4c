//! Room that gets short, syncs that fail and processes that are killed, in the moment in which it matters most.

use crate::doubtful::{Doubtful, Fault};
use crate::harness::small;
use crate::log::harness as of_log;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use vellum_base::sync::Mutex;
use vellum_base::{Env, Error, Kind, Nanos, RealEnv, Result};
use vellum_kv::media::{Files, Handle};
use vellum_kv::{
    Batch, Bounds, Compression, Directory, DirectoryOptions, Durability, Map, Options, Store, log,
};
use vellum_sim::Sim;

/// What is called, of which file.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Call {
    Open,
    /// Of so many bytes.
    Write(usize),
    Sync,
}

pub(crate) type Hook = Arc<dyn Fn(Call, &str) -> Result<()> + Send + Sync>;

/// Files of which somebody is told before each call, who may wait, or refuse it.
pub(crate) struct Hooked {
    files: Doubtful,
    hook: Hook,
}

struct HookedFile {
    file: Arc<dyn Handle>,
    name: String,
    hook: Hook,
}

impl Hooked {
    pub(crate) fn directory(files: &Doubtful, hook: Hook) -> Arc<Directory> {
        let files = Hooked { files: files.clone(), hook };
        Directory::on(Arc::new(files), DirectoryOptions::default())
    }

    fn hooked(&self, name: &str, file: Arc<dyn Handle>) -> Arc<dyn Handle> {
        Arc::new(HookedFile { file, name: name.into(), hook: self.hook.clone() })
    }
}

impl Files for Hooked {
    fn names(&self) -> Result<Vec<String>> {
        self.files.names()
    }
    fn create(&self, name: &str) -> Result<Arc<dyn Handle>> {
        Ok(self.hooked(name, self.files.create(name)?))
    }
    fn open(&self, name: &str) -> Result<Arc<dyn Handle>> {
        (self.hook)(Call::Open, name)?;
        Ok(self.hooked(name, self.files.open(name)?))
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.files.remove(name)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.files.rename(from, to)
    }
    fn sync_names(&self) -> Result<()> {
        self.files.sync_names()
    }
    fn room_bytes(&self) -> Option<u64> {
        self.files.room_bytes()
    }
}

impl Handle for HookedFile {
    fn len(&self) -> Result<u64> {
        self.file.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.file.read(offset, out)
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        (self.hook)(Call::Write(bytes.len()), &self.name)?;
        self.file.write(offset, bytes)
    }
    fn sync(&self) -> Result<()> {
        (self.hook)(Call::Sync, &self.name)?;
        self.file.sync()
    }
}

/// So many bytes are left.
fn leave_room(files: &Doubtful, bytes: u64) {
    let mut state = files.0.lock();
    let left = state.room_left();
    state.room = state.room.map(|room| room - left + bytes);
}

/// A process is killed at its `nth` call, the next opens the store, and then the power goes: of what was written and
/// not synced nothing is there, and all names are as they were. False if there are not so many calls.
fn killed_and_cut<S: Map>(
    nth: u64,
    open: impl Fn(&Doubtful) -> Result<S>,
    value: impl Fn(u32) -> Vec<u8>,
) -> bool {
    let (files, keys) = (Doubtful::default(), 700u32);
    let store = open(&files).unwrap();
    let put = |n: u32| store.put(&n.to_be_bytes(), &value(n));
    (0..keys).for_each(|n| put(n).unwrap());
    store.flush().unwrap();
    store.sync().unwrap();
    {
        let mut state = files.0.lock();
        (state.fault, state.left) = (Fault::Pulled, Some(nth));
    }
    let _ = (0..keys).try_for_each(put).and_then(|()| store.compact());
    drop(store);
    {
        let mut state = files.0.lock();
        if !state.off {
            return false;
        }
        // The process is gone, and the system is not.
        (state.off, state.left, state.fault) = (false, None, Fault::Cut);
    }
    let again = open(&files).unwrap_or_else(|error| panic!("killed at call {nth}: {error}"));
    files.0.lock().off = true;
    drop(again);
    files.0.lock().crash(|_| true, |_, _| 0);
    let store = open(&files).unwrap_or_else(|error| panic!("killed at call {nth}, then cut: {error}"));
    for n in 0..keys {
        assert_eq!(
            store.get(&n.to_be_bytes()).unwrap(),
            Some(value(n)),
            "killed at call {nth}, then cut: {n}"
        );
    }
    true
}

#[test]
fn what_an_opening_removes_is_not_needed_if_the_power_goes_then() {
    let options = || Options { map_files: false, level0_in_log: false, ..small() };
    let open = |files: &Doubtful| Store::open(files.directory(), RealEnv::new(), options());
    let calls = (1..).step_by(2).take_while(|nth| killed_and_cut(*nth, open, |n| vec![n as u8; 100])).count();
    assert!(calls > 100, "{calls}");
    let open = |files: &Doubtful| log::Store::open(files.directory(), RealEnv::new(), of_log::small());
    let calls = (1..).step_by(5).take_while(|nth| killed_and_cut(*nth, open, |n| vec![n as u8; 300])).count();
    assert!(calls > 100, "{calls}");
}

/// The flush leaves values in a log, whose sync fails while its tables are made, and is told of once.
#[test]
fn a_sync_that_fails_beside_a_flush_is_not_kept_from_who_syncs() {
    let sim = Sim::new(1);
    let env: Arc<dyn Env> = sim.env();
    let (files, fails) = (Doubtful::default(), Arc::new(AtomicBool::new(false)));
    sim.run(|| {
        let (slow, hooked, told) = (env.clone(), files.clone(), fails.clone());
        let hook = move |call, name: &str| {
            if matches!(call, Call::Write(_)) && name.ends_with(".table") {
                slow.sleep_until(slow.now() + Nanos::from_ms(10));
            }
            if call == Call::Open && name.ends_with(".log") && told.swap(false, Relaxed) {
                hooked.0.lock().syncs_before_failure = Some(0);
            }
            Ok(())
        };
        let options = Options { map_files: false, ..Options::default() };
        let open = |media| Store::open(media, env.clone(), options.clone());
        let store = Arc::new(open(Hooked::directory(&files, Arc::new(hook))).unwrap());
        let fill = |byte: u8| (0..100u32).for_each(|n| store.put(&n.to_be_bytes(), &[byte; 200]).unwrap());
        fill(1);
        store.flush().unwrap();
        fill(2);
        fails.store(true, Relaxed);
        let flushed = store.clone();
        let flush = env.clone().spawn("flush", Box::new(move || assert!(flushed.flush().is_err())));
        env.sleep_until(env.now() + Nanos::from_ms(1));
        let mut batch = Batch::new();
        batch.put(b"promised", b"safe").unwrap();
        let promised = store.write(&batch, Durability::Sync).is_ok();
        flush.join();
        drop(store);
        files.0.lock().crash(|_| true, |_, _| 0);
        let found = open(files.directory()).unwrap().get(b"promised").unwrap();
        assert!(!promised || found.is_some(), "a write that was synced is gone");
    });
}

/// What waits in the process with another's write has no room; the log has what is to be synced.
fn synced_beside_another<S: Map + Send + Sync + 'static>(
    open: impl Fn(Arc<Directory>, Arc<dyn Env>) -> Result<S>,
) {
    let sim = Sim::new(1);
    let env: Arc<dyn Env> = sim.env();
    let files = Doubtful::default();
    sim.run(|| {
        let slow = env.clone();
        let hook = move |call, _: &str| {
            if call == Call::Sync {
                slow.sleep_until(slow.now() + Nanos::from_ms(1));
            }
            Ok(())
        };
        let store = Arc::new(open(Hooked::directory(&files, Arc::new(hook)), env.clone()).unwrap());
        store.put(b"begun", b"").unwrap();
        let write = |name: &'static str, durability, after_us: u64| {
            let (store, clock, told) = (store.clone(), env.clone(), Arc::new(Mutex::new(None)));
            let tell = told.clone();
            let body = move || {
                clock.sleep_until(clock.now() + Nanos::from_us(after_us));
                let mut batch = Batch::new();
                batch.put(name.as_bytes(), b"value").unwrap();
                *tell.lock() = Some(store.write(&batch, durability));
            };
            (env.clone().spawn(name, Box::new(body)), told)
        };
        let writes = [
            write("first", Durability::Sync, 0),
            write("second", Durability::Sync, 100),
            write("third", Durability::None, 200),
        ];
        env.sleep_until(env.now() + Nanos::from_us(300));
        {
            let mut state = files.0.lock();
            (state.left, state.fault) = (Some(0), Fault::Full);
        }
        for (task, told) in writes {
            task.join();
            told.lock().take().unwrap().unwrap();
        }
    });
}

#[test]
fn a_synced_write_is_not_refused_for_want_of_room_of_another() {
    synced_beside_another(|media, env| {
        Store::open(media, env, Options { map_files: false, ..Options::default() })
    });
    synced_beside_another(|media, env| log::Store::open(media, env, log::Options::default()));
}

#[test]
fn a_batch_that_waits_for_a_merge_that_has_no_room_is_refused() {
    let files = Doubtful::default();
    files.0.lock().room = Some(64 << 20);
    let options = Options {
        memtable_bytes: 64 << 10,
        level0_compact: 6,
        level0_slow: 100,
        level0_stop: 6,
        map_files: false,
        compression: [Compression::None; _],
        ..Options::default()
    };
    let store = Store::open(files.directory(), RealEnv::new(), options).unwrap();
    for round in 0..5u32 {
        (0..100u32).for_each(|n| store.put(&(n * 7 + round).to_be_bytes(), &[round as u8; 400]).unwrap());
        store.flush().unwrap();
    }
    // Others take the room when the last flush is done, which makes level 0 due.
    store.put(b"the sixth", b"small").unwrap();
    let is_flushed = |nth| {
        (files.0.lock().fault, files.0.lock().left) = (Fault::Full, Some(nth));
        store.flush().is_ok()
    };
    (1..100).find(|nth| is_flushed(*nth)).unwrap();
    files.0.lock().left = Some(0);
    let tables = store.stat().levels[0].tables;
    assert!(tables >= 6, "{tables}: it was merged");
    let mut batch = Batch::new();
    (0..4u8).for_each(|n| batch.put(&[n], &[1; 20 << 10]).unwrap());
    assert_eq!(store.write(&batch, Durability::Buffered).unwrap_err().kind(), Kind::NoSpace);
    files.0.lock().left = None;
    store.write(&batch, Durability::Buffered).unwrap();
}

#[test]
fn room_that_iterators_give_back_is_there_for_who_compacts() {
    let files = Doubtful::default();
    files.0.lock().room = Some(64 << 20);
    let options = Options {
        level0_compact: 100,
        level0_slow: 200,
        level0_stop: 300,
        map_files: false,
        level0_in_log: false,
        level1_bytes: 0,
        ..small()
    };
    let store = Store::open(files.directory(), RealEnv::new(), options).unwrap();
    let fill = |byte: u8| (0..4000u32).for_each(|n| store.put(&n.to_be_bytes(), &[byte; 400]).unwrap());
    fill(1);
    store.compact().unwrap();
    let mut iter = store.iter(Bounds::all()).unwrap();
    iter.seek_to_first().unwrap();
    fill(2);
    store.compact().unwrap();
    fill(3);
    store.flush().unwrap();
    leave_room(&files, 100 << 10);
    assert_eq!(store.compact().unwrap_err().kind(), Kind::NoSpace);
    drop(iter);
    store.compact().unwrap();
    let mut ingest = store.ingest().unwrap();
    ingest.put(b"zzz", &[1; 100]).unwrap();
    ingest.finish().unwrap();
}

/// An ingest holds what a compaction needs, and there is no room for the edit that would put it in force.
#[test]
fn a_compaction_does_not_sleep_through_the_end_of_an_ingest() {
    let sim = Sim::new(1);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let (files, edits) = (Doubtful::default(), Arc::new(AtomicU32::new(u32::MAX / 2)));
        files.0.lock().room = Some(64 << 20);
        let (slow, hooked, counted) = (env.clone(), files.clone(), edits.clone());
        // Of the edits that come from 0 on the second finds no room, nor does anything after it.
        let hook = move |call, name: &str| {
            if !matches!(call, Call::Write(_)) || !name.ends_with(".manifest") {
                return Ok(());
            }
            let edit = counted.fetch_add(1, Relaxed);
            if edit < 100 {
                slow.sleep_until(slow.now() + Nanos::from_ms(50));
            }
            if edit == 1 {
                leave_room(&hooked, 0);
                return Err(Error::new(Kind::NoSpace, "no space left on device"));
            }
            Ok(())
        };
        let options = Options {
            map_files: false,
            level0_in_log: false,
            memtable_bytes: 1 << 20,
            level1_bytes: 512 << 10,
            compression: [Compression::None; _],
            ..Options::default()
        };
        let media = Hooked::directory(&files, Arc::new(hook));
        let store = Arc::new(Store::open(media, env.clone(), options).unwrap());
        let mut ingest = store.ingest().unwrap();
        for n in (800..1500u32).filter(|n| !(1040..1110).contains(n)) {
            ingest.put(&n.to_be_bytes(), &[1; 1000]).unwrap();
        }
        ingest.finish().unwrap();
        for byte in 2..5u8 {
            (0..1000u32).for_each(|n| store.put(&n.to_be_bytes(), &[byte; 100]).unwrap());
            store.flush().unwrap();
            if byte < 4 {
                store.compact_range(Bounds::all().until(&500u32.to_be_bytes())).unwrap();
            }
        }
        edits.store(0, Relaxed);
        let (compacted, is_done) = (store.clone(), Arc::new(AtomicBool::new(false)));
        let done = is_done.clone();
        let body = move || {
            let _ = compacted.compact();
            done.store(true, Relaxed);
        };
        let compaction = env.clone().spawn("compact", Box::new(body));
        let mut ingest = store.ingest().unwrap();
        (1050..1100u32).for_each(|n| ingest.put(&n.to_be_bytes(), &[4; 100]).unwrap());
        while edits.load(Relaxed) == 0 {
            env.sleep_until(env.now() + Nanos::from_ms(1));
        }
        assert_eq!(ingest.finish().unwrap_err().kind(), Kind::NoSpace);
        env.sleep_until(env.now() + Nanos::from_ms(60_000));
        assert!(is_done.load(Relaxed), "a minute later it has not ended");
        compaction.join();
    });
}

/// Each ingest goes to level 0, as it overlaps all that is there, and is soon written; merging it takes long.
#[test]
fn ingests_wait_as_writers_do_where_level_0_is_full() {
    let sim = Sim::new(1);
    let env: Arc<dyn Env> = sim.env();
    let slow = env.clone();
    let hook = move |call, name: &str| {
        if let Call::Write(bytes) = call
            && name.ends_with(".table")
        {
            slow.sleep_until(slow.now() + Nanos::from_us(bytes as u64 / 8));
        }
        Ok(())
    };
    sim.run(|| {
        // All of it is in level 1.
        let level1_bytes = 64 << 20;
        let options =
            Options { map_files: false, level0_compact: 3, level0_stop: 5, level1_bytes, ..small() };
        let media = Hooked::directory(&Doubtful::default(), Arc::new(hook));
        let store = Store::open(media, env.clone(), options).unwrap();
        let mut all = store.ingest().unwrap();
        (0..20_000u32).for_each(|n| all.put(&n.to_be_bytes(), &[1; 300]).unwrap());
        all.finish().unwrap();
        let mut most = 0;
        for round in 0..60u32 {
            let mut ingest = store.ingest().unwrap();
            [round, 19_000 + round].iter().for_each(|n| ingest.put(&n.to_be_bytes(), b"2").unwrap());
            ingest.finish().unwrap();
            most = most.max(store.stat().levels[0].tables);
        }
        assert!((3..=5).contains(&most), "{most} tables");
        assert_eq!(store.get(&19_059u32.to_be_bytes()).unwrap().as_deref(), Some(&b"2"[..]));
    });
}
