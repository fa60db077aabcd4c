//! The virtual world: the tasks of one thread, its clock, and the event loop that runs one task at a time.
//!
//! States of a world: at rest (no task runs), driving (inside [`World::drive`]), stopping (all tasks are being unwound,
//! and nothing blocks any more), over (its `Sim` was dropped).
//!
//! Invariants
//! 1. A task that has not ended is in exactly one of these states: running, in `events`, in `waiters` (and also in
//!    `events` if its wait has a deadline), or stopped by a power cut.
//! 2. No code of a task runs while `state` is borrowed. So nothing that may contain such code is dropped then.
//! 3. Time advances only in `drive` and in the fast path of `sleep_until`, and never goes backwards.
//! 4. While stopping, tasks are resumed only to unwind, and an unwinding task is never suspended.

mod report;
mod stop;

use crate::coroutine::{Body, Coroutine, Switch, entered};
use crate::events::{Events, Next, Slot, Source};
use crate::log::{Kind, Log};
use crate::sim::SimConfig;
use crate::tasks::Tasks;
use crate::waiters::Waiters;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use std::any::Any;
use std::cell::{Cell, RefCell, RefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use vellum_base::Nanos;
use vellum_base::env::{Scheduler, scheduler};

/// The payload of a task's panic.
pub(crate) type Panic = Box<dyn Any + Send>;

/// Why the event loop returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// The root task has ended.
    Ended,
    /// The next event is later than the limit.
    Later,
    /// There are no more events.
    Idle,
    /// A task cut the power.
    Cut,
}

/// The virtual world; see the module.
pub(crate) struct World {
    config: SimConfig,
    clock: Cell<u64>,
    /// Equals `state.waiters.count()`, for a check without a borrow.
    waiting: Cell<usize>,
    switch: Switch,
    state: RefCell<State>,
}

struct State {
    tasks: Tasks,
    events: Events,
    waiters: Waiters,
    log: Log,
    random: SmallRng,
    /// Times at which the cores of the modelled controller finish their work.
    cores_busy_until: Vec<u64>,
    running: Option<Slot>,
    /// A sleep that ends at this time or before may skip the event loop.
    limit: u64,
    driving: bool,
    stopping: bool,
    cut: bool,
    over: bool,
    /// The first panic of a destructor during stopping.
    stop_panic: Option<Panic>,
}

/// Key that a join waits for. No lock has it as its address: the top of the address space belongs to the kernel.
fn join_key(slot: Slot) -> usize {
    usize::MAX - slot as usize
}

impl World {
    pub(crate) fn new(config: SimConfig) -> World {
        assert!(config.cores > 0, "a controller has a core");
        let state = State {
            tasks: Tasks::default(),
            events: Events::default(),
            waiters: Waiters::new(),
            log: Log::new(config.last_events),
            random: SmallRng::seed_from_u64(config.seed),
            cores_busy_until: vec![0; config.cores],
            running: None,
            limit: 0,
            driving: false,
            stopping: false,
            cut: false,
            over: false,
            stop_panic: None,
        };
        World {
            config,
            clock: Cell::new(0),
            waiting: Cell::new(0),
            switch: Switch::new(),
            state: RefCell::new(state),
        }
    }

