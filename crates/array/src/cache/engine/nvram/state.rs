//! A cache's state as kept in NVRAM: the result of all its records, in order.
//!
//! 1. The same code tracks records as they are written and replays them after a crash.
//! 2. A page is *pending* from when new content is begun until that has arrived. A page pending at a crash holds
//!    nothing. A delta that goes to a pending page is *moving*: it counts as staged until the page is written.
//! 3. The checksum in an entry of a pending page is corrected when the content has arrived.
//! 4. A row whose parity was updated is *whole* until its mark on the members is cleared; until then the mark is
//!    ignored. A row that becomes whole while marks are being cleared waits for the next time.

use super::record::Record;
use crate::cache::engine::sums::has_sum;
use crate::cache::shape::PageState;
use crate::cache::step::{LogEntry, PageNo};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vellum_base::Lba;

/// A staged delta.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The delta's sector.
    pub lba: Lba,
    /// Grows from delta to delta.
    pub stamp: u64,
    /// The checksum of its base, if known.
    pub sum: Option<u32>,
    /// The encoded delta.
    pub delta: Arc<[u8]>,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Session number of the cache's superblock, and whether SSD and members have it.
    pub session: (u64, bool),
    /// The oldest valid page of the log, and the next to be written.
    pub log: (u64, u64),
    /// Entries in the metadata buffer.
    pub buffer: BTreeMap<PageNo, LogEntry>,
    /// Entries of log pages that may not be written yet.
    pub unwritten: BTreeMap<u64, Vec<LogEntry>>,
    /// Deltas in the staging buffer, by base.
    pub staged: BTreeMap<PageNo, Held>,
    /// Deltas on their way to a pending page, by base, with that page.
    pub moving: BTreeMap<PageNo, (PageNo, Held)>,
    /// Sectors that may not be written, or not be durable, with the stamp of the intent.
    pub intents: BTreeMap<Lba, u64>,
    /// Pages whose content has not arrived, with its stamp.
    pub pending: BTreeMap<PageNo, u64>,
    /// Rows whose parity may or may not include their deltas, with the stamp of the update.
    pub cleaning: BTreeMap<u64, u64>,
    /// Rows whose parity includes all their deltas, but which may be marked on members.
    pub whole: BTreeSet<u64>,
    /// The same, and their marks are being cleared.
    pub telling: BTreeSet<u64>,
}

