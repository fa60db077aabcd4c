//! Whether reads of files wait for the device. Where memory is short they do again and again, and then it pays to ask
//! the kernel what it has in memory, and to announce what is not there. Where it is not, that would be most of the
//! work. Memory is the machine's, so one answer serves all stores of the process.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// So many reads in a row that did not wait make it unlikely that the next does.
const READS: u32 = 64;
/// One in so many reads is asked about if it is unlikely to wait.
const SAMPLE: u32 = 64;

/// Reads until none is expected to wait.
static LEFT: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static READ: Cell<u32> = const { Cell::new(0) };
}

/// Notes whether a read waited, or will.
pub(super) fn note(waits: bool) {
    match (waits, LEFT.load(Relaxed)) {
        (true, _) => LEFT.store(READS, Relaxed),
        (false, 0) => {}
        (false, left) => LEFT.store(left - 1, Relaxed),
    }
}

/// True if reads have waited lately.
pub(super) fn are_likely() -> bool {
    LEFT.load(Relaxed) > 0
}

/// True if it is worth asking the kernel whether it has in memory what is read.
pub(super) fn are_worth_asking() -> bool {
    are_likely() || READ.replace(READ.get().wrapping_add(1)).is_multiple_of(SAMPLE)
}
