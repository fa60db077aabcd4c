//! An environment whose tasks are `shuttle`'s, and the orders that are tried.

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, MaxSteps, Runner, thread};
use std::sync::Arc;
use vellum_base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_base::{Env, Nanos, Task};

/// Orders of each kind that are tried, unless `VELLUM_INTERLEAVINGS` says how many.
const ORDERS: usize = 1000;
/// How often the most urgent task changes, at most, in one kind of order.
const CHANGES: usize = 3;

/// Time goes on by a little whenever somebody asks for it.
pub struct StirredEnv(AtomicU64);

impl StirredEnv {
    pub fn new() -> Arc<StirredEnv> {
        Arc::new(StirredEnv(AtomicU64::new(0)))
    }
}

impl Env for StirredEnv {
    fn now(&self) -> Nanos {
        Nanos(self.0.fetch_add(100, Relaxed))
    }

    fn sleep_until(&self, time: Nanos) {
        while self.now() < time {
            thread::yield_now();
        }
    }

    fn charge(&self, _cpu: Nanos) {}

    fn spawn(self: Arc<Self>, _name: &str, run: Box<dyn FnOnce() + Send>) -> Task {
        let task = thread::spawn(run);
        Task::new(Box::new(move || task.join().expect("a task of the store panicked")))
    }

    fn random(&self) -> u64 {
        7
    }
}

/// Runs `story` in many orders: drawn at random, and with few changes of who is most urgent.
pub fn stir(story: fn()) {
    let told = std::env::var("VELLUM_INTERLEAVINGS").ok();
    let orders = told.map_or(ORDERS, |told| told.parse().expect("VELLUM_INTERLEAVINGS is a number"));
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config.max_steps = MaxSteps::FailAfter(5_000_000);
    Runner::new(RandomScheduler::new(orders), config.clone()).run(story);
    Runner::new(PctScheduler::new(CHANGES, orders), config).run(story);
}
