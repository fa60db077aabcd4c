//! Power cuts: everything stops, everything on the stacks is dropped, and the world can continue afterwards.

use crate::panic_text;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vellum_base::env::scheduler;
use vellum_base::sync::{Condvar, Mutex};
use vellum_base::{Env, Nanos};
use vellum_sim::{FaultPlan, Sim, SimEnv, check};

/// Counts its drops.
struct Counted(Arc<AtomicU64>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_cut_drops_what_is_on_the_stacks_and_releases_locks() {
    let sim = Sim::new(1);
    let env = sim.env();
    let (drops, lock, condition) =
        (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(0u64)), Arc::new(Condvar::new()));
    let result = sim.run_until(Nanos(250), || {
        for task in 0..10 {
            let (inner, drops, lock, condition) =
                (env.clone(), drops.clone(), lock.clone(), condition.clone());
            let run = move || {
                let _counted = Counted(drops);
                if task == 9 {
                    condition.wait(&mut Mutex::new(()).lock()); // never comes
                }
                let mut value = lock.lock(); // most tasks wait here at the power cut
                inner.sleep_until(inner.now() + Nanos(100));
                *value += 1;
            };
            env.clone().spawn("writer", Box::new(run));
        }
        let _counted = Counted(drops.clone());
        env.sleep_until(Nanos(1_000_000));
    });
    assert_eq!((result, sim.now(), sim.task_count()), (None, Nanos(250), 0));
    assert_eq!(drops.load(Ordering::Relaxed), 11);
    assert!(scheduler().is_none());
    assert_eq!(*lock.try_lock().expect("the cut has released the lock"), 2);
    // Tasks can run again, in this simulation and in a new one.
    let after = |sim: &Sim| {
        let env = sim.env();
        sim.run(|| {
            env.sleep_until(env.now() + Nanos(50));
            *lock.lock() += 1;
        });
        sim.now()
    };
    assert_eq!((after(&sim), after(&Sim::new(1))), (Nanos(300), Nanos(50)));
}

#[test]
fn events_at_the_limit_happen_and_later_ones_do_not() {
    let run = |limit| {
        let sim = Sim::new(1);
        let env = sim.env();
        let mut reached = 0;
        let result = sim.run_until(Nanos(limit), || {
            for time in [10, 20, 30] {
                env.sleep_until(Nanos(time));
                reached = time;
            }
        });
        (result, reached, sim.now().0)
    };
    assert_eq!(run(19), (None, 10, 19));
    assert_eq!(run(20), (None, 20, 20));
    assert_eq!(run(29), (None, 20, 29));
    assert_eq!(run(30), (Some(()), 30, 30));
}

#[test]
fn a_task_can_cut_the_power_at_an_operation() {
    let written = |cut_at: u64| {
        let sim = Sim::new(1);
        let env = sim.env();
        let plan = Arc::new(FaultPlan::new(1).at("write", cut_at));
        let media = Arc::new(Mutex::new(Vec::new()));
        let program = |env: &SimEnv, media: &Mutex<Vec<u64>>, plan: &FaultPlan, value| {
            let mut media = media.lock();
            if plan.fires("write") {
                env.cut_power();
                unreachable!("the power is off");
            }
            media.push(value);
        };
        let result = sim.run_until(Nanos(u64::MAX), || {
            let (inner, media_inner, plan_inner) = (env.clone(), media.clone(), plan.clone());
            let run = move || {
                for value in 0..10 {
                    inner.sleep_until(Nanos(value * 10 + 5));
                    program(&inner, &media_inner, &plan_inner, 100 + value);
                }
            };
            let other = env.clone().spawn("other", Box::new(run));
            for value in 0..10 {
                env.sleep_until(Nanos(value * 10));
                program(&env, &media, &plan, value);
            }
            other.join();
        });
        let media = media.lock().clone();
        (result, media.len() as u64)
    };
    for cut_at in 0..20 {
        assert_eq!(written(cut_at), (None, cut_at));
    }
    assert_eq!(written(20), (Some(()), 20));
}

#[test]
fn a_cut_in_run_is_a_panic() {
    let sim = Sim::new(1);
    let env = sim.env();
    assert!(panic_text(|| sim.run(|| env.cut_power())).contains("power was cut"));
}

#[test]
fn work_that_was_charged_before_a_cut_does_not_occupy_the_cores_after_it() {
    let sim = Sim::new(1);
    let env = sim.env();
    assert_eq!(sim.run_until(Nanos(100), || env.charge(Nanos(100_000))), None);
    sim.run(|| env.charge(Nanos(7)));
    assert_eq!(sim.now(), Nanos(107));
}

/// A worker that is stopped and joined when its owner is dropped, as engines do.
struct Owner {
    env: Arc<SimEnv>,
    stop: Arc<(Mutex<bool>, Condvar)>,
    worker: Option<vellum_base::Task>,
    ended: Arc<AtomicU64>,
}

