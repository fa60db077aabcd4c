//! What the writers and the background tasks of an engine share: a state behind a lock, two conditions, and the health
//! of the store.
//!
//! States of [`Health`]
//! - *well*: background work is done as it comes.
//! - *resting*: the medium had no room for it, and nothing was changed. It rests until room was won, or until a writer
//!   asks for another try; then the store is well.
//! - *failed*: something else went wrong while the medium was changed, so it is unclear what is on it. A store that was
//!   closed, or is only read, has failed, too. It stays so until it is opened again.
//!
//! Invariants
//! 1. The first failure is the one that everybody is told.
//! 2. Whoever changes the health holds the lock and then wakes all who wait, and whoever waits holds it from a look at
//!    the health to the wait: nobody sleeps through a change.
//! 3. No task begins work on a store that rests, has failed or is being closed.

use crate::journal::GroupSync;
use vellum_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum_base::sync::{Condvar, Mutex, MutexGuard};
use vellum_base::{Error, Kind, Result, Task};

/// Whether a store may go on; see the module. Part of what is shared.
#[derive(Debug, Default)]
pub(crate) enum Health {
    #[default]
    Well,
    /// What there was no room for.
    Resting(String),
    /// What happened.
    Failed(Kind, String),
}

impl Health {
    pub(crate) fn is_well(&self) -> bool {
        matches!(self, Health::Well)
    }

    pub(crate) fn is_resting(&self) -> bool {
        matches!(self, Health::Resting(_))
    }

    pub(crate) fn has_failed(&self) -> bool {
        matches!(self, Health::Failed(..))
    }

    /// An error if background work rests.
    fn check_room(&self) -> Result<()> {
        match self {
            Health::Resting(what) => Err(Error::new(Kind::NoSpace, what.clone())),
            _ => Ok(()),
        }
    }

    /// What whoever writes is told.
    fn failure(&self) -> Error {
        match self {
            Health::Failed(kind @ (Kind::PowerLost | Kind::Invalid), what) => Error::new(*kind, what.clone()),
            // What is damaged is so after the next opening, too.
            Health::Failed(Kind::Corrupt, what) => {
                Error::corrupt(format!("the store takes no more writes since: {what}"))
            }
            Health::Failed(_, what) => {
                let what = format!("the store takes no more writes since: {what}; open it again");
                Error::new(Kind::Poisoned, what)
            }
            _ => Error::new(Kind::Poisoned, "the store takes no more writes; open it again"),
        }
    }
}

/// See the module.
pub(crate) struct Shared<S> {
    state: Mutex<S>,
    /// There may be work for a background task.
    work: Condvar,
    /// A background task has done something.
    progress: Condvar,
    tasks: Mutex<Vec<Task>>,
    is_stopping: AtomicBool,
    has_failed: AtomicBool,
    /// Who waits for the log to be safe, which fails with the store.
    pub sync: GroupSync,
}

impl<S: AsMut<Health>> Shared<S> {
    pub(crate) fn new(state: S) -> Shared<S> {
        Shared {
            state: Mutex::new(state),
            work: Condvar::new(),
            progress: Condvar::new(),
            tasks: Mutex::default(),
            is_stopping: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            sync: GroupSync::default(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, S> {
        self.state.lock()
    }

    /// Keeps tasks until [`Shared::end`].
    pub(crate) fn begin(&self, tasks: Vec<Task>) {
        *self.tasks.lock() = tasks;
    }

    /// Tells the tasks to end and waits until they have. False if there are none.
    pub(crate) fn end(&self) -> bool {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        let had_tasks = !tasks.is_empty();
        let state = self.state.lock();
        self.is_stopping.store(true, Relaxed);
        drop(state);
        self.wake_all();
        tasks.into_iter().for_each(Task::join);
        had_tasks
    }

    /// True if tasks are to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Relaxed)
    }

    /// There is work, perhaps.
    pub(crate) fn wake_tasks(&self) {
        self.work.notify_all();
    }

    /// A task that was woken found nothing to do: whoever waits for it is to look again.
    pub(crate) fn found_nothing(&self) {
        self.progress.notify_all();
    }

    /// Something has changed, for tasks and for whoever waits for them.
    pub(crate) fn wake_all(&self) {
        self.work.notify_all();
        self.progress.notify_all();
    }

    /// Waits until a task has done something.
    pub(crate) fn wait(&self, state: &mut MutexGuard<'_, S>) {
        self.progress.wait(state);
    }

    /// Waits, in a task, until there is what `take` looks for. `None` when the task is to end.
    pub(crate) fn next_work<T>(&self, mut take: impl FnMut(&mut S) -> Option<T>) -> Option<T> {
        let mut state = self.state.lock();
        loop {
            if self.is_stopping() || state.as_mut().has_failed() {
                return None;
            }
            let work = if state.as_mut().is_well() { take(&mut state) } else { None };
            match work {
                Some(work) => return Some(work),
                None => self.work.wait(&mut state),
            }
        }
    }

    /// Waits for background tasks until `is_done`; true if that took any time. An error if they cannot bring it about.
    pub(crate) fn wait_until(&self, is_done: impl Fn(&S) -> bool) -> Result<bool> {
        let (mut state, mut has_waited) = (self.state.lock(), false);
        while !is_done(&state) && !state.as_mut().has_failed() {
            match has_waited {
                false => self.try_again(&mut state),
                true => state.as_mut().check_room()?,
            }
            has_waited = true;
            self.progress.wait(&mut state);
        }
        drop(state);
        self.check_writable().map(|()| has_waited)
    }

    /// An error if the store takes no more writes. Whoever makes an edit durable asks with the manifest's lock held:
    /// what was under way when a durability call failed may count on what that lost.
    pub(crate) fn check_writable(&self) -> Result<()> {
        match self.has_failed.load(Relaxed) {
            false => Ok(()),
            true => Err(self.state.lock().as_mut().failure()),
        }
    }

    /// Takes no more writes, because of `error`, which is returned.
    pub(crate) fn poison(&self, error: Error) -> Error {
        let mut state = self.state.lock();
        let health = state.as_mut();
        if !health.has_failed() {
            *health = Health::Failed(error.kind(), error.to_string());
        }
        self.has_failed.store(true, Relaxed);
        drop(state);
        self.wake_all();
        self.sync.give_up();
        error
    }

    /// What follows from an error of something that changes the medium. If it had no room, nothing was changed, and
    /// whoever asked may try again; after anything else it is unclear what was, and no more is written.
    pub(crate) fn refused_or_poisoned(&self, error: Error) -> Error {
        match error.kind() {
            Kind::NoSpace => error,
            _ => self.poison(error),
        }
    }

    /// The same, of background work, which is called so.
    pub(crate) fn rests_or_poisoned(&self, error: Error, work: &str) {
        match error.kind() {
            Kind::NoSpace => {
                let mut state = self.state.lock();
                let health = state.as_mut();
                if !health.has_failed() {
                    *health = Health::Resting(error.context(work).to_string());
                }
            }
            Kind::PowerLost => drop(self.poison(error)),
            _ => drop(self.poison(error.context(work))),
        }
        self.progress.notify_all();
    }

    /// Lets background work try once more whether there is room.
    pub(crate) fn try_again(&self, state: &mut S) {
        let health = state.as_mut();
        if health.is_resting() {
            *health = Health::Well;
            self.work.notify_all();
        }
    }
}
