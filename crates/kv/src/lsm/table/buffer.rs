//! Memory for objects of tables and for reads. Each thread keeps some of what it let go of for reuse: an allocator
//! serves pieces of this size under a lock, for which clients would wait, as with a shared cache one frees what another
//! allocated.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

/// Most bytes that a thread keeps. What is longer by itself is freed, as large values are rare.
const KEPT_BYTES_MAX: usize = 256 << 10;
/// Shorter buffers are not kept: allocators have such memory at hand for each thread.
const KEPT_BYTES_MIN: usize = 1 << 10;
/// A buffer has at most one in so many bytes more than was asked for: leaves that were compressed differ in length.
const SLACK: usize = 32;

thread_local! {
    static POOL: RefCell<BufferPool> = const { RefCell::new(BufferPool { oldest_first: VecDeque::new(), bytes: 0 }) };
}

struct BufferPool {
    oldest_first: VecDeque<Vec<u8>>,
    /// Sum of their lengths.
    bytes: usize,
}

/// Bytes with unspecified contents at first. When it is dropped the thread keeps its memory; there may be several of a
/// thread, as the tasks of a simulation share one.
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    len: usize,
}

impl Buffer {
    pub(crate) fn new(len: usize) -> Buffer {
        let kept = POOL.try_with(|kept| kept.borrow_mut().take(len)); // a thread that ends has none
        let mut bytes = kept.ok().flatten().unwrap_or_else(|| vec![0; len]);
        if cfg!(debug_assertions) {
            bytes.fill(0xA5); // nobody may count on what it had
        }
        Buffer { bytes, len }
    }

    /// A copy of `bytes`.
    pub(crate) fn of(bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::new(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }
}

impl BufferPool {
    /// The newest that has `len` bytes, and not many more.
    fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        let fitting = len..=len + len / SLACK;
        let at = self.oldest_first.iter().rposition(|bytes| fitting.contains(&bytes.len()))?;
        let taken = self.oldest_first.remove(at)?;
        self.bytes -= taken.len();
        Some(taken)
    }

    /// Keeps memory, instead of what was kept longest if there is no room for both.
    fn keep(&mut self, bytes: Vec<u8>) {
        if !(KEPT_BYTES_MIN..=KEPT_BYTES_MAX).contains(&bytes.len()) {
            return;
        }
        self.bytes += bytes.len();
        self.oldest_first.push_back(bytes);
        while self.bytes > KEPT_BYTES_MAX {
            self.bytes -= self.oldest_first.pop_front().map_or(0, |oldest| oldest.len());
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let _ = POOL.try_with(|kept| kept.borrow_mut().keep(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_was_kept_serves_what_is_hardly_shorter() {
        let buffer = Buffer::of(&[7; 8192]);
        let at = buffer.as_ptr();
        drop(buffer);
        let (longer, much_shorter, shorter) = (Buffer::new(8193), Buffer::new(7000), Buffer::new(8000));
        assert!(longer.as_ptr() != at && much_shorter.as_ptr() != at);
        assert_eq!((shorter.as_ptr(), shorter.len()), (at, 8000));
        drop(shorter);
        assert_eq!(Buffer::new(8192).as_ptr(), at, "none of it was lost");
    }

    #[test]
    fn a_thread_keeps_no_more_than_its_share_and_of_that_the_newest() {
        let kept = || {
            POOL.with_borrow(|kept| {
                assert_eq!(kept.bytes, kept.oldest_first.iter().map(Vec::len).sum::<usize>());
                (kept.bytes, kept.oldest_first.back().map_or(0, Vec::len))
            })
        };
        [KEPT_BYTES_MIN - 1, KEPT_BYTES_MAX + 1].into_iter().for_each(|len| drop(Buffer::new(len)));
        assert_eq!(kept(), (0, 0));
        drop((0..100).map(|_| Buffer::new(4096)).collect::<Vec<_>>());
        assert_eq!(kept(), (KEPT_BYTES_MAX, 4096));
        drop(Buffer::new(10_000));
        assert_eq!(kept(), (KEPT_BYTES_MAX - 3 * 4096 + 10_000, 10_000));
    }
}
