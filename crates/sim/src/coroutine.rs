//! The one place with `unsafe`: handles of coroutines, and three promises that the type system cannot see.
//!
//! 1. [`Switch`] remembers, as a pointer, where the running coroutine gives up control. The pointer is set only
//!    while that coroutine runs, so what it points to (the foot of the coroutine's own stack) is there.
//! 2. [`scoped`] lends a closure that borrows from its caller to a world that takes only `'static` ones, and
//!    does not return while the closure is alive.
//! 3. [`entered`] hands [`vellum_base::env::enter_scheduler`] a `'static` reference for the length of a call.
//!
//! [`ThreadBound`] makes one-thread data `Send + Sync` by checking the thread at each access.
#![allow(unsafe_code)]

use crate::stacks::{self, Sized};
use corosensei::{CoroutineResult, Yielder, stack::DefaultStack};
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use vellum_base::env::{Scheduler, enter_scheduler};

/// What a task runs.
pub(crate) type Body = Box<dyn FnOnce()>;

/// A suspended (or not yet begun, or finished) task. It has a stack from its first run on.
pub(crate) struct Coroutine {
    state: State,
    stack_bytes: usize,
}

enum State {
    // `corosensei` could hold this too, but would drop it twice if its destructor panics.
    Fresh(Body),
    Begun(Inner),
    /// Only while changing from one to the other.
    Empty,
}

type Inner = corosensei::Coroutine<*const Switch, (), (), DefaultStack>;

impl Coroutine {
    /// A coroutine that will run `body` on a pooled stack of at least `stack_bytes`.
    pub(crate) fn new(stack_bytes: usize, body: Body) -> Coroutine {
        Coroutine { state: State::Fresh(body), stack_bytes }
    }

    /// Gives the stack of a finished coroutine back to the pool.
    pub(crate) fn recycle(self) {
        if let State::Begun(inner) = self.state {
            stacks::give(Sized { bytes: self.stack_bytes, stack: inner.into_stack() });
        }
    }

    #[inline]
    fn begun(&mut self) -> &mut Inner {
        if !matches!(self.state, State::Begun(_)) {
            self.begin();
        }
        match &mut self.state {
            State::Begun(inner) => inner,
            State::Fresh(_) | State::Empty => unreachable!("it has just begun"),
        }
    }

    #[cold]
    fn begin(&mut self) {
        let stack = stacks::take(self.stack_bytes);
        if let State::Fresh(body) = std::mem::replace(&mut self.state, State::Empty) {
            self.state = State::Begun(corosensei::Coroutine::with_stack(
                stack,
                move |yielder: &Yielder<*const Switch, ()>, switch: *const Switch| {
                    // SAFETY: `Switch::resume` passed a reference to itself and is on the stack below us.
                    unsafe { (*switch).yielder.set(yielder) };
                    body();
                },
            ));
        }
    }
}

type YielderPointer = *const Yielder<*const Switch, ()>;

/// Control passes through here between the driving loop and tasks.
///
/// Invariant: `yielder` is the running coroutine's, or null when none of this world's coroutines runs.
pub(crate) struct Switch {
    yielder: Cell<YielderPointer>,
}

/// Puts the pointer back also when a panic passes.
struct Restore<'a>(&'a Switch, YielderPointer);

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        self.0.yielder.set(self.1);
    }
}

impl Switch {
    pub(crate) fn new() -> Switch {
        Switch { yielder: Cell::new(std::ptr::null()) }
    }

    /// Whether a coroutine of this world runs now.
    pub(crate) fn is_inside(&self) -> bool {
        !self.yielder.get().is_null()
    }

    /// Runs `coroutine` until it suspends (false) or ends (true). A panic inside it comes out of here.
    #[inline]
    pub(crate) fn resume(&self, coroutine: &mut Coroutine) -> bool {
        let _restore = Restore(self, self.yielder.get());
        match coroutine.begun().resume(self) {
            CoroutineResult::Yield(()) => false,
            CoroutineResult::Return(()) => true,
        }
    }

