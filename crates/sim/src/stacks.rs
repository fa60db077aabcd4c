//! A pool of coroutine stacks, one pool per thread, so that most tasks need no system call. Every stack ends in a guard
//! page.

use corosensei::stack::DefaultStack;
use std::cell::RefCell;

/// Maximum number of unused stacks that a thread keeps.
const KEPT_MAX: usize = 256;

/// A stack, with the size that was requested.
pub(crate) struct Sized {
    pub(crate) bytes: usize,
    pub(crate) stack: DefaultStack,
}

thread_local! {
    static POOL: RefCell<Vec<Sized>> = const { RefCell::new(Vec::new()) };
}

/// Takes a stack of at least `bytes`. Panics if the system has no more memory mappings.
pub(crate) fn take(bytes: usize) -> DefaultStack {
    // A larger stack than requested would hide overflows, so only the same size is used.
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

/// Returns a stack that nothing runs on to the pool.
pub(crate) fn give(stack: Sized) {
    // When the thread ends the pool may be gone; then the stack is freed.
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
