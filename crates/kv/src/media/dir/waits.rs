//! Whether reads of files wait for the device. Where memory is short they do again and again, and then it pays to ask
//! the kernel what it has in memory, and to announce what is not there. Where it is not, that would be most of the
//! work. Memory is the machine's, so one answer serves all stores of the process.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// So many reads in a row that did not wait make it unlikely that the next does: while one in some thousand waits, all
/// are asked about.
const READS: u32 = 4096;
/// One in so many reads is asked about if it is unlikely to wait. Prime, so that it is not always the same source of a
/// seek.
const SAMPLE: u32 = 61;

/// Reads until none is expected to wait.
static LEFT: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static READ: Cell<u32> = const { Cell::new(0) };
}

/// Notes whether a read waited, or will.
pub(super) fn note(waits: bool) {
    match waits {
        true => LEFT.store(READS, Relaxed),
        false => drop(LEFT.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))),
    }
}

/// True if reads have waited lately.
pub(super) fn are_likely() -> bool {
    LEFT.load(Relaxed) > 0
}

/// True if this read is one of those of which the kernel is asked whether it has in memory what is read. To be called
/// once a read.
pub(super) fn is_asked_about() -> bool {
    are_likely() || READ.replace(READ.get().wrapping_add(1)).is_multiple_of(SAMPLE)
}