    pub(crate) fn config(&self) -> &SimConfig {
        &self.config
    }

    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.clock.get()
    }

    pub(crate) fn random(&self) -> u64 {
        self.state.borrow_mut().random.next_u64()
    }

    pub(crate) fn log_hash(&self) -> u64 {
        self.state.borrow().log.hash()
    }

    pub(crate) fn event_count(&self) -> u64 {
        self.state.borrow().log.count()
    }

    pub(crate) fn task_count(&self) -> usize {
        self.state.borrow().tasks.count()
    }

    pub(crate) fn note_text(&self, text: &str) {
        let mut state = self.state.borrow_mut();
        let task = state.running_number();
        state.log.text(self.now(), task, text);
    }

    pub(crate) fn note_number(&self, number: u64) {
        let mut state = self.state.borrow_mut();
        let task = state.running_number();
        state.log.number(self.now(), task, number);
    }

    /// Adds a task that is ready to run. While stopping, drops it without running it and returns `None`.
    pub(crate) fn spawn(&self, name: &str, body: Body) -> Option<(Slot, u64)> {
        {
            let state = self.state.borrow();
            assert!(!state.over, "task {name} is spawned in a simulation that is over");
            if state.stopping {
                drop(state);
                drop(body);
                return None;
            }
        }
        let coroutine = Coroutine::new(self.config.stack_bytes, body);
        let mut state = self.state.borrow_mut();
        let now = self.now();
        let (slot, number) = state.tasks.insert(name, coroutine, now);
        state.events.ready(slot, now);
        state.log.event(now, number, Kind::Spawned);
        Some((slot, number))
    }

    /// Waits for the end of a task. Returns at once while stopping.
    pub(crate) fn join(&self, slot: Slot, number: u64) {
        while self.state.borrow().tasks.is_alive(slot, number) {
            if self.is_stopping() {
                return self.unwind_on();
            }
            self.wait(join_key(slot), None);
        }
    }

    #[inline]
    pub(crate) fn sleep_until(&self, time: u64) {
        if time <= self.now() {
            return;
        }
        let mut state = self.state.borrow_mut();
        if let Some(slot) = state.running
            && !state.stopping
            && time <= state.limit
            && state.events.none_until(time)
        {
            self.clock.set(time);
            let number = state.tasks.get(slot).number;
            state.log.event(time, number, Kind::Timer);
            return;
        }
        drop(state);
        if self.is_stopping() {
            return self.unwind_on();
        }
        let mut state = self.state.borrow_mut();
        let slot = self.blocking_task(&state);
        state.events.sleep(slot, time);
        self.suspend(state);
    }

    /// Occupies the core that is free first, and sleeps until the work is done.
    pub(crate) fn charge(&self, cpu: u64) {
        if cpu == 0 {
            return;
        }
        let now = self.now();
        let mut state = self.state.borrow_mut();
        let core = state.cores_busy_until.iter_mut().min().expect("a controller has a core");
        *core = now.max(*core) + cpu;
        let done = *core;
        drop(state);
        self.sleep_until(done);
    }

    /// Stops the world as soon as the event loop has control again. Called from a task this does not return, unless a
    /// destructor of the task calls it while the world is stopping.
    pub(crate) fn cut_power(&self) {
        if self.is_stopping() {
            return self.unwind_on();
        }
        let mut state = self.state.borrow_mut();
        self.blocking_task(&state);
        state.cut = true;
        self.suspend(state);
    }

    /// Runs tasks until `root` ends, or until no event is due at `limit` or before.
    pub(crate) fn drive(&self, limit: u64, root: Option<(Slot, u64)>) -> Result<Rest, Panic> {
        {
            self.assert_at_rest();
            let mut state = self.state.borrow_mut();
            state.driving = true;
            state.limit = limit;
        }
        let rest =
            catch_unwind(AssertUnwindSafe(|| entered(self.scheduler(), || self.run_tasks(limit, root))));
        self.state.borrow_mut().driving = false;
        rest
    }

    /// Panics if the world is already being run.
    pub(crate) fn assert_at_rest(&self) {
        let state = self.state.borrow();
        assert!(!state.driving && !state.stopping, "a simulation is run from inside itself");
    }

    fn run_tasks(&self, limit: u64, root: Option<(Slot, u64)>) -> Rest {
        let mut before: Option<(Slot, Box<Coroutine>)> = None;
        loop {
            let mut state = self.state.borrow_mut();
            if let Some((slot, coroutine)) = before {
                state.tasks.get(slot).coroutine = Some(coroutine);
                state.running = None;
            }
            assert!(!state.stopping, "a task blocked while it panicked, and then caught the panic");
            if state.cut {
                return Rest::Cut;
            }
            let (slot, mut coroutine) = match state.events.pop(limit) {
                Next::Run { slot, time, source } => {
                    self.clock.set(time);
                    (slot, state.dispatch(slot, time, source))
                }
                Next::Later => return Rest::Later,
                Next::Idle => return Rest::Idle,
            };
            self.waiting.set(state.waiters.count());
            drop(state);
            let ended = self.switch.resume(&mut coroutine);
            before = if ended {
                let number = self.finish(slot, *coroutine);
                if root == Some((slot, number)) {
                    return Rest::Ended;
                }
                None
            } else {
                Some((slot, coroutine))
            };
        }
    }

    /// Removes a task that has run to its end. Returns its number.
    fn finish(&self, slot: Slot, coroutine: Coroutine) -> u64 {
        coroutine.recycle();
        let number = {
            let mut state = self.state.borrow_mut();
            let number = state.tasks.get(slot).number;
            state.running = None;
            state.tasks.remove(slot);
            state.log.event(self.now(), number, Kind::Ended);
            number
        };
        self.wake(join_key(slot), usize::MAX);
        number
    }

    /// Yields to the event loop. The running task must have been queued so that it will be resumed.
    #[inline]
    fn suspend(&self, state: RefMut<'_, State>) {
        drop(state);
        self.switch.suspend();
    }

    /// The running task, if it may block. It may not while a task of another world runs on top of it.
    fn blocking_task(&self, state: &State) -> Slot {
        let slot = state.running.expect("only a task can block: put this code into Sim::run");
        let innermost = scheduler().is_some_and(|world| std::ptr::addr_eq(world, self));
        assert!(innermost, "a task of one simulation blocks inside another simulation");
        slot
    }

    fn scheduler(&self) -> &(dyn Scheduler + 'static) {
        self
    }
}

