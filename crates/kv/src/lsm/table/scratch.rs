//! Memory for reads whose bytes do not stay, kept by each thread between them. It is taken out while it is used: tasks
//! of a simulation share a thread.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

/// More is given back: large values are rare.
const KEPT_BYTES_MAX: usize = 256 << 10;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// So many bytes; what is in them at first is anything that was read before.
pub(super) struct Scratch {
    bytes: Vec<u8>,
    len: usize,
}

impl Scratch {
    pub(super) fn new(len: usize) -> Scratch {
        let mut bytes = SPARE.try_with(Cell::take).unwrap_or_default();
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
        if self.bytes.len() <= KEPT_BYTES_MAX {
            let bytes = std::mem::take(&mut self.bytes);
            let _ = SPARE.try_with(|spare| spare.set(bytes)); // a thread that ends keeps none
        }
    }
}
