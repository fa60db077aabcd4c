//! The expected content of every sector, in the order of the trace, from which home writes are counted.
//!
//! The engine finds zeros, unchanged content and duplicates wherever they are written; the ledger does not say which of
//! them were home writes. The oracle does, because it knows the content of every sector:
//! 1. home zeros are counted exactly;
//! 2. from the ledger's same-content and duplicate sectors, those that the oracle expects in a journal are subtracted,
//!    so that the share removed is never overstated;
//! 3. a journal copy is a home write by definition.
//!
//! It stores only sectors that were written, so clearing a whole disk costs only as much as is on it.

use super::comparison::HomeWrites;
use super::mode::Mode;
use super::ranges;
use std::ops::Range;
use vellum_base::hash::FixedMap;
use vellum_base::{Avoided, LedgerSnapshot, SECTOR_BYTES};
use vellum_disk::DedupMode;
use xxhash_rust::xxh3::xxh3_128;

/// Represents a sector's content.
pub(super) type Fingerprint = u128;

/// All zeros.
const ZERO: Fingerprint = 0;

/// See the module.
pub(super) struct Oracle {
    mode: Mode,
    journals: Vec<Range<u64>>,
    holds: FixedMap<u64, Fingerprint>,
    /// Number of sectors with each content; only if duplicates count.
    copies: Option<FixedMap<Fingerprint, u32>>,
    /// True once a transaction has been written.
    counting: bool,
    home_written: u64,
    home_zero: u64,
    journal_repeats: u64,
    home_repeats: u64,
}

/// Fingerprint of a sector.
pub(super) fn fingerprint(sector: &[u8]) -> Fingerprint {
    if vellum_codes::is_zero(sector) { ZERO } else { xxh3_128(sector).max(1) }
}

impl Oracle {
    pub(super) fn new(mode: Mode, journals: Vec<Range<u64>>) -> Oracle {
        let finds_any = matches!(mode.dedup, DedupMode::Strong(_)) || mode.dedup.uses_parity();
        let copies = finds_any.then(FixedMap::default);
        Oracle {
            mode,
            journals,
            holds: FixedMap::default(),
            copies,
            counting: false,
            home_written: 0,
            home_zero: 0,
            journal_repeats: 0,
            home_repeats: 0,
        }
    }

    /// Notes that `data` is written from sector `first` on.
    pub(super) fn write(&mut self, first: u64, data: &[u8]) {
        for (i, sector) in data.chunks_exact(SECTOR_BYTES).enumerate() {
            let lba = first + i as u64;
            let print = fingerprint(sector);
            let in_journal = ranges::contain(&self.journals, lba);
            self.counting |= in_journal && is_transaction(sector);
            self.count(lba, print, in_journal);
            self.hold(lba, print);
        }
    }

    /// Notes that `sectors` from `first` on become zero by a write that takes no flash.
    pub(super) fn write_zeroes(&mut self, first: u64, sectors: u64) {
        if self.counting {
            let home = sectors - ranges::shared(&self.journals, first..first + sectors);
            self.home_written += home;
            self.home_zero += home;
        }
        self.clear(first..first + sectors);
    }

    /// Notes that `sectors` from `first` on are trimmed.
    pub(super) fn trim(&mut self, first: u64, sectors: u64) {
        self.clear(first..first + sectors);
    }

    fn clear(&mut self, sectors: Range<u64>) {
        let held: Vec<u64> = if sectors.end - sectors.start < self.holds.len() as u64 {
            sectors.filter(|lba| self.holds.contains_key(lba)).collect()
        } else {
            self.holds.keys().copied().filter(|lba| sectors.contains(lba)).collect()
        };
        held.into_iter().for_each(|lba| self.hold(lba, ZERO));
    }

    fn count(&mut self, lba: u64, print: Fingerprint, in_journal: bool) {
        let elided_zero = self.mode.elide && print == ZERO;
        let repeats = !elided_zero
            && match &self.copies {
                Some(copies) => copies.contains_key(&print),
                None => self.mode.elide && self.holds.get(&lba) == Some(&print),
            };
        if in_journal {
            self.journal_repeats += u64::from(repeats);
        } else if self.counting {
            self.home_written += 1;
            self.home_zero += u64::from(elided_zero);
            self.home_repeats += u64::from(repeats);
        }
    }

    fn hold(&mut self, lba: u64, print: Fingerprint) {
        let before = self.holds.insert(lba, print);
        let Some(copies) = &mut self.copies else { return };
        *copies.entry(print).or_insert(0) += 1;
        if let Some(before) = before
            && let Some(count) = copies.get_mut(&before)
        {
            *count -= 1;
            if *count == 0 {
                copies.remove(&before);
            }
        }
    }

