//! A pool of coroutine stacks, one a thread, so that a task costs no system call. Every stack ends in a guard
//! page.

use corosensei::stack::DefaultStack;
use std::cell::RefCell;

/// A thread keeps at most this many unused stacks.
const KEPT_MAX: usize = 256;

/// A stack and the size it was asked for.
pub(crate) struct Sized {
    pub(crate) bytes: usize,
    pub(crate) stack: DefaultStack,
}

thread_local! {
    static POOL: RefCell<Vec<Sized>> = const { RefCell::new(Vec::new()) };
}

/// A stack of at least `bytes`. Panics if the system has no more memory mappings to give.
pub(crate) fn take(bytes: usize) -> DefaultStack {
    // A larger stack than asked for would hide overflows: only the same size will do.
    let pooled = POOL.try_with(|pool| pool.borrow_mut().pop_if(|last| last.bytes == bytes)).ok().flatten();
    match pooled {
        Some(pooled) => pooled.stack,
        None => DefaultStack::new(bytes).unwrap_or_else(|error| {
            panic!(
                "no memory for another task's stack of {bytes} bytes: {error} (is vm.max_map_count too low?)"
            )
        }),
    }
}

/// Takes back a stack that nothing runs on.
pub(crate) fn give(stack: Sized) {
    // At the thread's end the pool may be gone; then the stack just goes too.
    let _ = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        if pool.last().is_some_and(|last| last.bytes != stack.bytes) {
            pool.clear(); // another size is in use now
        }
        if pool.len() < KEPT_MAX {
            pool.push(stack);
        }
    });
}
