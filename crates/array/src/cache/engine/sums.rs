//! Checksums of the SSD's pages: it returns what was written, or the page cannot be read.
//!
//! 1. The sum of a page is set by who writes it, with a turn there alone.
//! 2. After an opening that of a clean page is what the log or the NVRAM says. That of an old page whose delta is in a
//!    page is there, too: the base is not read before that was (but for `Core::read_base`).
//! 3. Pages of data that were written before version 4 have none: what is read first counts.
//! 4. Pages of deltas have none here: those who look for a delta know what its page must be (`delta_page.rs`).

use super::nvram::Held;
use crate::cache::policy::Restored;
use crate::cache::shape::PageState;
use crate::cache::step::{LogEntry, PageNo};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use vellum_base::{Error, Result};
use vellum_codes::crc32c;

/// Nobody knows it. So it is stored, too.
const UNKNOWN: u32 = u32::MAX;
/// It is in the head of the page's delta.
const WITH_DELTA: u32 = u32::MAX - 1;

/// Of all pages, by their numbers: 4 bytes each.
pub(super) struct Sums(Vec<AtomicU32>);

/// Of what a page holds: its CRC, but for two values that mean something else.
fn sum_of(content: &[u8]) -> u32 {
    crc32c(content).min(WITH_DELTA - 1)
}

/// A sum as it is stored.
pub(super) fn stored(sum: Option<u32>) -> u32 {
    sum.unwrap_or(UNKNOWN)
}

/// A sum that was stored.
pub(super) fn known(stored: u32) -> Option<u32> {
    (stored < WITH_DELTA).then_some(stored)
}

/// Whether an entry says what its page holds: that of an old page has its delta there.
pub(super) fn has_sum(entry: &LogEntry) -> bool {
    entry.state != PageState::Free && entry.delta.is_none()
}

impl Sums {
    /// Of so many pages that nobody has written.
    pub fn new(pages: u32) -> Sums {
        Sums((0..pages).map(|_| AtomicU32::new(UNKNOWN)).collect())
    }

    /// What an opening found.
    pub fn restore(&self, restored: &Restored, staged: &BTreeMap<PageNo, Held>) {
        for (entry, _) in &restored.entries {
            let sum = if entry.delta.is_some() { WITH_DELTA } else { stored(entry.sum) };
            self.set_stored(entry.page, sum);
        }
        staged.iter().for_each(|(base, held)| self.set_stored(*base, stored(held.sum)));
    }

    /// Pages in memory have none.
    fn set_stored(&self, page: PageNo, sum: u32) {
        if let Some(own) = self.0.get(page.0 as usize) {
            own.store(sum, Relaxed);
        }
    }

    fn stored(&self, page: PageNo) -> u32 {
        self.0.get(page.0 as usize).map_or(UNKNOWN, |own| own.load(Relaxed))
    }

    /// The page's sum, if it is known.
    pub fn get(&self, page: PageNo) -> Option<u32> {
        Some(self.stored(page)).filter(|sum| *sum < WITH_DELTA)
    }

    /// What an entry says of a page goes with its sum.
    pub fn complete(&self, entry: &LogEntry) -> LogEntry {
        LogEntry { sum: self.get(entry.page).filter(|_| has_sum(entry)), ..*entry }
    }

    /// The page is about to have this content.
    pub fn set(&self, page: PageNo, content: &[u8]) {
        self.set_stored(page, sum_of(content));
    }

    /// Whether the page's delta must be read first.
    pub fn is_with_delta(&self, page: PageNo) -> bool {
        self.stored(page) == WITH_DELTA
    }

    /// The delta of the page was read: its head says so.
    pub fn learn(&self, page: PageNo, sum: Option<u32>) {
        if let Some(own) = self.0.get(page.0 as usize) {
            let _ = own.compare_exchange(WITH_DELTA, stored(sum), Relaxed, Relaxed);
        }
    }

    /// Whether the SSD returned what was written.
    ///
    /// # Errors
    /// [`vellum_base::Kind::Corrupt`] if not, or if nobody can tell yet.
    pub fn check(&self, page: PageNo, content: &[u8]) -> Result<()> {
        let (own, sum) = (self.stored(page), sum_of(content));
        if own == UNKNOWN {
            self.set_stored(page, sum);
        }
        match own == UNKNOWN || own == sum {
            true => Ok(()),
            false => Err(Error::corrupt("the SSD returned what was not written there")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_base::{Lba, SECTOR_BYTES};

    #[test]
    fn a_page_is_what_was_written_or_what_its_entry_or_its_delta_says() {
        let (sums, content) = (Sums::new(4), |byte: u8| vec![byte; SECTOR_BYTES]);
        sums.set(PageNo(0), &content(1));
        assert!(sums.check(PageNo(0), &content(1)).is_ok() && sums.check(PageNo(0), &content(2)).is_err());
        let entry = |page, delta| LogEntry {
            page: PageNo(page),
            state: if delta { PageState::Old } else { PageState::Clean },
            lba: Lba(0),
            delta: delta.then_some((PageNo(3), 32, 8)),
            sum: None,
        };
        let clean = sums.complete(&entry(0, false));
        assert_eq!((clean.sum.is_some(), sums.complete(&entry(0, true)).sum), (true, None));

        let again = Sums::new(4);
        let entries = vec![(clean, Some(0)), (entry(1, true), Some(0)), (entry(2, false), Some(0))];
        again.restore(&Restored { entries, log: (0, 1), staged: Vec::new() }, &BTreeMap::new());
        assert!(again.check(PageNo(0), &content(1)).is_ok() && again.check(PageNo(0), &content(2)).is_err());
        assert!(again.is_with_delta(PageNo(1)) && again.check(PageNo(1), &content(1)).is_err());
        again.learn(PageNo(1), clean.sum);
        again.learn(PageNo(0), Some(7));
        for page in [0, 1].map(PageNo) {
            assert!(again.check(page, &content(1)).is_ok() && again.check(page, &content(2)).is_err());
        }
        assert!(again.check(PageNo(2), &content(5)).is_ok(), "what is read first counts");
        assert!(again.check(PageNo(2), &content(6)).is_err());
        assert_eq!(again.get(PageNo(4)), None, "a page in memory");
    }
}
