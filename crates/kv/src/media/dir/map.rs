//! A finished table in memory, or a log that tables point into, as the kernel's page cache has it.
//!
//! This module is the only one of the crate with `unsafe`, because the compiler cannot know who else has the file.
//! Invariants
//! 1. A table is mapped when it is finished, a log when it is closed: no store writes to it any more, and the directory
//!    is locked against others. It may be unlinked; its bytes stay until the map goes.
//! 2. Nothing that was read before is believed when it is read again: whoever writes to the file past the lock, or
//!    cuts it, can make a reader fail or end the process (SIGBUS), as can a device that cannot be read. That is the
//!    price of [`crate::Options::map_tables`].
#![allow(unsafe_code)]

use memmap2::{Advice, Mmap};
use std::fs::File;
use std::ops::Deref;

/// See the module.
pub struct Map(Mmap);

impl Map {
    /// Maps all of `file`; `None` where the system does not.
    pub(super) fn of(file: &File) -> Option<Map> {
        // SAFETY: see the module.
        let map = unsafe { Mmap::map(file) }.ok()?;
        // Advice: what it changes is speed.
        let _ = map.advise(Advice::Random);
        Some(Map(map))
    }
}

impl Deref for Map {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}
