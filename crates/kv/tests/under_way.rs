//! Who looks for room does not give up while work that is under way may free some, and holds up nobody who needs none.

use crate::doubtful::{Doubtful, Fault};
use crate::harness::{scattered as key, small};
use crate::lives::Power;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use vellum_base::sync::{Condvar, Mutex};
use vellum_base::{Env, Nanos, RealEnv, Result, Task};
use vellum_kv::{Map, Options, Store};

/// Stops whoever makes, or removes, a file whose name ends so, the first time, until it is opened.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<Passage>,
    changed: Condvar,
}

#[derive(Default)]
struct Passage {
    somebody_waits: bool,
    is_open: bool,
}

impl Gate {
    pub(crate) fn at(files: &Doubtful, end: &'static str, at_making: bool) -> Arc<Gate> {
        let (gate, was_passed) = (Arc::<Gate>::default(), AtomicBool::new(false));
        let of_files = gate.clone();
        files.0.lock().watch = Some(Arc::new(move |name, is_made| {
            if name.ends_with(end) && is_made == at_making && !was_passed.swap(true, SeqCst) {
                let mut state = of_files.state.lock();
                state.somebody_waits = true;
                of_files.changed.notify_all();
                while !state.is_open {
                    of_files.changed.wait(&mut state);
                }
            }
        }));
        gate
    }

    pub(crate) fn wait_for_somebody(&self) {
        let mut state = self.state.lock();
        while !state.somebody_waits {
            self.changed.wait(&mut state);
        }
    }

    pub(crate) fn open(&self) {
        self.state.lock().is_open = true;
        self.changed.notify_all();
    }
}

const ROOM: u64 = 64 << 20;

fn store_on(files: &Doubtful) -> Arc<Store> {
    files.0.lock().room = Some(ROOM);
    // Nothing is merged unasked.
    let (level0_compact, level0_slow, level0_stop) = (100, 200, 300);
    let options = Options { level0_in_log: false, level0_compact, level0_slow, level0_stop, ..small() };
    Arc::new(Store::open(files.directory(), RealEnv::new(), options).unwrap())
}

pub(crate) fn beside<S: Map + 'static>(store: &Arc<S>, act: impl FnOnce(&S) + Send + 'static) -> Task {
    let store = store.clone();
    (RealEnv::new() as Arc<dyn Env>).spawn("beside", Box::new(move || act(&store)))
}

/// What merges replaced meanwhile is erased: a compaction may find no room as long as it is there, and gave up if the
/// flush let go of it only after it had ended for everybody else.
#[test]
fn a_flush_that_has_written_its_tables_holds_no_others() {
    let files = Doubtful::default();
    let (store, env) = (store_on(&files), RealEnv::new());
    let gone = store.create_keyspace("gone").unwrap();
    (0..300).try_for_each(|n| gone.put(&key(n), &[1; 900])).unwrap();
    store.compact().unwrap();
    let before = files.0.lock().names_ending_in(".table");
    assert!(!before.is_empty());
    store.put(b"k", b"v").unwrap();
    let gate = Gate::at(&files, ".log", false);
    let flush = beside(&store, |store| store.flush().unwrap());
    gate.wait_for_somebody();
    store.drop_keyspace("gone").unwrap();
    let until = env.now() + Nanos::from_ms(20_000);
    let is_left = || files.0.lock().names_ending_in(".table").iter().any(|name| before.contains(name));
    while is_left() && env.now() < until {
        env.sleep_until(env.now() + Nanos::from_ms(1));
    }
    let was_left = is_left();
    gate.open();
    flush.join();
    assert!(!was_left, "the flush holds tables that nobody needs");
}

/// What somebody is told.
pub(crate) type Answer = Arc<Mutex<Option<Result<()>>>>;

pub(crate) fn asked<S: Map + 'static>(
    store: &Arc<S>,
    act: impl FnOnce(&S) -> Result<()> + Send + 'static,
) -> (Task, Answer) {
    let answer = Answer::default();
    let of_task = answer.clone();
    (beside(store, move |store| *of_task.lock() = Some(act(store))), answer)
}

