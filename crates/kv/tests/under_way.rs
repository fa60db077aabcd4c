//! Who looks for room does not give up while work that is under way may free some.

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
struct Gate {
    state: Mutex<Passage>,
    changed: Condvar,
}

#[derive(Default)]
struct Passage {
    somebody_waits: bool,
    is_open: bool,
}

impl Gate {
    fn at(files: &Doubtful, end: &'static str, at_making: bool) -> Arc<Gate> {
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

    fn wait_for_somebody(&self) {
        let mut state = self.state.lock();
        while !state.somebody_waits {
            self.changed.wait(&mut state);
        }
    }

    fn open(&self) {
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

fn beside(store: &Arc<Store>, act: impl FnOnce(&Store) + Send + 'static) -> Task {
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

/// A flush found no room, at the `nth` call that takes some, and rests while a merge is under way, which will free
/// some. `None` if it did not rest, else what a put was told that needs the room.
fn put_beside_a_merge(nth: u64) -> Option<Result<()>> {
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
    let rests = store.flush().is_err_and(|error| error.to_string().starts_with("flush"));
    files.disarm();
    // Enough for the merge, not for a memtable besides.
    let others = files.0.lock().room_left() - (1600 << 10);
    files.0.lock().room = Some(ROOM - others);
    let answer = Arc::new(Mutex::new(None));
    let of_task = answer.clone();
    let put = beside(&store, move |store| *of_task.lock() = Some(store.put(b"l", b"w")));
    let env = RealEnv::new();
    env.sleep_until(env.now() + Nanos::from_ms(30));
    gate.open();
    compaction.join();
    put.join();
    answer.lock().take().filter(|_| rests)
}

#[test]
fn a_put_waits_for_a_merge_though_the_store_rests() {
    // The compaction that waits for the merge may have the flush tried again.
    let answers = (0..20).flat_map(|_| 1..8).filter_map(put_beside_a_merge);
    let answers: Vec<_> = answers.take(3).collect();
    assert!(!answers.is_empty(), "it never rests");
    answers.into_iter().for_each(Result::unwrap);
}
