//! Counts the memory in use by each thread, so that a test can measure how much opening a disk takes.
//! `unsafe`, because an allocator is.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static USED: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator with counters.
pub(crate) struct Counted;

fn count(bytes: isize) {
    let _ = USED.try_with(|used| {
        used.set(used.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(used.get())));
    });
}

// SAFETY: every call goes to the system's allocator unchanged; counting neither allocates nor panics.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller upholds the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(bytes as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, bytes) }
    }
}

/// Runs `what`; returns its result and the most bytes it had in use at once on this thread.
pub(crate) fn peak_of<T>(what: impl FnOnce() -> T) -> (T, usize) {
    let before = USED.get();
    PEAK.set(before);
    let result = what();
    (result, (PEAK.get() - before).max(0) as usize)
}
