//! Real threads: writers, readers, snapshots and background tasks at the same time. Every batch sets a key in two
//! places; nobody may ever see them differ, or see time go back.

use crate::harness::{directory, small};
use crate::reuse::Spy;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use vellum_base::{Env, Nanos, RealEnv, Task};
use vellum_kv::{Batch, Bounds, Durability, Keyspace, Map, Media, Options, Store, log};

const WRITERS: u32 = 2;
const KEYS: u32 = 200;

fn key(writer: u32, number: u32) -> Vec<u8> {
    format!("{writer}-{number:04}").into_bytes()
}

fn write(store: &Store, twin: &Keyspace, writer: u32, stop: &AtomicBool) -> u64 {
    let mut turn = 0u64;
    while !stop.load(Relaxed) {
        turn += 1;
        let mut batch = Batch::new();
        let value = [&turn.to_be_bytes()[..], &[writer as u8; 200]].concat();
        for key in [key(writer, (turn * 7919 % KEYS as u64) as u32), key(writer, KEYS)] {
            batch.put(&key, &value).unwrap();
            batch.put_in(twin, &key, &value).unwrap();
        }
        let durability = if turn.is_multiple_of(50) { Durability::Sync } else { Durability::Buffered };
        store.write(&batch, durability).unwrap();
    }
    turn
}

fn turn_of(value: Option<Vec<u8>>) -> u64 {
    value.map_or(0, |value| u64::from_be_bytes(value[..8].try_into().unwrap()))
}

fn read(store: &Store, twin: &Keyspace, stop: &AtomicBool) {
    let mut last = [0; WRITERS as usize];
    while !stop.load(Relaxed) {
        for writer in 0..WRITERS {
            let now = turn_of(store.get(&key(writer, KEYS)).unwrap());
            assert!(now >= last[writer as usize], "time goes back");
            last[writer as usize] = now;
            assert!(turn_of(twin.get(&key(writer, KEYS)).unwrap()) >= now, "half a batch");
        }
        let snapshot = store.snapshot();
        let (mut ours, mut theirs) =
            (snapshot.iter(Bounds::all()).unwrap(), snapshot.iter_in(twin, Bounds::all()).unwrap());
        ours.seek_to_first().unwrap();
        theirs.seek_to_first().unwrap();
        while ours.is_valid() {
            assert!(theirs.is_valid() && (ours.key(), ours.value()) == (theirs.key(), theirs.value()));
            assert_eq!(snapshot.get(ours.key()).unwrap().as_deref(), Some(ours.value()));
            ours.next().unwrap();
            theirs.next().unwrap();
        }
        assert!(!theirs.is_valid());
    }
}

#[test]
fn nobody_sees_half_a_batch() {
    let dir = tempfile::tempdir().unwrap();
    let env: Arc<dyn Env> = RealEnv::new();
    let options = Options { memtables_max: 1, cache_bytes: 64 << 10, ..small() };
    let store = Arc::new(Store::open(directory(dir.path()), env.clone(), options).unwrap());
    let (twin, stop) = (store.create_keyspace("twin").unwrap(), Arc::new(AtomicBool::new(false)));
    let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| env.clone().spawn(name, body);
    let mut tasks: Vec<Task> = Vec::new();
    for writer in 0..WRITERS {
        let (store, twin, stop) = (store.clone(), twin.clone(), stop.clone());
        tasks.push(spawn("writer", Box::new(move || assert!(write(&store, &twin, writer, &stop) > 100))));
    }
    for _ in 0..2 {
        let (store, twin, stop) = (store.clone(), twin.clone(), stop.clone());
        tasks.push(spawn("reader", Box::new(move || read(&store, &twin, &stop))));
    }
    for round in 0..20u32 {
        env.sleep_until(env.now() + Nanos::from_ms(100));
        let other = store.create_keyspace("other").unwrap();
        other.put(b"k", &round.to_be_bytes()).unwrap();
        store.drop_keyspace("other").unwrap();
    }
    stop.store(true, Relaxed);
    tasks.into_iter().for_each(Task::join);
    let stat = store.stat();
    assert!(stat.since_opened.flushes() > 5 && stat.since_opened.compactions() > 1, "{stat:?}");
    assert!(store.verify().unwrap().problems.is_empty());
}

