//! Worker threads that answer requests of one connection concurrently.
//!
//! 1. The crew has at most `most` requests; further ones wait to be taken.
//! 2. All requests taken are answered before the workers end. If a reply cannot be sent, the connection is shut down.
//! 3. Workers are started on demand: as many as have been needed at the same time.

use super::answers::{Answers, Session};
use super::wire::transmission::{Command, Request};
use std::collections::VecDeque;
use std::thread::{Builder, Scope};
use vellum_base::sync::{Condvar, Mutex};

/// The scope in which workers are started.
pub(super) type Threads<'t, 's, 'e> = &'t Scope<'s, 'e>;

/// A valid request with its payload.
pub(super) struct Flight {
    pub(super) request: Request,
    pub(super) command: Command,
    pub(super) payload: Box<[u8]>,
}

/// See the module.
pub(super) struct Crew<'a> {
    session: Session<'a>,
    most: usize,
    state: Mutex<State>,
    arrived: Condvar,
    left: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Flight>,
    /// Number of requests being answered.
    busy: usize,
    workers: usize,
    is_over: bool,
}

impl<'a> Crew<'a> {
    pub(super) fn new(session: Session<'a>, most: usize) -> Crew<'a> {
        Crew { session, most, state: Mutex::default(), arrived: Condvar::new(), left: Condvar::new() }
    }

    /// Hands a request to the workers.
    pub(super) fn take<'s>(&'s self, threads: Threads<'s, 's, '_>, flight: Flight) {
        let mut state = self.state.lock();
        while state.waiting.len() + state.busy >= self.most {
            self.left.wait(&mut state);
        }
        state.waiting.push_back(flight);
        if state.waiting.len() + state.busy > state.workers {
            let worker = Builder::new().name("nbd-worker".into()).spawn_scoped(threads, || self.work());
            match worker {
                Ok(_) => state.workers += 1,
                // No thread could be started, and there is none: the caller does the work.
                Err(_) if state.workers == 0 => {
                    state.is_over = true;
                    drop(state);
                    self.work();
                    self.state.lock().is_over = false;
                    return;
                }
                Err(_) => {}
            }
        }
        drop(state);
        self.arrived.notify_all();
    }

    /// Returns a guard: when it is dropped, queued requests are answered, and then the workers end.
    pub(super) fn ends(&self) -> End<'_, 'a> {
        End(self)
    }

    fn work(&self) {
        let mut answers = Answers::new(self.session);
        while let Some(Flight { request, command, payload }) = self.next() {
            let _leave = Leave(self);
            let answered = answers.answer(&request, command, &payload).and_then(|()| answers.send());
            if answered.is_err() {
                self.session.wire.hang_up();
            }
        }
    }

    fn next(&self) -> Option<Flight> {
        let mut state = self.state.lock();
        loop {
            if let Some(flight) = state.waiting.pop_front() {
                state.busy += 1;
                return Some(flight);
            }
            if state.is_over {
                return None;
            }
            self.arrived.wait(&mut state);
        }
    }
}

/// See [`Crew::ends`].
pub(super) struct End<'c, 'a>(&'c Crew<'a>);

impl Drop for End<'_, '_> {
    fn drop(&mut self) {
        self.0.state.lock().is_over = true;
        self.0.arrived.notify_all();
    }
}

/// Counts one request less, however it ended. If the worker panicked, it did not answer, and is gone.
struct Leave<'c, 'a>(&'c Crew<'a>);

impl Drop for Leave<'_, '_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.busy -= 1;
        if std::thread::panicking() {
            state.workers -= 1;
            self.0.session.wire.hang_up();
        }
        drop(state);
        self.0.left.notify_all();
    }
}
