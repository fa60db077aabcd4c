//! Time and tasks. Engine code uses no others, so that it runs unchanged on OS threads and in virtual time.

use crate::sync::Mutex;
use crate::units::Nanos;
use std::cell::Cell;
use std::sync::Arc;

/// A clock, and a way to start tasks. Locks are in [`crate::sync`] and need no handle to the environment.
pub trait Env: Send + Sync {
    /// Time since the environment began.
    fn now(&self) -> Nanos;

    /// Blocks the task until `time`; returns at once if it has passed.
    fn sleep_until(&self, time: Nanos);

    /// Charges `cpu` to a modelled controller core. Does nothing in production, where code takes real time.
    fn charge(&self, cpu: Nanos);

    /// Starts a task.
    fn spawn(self: Arc<Self>, name: &str, run: Box<dyn FnOnce() + Send>) -> Task;

    /// Starts a task that the caller can do without; `None` if the system cannot create a thread.
    fn try_spawn(self: Arc<Self>, name: &str, run: Box<dyn FnOnce() + Send>) -> Option<Task> {
        Some(self.spawn(name, run))
    }

    /// Lowers the priority of this task for good: others go first if processors are busy.
    fn give_way(&self) {}

    /// Gives memory that was freed back to the system, as far as an allocator kept it. To be called after work that
    /// allocates much; if it was done within the last second, it is not done again.
    fn give_memory_back(&self) {}

    /// A random number, derived from the environment's seed (in production: from the operating system).
    fn random(&self) -> u64;
}

/// Starts a task. If the system cannot create a thread, runs `run` in the caller and returns `None`.
pub fn spawn_or_run(env: &Arc<dyn Env>, name: &str, run: Box<dyn FnOnce() + Send>) -> Option<Task> {
    let once = Arc::new(Mutex::new(Some(run)));
    let run_once = |once: &Mutex<Option<Box<dyn FnOnce() + Send>>>| {
        let run = once.lock().take();
        run.into_iter().for_each(|run| run());
    };
    let of_task = once.clone();
    let task = env.clone().try_spawn(name, Box::new(move || run_once(&of_task)));
    if task.is_none() {
        run_once(&once);
    }
    task
}

/// A started task.
pub struct Task {
    join: Box<dyn FnOnce() + Send>,
}

impl Task {
    /// A task whose end is awaited by calling `join`.
    pub fn new(join: Box<dyn FnOnce() + Send>) -> Task {
        Task { join }
    }
    /// Waits for the task to end. Panics if it panicked.
    pub fn join(self) {
        (self.join)()
    }
}

/// A virtual world that runs coroutines on this thread. Its methods are for [`crate::sync`] and the creator of one.
pub trait Scheduler {
    /// Parks the running task until `wake(key)`, or until `deadline`.
    fn wait(&self, key: usize, deadline: Option<Nanos>);
    /// Makes up to `count` tasks that wait for `key` ready, those waiting longest first.
    fn wake(&self, key: usize, count: usize);
}

thread_local! {
    static SCHEDULER: Cell<Option<&'static dyn Scheduler>> = const { Cell::new(None) };
}

/// The virtual world this thread is in, if any.
#[inline]
pub fn scheduler() -> Option<&'static dyn Scheduler> {
    SCHEDULER.get()
}

/// Puts this thread into a virtual world, or takes it out (`None`). Returns the previous value.
pub fn enter_scheduler(world: Option<&'static dyn Scheduler>) -> Option<&'static dyn Scheduler> {
    SCHEDULER.replace(world)
}

/// Nice value of a thread after [`Env::give_way`]: beside a normal thread it gets a quarter of a processor.
#[cfg(target_os = "linux")]
const NICE: i32 = 5;

/// Asks for exact wakeups. By default kernels may wake sleepers up to 50 us late, to wake several at once: half the
/// time of a flash read.
#[cfg(target_os = "linux")]
fn wake_in_time() {
    // If that is refused, sleeps just end late.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

#[cfg(not(target_os = "linux"))]
fn wake_in_time() {}

/// Production: OS threads and the real clock.
#[derive(Debug)]
pub struct RealEnv {
    start: std::time::Instant,
    gives_memory_back: bool,
}

impl RealEnv {
    /// An environment that begins now. For a program of which Vellum is the larger part: memory that a store has freed
    /// is given back to the system, and with it that of the whole process (`malloc_trim` of glibc, at most once a
    /// second). Where the heap is of gigabytes that takes its threads longer than is gained; see
    /// [`RealEnv::keeping_memory`].
    pub fn new() -> Arc<RealEnv> {
        RealEnv::begun(true)
    }

    /// The same for a program with a large heap of its own: what is freed is left to its allocator.
    pub fn keeping_memory() -> Arc<RealEnv> {
        RealEnv::begun(false)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the production clock")]
    fn begun(gives_memory_back: bool) -> Arc<RealEnv> {
        Arc::new(RealEnv { start: std::time::Instant::now(), gives_memory_back })
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the production clock and thread source")]
impl Env for RealEnv {
    fn now(&self) -> Nanos {
        Nanos(self.start.elapsed().as_nanos() as u64)
    }

    fn sleep_until(&self, time: Nanos) {
        if time == Nanos::ZERO {
            return; // plain media are never late
        }
        let left = time.saturating_sub(self.now());
        if left > Nanos::ZERO {
            wake_in_time();
            std::thread::sleep(std::time::Duration::from_nanos(left.0));
        }
    }

    fn charge(&self, _cpu: Nanos) {}

    fn spawn(self: Arc<Self>, name: &str, run: Box<dyn FnOnce() + Send>) -> Task {
        self.try_spawn(name, run).expect("the system gives us a thread")
    }

    fn try_spawn(self: Arc<Self>, name: &str, run: Box<dyn FnOnce() + Send>) -> Option<Task> {
        let thread = std::thread::Builder::new().name(name.to_string()).spawn(run).ok()?;
        Some(Task::new(Box::new(move || {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        })))
    }

    fn give_way(&self) {
        // On Linux this sets the nice value of the thread only. If it is refused, the task runs as before.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::setpriority_process(None, NICE);
    }

    fn give_memory_back(&self) {
        if self.gives_memory_back {
            crate::freed::give_back();
        }
    }

    fn random(&self) -> u64 {
        use std::hash::{BuildHasher, Hasher};
        std::hash::RandomState::new().build_hasher().finish()
    }
}
