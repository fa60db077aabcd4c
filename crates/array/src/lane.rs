//! Lanes: tasks that make blocking calls for others, so that one operation can have calls in flight on several members.
//!
//! A lane is an OS thread in production and a coroutine in virtual time.
//!
//! 1. Calls of one set of lanes begin in the order in which they were queued.
//! 2. Dropping lanes ends their tasks after everything queued is done.

use std::collections::VecDeque;
use std::sync::Arc;
use vellum_base::sync::{Condvar, Mutex};
use vellum_base::{Env, Task};

type Job = Box<dyn FnOnce() + Send>;

/// A queue of calls and the tasks that make them.
pub(crate) struct Lanes {
    queue: Arc<Queue>,
    tasks: Mutex<Vec<Task>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    closing: bool,
}

impl Lanes {
    /// Starts `count` lanes.
    pub fn start(env: &Arc<dyn Env>, name: &str, count: usize) -> Lanes {
        let queue = Arc::new(Queue::default());
        let lane = |_| {
            let queue = queue.clone();
            env.clone().spawn(name, Box::new(move || queue.serve()))
        };
        let tasks = (0..count).map(lane).collect();
        Lanes { queue, tasks: Mutex::new(tasks) }
    }

    /// Queues a call without waiting for its result.
    pub fn push(&self, job: Job) {
        let mut state = self.queue.state.lock();
        state.jobs.push_back(job);
        let idle = state.idle;
        drop(state);
        if idle > 0 {
            self.queue.changed.notify_one();
        }
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.queue.state.lock().closing = true;
        self.queue.changed.notify_all();
        self.tasks.get_mut().drain(..).for_each(Task::join);
    }
}

impl Queue {
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.state.lock();
            } else if state.closing {
                return;
            } else {
                state.idle += 1;
                self.changed.wait(&mut state);
                state.idle -= 1;
            }
        }
    }
}

/// A call to be made on one of these lanes.
pub(crate) struct Call<'a, T> {
    pub lanes: &'a Lanes,
    pub run: Box<dyn FnOnce() -> T + Send>,
}

/// Makes all calls concurrently and returns their results in order. The last call is made by the caller's own task, so
/// a single call needs no lane.
///
/// # Panics
/// If a call panicked.
pub(crate) fn together<T: Send + 'static>(mut calls: Vec<Call<'_, T>>) -> Vec<T> {
    let Some(last) = calls.pop() else { return Vec::new() };
    let meeting = Arc::new(Meeting::new(calls.len()));
    for (index, call) in calls.into_iter().enumerate() {
        let place = Place { meeting: meeting.clone(), index, result: None };
        call.lanes.push(Box::new(move || {
            let mut place = place;
            place.result = Some((call.run)());
        }));
    }
    let mine = (last.run)();
    let mut results = meeting.wait();
    results.push(mine);
    results
}

/// Collects the results, which are waited for here.
struct Meeting<T> {
    state: Mutex<Results<T>>,
    done: Condvar,
}

struct Results<T> {
    left: usize,
    values: Vec<Option<T>>,
}

/// One call's slot. Dropping it ends the call, also after a panic, which leaves no result.
struct Place<T> {
    meeting: Arc<Meeting<T>>,
    index: usize,
    result: Option<T>,
}

impl<T> Drop for Place<T> {
    fn drop(&mut self) {
        let mut state = self.meeting.state.lock();
        state.values[self.index] = self.result.take();
        state.left -= 1;
        let all = state.left == 0;
        drop(state);
        if all {
            self.meeting.done.notify_all();
        }
    }
}

impl<T> Meeting<T> {
    fn new(calls: usize) -> Meeting<T> {
        let values = (0..calls).map(|_| None).collect();
        Meeting { state: Mutex::new(Results { left: calls, values }), done: Condvar::new() }
    }

    fn wait(&self) -> Vec<T> {
        let mut state = self.state.lock();
        while state.left > 0 {
            self.done.wait(&mut state);
        }
        let values = std::mem::take(&mut state.values);
        values.into_iter().map(|value| value.expect("a call on a lane panicked")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_base::{Nanos, RealEnv};
    use vellum_sim::Sim;

    #[test]
    fn calls_on_different_lanes_overlap_and_on_one_lane_queue() {
        let sim = Sim::new(1);
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            let members: Vec<_> = (0..3).map(|_| Lanes::start(&env, "member", 1)).collect();
            let nap = |lanes| {
                let env = env.clone();
                let run = move || env.sleep_until(env.now() + Nanos(10));
                Call { lanes, run: Box::new(run) }
            };
            together(members.iter().map(nap).collect());
            assert_eq!(env.now(), Nanos(10));
            together([0, 0, 0, 1].map(|i: usize| nap(&members[i])).into());
            assert_eq!(env.now(), Nanos(40));
        });
    }

    #[test]
    fn results_come_in_order_on_threads() {
        let env: Arc<dyn Env> = RealEnv::new();
        let lanes = Lanes::start(&env, "lane", 3);
        for _ in 0..50 {
            let calls = (0..20).map(|i| Call { lanes: &lanes, run: Box::new(move || i * i) }).collect();
            assert_eq!(together(calls), (0..20).map(|i| i * i).collect::<Vec<_>>());
        }
    }
}
