//! Who looks for room does not give up while a collection that is under way may win some.

use super::harness::small;
use crate::doubtful::{Doubtful, Fault};
use crate::harness::scattered as key;
use crate::lives::Power;
use crate::under_way::{Gate, asked, beside};
use std::sync::Arc;
use vellum_base::{Env, Nanos, RealEnv, Result, Task};
use vellum_kv::Map;
use vellum_kv::log::{Options, Store};

/// Nothing is collected unasked.
fn store_on(files: &Doubtful) -> Arc<Store> {
    files.0.lock().room = Some(64 << 20);
    let options = Options { garbage_share: 1.1, ..small() };
    Arc::new(Store::open(files.directory(), RealEnv::new(), options).unwrap())
}

/// A segment is begun and another sealed while one is collected; at the `nth` call that takes room there is none. What
/// whoever asked for it is told in the end. `None` if there was room.
fn beside_a_collection(nth: u64) -> Option<Result<()>> {
    let files = Doubtful::default();
    let store = store_on(&files);
    for round in 0..2 {
        (0..300).try_for_each(|n| store.put(&key(n), &[round; 900])).unwrap();
    }
    store.flush().unwrap();
    let gate = Gate::at(&files, ".table", true);
    let compaction = beside(&store, |store| store.compact().unwrap());
    gate.wait_for_somebody();
    store.put(b"k", b"v").unwrap();
    (files.0.lock().fault, files.0.lock().left) = (Fault::FullOnce, Some(nth));
    let (flush, of_flush) = asked(&store, |store| store.flush());
    let env = RealEnv::new();
    let until = env.now() + Nanos::from_ms(5000);
    let was_refused = || files.0.lock().left.is_none();
    while !was_refused() && of_flush.lock().is_none() && env.now() < until {
        env.sleep_until(env.now() + Nanos::from_ms(1));
    }
    let was_refused = was_refused();
    env.sleep_until(env.now() + Nanos::from_ms(30)); // it gives up, perhaps
    files.disarm();
    gate.open();
    [compaction, flush].into_iter().for_each(Task::join);
    was_refused.then(|| of_flush.lock().take().unwrap())
}

#[test]
fn who_seals_and_who_begins_a_segment_wait_for_a_collection() {
    let answers: Vec<_> = (1..8).filter_map(beside_a_collection).collect();
    assert!(answers.len() > 3, "there is always room");
    answers.into_iter().for_each(Result::unwrap);
}
