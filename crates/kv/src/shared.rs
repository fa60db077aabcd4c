//! What writers and background tasks of an engine share: a state under a lock, two condition variables, and the health
//! of the store.
//!
//! States of [`Health`]
//! - *well*: background work is done as it arises.
//! - *resting*: there was no room for background work, and nothing was changed. It is suspended until room is freed or
//!   a writer asks for another try; then the store is well again.
//! - *failed*: a change to the medium failed for another reason, so it is unclear what is on it. No more writes are
//!   taken until the store is opened again. A store that was closed, or opened read-only, is in this state, too.
//!
//! Invariants
//! 1. The first failure is the one that is reported to everybody.
//! 2. No wake-up is lost: the health is changed with the lock held, and all waiters are woken after that; a waiter
//!    holds the lock from checking the health until it waits.
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
    /// The work that there was no room for.
    Resting(String),
    /// The cause.
    Failed(Error),
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
    pub(crate) fn check_room(&self) -> Result<()> {
        match self {
            Health::Resting(what) => Err(Error::new(Kind::NoSpace, what.clone())),
            _ => Ok(()),
        }
    }

    /// The error that writes return in a failed store.
    fn failure(&self) -> Error {
        match self {
            Health::Failed(cause) => failure_since(cause),
            _ => Error::new(Kind::Poisoned, "the store takes no more writes; open it again"),
        }
    }
}

/// The error that writes return since this one, for the same reason.
fn failure_since(cause: &Error) -> Error {
    let error = match cause.kind() {
        Kind::PowerLost | Kind::Invalid => return cause.repeated(),
        // Opening the store again does not help against damage.
        Kind::Corrupt => Error::corrupt(format!("the store takes no more writes since: {cause}")),
        _ => {
            let what = format!("the store takes no more writes since: {cause}; open it again");
            Error::new(Kind::Poisoned, what)
        }
    };
    error.because(cause.reason())
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
    /// Group sync of the log; its waiters are released when the store fails.
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

    /// Stores the background tasks, to be joined by [`Shared::end`].
    pub(crate) fn begin(&self, tasks: Vec<Task>) {
        *self.tasks.lock() = tasks;
    }

    /// Stops the tasks and joins them. False if there are none.
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

    /// Wakes background tasks: there may be work.
    pub(crate) fn wake_tasks(&self) {
        self.work.notify_all();
    }

    /// A task that was woken found nothing to do: those who wait for it must check again.
    pub(crate) fn found_nothing(&self) {
        self.progress.notify_all();
    }

    /// Wakes tasks and those who wait for them.
    pub(crate) fn wake_all(&self) {
        self.work.notify_all();
        self.progress.notify_all();
    }

    /// Waits until a task has done something.
    pub(crate) fn wait(&self, state: &mut MutexGuard<'_, S>) {
        self.progress.wait(state);
    }

    /// Waits, in a background task, until `take` returns work. `None` when the task is to end.
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

    /// An error if the store takes no more writes. Must be checked with the manifest's lock held before an edit is
    /// appended: work that was running when a durability call failed may build on what that lost.
    pub(crate) fn check_writable(&self) -> Result<()> {
        match self.has_failed.load(Relaxed) {
            false => Ok(()),
            true => Err(self.state.lock().as_mut().failure()),
        }
    }

    /// Fails the store because of `error`, which is returned.
    pub(crate) fn poison(&self, error: Error) -> Error {
        let mut state = self.state.lock();
        let health = state.as_mut();
        if !health.has_failed() {
            *health = Health::Failed(error.repeated());
        }
        self.has_failed.store(true, Relaxed);
        drop(state);
        self.wake_all();
        self.sync.give_up();
        error
    }

    /// Handles an error of a change to the medium. If there was no room, nothing was changed and the caller may try
    /// again; after any other error the store fails.
    pub(crate) fn refused_or_poisoned(&self, error: Error) -> Error {
        match error.kind() {
            Kind::NoSpace => error,
            _ => self.poison(error),
        }
    }

    /// The same for background work called `work`, which rests if there was no room and `may_rest` says so.
    pub(crate) fn rests_or_poisoned(&self, error: Error, work: &str, may_rest: impl FnOnce(&mut S) -> bool) {
        match error.kind() {
            Kind::NoSpace => {
                let mut state = self.state.lock();
                if !state.as_mut().has_failed() && may_rest(&mut state) {
                    *state.as_mut() = Health::Resting(error.context(work).to_string());
                }
            }
            Kind::PowerLost => drop(self.poison(error)),
            _ => drop(self.poison(error.context(work))),
        }
        self.progress.notify_all();
    }

    /// Ends resting, so that background work tries again.
    pub(crate) fn try_again(&self, state: &mut S) {
        let health = state.as_mut();
        if health.is_resting() {
            *health = Health::Well;
            self.work.notify_all();
        }
    }
}
