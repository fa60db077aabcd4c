//! Pages of the log of a cache with an NVRAM: a task of its own writes them, one after the other.
//!
//! 1. They are written in the order of their numbers: one that lies where another did comes after it.
//! 2. A page is written when the contents have come, or never will, that its entries speak of: these go with their
//!    checksums. Until then the NVRAM has the entries.
//! 3. Nobody who has a turn waits for it: a content may come only after that. Requests wait before they begin while too
//!    many pages are due: the NVRAM has their entries.

use super::core::Core;
use std::collections::VecDeque;
use std::sync::Arc;
use vellum_base::Task;
use vellum_base::sync::{Condvar, Mutex};

/// Requests wait while so many are due: with what else there may be they fit into the smallest NVRAM.
const DUE_MAX: usize = 8;

/// A page of the log that is to be written.
#[derive(Clone, Copy)]
pub(super) struct Due {
    pub sequence: u64,
    /// The oldest that counts with it.
    pub head: u64,
    /// Contents that were begun with a greater stamp are not spoken of.
    pub stamp: u64,
    /// Not before what was appended to the NVRAM up to here is durable.
    pub after: u64,
}

/// Pages of the log that are due, in their order.
#[derive(Default)]
pub(super) struct DuePages {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    pages: VecDeque<Due>,
    is_closing: bool,
}

impl DuePages {
    /// One more. The policy's lock is held.
    pub fn push(&self, due: Due) {
        self.state.lock().pages.push_back(due);
        self.changed.notify_all();
    }

    /// The next; None when all are written and no more come.
    fn next(&self) -> Option<Due> {
        let mut state = self.state.lock();
        loop {
            match state.pages.pop_front() {
                None if !state.is_closing => self.changed.wait(&mut state),
                next => {
                    self.changed.notify_all();
                    return next;
                }
            }
        }
    }

    fn wait_for_room(&self) {
        let mut state = self.state.lock();
        while state.pages.len() >= DUE_MAX {
            self.changed.wait(&mut state);
        }
    }
}

/// The task. Dropping it ends it, after what is due.
pub(super) struct Logger {
    due: Arc<DuePages>,
    task: Mutex<Option<Task>>,
}

impl Logger {
    pub fn start(core: &Arc<Core>) -> Logger {
        let due = core.brain.lock().due.clone();
        let (work, pages) = (core.clone(), due.clone());
        let run = move || {
            while let Some(due) = pages.next() {
                // What fails here has detached the SSD, or the power is off: others see that.
                let _ = work.write_log_page(due);
            }
        };
        let task = core.env.clone().spawn("array-log", Box::new(run));
        Logger { due, task: Mutex::new(Some(task)) }
    }

    /// Returns when there is room for more.
    pub fn wait_for_room(&self) {
        self.due.wait_for_room();
    }
}

impl Drop for Logger {
    fn drop(&mut self) {
        self.due.state.lock().is_closing = true;
        self.due.changed.notify_all();
        self.task.get_mut().take().into_iter().for_each(Task::join);
    }
}