/// Logs that are removed before they are read are not missed.
#[test]
fn verifying_beside_a_writer_finds_nothing_wrong() {
    let reads = || {
        let env = RealEnv::new();
        env.sleep_until(env.now() + Nanos::from_ms(2));
    };
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let [mapped, called, log] =
        [0, 1, 2].map(|at| Arc::new(Spy { reads, ..Spy::on(directory(dirs[at].path())) }) as Arc<dyn Media>);
    let env: Arc<dyn Env> = RealEnv::new();
    let log_options = log::Options { segment_bytes: 64 << 10, ..Default::default() };
    let by_calls = Options { map_files: false, ..small() };
    let stores: [Box<dyn Map>; 3] = [
        Box::new(Store::open(mapped, env.clone(), small()).unwrap()),
        Box::new(Store::open(called, env.clone(), by_calls).unwrap()),
        Box::new(log::Store::open(log, env, log_options).unwrap()),
    ];
    for store in &stores {
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in (0..).take_while(|_| !is_done.load(Relaxed)) {
                    store.put(&key(0, number % KEYS), &[number as u8; 300]).unwrap();
                }
            });
            let found: Vec<_> = (0..100).map(|_| store.verify()).collect();
            is_done.store(true, Relaxed);
            found
                .into_iter()
                .for_each(|verified| assert_eq!(verified.unwrap().problems, Vec::<String>::new()));
        });
    }
}

/// What is put through a keyspace while the store is closed comes before that, or is refused.
#[test]
fn a_put_beside_the_closing_is_kept_or_refused() {
    let env: Arc<dyn Env> = RealEnv::new();
    for round in 0..40u32 {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(directory(dir.path()), env.clone(), small()).unwrap();
        let space = store.keyspace("default").unwrap();
        store.put(b"first", b"").unwrap();
        let acknowledged = Arc::new(AtomicU32::new(0));
        let counted = acknowledged.clone();
        let put = move |number: u32| space.put(&number.to_be_bytes(), b"value").is_ok();
        let write = move || {
            for _ in (0u32..).take_while(|number| put(*number)) {
                counted.fetch_add(1, Relaxed);
            }
        };
        let writer = env.clone().spawn("writer", Box::new(write));
        (0..round * 300).for_each(|_| std::hint::spin_loop());
        store.close().unwrap();
        writer.join();
        let acknowledged = acknowledged.load(Relaxed);
        let store = Store::open(directory(dir.path()), env.clone(), small()).unwrap();
        let kept = (0..acknowledged).filter(|number| store.get(&number.to_be_bytes()).unwrap().is_some());
        assert_eq!(kept.count() as u32, acknowledged, "round {round}");
    }
}

/// The system gives it no more threads than those of the store.
struct Poor(Arc<RealEnv>);

impl Env for Poor {
    fn now(&self) -> Nanos {
        self.0.now()
    }
    fn sleep_until(&self, time: Nanos) {
        self.0.sleep_until(time);
    }
    fn charge(&self, cpu: Nanos) {
        self.0.charge(cpu);
    }
    fn spawn(self: Arc<Self>, name: &str, run: Box<dyn FnOnce() + Send>) -> Task {
        assert!(["kv-flush", "kv-compact"].contains(&name), "there is no thread for {name}");
        self.0.clone().spawn(name, run)
    }
    fn try_spawn(self: Arc<Self>, _name: &str, _run: Box<dyn FnOnce() + Send>) -> Option<Task> {
        None
    }
    fn random(&self) -> u64 {
        self.0.random()
    }
}

#[test]
fn without_more_threads_a_store_works_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(directory(dir.path()), Arc::new(Poor(RealEnv::new())), small()).unwrap();
    for i in 0..20_000u32 {
        store.put(&(i * 7919 % 5000).to_be_bytes(), &[i as u8; 200]).unwrap();
    }
    store.flush().unwrap();
    store.compact().unwrap();
    let stat = store.stat().since_opened;
    assert!(stat.flushes() > 3 && stat.compactions() > 0, "{stat:?}");
    assert!(store.verify().unwrap().problems.is_empty());
    store.close().unwrap();
}
