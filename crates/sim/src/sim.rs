//! [`Sim`] owns a world and runs it; [`SimEnv`] is the [`Env`] for code in the world.

use crate::coroutine::{ThreadBound, scoped};
use crate::world::{Panic, Rest, World};
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::sync::Arc;
use vellum_base::{Env, Nanos, Task};

/// Configuration of a simulation.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Seed of all its random numbers.
    pub seed: u64,
    /// Number of cores of the modelled controller, which [`Env::charge`] occupies.
    pub cores: usize,
    /// Size of a task's stack in bytes. A guard page follows, so that an overflow kills the process.
    pub stack_bytes: usize,
    /// Number of events that a failure report shows.
    pub last_events: usize,
}

impl SimConfig {
    /// One core, 128 KiB stacks, 32 events.
    pub fn new(seed: u64) -> SimConfig {
        SimConfig { seed, cores: 1, stack_bytes: 128 << 10, last_events: 32 }
    }
}

/// A virtual world with its tasks. It can be used only on the thread that created it.
///
/// A panic in any task ends the world at once: all tasks are dropped, and the panic continues in the caller of `run`,
/// with the task's name and the seed added to its message.
///
/// Between runs this thread is in no virtual world. A lock that a parked task holds would then block the thread for
/// ever, and a condition signalled there reaches no task. Access data that tasks share inside `run`, or after
/// [`Sim::cut_power`].
pub struct Sim {
    env: Arc<SimEnv>,
    _one_thread: PhantomData<*const ()>,
}

impl Sim {
    /// A world with [`SimConfig::new`].
    pub fn new(seed: u64) -> Sim {
        Sim::with(SimConfig::new(seed))
    }

    /// A world with the given configuration.
    pub fn with(config: SimConfig) -> Sim {
        let env = Arc::new(SimEnv { world: ThreadBound::new(World::new(config)) });
        Sim { env, _one_thread: PhantomData }
    }

    /// The environment for code in this world. Only this thread may use it.
    pub fn env(&self) -> Arc<SimEnv> {
        self.env.clone()
    }

    /// Runs `root` as a task to its end. All tasks that it started must end by the same instant.
    ///
    /// Panics if a task panics, if every task waits for another (naming them), if tasks are left (naming them), or if a
    /// task cuts the power.
    pub fn run<T>(&self, root: impl FnOnce() -> T) -> T {
        let value = self.run_root(root);
        let rest = self.drive(self.now(), None);
        if self.task_count() > 0 {
            let what = match rest {
                Rest::Idle => "wait for ever",
                Rest::Cut => "go on, of which one has cut the power",
                Rest::Later | Rest::Ended => "are left behind",
            };
            self.fail(format!("the root task has ended, but tasks {what}"));
        }
        value
    }

    /// Runs `root` as a task to its end, and leaves the other tasks where they are. Otherwise panics like [`Sim::run`].
    pub fn run_root<T>(&self, root: impl FnOnce() -> T) -> T {
        match self.run_until(Nanos(u64::MAX), root) {
            Some(value) => value,
            None => panic!("the power was cut; Sim::run_until tells it from an end"),
        }
    }

    /// Runs `root` as a task, but cuts the power after the events due at `limit`, or when a task calls
    /// [`SimEnv::cut_power`]. Then all tasks are dropped, and the result is `None`. If `root` ends earlier, the other
    /// tasks stay where they are.
    pub fn run_until<T>(&self, limit: Nanos, root: impl FnOnce() -> T) -> Option<T> {
        self.world().assert_at_rest();
        let mut value = None;
        scoped(
            || value = Some(root()),
            |body| {
                let root = self.world().spawn("root", body);
                match self.drive(limit, root) {
                    Rest::Ended => {}
                    Rest::Cut => self.cut_power(),
                    Rest::Later => {
                        self.world().advance(limit.0);
                        self.cut_power();
                    }
                    Rest::Idle => self.fail("deadlock: every task waits for another".into()),
                }
            },
        );
        value
    }

