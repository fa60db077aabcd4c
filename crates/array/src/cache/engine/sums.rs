//! Checksums of the SSD's pages: a page whose content is not what was written fails to read.
//!
//! 1. The checksum of a page is set by the job that writes it, under an exclusive turn.
//! 2. After an opening, the checksum of a clean page comes from the log or the NVRAM. That of an old page whose delta
//!    is in a delta page is stored there: the base is not read before that delta (except by `Core::read_base`).
//! 3. Data pages written before version 4 have no checksum: the content of their first read is taken as correct.
//! 4. Delta pages have no checksum here: the entries of their bases identify them (`delta_page.rs`).

use super::nvram::Held;
use crate::cache::policy::Restored;
use crate::cache::shape::PageState;
use crate::cache::step::{LogEntry, PageNo};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use vellum_base::{Error, Result};
use vellum_codes::crc32c;

/// The checksum is not known. Stored with the same value.
const UNKNOWN: u32 = u32::MAX;
/// The checksum is in the head of the page's delta.
const WITH_DELTA: u32 = u32::MAX - 1;

/// The checksums of all pages, by page number: 4 bytes each.
pub(super) struct Sums(Vec<AtomicU32>);

/// Checksum of a content: its CRC, except for two reserved values.
fn sum_of(content: &[u8]) -> u32 {
    crc32c(content).min(WITH_DELTA - 1)
}

/// A checksum in its stored form.
pub(super) fn stored(sum: Option<u32>) -> u32 {
    sum.unwrap_or(UNKNOWN)
}

/// Decodes a stored checksum.
pub(super) fn known(stored: u32) -> Option<u32> {
    (stored < WITH_DELTA).then_some(stored)
}

/// True if an entry has the checksum of its page: that of an old page has the delta's place instead.
pub(super) fn has_sum(entry: &LogEntry) -> bool {
    entry.state != PageState::Free && entry.delta.is_none()
}

impl Sums {
    /// Checksums of this many pages, all unknown.
    pub fn new(pages: u32) -> Sums {
        Sums((0..pages).map(|_| AtomicU32::new(UNKNOWN)).collect())
    }

    /// Takes over what an opening found.
    pub fn restore(&self, restored: &Restored, staged: &BTreeMap<PageNo, Held>) {
        for (entry, _) in &restored.entries {
            let sum = if entry.delta.is_some() { WITH_DELTA } else { stored(entry.sum) };
            self.set_stored(entry.page, sum);
        }
        staged.iter().for_each(|(base, held)| self.set_stored(*base, stored(held.sum)));
    }

    /// Pages in memory have no checksum.
    fn set_stored(&self, page: PageNo, sum: u32) {
        if let Some(own) = self.0.get(page.0 as usize) {
            own.store(sum, Relaxed);
        }
    }

    fn stored(&self, page: PageNo) -> u32 {
        self.0.get(page.0 as usize).map_or(UNKNOWN, |own| own.load(Relaxed))
    }

    /// The page's checksum, if it is known.
    pub fn get(&self, page: PageNo) -> Option<u32> {
        Some(self.stored(page)).filter(|sum| *sum < WITH_DELTA)
    }

    /// Completes an entry by the checksum of its page.
    pub fn complete(&self, entry: &LogEntry) -> LogEntry {
        LogEntry { sum: self.get(entry.page).filter(|_| has_sum(entry)), ..*entry }
    }

    /// Called before the page is written with this content.
    pub fn set(&self, page: PageNo, content: &[u8]) {
        self.set_stored(page, sum_of(content));
    }

    /// True if the page's checksum is known only once its delta has been read.
    pub fn is_with_delta(&self, page: PageNo) -> bool {
        self.stored(page) == WITH_DELTA
    }

    /// Called when the delta of the page was read; its head has the page's checksum.
    pub fn learn(&self, page: PageNo, sum: Option<u32>) {
        if let Some(own) = self.0.get(page.0 as usize) {
            let _ = own.compare_exchange(WITH_DELTA, stored(sum), Relaxed, Relaxed);
        }
    }

    /// Verifies content returned by the SSD.
    ///
    /// # Errors
    /// [`vellum_base::Kind::Corrupt`] if it is not what was written, or if the checksum is still to be read with the
    /// delta.
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
