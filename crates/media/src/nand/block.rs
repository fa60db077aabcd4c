//! State of an erase block, and the rules for programming it.
//!
//! States: good and empty (`pages_written` 0), good and partly written, good and full, bad.
//! 1. The page to program next is `pages_written`; every earlier one was programmed, or lost to a power cut.
//! 2. Only an erase resets `pages_written`.
//! 3. A bad block stays bad. Its pages may still be read.

use std::collections::BTreeSet;

/// State of one erase block.
#[derive(Clone, Default)]
pub(crate) struct Block {
    /// Erases so far.
    pub erase_count: u32,
    /// Pages programmed since the last erase.
    pub pages_written: u32,
    /// Bad.
    pub bad: bool,
    /// Bad since before the device was first used.
    pub factory_bad: bool,
    /// Changed since the last sync (image only).
    pub dirty: bool,
    /// Written pages that cannot be read.
    unreadable: BTreeSet<u32>,
    /// The store has not been asked yet which pages are unreadable.
    pub unexamined: bool,
}

impl Block {
    /// A block as delivered by the factory.
    pub fn new(bad: bool) -> Block {
        Block { bad, factory_bad: bad, ..Block::default() }
    }

    /// A block in its state when the device was last closed.
    pub fn reopened(erase_count: u32, pages_written: u32, bad: bool, factory_bad: bool) -> Block {
        Block { erase_count, pages_written, bad, factory_bad, unexamined: true, ..Block::default() }
    }

    /// True if the page was written and cannot be read.
    #[inline]
    pub fn is_unreadable(&self, page: u32) -> bool {
        self.unreadable.contains(&page)
    }

    /// Makes the page unreadable from now on.
    pub fn set_unreadable(&mut self, page: u32) {
        self.unreadable.insert(page);
    }

    /// Drops the pages from `pages` on.
    pub fn truncate(&mut self, pages: u32) {
        self.pages_written = pages;
        if !self.unreadable.is_empty() {
            self.unreadable.split_off(&pages);
        }
    }

    /// Changes to the state after an erase.
    pub fn erase(&mut self) {
        self.erase_count += 1;
        self.truncate(0);
        self.unexamined = false;
    }
}
