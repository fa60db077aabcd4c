//! Memory that was freed and that the allocator keeps. glibc keeps it for each thread: where some threads allocate what
//! others free, as those of a store do, that is soon more than what is in use (docs/decisions/0019).
//!
//! This module uses `unsafe` for one call of the C library.
#![allow(unsafe_code)]

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// How often it is given back at most: while much is freed, much is allocated again.
const EVERY: Duration = Duration::from_secs(1);

/// When it was last given back: the allocator is the process's.
static LAST: Mutex<Option<Instant>> = Mutex::new(None);

/// Gives it back to the system, unless that was done within the last second: what was freed since waits for the next
/// time. Takes some milliseconds, longer where the heap is large.
pub(crate) fn give_back() {
    // Whoever holds the lock is giving it back.
    let Some(mut last) = LAST.try_lock() else { return };
    if last.is_none_or(|last| last.elapsed() >= EVERY) {
        trim();
        *last = Some(now());
    }
}

#[expect(clippy::disallowed_methods, reason = "memory is the machine's, and so is the time")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn trim() {
    // SAFETY: it may be called at any time, by any thread. Whether anything was given back does not matter.
    let _ = unsafe { libc::malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    /// Bytes of memory that the process has.
    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
    }

    #[test]
    fn what_was_freed_and_kept_is_given_back() {
        let mut pieces: Vec<Vec<u8>> = (0..2048).map(|_| vec![7; 32 << 10]).collect();
        let last = pieces.pop(); // what is behind the end of everything in use is given back without asking
        let used = resident();
        drop(pieces);
        super::trim();
        assert!(resident() < used - (48 << 20), "{used} bytes, then {}", resident());
        drop(last);
    }
}