    /// Drops everything on the coroutine's stack, newest first. A panic other than our own comes out of here.
    pub(crate) fn unwind(&self, coroutine: &mut Coroutine) {
        let _restore = Restore(self, self.yielder.get());
        match &mut coroutine.state {
            State::Begun(inner) => inner.force_unwind(),
            fresh => drop(std::mem::replace(fresh, State::Empty)),
        }
    }

    /// Gives up control; returns when resumed, or unwinds if the coroutine is being torn down.
    #[inline]
    pub(crate) fn suspend(&self) {
        let yielder = self.yielder.get();
        assert!(!yielder.is_null(), "no task of this world runs");
        let _restore = Restore(self, yielder);
        // SAFETY: not null, so its coroutine runs now (the invariant), and so does the stack that holds it.
        unsafe { (*yielder).suspend(()) };
    }
}

/// Calls `lend` with `body` as a `'static` closure. `body` must have ended or been dropped when `lend` returns
/// or unwinds; the process is aborted if it has not.
pub(crate) fn scoped<'a, R>(body: impl FnOnce() + 'a, lend: impl FnOnce(Body) -> R) -> R {
    struct AbortIfAlive(Rc<()>);
    impl Drop for AbortIfAlive {
        fn drop(&mut self) {
            if Rc::strong_count(&self.0) > 1 {
                eprintln!("a simulation's root task outlived the call that ran it");
                std::process::abort();
            }
        }
    }
    let token = Rc::new(());
    let _check = AbortIfAlive(token.clone());
    let body: Box<dyn FnOnce() + 'a> = Box::new(move || {
        let _ends_last = token;
        body();
    });
    // SAFETY: only the lifetime changes. The token lives as long as `body` and what it borrows is in use;
    // `_check` is dropped before we return, by any way, and does not let us pass while the token lives.
    lend(unsafe { std::mem::transmute::<Box<dyn FnOnce() + 'a>, Body>(body) })
}

/// Calls `run` with this thread inside `world`.
pub(crate) fn entered<R>(world: &(dyn Scheduler + 'static), run: impl FnOnce() -> R) -> R {
    struct Leave(Option<&'static dyn Scheduler>);
    impl Drop for Leave {
        fn drop(&mut self) {
            enter_scheduler(self.0);
        }
    }
    // SAFETY: `Leave` takes the reference out before our borrow of `world` ends. Locks use it only during a
    // call; the frames of suspended tasks that hold it are unwound while the world still exists (`Sim::drop`).
    let world: &'static dyn Scheduler = unsafe { &*(world as *const (dyn Scheduler + 'static)) };
    let _leave = Leave(enter_scheduler(Some(world)));
    run()
}

/// A value that only the thread that made it may touch. Dropped on another thread, the value is leaked.
pub(crate) struct ThreadBound<T> {
    owner: u64,
    value: ManuallyDrop<T>,
}

// SAFETY: `get` and `drop` reach the value only on the owning thread.
unsafe impl<T> Send for ThreadBound<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for ThreadBound<T> {}

impl<T> ThreadBound<T> {
    pub(crate) fn new(value: T) -> ThreadBound<T> {
        ThreadBound { owner: this_thread(), value: ManuallyDrop::new(value) }
    }

    /// The value. Panics on another thread.
    #[inline]
    pub(crate) fn get(&self) -> &T {
        assert!(
            this_thread() == self.owner,
            "a simulation is used by another thread than the one that made it"
        );
        &self.value
    }
}

impl<T> Drop for ThreadBound<T> {
    fn drop(&mut self) {
        if this_thread() == self.owner {
            // SAFETY: we are being dropped, so this happens once and nobody looks afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// A number that no other thread of this process has or had.
#[inline]
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static HERE: Cell<u64> = const { Cell::new(0) };
    }
    HERE.with(|here| {
        if here.get() == 0 {
            here.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        here.get()
    })
}
