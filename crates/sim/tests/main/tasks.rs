//! Tasks, time, locks and the cores of the controller.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vellum_base::env::scheduler;
use vellum_base::sync::{Condvar, Mutex};
use vellum_base::{Env, Nanos, Task};
use vellum_sim::{Sim, SimConfig, SimEnv};

/// Starts a task, and passes the environment to it.
fn spawn(env: &Arc<SimEnv>, name: &str, run: impl FnOnce(&SimEnv) + Send + 'static) -> Task {
    let inner = env.clone();
    env.clone().spawn(name, Box::new(move || run(&inner)))
}

#[test]
fn producers_and_consumers_pass_everything_on_in_order() {
    struct Queue {
        items: Mutex<VecDeque<(u64, u64)>>,
        changed: Condvar,
    }
    let sim = Sim::new(1);
    let env = sim.env();
    let queue = Arc::new(Queue { items: Mutex::new(VecDeque::new()), changed: Condvar::new() });
    let taken = sim.run(|| {
        let producers: Vec<_> = (0..3)
            .map(|producer| {
                let queue = queue.clone();
                spawn(&env, "producer", move |env| {
                    for item in 0..100 {
                        env.sleep_until(Nanos(item * 10 + producer));
                        let mut items = queue.items.lock();
                        while items.len() >= 4 {
                            queue.changed.wait(&mut items);
                        }
                        items.push_back((producer, item));
                        queue.changed.notify_all();
                    }
                })
            })
            .collect();
        let mut taken = Vec::new();
        while taken.len() < 300 {
            let mut items = queue.items.lock();
            assert!(items.len() <= 4);
            match items.pop_front() {
                None => queue.changed.wait(&mut items),
                Some(item) => {
                    taken.push(item);
                    queue.changed.notify_all();
                    drop(items);
                    env.sleep_until(env.now() + Nanos(7));
                }
            }
        }
        producers.into_iter().for_each(Task::join);
        taken
    });
    for producer in 0..3 {
        let items: Vec<u64> = taken.iter().filter(|item| item.0 == producer).map(|item| item.1).collect();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
    assert_eq!(sim.now(), Nanos(300 * 7), "the consumer is the bottleneck");
}

#[test]
fn sleepers_due_at_the_same_time_run_in_the_order_in_which_they_lay_down() {
    let sim = Sim::new(1);
    let env = sim.env();
    let order = Arc::new(Mutex::new(Vec::new()));
    sim.run(|| {
        for sleeper in 0..1000u64 {
            let order = order.clone();
            spawn(&env, "sleeper", move |env| {
                for round in 1..=3 {
                    env.sleep_until(Nanos(round * 100 + sleeper % 5));
                    order.lock().push((env.now().0, sleeper));
                }
            });
        }
        env.sleep_until(Nanos(1000));
    });
    let order = order.lock();
    assert_eq!(order.len(), 3000);
    for pair in order.windows(2) {
        assert!(pair[0] < pair[1], "{:?} before {:?}", pair[0], pair[1]);
    }
}

#[test]
fn a_ready_task_goes_before_a_timer_that_was_set_later_and_after_one_that_was_set_earlier() {
    let sim = Sim::new(1);
    let env = sim.env();
    let order = Arc::new(Mutex::new(Vec::new()));
    sim.run(|| {
        let (first, second, third) = (order.clone(), order.clone(), order.clone());
        spawn(&env, "sets a timer for 10", move |env| {
            env.sleep_until(Nanos(10));
            first.lock().push("timer");
        });
        spawn(&env, "starts a task at 10", {
            let outer = env.clone();
            move |env| {
                env.sleep_until(Nanos(10));
                spawn(&outer, "started", move |_| third.lock().push("started"));
                second.lock().push("starter");
            }
        });
        env.sleep_until(Nanos(10));
        order.lock().push("root");
        env.sleep_until(Nanos(11));
    });
    // The sleeps of the tasks come after the root's, which ran first. The started task comes after all of them.
    assert_eq!(*order.lock(), ["root", "timer", "starter", "started"]);
}

#[test]
fn a_time_that_has_passed_does_not_yield() {
    let sim = Sim::new(1);
    let env = sim.env();
    sim.run(|| {
        let ran = Arc::new(AtomicU64::new(0));
        let inner = ran.clone();
        spawn(&env, "other", move |_| {
            inner.fetch_add(1, Ordering::Relaxed);
        });
        env.sleep_until(Nanos::ZERO);
        assert_eq!(ran.load(Ordering::Relaxed), 0);
        env.sleep_until(Nanos(1));
        assert_eq!(ran.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn join_waits_for_the_end_and_may_come_late() {
    let sim = Sim::new(1);
    let env = sim.env();
    sim.run(|| {
        let slow = spawn(&env, "slow", |env| env.sleep_until(Nanos(500)));
        let quick = spawn(&env, "quick", |_| {});
        slow.join();
        assert_eq!(env.now(), Nanos(500));
        // Its slot may hold another task by now.
        let other = spawn(&env, "other", |env| env.sleep_until(Nanos(9_000)));
        quick.join();
        assert_eq!(env.now(), Nanos(500));
        other.join();
        assert_eq!(env.now(), Nanos(9_000));
    });
}

#[test]
fn a_lock_whose_holder_sleeps_is_handed_on_first_come_first_served() {
    let sim = Sim::new(1);
    let env = sim.env();
    let lock = Arc::new(Mutex::new(Vec::new()));
    sim.run(|| {
        let tasks: Vec<_> = (0..5u64)
            .map(|task| {
                let lock = lock.clone();
                spawn(&env, "holder", move |env| {
                    env.sleep_until(Nanos(task));
                    let mut order = lock.lock();
                    let got = env.now();
                    env.sleep_until(got + Nanos(100));
                    order.push((task, got.0));
                })
            })
            .collect();
        tasks.into_iter().for_each(Task::join);
    });
    assert_eq!(*lock.lock(), [(0, 0), (1, 100), (2, 200), (3, 300), (4, 400)]);
}

#[test]
fn a_wait_ends_by_its_wake_or_by_its_deadline() {
    let sim = Sim::new(1);
    let env = sim.env();
    sim.run(|| {
        spawn(&env, "waker", |env| {
            env.sleep_until(Nanos(30));
            scheduler().unwrap().wake(42, 1);
        });
        let world = scheduler().unwrap();
        world.wait(42, Some(Nanos(10)));
        assert_eq!(env.now(), Nanos(10), "nobody has woken us yet");
        world.wait(42, Some(Nanos(70)));
        assert_eq!(env.now(), Nanos(30));
        env.sleep_until(Nanos(100));
        assert_eq!(env.now(), Nanos(100), "the old deadline at 70 does not count any more");
        world.wait(42, Some(Nanos(100)));
        assert_eq!(env.now(), Nanos(100));
    });
}

/// Times at which four tasks are done that charge 10 each at once.
fn charge_four(cores: usize) -> Vec<u64> {
    let sim = Sim::with(SimConfig { cores, ..SimConfig::new(1) });
    let env = sim.env();
    let done = Arc::new(Mutex::new(Vec::new()));
    sim.run(|| {
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let done = done.clone();
                spawn(&env, "worker", move |env| {
                    env.charge(Nanos(10));
                    env.charge(Nanos::ZERO);
                    done.lock().push(env.now().0);
                })
            })
            .collect();
        tasks.into_iter().for_each(Task::join);
        env.sleep_until(Nanos(1000));
        env.charge(Nanos(5));
        assert_eq!(env.now(), Nanos(1005), "an idle core has saved nothing up");
    });
    let done = done.lock();
    done.clone()
}

#[test]
fn charged_work_queues_for_the_cores() {
    assert_eq!(charge_four(1), [10, 20, 30, 40]);
    assert_eq!(charge_four(2), [10, 10, 20, 20]);
    assert_eq!(charge_four(9), [10, 10, 10, 10]);
}

#[test]
fn a_hundred_thousand_tasks_share_a_few_stacks() {
    let sim = Sim::new(1);
    let env = sim.env();
    let mappings = || std::fs::read_to_string("/proc/self/maps").map_or(0, |maps| maps.lines().count());
    let ended = Arc::new(AtomicU64::new(0));
    let before = mappings();
    sim.run(|| {
        for _ in 0..100_000 / 10 {
            let tasks: Vec<_> = (0..10)
                .map(|_| {
                    let ended = ended.clone();
                    spawn(&env, "short", move |env| {
                        env.sleep_until(env.now() + Nanos(1));
                        ended.fetch_add(1, Ordering::Relaxed);
                    })
                })
                .collect();
            tasks.into_iter().for_each(Task::join);
        }
    });
    assert_eq!(ended.load(Ordering::Relaxed), 100_000);
    // Other tests run at the same time and map memory too.
    assert!(mappings() < before + 10_000, "{} mappings, {before} before", mappings());
}

#[test]
fn the_root_may_borrow_and_run_may_be_called_again() {
    let sim = Sim::new(1);
    let env = sim.env();
    let seen = RefCell::new(Vec::new());
    for round in 1..=3 {
        let value = sim.run(|| {
            env.sleep_until(Nanos(round * 10));
            seen.borrow_mut().push(env.now());
            round
        });
        assert_eq!(value, round);
    }
    assert_eq!(*seen.borrow(), [Nanos(10), Nanos(20), Nanos(30)]);
}

#[test]
fn tasks_left_by_one_root_go_on_under_the_next() {
    let sim = Sim::new(1);
    let env = sim.env();
    let ticks = Arc::new(AtomicU64::new(0));
    let inner = ticks.clone();
    spawn(&env, "ticker", move |env| {
        for tick in 1..=10 {
            env.sleep_until(Nanos(tick * 10));
            inner.fetch_add(1, Ordering::Relaxed);
        }
    });
    sim.run_root(|| env.sleep_until(Nanos(35)));
    assert_eq!((ticks.load(Ordering::Relaxed), sim.task_count()), (3, 1));
    sim.run_root(|| env.sleep_until(Nanos(55)));
    assert_eq!((ticks.load(Ordering::Relaxed), sim.task_count()), (5, 1));
    assert_eq!(sim.run_until_idle(), 0);
    assert_eq!((ticks.load(Ordering::Relaxed), sim.now()), (10, Nanos(100)));
}

#[test]
fn one_simulation_may_run_inside_another() {
    let (outer, inner) = (Sim::new(1), Sim::new(2));
    let (outer_env, inner_env) = (outer.env(), inner.env());
    outer.run(|| {
        outer_env.sleep_until(Nanos(5));
        inner.run(|| inner_env.sleep_until(Nanos(70)));
        outer_env.sleep_until(Nanos(6));
    });
    assert_eq!((outer.now(), inner.now()), (Nanos(6), Nanos(70)));
}
