//! Buffers for reads, kept by each thread for reuse. A buffer is taken out of the pool while in use. There may be
//! several per thread, as the tasks of a simulation share one. What the cache admits goes there in its buffer, and the
//! pool gets the memory of what is evicted for it.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// Most bytes that a thread keeps in all its buffers. Larger ones are freed, as large values are rare.
const KEPT_BYTES_MAX: usize = 256 << 10;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of `len` bytes with unspecified contents.
pub(super) struct Scratch {
    bytes: Vec<u8>,
    len: usize,
}

impl Scratch {
    pub(super) fn new(len: usize) -> Scratch {
        let spare = SPARE.try_with(|spare| spare.borrow_mut().pop());
        let mut bytes = spare.ok().flatten().unwrap_or_default();
        if bytes.len() < len {
            bytes.resize(len, 0);
        }
        Scratch { bytes, len }
    }

    /// A copy of `bytes`.
    pub(super) fn of(bytes: &[u8]) -> Scratch {
        let mut scratch = Scratch::new(bytes.len());
        scratch.copy_from_slice(bytes);
        scratch
    }

    /// The bytes, without a copy if the buffer has no more than these.
    pub(super) fn into_box(mut self) -> Box<[u8]> {
        match self.bytes.len() == self.len {
            true => std::mem::take(&mut self.bytes).into(),
            false => self[..].into(),
        }
    }
}

/// Adds memory to this thread's buffers, if they have room for it.
pub(super) fn give(bytes: Vec<u8>) {
    // A thread that ends keeps none.
    let _ = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        let kept: usize = spare.iter().map(Vec::capacity).sum();
        if !bytes.is_empty() && kept + bytes.capacity() <= KEPT_BYTES_MAX {
            spare.push(bytes);
        }
    });
}

impl Deref for Scratch {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        give(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_was_kept_comes_back() {
        let kept = Scratch::of(&[7; 4096]).into_box();
        let at = kept.as_ptr();
        give(kept.into());
        let again = Scratch::new(4096);
        assert_eq!((again.as_ptr(), again.bytes.len()), (at, 4096));
        drop(again);
        let part = Scratch::of(&[8; 100]).into_box();
        assert_eq!(&part[..], &[8; 100], "of a larger buffer");
        assert_eq!(Scratch::new(4096).as_ptr(), at, "which is not given away");
    }

    #[test]
    fn a_thread_keeps_no_more_than_its_share() {
        (0..200).for_each(|_| give(vec![0; 4096]));
        let kept = SPARE.with(|spare| spare.borrow().iter().map(Vec::capacity).sum::<usize>());
        assert_eq!(kept, KEPT_BYTES_MAX);
    }
}
