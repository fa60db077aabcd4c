//! The policy and its lock: its answers become jobs (`brain/translate.rs`).
//!
//! 1. Jobs are made, and take their turns, under the policy's lock, in the order of its steps.
//! 2. With an NVRAM, changes made by the steps are appended to it in their order, and jobs wait until these are durable
//!    (`Job::after`).
//! 3. The staging buffer is updated by the steps at once, under that lock; jobs hold the deltas that they need.

mod translate;

use super::budget::Budget;
use super::job::{Asked, Delta, Jobs, Prior, Source, Stored};
use super::logger::{Due, DuePages};
use super::nvram::{Nvram, Record};
use super::slot::Promise;
use super::sums::Sums;
use super::turns::{Mode, Place, Turn, Turns};
use crate::cache::policy::Policy;
use crate::cache::step::{DeltaPlace, LogEntry, Newest, PageNo, Step, Steps};
use std::collections::BTreeSet;
use std::sync::Arc;
use vellum_base::Lba;
use vellum_base::hash::FixedMap;
use vellum_base::sync::Mutex;

/// The policy, and the state that belongs to it.
pub(super) struct Brain {
    pub policy: Box<dyn Policy>,
    pub steps: Steps,
    /// Deltas in the staging buffer, by base.
    pub staging: FixedMap<PageNo, Arc<[u8]>>,
    /// How often the content of a page in the window was replaced, which may stay the base of its sector then.
    stamps: FixedMap<PageNo, u32>,
    /// The budget of flash writes, if there is one.
    pub budget: Option<Budget>,
    /// True if parity may be deferred.
    pub defers: bool,
    /// Data sectors of a row.
    pub row_sectors: u64,
    /// The last [`Brain::write`] made a job that the next may extend, as nothing came between.
    joins: bool,
    pub nvram: Option<Arc<Nvram>>,
    /// Pages of the log to be written, with an NVRAM.
    pub due: Arc<DuePages>,
    /// Checksums of the SSD's pages, and the tag of valid pages.
    pub sums: Arc<Sums>,
    pub tag: u64,
    /// For bases whose deltas are in delta pages: what identifies these (`delta_page::check_of`).
    pub checks: FixedMap<PageNo, u32>,
    /// Rows whose parity lacks deltas that are not known.
    pub unknown: Arc<Mutex<BTreeSet<u64>>>,
    /// Records for the NVRAM, of the steps being translated.
    records: Vec<Record>,
}

impl Brain {
    pub fn new(policy: Box<dyn Policy>, budget: Option<Budget>, row_sectors: u64) -> Brain {
        Brain {
            policy,
            steps: Steps::default(),
            staging: FixedMap::default(),
            stamps: FixedMap::default(),
            budget,
            defers: true,
            row_sectors,
            joins: false,
            nvram: None,
            due: Arc::default(),
            sums: Arc::new(Sums::new(0)),
            tag: 0,
            checks: FixedMap::default(),
            unknown: Arc::default(),
            records: Vec::new(),
        }
    }

    /// A new stamp for records in NVRAM; 0 without one, as it is not used then.
    pub fn stamp(&self) -> u64 {
        self.nvram.as_ref().map_or(0, |nvram| nvram.stamp())
    }

    fn record(&mut self, record: impl FnOnce() -> Record) {
        if self.nvram.is_some() {
            self.records.push(record());
        }
    }

    /// Appends the records of all steps to the NVRAM as one unit. Jobs wait for them, and for earlier ones: for
    /// example, the page of a sector that is written now may have been dropped before.
    fn append_records(&mut self, jobs: &mut Jobs) {
        let Some(nvram) = &self.nvram else { return };
        let begun = self.records.iter().filter_map(|record| match record {
            Record::LogBegun { sequence, head, .. } => Some((*sequence, *head)),
            _ => None,
        });
        let begun: Vec<(u64, u64)> = begun.collect();
        let after = match self.records.is_empty() {
            true => nvram.appended(),
            false => nvram.append(self.records.drain(..)),
        };
        for (sequence, head) in begun {
            self.due.push(Due { sequence, head, stamp: nvram.last_stamp(), after });
        }
        jobs.now.iter_mut().chain(&mut jobs.behind).for_each(|job| job.after = after);
    }

    /// Asks the policy for something other than the read or write of a sector.
    pub fn ask(
        &mut self,
        turns: &Arc<Turns>,
        jobs: &mut Jobs,
        ask: impl FnOnce(&mut dyn Policy, &mut Steps),
    ) {
        self.steps.clear();
        ask(&mut *self.policy, &mut self.steps);
        self.steps.answer(); // All of it is waited for.
        self.translate(turns, jobs, None, None);
    }