/// A flush finds no room, at the `nth` call that takes some, and rests while a merge is under way, which will free
/// some. What whoever asked for the flush is told in the end, and a put that needs the room. `None` if there was some,
/// or it was not the flush that found none: that is known then before the merge goes on.
fn beside_a_merge(nth: u64) -> Option<[Result<()>; 2]> {
    let files = Doubtful::default();
    let store = store_on(&files);
    for round in 0..4 {
        (0..300).try_for_each(|n| store.put(&key(n), &[round; 900])).unwrap();
        if round == 0 { store.compact() } else { store.flush() }.unwrap();
    }
    let gate = Gate::at(&files, ".table", true);
    let compaction = beside(&store, |store| store.compact().unwrap());
    gate.wait_for_somebody();
    store.put(b"k", b"v").unwrap();
    (files.0.lock().fault, files.0.lock().left) = (Fault::FullOnce, Some(nth));
    let (flush, of_flush) = asked(&store, |store| store.flush());
    let (env, pause) = (RealEnv::new(), Nanos::from_ms(30));
    env.sleep_until(env.now() + pause);
    let rests = files.0.lock().left.is_none() && of_flush.lock().is_none();
    files.disarm();
    // Enough for the merge, not for a memtable besides.
    let others = files.0.lock().room_left() - (1600 << 10);
    files.0.lock().room = Some(ROOM - others);
    let (put, of_put) = asked(&store, |store| store.put(b"l", b"w"));
    env.sleep_until(env.now() + pause);
    gate.open();
    [compaction, flush, put].into_iter().for_each(Task::join);
    rests.then(|| [of_flush, of_put].map(|answer| answer.lock().take().unwrap()))
}

#[test]
fn who_asks_waits_for_a_merge_though_the_store_rests() {
    let answers: Vec<_> = (0..20).flat_map(|_| 1..8).filter_map(beside_a_merge).take(3).collect();
    assert!(!answers.is_empty(), "there is always room");
    answers.into_iter().flatten().for_each(Result::unwrap);
}

/// A writer waits for a flush that is held up; what was written before can be made durable meanwhile.
#[test]
fn a_sync_does_not_wait_for_a_writer_who_waits() {
    let files = Doubtful::default();
    let store = store_on(&files);
    let gate = Gate::at(&files, ".table", true);
    let (writer, of_writer) =
        asked(&store, |store| (0..5000).try_for_each(|n| store.put(&key(n), &[1; 900])));
    gate.wait_for_somebody();
    let (env, pause) = (RealEnv::new(), Nanos::from_ms(30));
    env.sleep_until(env.now() + pause);
    let (sync, of_sync) = asked(&store, |store| store.sync());
    let until = env.now() + Nanos::from_ms(20_000);
    while of_sync.lock().is_none() && env.now() < until {
        env.sleep_until(env.now() + Nanos::from_ms(1));
    }
    let (synced, written) = (of_sync.lock().is_some(), of_writer.lock().is_some());
    gate.open();
    [writer, sync].into_iter().for_each(Task::join);
    assert!(synced && !written, "the sync waited for the writer");
    [of_writer, of_sync].iter().for_each(|answer| answer.lock().take().unwrap().unwrap());
}

/// A flush rests, and what deletes ask for is to merge level 0, which fits: a store that rests did not do it.
#[test]
fn deletes_have_level_0_merged_though_the_store_rests() {
    let mut rested = 0;
    for (left, nth) in [800, 1600, 2400].into_iter().flat_map(|left| (2..6).map(move |nth| (left, nth))) {
        let files = Doubtful::default();
        let store = store_on(&files);
        for round in 0..4 {
            (0..300).try_for_each(|n| store.put(&key(n), &[round; 900])).unwrap();
            store.flush().unwrap();
        }
        store.put(b"k", b"v").unwrap();
        (files.0.lock().fault, files.0.lock().left) = (Fault::FullOnce, Some(nth));
        let flushed = store.flush();
        files.disarm();
        if flushed.is_err_and(|error| error.to_string().starts_with("flush")) {
            rested += 1;
            let others = files.0.lock().room_left() - (left << 10);
            files.0.lock().room = Some(ROOM - others);
            (0..3000).try_for_each(|n| store.delete(&key(n))).unwrap();
        }
    }
    assert!(rested > 0);
}
