//! Writes the log pages of a cache with an NVRAM, one after the other, by a separate task.
//!
//! 1. Pages are written in the order of their sequence numbers, so that a page comes after the one that it overwrites.
//! 2. A page is written when the contents that its entries refer to have arrived, or never will: entries include their
//!    checksums. Until then the NVRAM has the entries.
//! 3. Nobody who has a turn waits for the logger, as a content may arrive only after that turn. Instead, requests wait
//!    before they begin while too many pages are due, as their entries take room in the NVRAM.

use super::core::Core;
use std::collections::VecDeque;
use std::sync::Arc;
use vellum_base::Task;
use vellum_base::sync::{Condvar, Mutex};

/// Requests wait while this many pages are due; these fit into the smallest NVRAM beside its other content.
const DUE_MAX: usize = 8;

/// A log page to be written.
#[derive(Clone, Copy)]
pub(super) struct Due {
    pub sequence: u64,
    /// The oldest valid page once this one is written.
    pub head: u64,
    /// Contents begun with a greater stamp are newer than its entries.
    pub stamp: u64,
    /// It must wait until NVRAM records up to this are durable.
    pub after: u64,
}

/// Log pages to be written, in order.
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
    /// Adds a page. The caller holds the policy's lock.
    pub fn push(&self, due: Due) {
        self.state.lock().pages.push_back(due);
        self.changed.notify_all();
    }

    /// The next page; `None` when all are written and no more will come.
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

/// The logger's task. Dropping this ends it once all due pages are written.
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
                // Errors are ignored: a failure has detached the SSD, or the power is lost, which others see.
                let _ = work.write_log_page(due);
            }
        };
        let task = core.env.clone().spawn("array-log", Box::new(run));
        Logger { due, task: Mutex::new(Some(task)) }
    }

    /// Waits until there is room for more pages.
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