    /// Restarts the count of home writes after the preparation.
    pub(super) fn start(&mut self) {
        (self.counting, self.home_written, self.home_zero) = (false, 0, 0);
        (self.journal_repeats, self.home_repeats) = (0, 0);
    }

    /// Home writes of the run whose ledger is `ledger`.
    pub(super) fn home(&self, ledger: &LedgerSnapshot) -> HomeWrites {
        let sectors = |reason| ledger.avoided_by(reason) / SECTOR_BYTES as u64;
        let found = sectors(Avoided::SameContent) + sectors(Avoided::Duplicate);
        let repeats = found.saturating_sub(self.journal_repeats).min(self.home_repeats);
        let removed = self.home_zero + repeats + sectors(Avoided::JournalCopy);
        HomeWrites { written: self.home_written, removed: removed.min(self.home_written) }
    }

    /// Expected contents, ordered by sector.
    pub(super) fn expected(&self) -> Vec<(u64, Fingerprint)> {
        let mut all: Vec<_> = self.holds.iter().map(|(lba, print)| (*lba, *print)).collect();
        all.sort_unstable();
        all
    }
}

/// True for a descriptor or commit block: unlike a journal's superblock, these belong to a transaction.
fn is_transaction(sector: &[u8]) -> bool {
    matches!(sector[..8], [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 1 | 2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_codes::pattern::Pattern;
    use vellum_trace::Content;

    fn sector(id: u64) -> Vec<u8> {
        let mut out = vec![0; SECTOR_BYTES];
        Content::Pattern(Pattern::unique(id)).fill(&mut out);
        out
    }

    fn descriptor() -> Vec<u8> {
        let mut out = vec![0; SECTOR_BYTES];
        out[..8].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 1]);
        out
    }

    fn avoided(reason: Avoided, sectors: u64) -> LedgerSnapshot {
        let mut ledger = LedgerSnapshot::default();
        ledger.avoided[reason as usize] = sectors * SECTOR_BYTES as u64;
        ledger
    }

    #[test]
    fn home_writes_count_from_the_first_transaction() {
        let mut oracle = Oracle::new(Mode::JOURNAL, vec![10..20, 30..40]);
        oracle.write(50, &sector(1));
        oracle.write(10, &descriptor());
        oracle.write(31, &[sector(2), vec![0; SECTOR_BYTES]].concat());
        oracle.write(51, &[sector(2), vec![0; SECTOR_BYTES], sector(3)].concat());
        let home = oracle.home(&avoided(Avoided::JournalCopy, 1));
        assert_eq!(home, HomeWrites { written: 3, removed: 2 });
        assert_eq!(home.removed_percent().unwrap().round(), 67.0);
        assert_eq!(Oracle::new(Mode::NONE, vec![]).home(&LedgerSnapshot::default()).removed_percent(), None);
    }

    #[test]
    fn clearing_a_disk_costs_what_is_on_it() {
        const DISK: u64 = 1 << 40;
        let mut oracle = Oracle::new(Mode::JOURNAL, vec![10..20, 30..40]);
        oracle.trim(0, DISK);
        assert_eq!(oracle.expected(), []);
        oracle.write(10, &descriptor());
        oracle.write(50, &[sector(1), sector(2), sector(3)].concat());
        oracle.trim(51, 1);
        oracle.write_zeroes(0, DISK);
        oracle.write(52, &sector(3));
        let zeros = [10, 50, 51].map(|lba| (lba, ZERO));
        assert_eq!(oracle.expected(), [&zeros[..], &[(52, fingerprint(&sector(3)))]].concat());
        let home = oracle.home(&LedgerSnapshot::default());
        assert_eq!(home, HomeWrites { written: 3 + DISK - 20 + 1, removed: DISK - 20 });
    }

    #[test]
    fn duplicates_in_the_journal_are_not_home_writes() {
        let mut oracle = Oracle::new(Mode::STRONG, Vec::from([10..20, 100..101]));
        oracle.write(10, &descriptor());
        oracle.write(11, &sector(1));
        oracle.write(12, &sector(1)); // a duplicate, in the journal
        oracle.write(50, &sector(1)); // a duplicate, at home
        assert_eq!(oracle.home(&avoided(Avoided::Duplicate, 2)), HomeWrites { written: 1, removed: 1 });
        oracle.write(11, &sector(2));
        oracle.write(12, &sector(2));
        oracle.write(50, &sector(2));
        oracle.write(51, &sector(1)); // no longer held anywhere
        assert_eq!(oracle.home(&avoided(Avoided::Duplicate, 4)), HomeWrites { written: 3, removed: 2 });
    }
}