    /// The page that a write of this sector replaces or takes as a base.
    pub fn prior(&self, lba: Lba) -> Option<Prior> {
        if let Some(page) = self.policy.base(lba) {
            let stamp = self.stamps.get(&page).copied().unwrap_or(0);
            return Some(Prior { page, stamp, is_base: true });
        }
        match self.policy.newest(lba) {
            Newest::Page(page) => Some(Prior { page, stamp: 0, is_base: false }),
            Newest::Array | Newest::Changed(..) => None,
        }
    }

    /// Writes one sector.
    pub fn write(&mut self, turns: &Arc<Turns>, jobs: &mut Jobs, asked: &Asked) {
        self.steps.clear();
        let delta = asked.delta.as_ref().filter(|_| self.may_be_put_off(asked.lba)).map(|delta| delta.len());
        self.policy.write(asked.lba, delta, &mut self.steps);
        self.translate(turns, jobs, Some(asked), None);
    }

    /// With an NVRAM, parity of an unknown row is not deferred: so after a crash a row with deltas is always one whose
    /// parity lacks nothing else.
    fn may_be_put_off(&self, lba: Lba) -> bool {
        self.nvram.is_none() || !self.unknown.lock().contains(&(lba.0 / self.row_sectors))
    }

    /// Reads one sector: returns where it is, the turn for reading it there, and a promise to give the content if it is
    /// to fill pages.
    pub fn read(&mut self, turns: &Arc<Turns>, jobs: &mut Jobs, lba: Lba) -> (Source, Turn, Option<Promise>) {
        self.steps.clear();
        let newest = self.policy.read(lba, &mut self.steps);
        let source = self.source_of(lba, newest);
        let turn = turns.take(self.places_of(lba, &source));
        let fills = self.steps.list.iter().any(fills);
        let (promise, slot) = if fills { Some(Promise::new()).unzip() } else { (None, None) };
        self.steps.answered = 0; // But for what is read nothing is waited for.
        self.translate(turns, jobs, None, slot);
        (source, turn, promise)
    }

    /// Where a sector is, and a turn for reading it there.
    pub fn find(&self, turns: &Arc<Turns>, lba: Lba) -> (Source, Turn) {
        let source = self.source_of(lba, self.policy.newest(lba));
        let turn = turns.take(self.places_of(lba, &source));
        (source, turn)
    }

    fn places_of(&self, lba: Lba, source: &Source) -> Vec<(Place, Mode)> {
        let places = match source {
            Source::Array => vec![Place::Sector(lba), Place::Data(lba.0 / self.row_sectors)],
            Source::Changed(base, Delta::In(stored)) => vec![Place::Page(*base), Place::Page(stored.home)],
            Source::Page(page) | Source::Changed(page, _) => vec![Place::Page(*page)],
        };
        places.into_iter().map(|place| (place, Mode::Shared)).collect()
    }

    fn source_of(&self, lba: Lba, newest: Newest) -> Source {
        match newest {
            Newest::Array => Source::Array,
            Newest::Page(page) => Source::Page(page),
            Newest::Changed(base, place) => Source::Changed(base, self.delta_at(lba, base, place)),
        }
    }

    /// The base and the delta of a sector whose parity is deferred.
    pub fn newest(&self, lba: Lba) -> Option<(PageNo, Delta)> {
        match self.source_of(lba, self.policy.newest(lba)) {
            Source::Changed(base, delta) => Some((base, delta)),
            Source::Array | Source::Page(_) => None,
        }
    }

    /// An entry in its stored form. That of a base identifies the page of its delta; the place within is found in that
    /// page.
    pub fn logged(&self, entry: LogEntry) -> LogEntry {
        // Old pages of LeavO have their newer page there instead; there are none when it is closed.
        let delta = entry.delta.zip(self.checks.get(&entry.page));
        let delta = delta.map(|((home, ..), check)| (home, (check & 0xFFF) as u16, (check >> 12) as u16));
        LogEntry { delta, ..entry }
    }

    /// Takes over what an opening found.
    pub fn restore(&mut self, entries: &[(LogEntry, Option<u64>)]) {
        for (entry, _) in entries {
            if let Some((_, low, high)) = entry.delta {
                self.checks.insert(entry.page, u32::from(low) | u32::from(high) << 12);
            }
        }
    }

    fn delta_at(&self, lba: Lba, base: PageNo, place: DeltaPlace) -> Delta {
        match place {
            DeltaPlace::Staged => Delta::Here(self.staging[&base].clone()),
            DeltaPlace::In { page: home, .. } => {
                Delta::In(Stored { home, check: self.checks[&base], base, lba })
            }
        }
    }
}

/// True if a step needs a sector's content.
fn fills(step: &Step) -> bool {
    matches!(step, Step::WritePage { .. } | Step::Hold { .. })
}
