//! Time and tasks. Engine code takes them only from here, so that it runs unchanged on OS threads and in
//! virtual time.

use crate::sync::Mutex;
use crate::units::Nanos;
use std::cell::Cell;
use std::sync::Arc;

/// A clock and a way to start tasks. Locks come from [`crate::sync`], which needs no handle.
pub trait Env: Send + Sync {
    /// Time since the environment began.
    fn now(&self) -> Nanos;

    /// Returns at `time`, at once if it has passed.
    fn sleep_until(&self, time: Nanos);

    /// Uses `cpu` of a modelled controller core. Free in production, where real code takes real time.
    fn charge(&self, cpu: Nanos);

    /// Starts a task.
    fn spawn(self: Arc<Self>, name: &str, run: Box<dyn FnOnce() + Send>) -> Task;

    /// The same where work goes on without it, too; `None` if the system has no thread for it.
    fn try_spawn(self: Arc<Self>, name: &str, run: Box<dyn FnOnce() + Send>) -> Option<Task> {
        Some(self.spawn(name, run))
    }

    /// This task's work can wait: from now on others go first where the processor is short. For ever.
    fn give_way(&self) {}

    /// A number from the environment's seed (in production: from the operating system).
    fn random(&self) -> u64;
}

/// Starts a task, or does its work at once where the system gives no thread: `None` then.
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
    /// A task that `join` waits for.
    pub fn new(join: Box<dyn FnOnce() + Send>) -> Task {
        Task { join }
    }
    /// Waits for the task's end. Panics if it panicked.
    pub fn join(self) {
        (self.join)()
    }
}

/// A virtual world that runs coroutines on this thread. Only [`crate::sync`] calls it, and whoever builds one.
pub trait Scheduler {
    /// Parks the running task until `wake(key)`, or until `deadline`.
    fn wait(&self, key: usize, deadline: Option<Nanos>);
    /// Makes up to `count` tasks that wait for `key` ready, the longest waiting first.
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

/// Puts this thread into a virtual world, or takes it out. Returns what was there before.
pub fn enter_scheduler(world: Option<&'static dyn Scheduler>) -> Option<&'static dyn Scheduler> {
    SCHEDULER.replace(world)
}

/// How nice a thread that gives way is: beside another it gets a fourth of a processor.
#[cfg(target_os = "linux")]
const NICE: i32 = 5;

/// Kernels wake sleepers up to 50 us late, to wake several at once: half of what a read of flash takes.
#[cfg(target_os = "linux")]
fn wake_in_time() {
    // Where that is refused it is late.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

#[cfg(not(target_os = "linux"))]
fn wake_in_time() {}

/// Production: OS threads and the real clock.
#[derive(Debug)]
pub struct RealEnv {
    start: std::time::Instant,
}

impl RealEnv {
    /// An environment that begins now.
    #[expect(clippy::disallowed_methods, reason = "this is the production clock")]
    pub fn new() -> Arc<RealEnv> {
        Arc::new(RealEnv { start: std::time::Instant::now() })
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
        // On Linux this is the thread's. Where it is refused, work goes on as before.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::setpriority_process(None, NICE);
    }

    fn random(&self) -> u64 {
        use std::hash::{BuildHasher, Hasher};
        std::hash::RandomState::new().build_hasher().finish()
    }
}
