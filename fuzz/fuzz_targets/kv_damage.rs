//! A small store of which bytes were changed, opened and repaired: no panic, nothing unbounded, and never a value that
//! nobody wrote. The input is which store (ordered, with bubbles or without, or a log store) and changes: which file,
//! where, what; logs and manifests may get their checksums put right.
#![no_main]

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use vellum_base::sync::Mutex;
use vellum_base::{Env, Error, RealEnv, Result};
use vellum_kv::media::{Files, Handle};
use vellum_kv::{Bounds, Caps, Compression, Directory, DirectoryOptions, Engine, Map, Media, Options, Reuse, ReuseOptions, Store, log, repair};

type Bytes = Arc<Mutex<Vec<u8>>>;

/// A directory in memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<BTreeMap<String, Bytes>>>);

struct Open(Bytes);

impl Files for Memory {
    fn names(&self) -> Result<Vec<String>> {
        Ok(self.0.lock().keys().cloned().collect())
    }
    fn create(&self, name: &str) -> Result<Arc<dyn Handle>> {
        let bytes = Bytes::default();
        self.0.lock().insert(name.into(), bytes.clone());
        Ok(Arc::new(Open(bytes)))
    }
    fn open(&self, name: &str) -> Result<Arc<dyn Handle>> {
        let found = self.0.lock().get(name).cloned();
        Ok(Arc::new(Open(found.ok_or_else(|| Error::corrupt(format!("{name} is missing")))?)))
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.0.lock().remove(name);
        Ok(())
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut files = self.0.lock();
        let file = files.remove(from).ok_or_else(|| Error::corrupt("no such file"))?;
        files.insert(to.into(), file);
        Ok(())
    }
    fn sync_names(&self) -> Result<()> {
        Ok(())
    }
}

