//! Passes the content of a sector from its source to the job that writes it into a page.

use std::sync::Arc;
use vellum_base::sync::{Condvar, Mutex};

/// The receiving end.
#[derive(Default)]
pub(super) struct Slot {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
enum State {
    #[default]
    Open,
    Given(Arc<[u8]>),
    /// No content will arrive.
    Void,
}

impl Slot {
    /// Waits for the content; `None` if it will not arrive.
    pub fn wait(&self) -> Option<Arc<[u8]>> {
        let mut state = self.state.lock();
        loop {
            match &*state {
                State::Open => self.changed.wait(&mut state),
                State::Given(bytes) => return Some(bytes.clone()),
                State::Void => return None,
            }
        }
    }

    fn put(&self, next: State) {
        *self.state.lock() = next;
        self.changed.notify_all();
    }
}

/// The sending end. If it is dropped without content, nobody waits any longer.
pub(super) struct Promise {
    slot: Arc<Slot>,
    is_kept: bool,
}

impl Promise {
    /// Both ends.
    pub fn new() -> (Promise, Arc<Slot>) {
        let slot = Arc::new(Slot::default());
        (Promise { slot: slot.clone(), is_kept: false }, slot)
    }

    /// Delivers the content.
    pub fn keep(mut self, bytes: &[u8]) {
        self.is_kept = true;
        self.slot.put(State::Given(bytes.into()));
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if !self.is_kept {
            self.slot.put(State::Void);
        }
    }
}