impl State {
    /// Applies a record.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Session(session, is_told) => self.session = (*session, *is_told),
            Record::Entry(entry) => self.note(*entry),
            Record::Staged { base, lba, stamp, is_intent, sum, delta } => {
                self.moving.remove(base);
                let held = Held { lba: *lba, stamp: *stamp, sum: *sum, delta: delta.clone() };
                self.staged.insert(*base, held);
                if *is_intent {
                    self.intents.insert(*lba, *stamp);
                }
            }
            Record::Moving { base, home, lba, stamp, sum, delta } => {
                let held = Held { lba: *lba, stamp: *stamp, sum: *sum, delta: delta.clone() };
                self.moving.insert(*base, (*home, held));
            }
            Record::Unstaged(base) => drop(self.staged.remove(base)),
            Record::LogBegun { sequence, head, pages } => {
                let entries = pages.iter().filter_map(|page| self.buffer.remove(page)).collect();
                self.unwritten.insert(*sequence, entries);
                // When a half begins, records of older log pages are repeated: the half's head has the newer range.
                self.log = (self.log.0.max(*head), self.log.1.max(sequence.saturating_add(1)));
            }
            Record::LogWritten(sequence) => drop(self.unwritten.remove(sequence)),
            Record::Intent(lba, stamp) => drop(self.intents.insert(*lba, *stamp)),
            Record::Retired(bound) => self.intents.retain(|_, stamp| *stamp >= *bound),
            Record::Begun(page, stamp) => drop(self.pending.insert(*page, *stamp)),
            Record::Filled(page, stamp, sum) => {
                if self.pending.get(page) == Some(stamp) {
                    self.pending.remove(page);
                    self.sum(*page, *sum);
                    self.moving.retain(|_, (home, _)| home != page);
                }
            }
            Record::Cleaning(row, stamp) => {
                self.cleaning.insert(*row, *stamp);
                self.whole.remove(row);
                self.telling.remove(row);
            }
            Record::Cleaned(row, stamp) => {
                if self.cleaning.get(row).is_none_or(|begun| begun <= stamp) {
                    self.cleaning.remove(row);
                    self.telling.remove(row);
                    self.whole.insert(*row);
                }
            }
            Record::Telling => self.telling.append(&mut self.whole),
            Record::Told => self.telling.clear(),
        }
    }

    fn note(&mut self, entry: LogEntry) {
        self.buffer.insert(entry.page, entry);
        match (entry.state, entry.delta) {
            (PageState::Old, Some((home, ..))) if self.pending.contains_key(&home) => {
                if let Some(held) = self.staged.remove(&entry.page) {
                    self.moving.insert(entry.page, (home, held));
                }
            }
            (PageState::Free, _) => {
                self.staged.remove(&entry.page);
                self.moving.remove(&entry.page);
                // Content begun there no longer matters.
                self.pending.remove(&entry.page);
            }
            _ => {}
        }
    }

    /// Corrects the checksum in the entries of a page.
    fn sum(&mut self, page: PageNo, sum: Option<u32>) {
        let entries = self.unwritten.values_mut().flatten().chain(self.buffer.get_mut(&page));
        let own = entries.filter(|entry| entry.page == page && has_sum(entry));
        own.for_each(|entry| entry.sum = sum);
    }

    /// Records that replay to this state, given `log`. Entries come first, as they would affect staged deltas and
    /// pending pages.
    pub fn records(&self) -> Vec<Record> {
        let mut out = vec![Record::Session(self.session.0, self.session.1)];
        for (sequence, entries) in &self.unwritten {
            out.extend(entries.iter().map(|entry| Record::Entry(*entry)));
            let pages = entries.iter().map(|entry| entry.page).collect();
            out.push(Record::LogBegun { sequence: *sequence, head: self.log.0, pages });
        }
        out.extend(self.buffer.values().map(|entry| Record::Entry(*entry)));
        out.extend(self.pending.iter().map(|(page, stamp)| Record::Begun(*page, *stamp)));
        out.extend(self.moving.iter().map(|(base, (home, Held { lba, stamp, sum, delta }))| {
            Record::Moving {
                base: *base,
                home: *home,
                lba: *lba,
                stamp: *stamp,
                sum: *sum,
                delta: delta.clone(),
            }
        }));
        out.extend(self.staged.iter().map(|(base, Held { lba, stamp, sum, delta })| Record::Staged {
            base: *base,
            lba: *lba,
            stamp: *stamp,
            is_intent: false,
            sum: *sum,
            delta: delta.clone(),
        }));
        out.extend(self.intents.iter().map(|(lba, stamp)| Record::Intent(*lba, *stamp)));
        out.extend(self.telling.iter().map(|row| Record::Cleaned(*row, 0)));
        out.push(Record::Telling);
        out.extend(self.whole.iter().map(|row| Record::Cleaned(*row, 0)));
        out.extend(self.cleaning.iter().map(|(row, stamp)| Record::Cleaning(*row, *stamp)));
        out
    }

    /// The greatest stamp in the state.
    pub fn last_stamp(&self) -> u64 {
        let stamps = self.intents.values().chain(self.pending.values()).chain(self.cleaning.values());
        let held = self.staged.values().chain(self.moving.values().map(|(_, held)| held));
        stamps.copied().chain(held.map(|held| held.stamp)).max().unwrap_or(0)
    }

    /// Approximate size of those records, in bytes.
    pub fn weight(&self) -> usize {
        let moving = self.moving.values().map(|(_, held)| held);
        let deltas: usize = self.staged.values().chain(moving).map(|held| held.delta.len() + 32).sum();
        let entries = self.buffer.len() + self.unwritten.values().map(|some| some.len() + 1).sum::<usize>();
        deltas + 24 * entries + 20 * (self.pending.len() + self.cleaning.len()) + self.weight_of_told()
    }

    /// The part of it that is freed by a flush of the members and by clearing marks.
    pub fn weight_of_told(&self) -> usize {
        20 * (self.intents.len() + self.whole.len() + self.telling.len())
    }

    /// True if there are rows that are no longer stale but may be marked on members.
    pub fn has_whole(&self) -> bool {
        !self.whole.is_empty() || !self.telling.is_empty()
    }

    /// Records that the page holds nothing any more.
    pub fn free(&mut self, page: PageNo) {
        self.note(LogEntry { page, state: PageState::Free, lba: Lba(0), delta: None, sum: None });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    /// Any record, of few pages, so that they meet.
    fn any(rng: &mut SmallRng, stamp: u64) -> Record {
        let mut page = || PageNo(rng.random_range(0..6));
        let (base, home) = (page(), page());
        let lba = Lba(u64::from(base.0));
        let delta: Arc<[u8]> = Arc::from(stamp.to_le_bytes());
        let sum = (!stamp.is_multiple_of(3)).then_some(stamp as u32);
        match rng.random_range(0..17) {
            15 => Record::Telling,
            16 => Record::Told,
            14 => Record::Session(stamp, rng.random_bool(0.5)),
            0 => Record::Staged { base, lba, stamp, is_intent: rng.random_bool(0.7), sum, delta },
            1 => Record::Staged { base, lba, stamp, is_intent: true, sum, delta },
            2 => Record::Unstaged(base),
            3 | 4 => {
                let pages = (0..6).filter(|_| rng.random_bool(0.5)).map(PageNo).collect();
                Record::LogBegun { sequence: stamp, head: stamp / 2, pages }
            }
            5 => Record::LogWritten(rng.random_range(0..=stamp)),
            6 => Record::Retired(rng.random_range(0..=stamp)),
            7 | 8 => Record::Begun(home, stamp),
            9 => Record::Filled(home, rng.random_range(0..=stamp), sum),
            10 => Record::Cleaning(u64::from(base.0), stamp),
            11 => Record::Cleaned(u64::from(base.0), stamp),
            n => {
                let delta = (n == 12).then_some((home, 16, 8));
                let state = if n == 12 {
                    PageState::Old
                } else {
                    [PageState::Free, PageState::Clean][stamp as usize % 2]
                };
                let entry = LogEntry { page: base, state, lba, delta, sum: None };
                Record::Entry(LogEntry { sum: sum.filter(|_| has_sum(&entry)), ..entry })
            }
        }
    }

    #[test]
    fn its_records_come_to_the_same_state() {
        let (mut moving, mut unwritten, mut whole) = (0, 0, 0);
        for seed in 0..200 {
            let (mut rng, mut state) = (SmallRng::seed_from_u64(seed), State::default());
            for stamp in 1..80 {
                state.apply(&any(&mut rng, stamp));
                let mut again = State { log: state.log, ..State::default() };
                state.records().iter().for_each(|record| again.apply(record));
                assert_eq!(again, state, "seed {seed}, record {stamp}");
                moving += state.moving.len();
                unwritten += state.unwritten.len();
                whole += state.whole.len().min(state.telling.len());
            }
        }
        assert!(
            moving > 100 && unwritten > 100 && whole > 100,
            "{moving} deltas were moving, {unwritten} pages not written, {whole} rows whole"
        );
    }

    #[test]
    fn a_page_that_is_freed_before_it_is_filled_is_not_pending() {
        let mut state = State::default();
        state.apply(&Record::Begun(PageNo(3), 7));
        state.free(PageNo(3));
        assert!(state.pending.is_empty());
    }
}
