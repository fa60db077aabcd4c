//! A sector's content on its way from who has it to who writes it into a page.

use std::sync::Arc;
use vellum_base::sync::{Condvar, Mutex};

/// What will come.
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
    /// There will be none.
    Void,
}

impl Slot {
    /// Waits for it; None if it does not come.
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

/// Who promises it. Dropped without having given it, it has broken the promise: nobody waits for ever.
pub(super) struct Promise {
    slot: Arc<Slot>,
    is_kept: bool,
}

impl Promise {
    /// A promise, and where it is waited for.
    pub fn new() -> (Promise, Arc<Slot>) {
        let slot = Arc::new(Slot::default());
        (Promise { slot: slot.clone(), is_kept: false }, slot)
    }

    /// Here it is.
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