impl Owner {
    fn new(env: &Arc<SimEnv>, ended: &Arc<AtomicU64>) -> Owner {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let inner = stop.clone();
        let run = move || {
            let mut stop = inner.0.lock();
            while !*stop {
                inner.1.wait(&mut stop);
            }
        };
        let worker = Some(env.clone().spawn("worker", Box::new(run)));
        Owner { env: env.clone(), stop, worker, ended: ended.clone() }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        self.worker.take().unwrap().join();
        self.env.charge(Nanos(10));
        self.env.clone().spawn("last words", Box::new(|| unreachable!("nothing starts during a cut"))).join();
        self.env.cut_power();
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn destructors_that_block_are_not_stopped_by_a_cut() {
    let sim = Sim::new(1);
    let env = sim.env();
    let ended = Arc::new(AtomicU64::new(0));
    let result = sim.run_until(Nanos(100), || {
        let _owner = Owner::new(&env, &ended);
        env.sleep_until(Nanos(1000));
    });
    assert_eq!((result, ended.load(Ordering::Relaxed), sim.task_count()), (None, 1, 0));
    // A worker that never started, and an owner in a closure that never ran.
    let owner = Owner::new(&env, &ended);
    env.clone().spawn("owner", Box::new(move || drop(owner)));
    sim.cut_power();
    assert_eq!((ended.load(Ordering::Relaxed), sim.task_count()), (2, 0));
}

#[test]
fn a_destructor_gets_a_lock_whose_holder_was_cut_off() {
    struct Counts(Arc<Mutex<u64>>);
    impl Drop for Counts {
        fn drop(&mut self) {
            *self.0.lock() += 1;
        }
    }
    let sim = Sim::new(1);
    let env = sim.env();
    let lock = Arc::new(Mutex::new(0));
    let result = sim.run_until(Nanos(100), || {
        let _counts = Counts(lock.clone()); // unwound first; needs the lock that a suspended task holds
        for _ in 0..3 {
            let (inner, lock) = (env.clone(), lock.clone());
            let run = move || {
                let _first = Counts(lock.clone());
                let _held = lock.lock();
                inner.sleep_until(Nanos(1000));
            };
            env.clone().spawn("holder", Box::new(run));
        }
        env.sleep_until(Nanos(1000));
    });
    assert_eq!((result, *lock.lock()), (None, 4));
}

#[test]
fn a_task_that_catches_everything_is_cut_off_all_the_same() {
    let sim = Sim::new(1);
    let env = sim.env();
    let mut rounds = 0;
    let result = sim.run_until(Nanos(100), || {
        for _ in 0..3 {
            rounds += 1;
            let sleep = || env.sleep_until(Nanos(1000));
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(sleep));
        }
        env.sleep_until(Nanos(1001));
        unreachable!("the power is off");
    });
    assert_eq!((result, rounds, sim.now()), (None, 3, Nanos(100)));
}

#[test]
fn a_panic_of_a_destructor_during_a_cut_comes_out() {
    struct Fussy;
    impl Drop for Fussy {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "left without unwinding");
        }
    }
    let sim = Sim::new(1);
    let env = sim.env();
    let fussy = Fussy;
    env.spawn("never begins", Box::new(move || drop(fussy)));
    assert!(panic_text(|| sim.cut_power()).contains("left without unwinding"));
    sim.cut_power();
}

#[test]
fn a_simulation_dropped_while_its_test_panics_drops_its_tasks() {
    let drops = Arc::new(AtomicU64::new(0));
    let text = panic_text(|| {
        let sim = Sim::new(1);
        let env = sim.env();
        let (inner, counted) = (env.clone(), Counted(drops.clone()));
        let run = move || {
            let _counted = counted;
            inner.sleep_until(Nanos(1000));
        };
        env.clone().spawn("sleeper", Box::new(run));
        sim.run_root(|| env.sleep_until(Nanos(10)));
        panic!("the test's own");
    });
    assert_eq!((text.as_str(), drops.load(Ordering::Relaxed)), ("the test's own", 1));
}

#[test]
fn cuts_at_random_times_lose_nothing_but_time() {
    check(0..200, |seed| {
        let sim = Sim::new(seed);
        let env = sim.env();
        let lock = Arc::new(Mutex::new((0u64, 0u64)));
        for _ in 0..5 {
            let limit = env.now() + Nanos(env.random() % 1000);
            let workload = || {
                for _ in 0..8 {
                    let (inner, lock) = (env.clone(), lock.clone());
                    let run = move || {
                        for _ in 0..20 {
                            inner.charge(Nanos(inner.random() % 7));
                            let mut pair = lock.lock();
                            pair.0 += 1;
                            pair.1 += 1;
                            drop(pair);
                            inner.sleep_until(inner.now() + Nanos(inner.random() % 50));
                        }
                    };
                    env.clone().spawn("worker", Box::new(run));
                }
                env.sleep_until(limit + Nanos(1));
            };
            assert_eq!(sim.run_until(limit, workload), None);
            let pair = lock.try_lock().expect("free after the cut");
            assert_eq!((pair.0, sim.now()), (pair.1, limit));
        }
    });
}
