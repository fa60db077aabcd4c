//! All `unsafe` code of this crate: handles of coroutines, and three guarantees that the type system cannot express.
//!
//! 1. [`Switch`] holds a pointer to the place where the running coroutine yields. It is set only while that coroutine
//!    runs, so its target (at the base of the coroutine's own stack) is alive.
//! 2. [`scoped`] lends a closure that borrows from its caller to a world that accepts only `'static` ones. It does not
//!    return while the closure is alive.
//! 3. [`entered`] passes [`vellum_base::env::enter_scheduler`] a `'static` reference for the duration of a call.
//!
//! [`ThreadBound`] makes data of one thread `Send + Sync` by checking the thread at each access.
#![allow(unsafe_code)]

use crate::stacks::{self, Sized};
use corosensei::{CoroutineResult, Yielder, stack::DefaultStack};
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use vellum_base::env::{Scheduler, enter_scheduler};

/// The code of a task.
pub(crate) type Body = Box<dyn FnOnce()>;

/// A suspended (or not yet started, or finished) task. It has a stack from its first run on.
pub(crate) struct Coroutine {
    state: State,
    stack_bytes: usize,
}

enum State {
    // `corosensei` could hold the body too, but would drop it twice if its destructor panics.
    Fresh(Body),
    Begun(Inner),
    /// Only during the transition between the two.
    Empty,
}

type Inner = corosensei::Coroutine<*const Switch, (), (), DefaultStack>;

impl Coroutine {
    /// A coroutine that runs `body` on a pooled stack of at least `stack_bytes`.
    pub(crate) fn new(stack_bytes: usize, body: Body) -> Coroutine {
        Coroutine { state: State::Fresh(body), stack_bytes }
    }

    /// Returns the stack of a finished coroutine to the pool.
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
                    // SAFETY: `Switch::resume` passed a reference to itself and has not returned yet.
                    unsafe { (*switch).yielder.set(yielder) };
                    body();
                },
            ));
        }
    }
}

type YielderPointer = *const Yielder<*const Switch, ()>;

/// Transfers control between the event loop and tasks.
///
/// Invariant: `yielder` belongs to the running coroutine, or is null if no coroutine of this world runs.
pub(crate) struct Switch {
    yielder: Cell<YielderPointer>,
}

/// Restores the pointer, also if a panic unwinds through the call.
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

    /// Runs `coroutine` until it suspends (false) or ends (true). Propagates a panic inside it.
    #[inline]
    pub(crate) fn resume(&self, coroutine: &mut Coroutine) -> bool {
        let _restore = Restore(self, self.yielder.get());
        match coroutine.begun().resume(self) {
            CoroutineResult::Yield(()) => false,
            CoroutineResult::Return(()) => true,
        }
    }

    /// Drops everything on the coroutine's stack, newest first. Propagates a panic other than the unwinding itself.
    pub(crate) fn unwind(&self, coroutine: &mut Coroutine) {
        let _restore = Restore(self, self.yielder.get());
        match &mut coroutine.state {
            State::Begun(inner) => inner.force_unwind(),
            fresh => drop(std::mem::replace(fresh, State::Empty)),
        }
    }

    /// Yields control. Returns when resumed, or unwinds if the coroutine is being torn down.
    #[inline]
    pub(crate) fn suspend(&self) {
        let yielder = self.yielder.get();
        assert!(!yielder.is_null(), "no task of this world runs");
        let _restore = Restore(self, yielder);
        // SAFETY: the pointer is not null, so its coroutine runs now (by the invariant) and its stack exists.
        unsafe { (*yielder).suspend(()) };
    }
}

/// Calls `lend` with `body` as a `'static` closure. `body` must have ended or been dropped when `lend` returns or
/// unwinds; otherwise the process is aborted.
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
    // SAFETY: only the lifetime changes. The token lives as long as `body` and its borrows are in use. `_check` is
    // dropped on every path before this function returns, and aborts if the token is still alive.
    lend(unsafe { std::mem::transmute::<Box<dyn FnOnce() + 'a>, Body>(body) })
}

/// Calls `run` with `world` as the scheduler of this thread.
pub(crate) fn entered<R>(world: &(dyn Scheduler + 'static), run: impl FnOnce() -> R) -> R {
    struct Leave(Option<&'static dyn Scheduler>);
    impl Drop for Leave {
        fn drop(&mut self) {
            enter_scheduler(self.0);
        }
    }
    // SAFETY: `Leave` removes the reference before the borrow of `world` ends. Locks use it only during a call; frames
    // of suspended tasks that hold it are unwound while the world still exists (`Sim::drop`).
    let world: &'static dyn Scheduler = unsafe { &*(world as *const (dyn Scheduler + 'static)) };
    let _leave = Leave(enter_scheduler(Some(world)));
    run()
}

/// A value that only the thread that created it may access. If dropped on another thread, the value is leaked.
pub(crate) struct ThreadBound<T> {
    owner: u64,
    value: ManuallyDrop<T>,
}

// SAFETY: `get` and `drop` access the value only on the owning thread.
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
            // SAFETY: `drop` runs once, and the value is not accessed afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// A number that is unique among all threads that this process has or had.
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