impl Handle for Open {
    fn len(&self) -> Result<u64> {
        Ok(self.0.lock().len() as u64)
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let bytes = self.0.lock();
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let found = at.checked_add(out.len()).and_then(|end| bytes.get(at..end));
        out.copy_from_slice(found.ok_or_else(|| Error::corrupt("a file is too short"))?);
        Ok(())
    }
    fn write(&self, offset: u64, new: &[u8]) -> Result<()> {
        let (mut bytes, at) = (self.0.lock(), offset as usize);
        if bytes.len() < at + new.len() {
            bytes.resize(at + new.len(), 0);
        }
        bytes[at..at + new.len()].copy_from_slice(new);
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

fn options(read_only: bool) -> Options {
    let mut compression = [Compression::Zstd(1); _];
    (compression[0], compression[1]) = (Compression::None, Compression::Lz4);
    Options {
        memtable_bytes: 64 << 10,
        cache_bytes: 64 << 10,
        compaction_tasks: 1,
        compression,
        read_only,
        ..Options::default()
    }
}

fn log_options(read_only: bool) -> log::Options {
    log::Options { read_only, segment_bytes: 64 << 10, ..log::Options::default() }
}

fn media(files: &Memory) -> Arc<dyn Media> {
    Directory::on(Arc::new(files.clone()), DirectoryOptions { table_bytes: 64 << 10 })
}

fn key(n: u8) -> [u8; 2] {
    [b'k', n]
}

/// What was written under each key begins with the key.
fn value(n: u8, round: u8) -> Vec<u8> {
    [&key(n)[..], &[round; 60]].concat()
}

/// Files by name.
type Stored = Vec<(String, Vec<u8>)>;

static STORES: [LazyLock<Stored>; 3] =
    [LazyLock::new(ordered), LazyLock::new(|| reused(Engine::Lsm)), LazyLock::new(|| reused(Engine::Log))];

fn ordered() -> Stored {
    let files = Memory::default();
    let store = Store::open(media(&files), RealEnv::new(), options(false)).unwrap();
    let space = store.create_keyspace("s").unwrap();
    for round in 0..3 {
        (0..200).step_by(1 + round as usize).for_each(|n| store.put(&key(n), &value(n, round)).unwrap());
        (0..200).step_by(9).for_each(|n| store.delete(&key(n)).unwrap());
        space.put(&key(round), &value(round, round)).unwrap();
        match round {
            0 => store.compact().unwrap(),
            1 => store.flush().unwrap(),
            _ => {}
        }
    }
    drop(space);
    store.close().unwrap();
    stored(&files)
}

/// A store in which a merge, or a collection, kept most, and left bubbles for it; the last puts are in its log.
fn reused(engine: Engine) -> Stored {
    let files = Memory::default();
    let caps = Caps { bubble: 1.0, global: 1.0 };
    let fill = |store: &dyn Map| {
        let long = |n, round| value(n, round).repeat(5 + (n + round) as usize % 9);
        (0..200).for_each(|n| store.put(&key(n), &long(n, 0)).unwrap());
        store.compact().unwrap();
        (0..200).filter(|n| n % 80 < 9).for_each(|n| store.put(&key(n), &long(n, 1)).unwrap());
        store.delete(&key(150)).unwrap();
        store.compact().unwrap();
        (5..9).for_each(|n| store.put(&key(n), &long(n, 2)).unwrap());
    };
    let bubbles = match engine {
        Engine::Lsm => {
            let compression = [Compression::None; _];
            let options = Options { reuse: ReuseOptions { caps, ..Reuse::Bubbles.into() }, compression, ..options(false) };
            let store = Store::open(media(&files), RealEnv::new(), options).unwrap();
            fill(&store);
            let reuse = store.stat().since_opened.reuse();
            store.close().unwrap();
            reuse.bubbles
        }
        Engine::Log => {
            let options = log::Options { reuse: ReuseOptions { caps, ..Reuse::Bubbles.into() }, ..log_options(false) };
            let store = log::Store::open(media(&files), RealEnv::new(), options).unwrap();
            fill(&store);
            let reuse = store.stat().since_opened.reuse();
            store.close().unwrap();
            reuse.bubbles
        }
    };
    assert!(bubbles > 0, "no bubble in {engine:?}");
    stored(&files)
}

fn stored(files: &Memory) -> Stored {
    let files = files.0.lock();
    files.iter().map(|(name, bytes)| (name.clone(), bytes.lock().clone())).collect()
}

/// Changes of six bytes each: file and whether to put checksums right, place, how many, what.
fn damaged(store: &Stored, changes: &[u8]) -> Memory {
    let mut files = store.clone();
    for change in changes.chunks_exact(6).take(40) {
        let count = files.len();
        let (name, bytes) = &mut files[(change[0] & 0x7F) as usize % count];
        let at = u32::from_le_bytes([change[1], change[2], change[3], 0]) as usize % (bytes.len() + 1);
        match change[4] {
            0xFF => bytes.truncate(at),
            run => bytes.iter_mut().skip(at).take(1 + run as usize % 16).for_each(|byte| *byte = change[5]),
        }
        if change[0] & 0x80 != 0 {
            vellum_kv::fuzz::put_right(name, bytes);
        }
    }
    let files = files.into_iter().map(|(name, bytes)| (name, Arc::new(Mutex::new(bytes))));
    Memory(Arc::new(Mutex::new(files.collect())))
}

/// Reads everything; what is read was written once. Not so where checksums were put right.
fn read(store: &Store, is_forged: bool) {
    let _ = store.verify();
    let mut iter = store.iter(Bounds::all()).unwrap();
    let mut result = iter.seek_to_first();
    for _ in 0..100_000 {
        if result.is_err() || !iter.is_valid() {
            break;
        }
        assert!(is_forged || iter.value().starts_with(iter.key()), "a value that nobody wrote");
        result = iter.next();
    }
    (0..200).for_each(|n| drop(store.get(&key(n))));
}

/// The same of a log store.
fn read_log(store: &log::Store, is_forged: bool) {
    let _ = store.verify();
    for pair in store.iter().take(100_000).flatten() {
        assert!(is_forged || pair.1.starts_with(&pair.0), "a value that nobody wrote");
    }
    (0..200).for_each(|n| drop(store.get(&key(n))));
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((which, changes)) = input.split_first() else { return };
    let which = *which as usize % STORES.len();
    let is_forged = changes.chunks_exact(6).any(|change| change[0] & 0x80 != 0);
    let files = damaged(&STORES[which], changes);
    if which == 2 {
        for read_only in [true, false] {
            if let Ok(store) = log::Store::open(media(&files), RealEnv::new(), log_options(read_only)) {
                read_log(&store, is_forged);
            }
        }
        let (files, env) = (damaged(&STORES[which], changes), RealEnv::new() as Arc<dyn Env>);
        if log::repair(&media(&files), &env, &log_options(false)).is_ok() {
            let store = log::Store::open(media(&files), env, log_options(true)).expect("what was repaired opens");
            read_log(&store, is_forged);
            let problems = store.verify().expect("it reads").problems;
            assert!(is_forged || problems.is_empty(), "{problems:?}");
        }
        return;
    }
    if let Ok(store) = Store::open(media(&files), RealEnv::new(), options(true)) {
        read(&store, is_forged);
    }
    let env: Arc<dyn Env> = RealEnv::new();
    if repair(&media(&files), &env, &options(false)).is_ok() {
        let store = Store::open(media(&files), env, options(true)).expect("what was repaired opens");
        read(&store, is_forged);
        let problems = store.verify().expect("it reads").problems;
        assert!(is_forged || problems.is_empty(), "{problems:?}");
    }
});
