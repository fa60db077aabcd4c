//! Cost of an event. `cargo bench -p vellum-sim`; the column "items" is events (or lock pairs, or tasks).

use divan::Bencher;
use divan::counter::ItemsCount;
use std::sync::Arc;
use vellum_base::sync::{Condvar, Mutex};
use vellum_base::{Env, Nanos};
use vellum_sim::{Sim, SimConfig};

const EVENTS: u64 = 1_000_000;

fn main() {
    divan::main();
}

fn sim(last_events: usize) -> Sim {
    Sim::with(SimConfig { last_events, ..SimConfig::new(1) })
}

/// `tasks` tasks sleep in turn: each event costs a heap entry and a switch.
fn sleep_in_turn(tasks: u64, last_events: usize) {
    let sim = sim(last_events);
    let env = sim.env();
    sim.run(|| {
        let workers: Vec<_> = (0..tasks)
            .map(|worker| {
                let inner = env.clone();
                let run = move || {
                    for round in 1..=EVENTS / tasks {
                        inner.sleep_until(Nanos(round * tasks + worker * 7919 % tasks));
                    }
                };
                env.clone().spawn("sleeper", Box::new(run))
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join());
    });
    assert!(sim.event_count() >= EVENTS / tasks * tasks);
}

#[divan::bench(args = [2, 16, 256, 4096], sample_count = 10)]
fn switch_and_heap(bencher: Bencher, tasks: u64) {
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| sleep_in_turn(tasks, 0));
}

#[divan::bench(args = [2, 16, 256], sample_count = 10)]
fn switch_and_heap_with_last_events(bencher: Bencher, tasks: u64) {
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| sleep_in_turn(tasks, 32));
}

#[divan::bench(sample_count = 10)]
fn sleep_alone(bencher: Bencher) {
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| {
        let sim = sim(0);
        let env = sim.env();
        sim.run(|| (1..=EVENTS).for_each(|time| env.sleep_until(Nanos(time))));
    });
}

#[divan::bench(sample_count = 10)]
fn condition_ping_pong(bencher: Bencher) {
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| {
        let sim = sim(0);
        let env = sim.env();
        sim.run(|| {
            let ball = Arc::new((Mutex::new(0u64), Condvar::new()));
            let players: Vec<_> = (0..2)
                .map(|side| {
                    let ball = ball.clone();
                    let run = move || {
                        let mut hits = ball.0.lock();
                        while *hits < EVENTS {
                            if *hits % 2 == side {
                                *hits += 1;
                                ball.1.notify_all();
                            } else {
                                ball.1.wait(&mut hits);
                            }
                        }
                    };
                    env.clone().spawn("player", Box::new(run))
                })
                .collect();
            players.into_iter().for_each(|player| player.join());
        });
    });
}

#[divan::bench(sample_count = 10)]
fn spawn_and_join(bencher: Bencher) {
    bencher.counter(ItemsCount::new(EVENTS / 10)).bench_local(|| {
        let sim = sim(0);
        let env = sim.env();
        sim.run(|| (0..EVENTS / 10).for_each(|_| env.clone().spawn("short", Box::new(|| {})).join()));
    });
}

fn lock_pairs(lock: &Mutex<u64>) {
    for _ in 0..EVENTS {
        *divan::black_box(lock).lock() += 1;
    }
}

#[divan::bench(sample_count = 10)]
fn uncontended_lock_outside(bencher: Bencher) {
    let lock = Mutex::new(0);
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| lock_pairs(&lock));
}

#[divan::bench(sample_count = 10)]
fn uncontended_lock_in_sim(bencher: Bencher) {
    let lock = Mutex::new(0);
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| sim(0).run(|| lock_pairs(&lock)));
}
