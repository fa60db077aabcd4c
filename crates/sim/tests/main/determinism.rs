//! A run is a function of its seed.

use std::sync::Arc;
use vellum_base::sync::{Condvar, Mutex};
use vellum_base::{Env, Nanos, Task};
use vellum_sim::{Sim, SimConfig};

/// Tasks that sleep, compute, lock and signal at random, depending on the seed.
fn random_world(config: SimConfig) -> (u64, u64, Nanos) {
    let sim = Sim::with(config);
    let env = sim.env();
    sim.run(|| {
        let shared = Arc::new((Mutex::new(0u64), Condvar::new()));
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let (inner, shared) = (env.clone(), shared.clone());
                let run = move || {
                    for _ in 0..50 {
                        match inner.random() % 4 {
                            0 => inner.sleep_until(inner.now() + Nanos(inner.random() % 100)),
                            1 => inner.charge(Nanos(inner.random() % 10)),
                            2 => {
                                let mut count = shared.0.lock();
                                inner.sleep_until(inner.now() + Nanos(1));
                                *count += 1;
                                shared.1.notify_all();
                            }
                            _ => inner.note_number(*shared.0.lock()),
                        }
                    }
                };
                env.clone().spawn("random", Box::new(run))
            })
            .collect();
        let mut count = shared.0.lock();
        while *count < 100 {
            shared.1.wait(&mut count);
        }
        drop(count);
        tasks.into_iter().for_each(Task::join);
    });
    (sim.log_hash(), sim.event_count(), sim.now())
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let first = random_world(SimConfig::new(1));
    // Gives the locks other addresses, as in another process.
    let _shift: Vec<Box<[u8]>> = (1..500).map(|size| vec![0; size].into()).collect();
    assert_eq!(first, random_world(SimConfig::new(1)));
    assert_eq!(first, random_world(SimConfig { last_events: 0, stack_bytes: 1 << 20, ..SimConfig::new(1) }));
    let hashes: std::collections::BTreeSet<u64> =
        (0..50).map(|seed| random_world(SimConfig::new(seed)).0).collect();
    assert_eq!(hashes.len(), 50);
}

#[test]
fn the_hash_sees_order_times_and_notes() {
    let hash = |run: &dyn Fn(&Arc<vellum_sim::SimEnv>)| {
        let sim = Sim::new(1);
        let env = sim.env();
        sim.run(|| run(&env));
        sim.log_hash()
    };
    let hashes = [
        hash(&|_| {}),
        hash(&|env| env.note("a")),
        hash(&|env| env.note("b")),
        hash(&|env| env.note("a\0")),
        hash(&|env| env.note_number(1)),
        hash(&|env| env.note_number(2)),
        hash(&|env| [1, 2].iter().for_each(|&n| env.note_number(n))),
        hash(&|env| [2, 1].iter().for_each(|&n| env.note_number(n))),
        hash(&|env| env.sleep_until(Nanos(1))),
        hash(&|env| env.sleep_until(Nanos(2))),
    ];
    let different: std::collections::BTreeSet<u64> = hashes.into();
    assert_eq!(different.len(), hashes.len());
}

#[test]
fn a_sleep_without_a_switch_is_logged_like_one_with() {
    let run = |others: bool| {
        let sim = Sim::new(1);
        let env = sim.env();
        // A task that is due at the end leaves the fast path to the root; one that is due at each step does not.
        let inner = env.clone();
        let step = if others { 1 } else { 100 };
        let run = move || (0..=100).step_by(step).for_each(|time| inner.sleep_until(Nanos(time)));
        env.clone().spawn("other", Box::new(run));
        sim.run(|| (1..=100).for_each(|time| env.sleep_until(Nanos(time))));
        sim.event_count()
    };
    assert_eq!(run(true) - run(false), 99);
}