    /// Runs the existing tasks until all have ended or wait for a wake that does not come. Returns the number of
    /// waiting tasks. Does not return while a task keeps sleeping.
    pub fn run_until_idle(&self) -> usize {
        if self.drive(Nanos(u64::MAX), None) == Rest::Cut {
            self.cut_power();
        }
        self.task_count()
    }

    /// Drops all tasks where they are, as a power cut does. Values on their stacks are dropped and locks are released.
    /// A destructor that sleeps, spawns or joins continues at once. Time does not advance, and a new root task may run
    /// afterwards.
    pub fn cut_power(&self) {
        self.world().assert_at_rest();
        if let Some(panic) = self.world().stop() {
            resume_unwind(panic);
        }
    }

    /// Virtual time.
    pub fn now(&self) -> Nanos {
        Nanos(self.world().now())
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.world().config().seed
    }

    /// Hash of all that has happened: times, tasks, kinds of events, notes. The same code with the same seed gives the
    /// same hash.
    pub fn log_hash(&self) -> u64 {
        self.world().log_hash()
    }

    /// Number of events so far.
    pub fn event_count(&self) -> u64 {
        self.world().event_count()
    }

    /// Number of tasks that have not ended.
    pub fn task_count(&self) -> usize {
        self.world().task_count()
    }

    fn world(&self) -> &World {
        self.env.world()
    }

    fn drive(&self, limit: Nanos, root: Option<(u32, u64)>) -> Rest {
        match self.world().drive(limit.0, root) {
            Ok(rest) => rest,
            Err(panic) => self.spread(panic),
        }
    }

    /// Called when a task has panicked: ends the world, and continues the panic with the task's name and the seed.
    fn spread(&self, panic: Panic) -> ! {
        let world = self.world();
        let report = format!("in task `{}` {}", world.running_name(), world.replay_report());
        world.stop();
        let text = panic.downcast_ref::<String>().cloned();
        match text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string())) {
            Some(text) => {
                eprintln!("{report}");
                resume_unwind(Box::new(format!("{text}\n{report}")))
            }
            None => {
                eprintln!("{report}");
                resume_unwind(panic)
            }
        }
    }

    /// Ends a world that is stuck, and panics with a report.
    fn fail(&self, what: String) -> ! {
        let world = self.world();
        let report = format!("{what}\n{}{}", world.task_report(), world.replay_report());
        world.stop();
        panic!("{report}");
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.world().set_over();
        let panic = self.world().stop();
        if let Some(panic) = panic.filter(|_| !std::thread::panicking()) {
            resume_unwind(panic);
        }
    }
}

/// The environment of a [`Sim`]. Shareable as the trait requires, but panics if used on a thread other than the
/// simulation's.
pub struct SimEnv {
    world: ThreadBound<World>,
}

impl SimEnv {
    /// Adds a text to the log, so that two runs that differ here have different hashes.
    pub fn note(&self, text: &str) {
        self.world().note_text(text);
    }

    /// Adds a number to the log.
    pub fn note_number(&self, number: u64) {
        self.world().note_number(number);
    }

    /// Cuts the power: neither the calling task nor any other continues, and [`Sim::run_until`] returns `None`. A
    /// destructor that calls this during the cut continues.
    pub fn cut_power(&self) {
        self.world().cut_power();
    }

    #[inline]
    fn world(&self) -> &World {
        self.world.get()
    }
}

impl Env for SimEnv {
    #[inline]
    fn now(&self) -> Nanos {
        Nanos(self.world().now())
    }

    fn sleep_until(&self, time: Nanos) {
        self.world().sleep_until(time.0);
    }

    fn charge(&self, cpu: Nanos) {
        self.world().charge(cpu.0);
    }

    fn spawn(self: Arc<Self>, name: &str, run: Box<dyn FnOnce() + Send>) -> Task {
        match self.world().spawn(name, run) {
            Some((slot, number)) => Task::new(Box::new(move || self.world().join(slot, number))),
            None => Task::new(Box::new(|| {})),
        }
    }

    fn random(&self) -> u64 {
        self.world().random()
    }
}