impl State {
    /// Number of the running task, or 0 outside tasks.
    fn running_number(&mut self) -> u64 {
        self.running.map_or(0, |slot| self.tasks.get(slot).number)
    }

    #[inline]
    fn dispatch(&mut self, slot: Slot, time: u64, source: Source) -> Box<Coroutine> {
        let entry = self.tasks.get(slot);
        let coroutine = entry.coroutine.take().expect("a task with an event is suspended");
        let number = entry.number;
        self.running = Some(slot);
        let kind = match source {
            Source::Ready => Kind::Woken,
            Source::Timer => {
                self.waiters.remove(slot); // if the timer was the deadline of a wait
                Kind::Timer
            }
        };
        self.log.event(time, number, kind);
        coroutine
    }
}

impl Scheduler for World {
    fn wait(&self, key: usize, deadline: Option<Nanos>) {
        if self.is_stopping() {
            return self.wait_while_stopping();
        }
        let mut state = self.state.borrow_mut();
        if deadline.is_some_and(|deadline| deadline.0 <= self.now()) {
            return;
        }
        let slot = self.blocking_task(&state);
        state.waiters.push(key, slot);
        self.waiting.set(state.waiters.count());
        if let Some(deadline) = deadline {
            state.events.sleep(slot, deadline.0);
        }
        state.tasks.get(slot).parked_at = self.now();
        self.suspend(state);
    }

    #[inline]
    fn wake(&self, key: usize, count: usize) {
        if self.waiting.get() > 0 {
            self.wake_waiting(key, count);
        }
    }
}

impl World {
    fn wake_waiting(&self, key: usize, count: usize) {
        let now = self.now();
        let mut state = self.state.borrow_mut();
        for _ in 0..count {
            let Some(slot) = state.waiters.pop(key) else { break };
            state.events.cancel(slot);
            state.events.ready(slot, now);
        }
        self.waiting.set(state.waiters.count());
    }
}
