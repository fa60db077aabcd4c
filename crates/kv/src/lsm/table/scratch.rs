//! Buffers for short-lived reads, kept by each thread for reuse. A buffer is taken out of the pool while in use. There
//! may be several per thread, as the tasks of a simulation share one.

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
        let bytes = std::mem::take(&mut self.bytes);
        // A thread that ends keeps none.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            let kept: usize = spare.iter().map(Vec::capacity).sum();
            if kept + bytes.capacity() <= KEPT_BYTES_MAX {
                spare.push(bytes);
            }
        });
    }
}
