//! Those who answer several requests of one connection at once.
//!
//! 1. At most `most` requests are with them; who brings one more waits.
//! 2. What they were given is answered before they end. A connection that does not take a reply is hung up on.
//! 3. There are as many of them as were ever needed at once.

use super::answers::{Answers, Session};
use super::wire::transmission::{Command, Request};
use std::collections::VecDeque;
use std::thread::{Builder, Scope};
use vellum_base::sync::{Condvar, Mutex};

/// Where they are started.
pub(super) type Threads<'t, 's, 'e> = &'t Scope<'s, 'e>;

/// A request, checked, with its payload.
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
    /// Requests that are being answered.
    busy: usize,
    workers: usize,
    is_over: bool,
}

impl<'a> Crew<'a> {
    pub(super) fn new(session: Session<'a>, most: usize) -> Crew<'a> {
        Crew { session, most, state: Mutex::default(), arrived: Condvar::new(), left: Condvar::new() }
    }

    /// Takes a request over.
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
                // There are no threads left: whoever brought it does it.
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

    /// When this is dropped what is waiting is answered; then they end.
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

/// One request less, however it ended. Who panicked has not answered it, and is gone.
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
