//! The policy under its lock: what it answers becomes jobs.
//!
//! 1. Jobs are made, and take their turns, under the policy's lock, in the order of the steps.
//! 2. With an NVRAM what the steps change goes there in their order, and jobs wait until it is durable (`Job::after`).
//! 3. The staging buffer follows the steps at once, under that lock: jobs hold the deltas that they need.

use super::budget::Budget;
use super::job::{Asked, Delta, Job, Jobs, Op, Part, Prior, Source};
use super::nvram::{Nvram, Record};
use super::slot::{Promise, Slot};
use super::turns::{Mode, Place, Turn, Turns};
use crate::cache::policy::Policy;
use crate::cache::step::{DeltaPlace, Newest, PageNo, ParityPart, Staged, Step, Steps, Why};
use std::collections::BTreeSet;
use std::sync::Arc;
use vellum_base::hash::FixedMap;
use vellum_base::sync::Mutex;
use vellum_base::{Cause, Lba, SECTOR_BYTES};

/// The policy, and what goes with it.
pub(super) struct Brain {
    pub policy: Box<dyn Policy>,
    pub steps: Steps,
    /// Deltas in the staging buffer, by base.
    pub staging: FixedMap<PageNo, Arc<[u8]>>,
    /// How often the content of a page of the window was replaced: it may stay the base of its sector then.
    stamps: FixedMap<PageNo, u32>,
    /// Flash that may be written.
    pub budget: Option<Budget>,
    /// Whether parity may be put off.
    pub defers: bool,
    /// Data sectors of a row.
    pub row_sectors: u64,
    /// What the last [`Brain::write`] could add to, if nothing came between.
    joins: bool,
    pub nvram: Option<Arc<Nvram>>,
    /// Rows whose parity lacks what nobody knows.
    pub unknown: Arc<Mutex<BTreeSet<u64>>>,
    /// For the NVRAM, of the steps that are translated.
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
            unknown: Arc::default(),
            records: Vec::new(),
        }
    }

    /// A number that no record in NVRAM has; without one they are of no use.
    pub fn stamp(&self) -> u64 {
        self.nvram.as_ref().map_or(0, |nvram| nvram.stamp())
    }

    fn record(&mut self, record: impl FnOnce() -> Record) {
        if self.nvram.is_some() {
            self.records.push(record());
        }
    }

    /// What the steps have changed goes to NVRAM as a whole. Jobs wait for it, and for what earlier steps changed: a
    /// page may have been dropped whose sector is written now.
    fn append_records(&mut self, jobs: &mut Jobs) {
        let Some(nvram) = &self.nvram else { return };
        let after = match self.records.is_empty() {
            true => nvram.appended(),
            false => nvram.append(&self.records),
        };
        self.records.clear();
        jobs.now.iter_mut().chain(&mut jobs.behind).for_each(|job| job.after = after);
    }

    /// Asks the policy for something that is no request of a sector.
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

    /// The page that a write of this sector finds.
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

    /// A write of one sector.
    pub fn write(&mut self, turns: &Arc<Turns>, jobs: &mut Jobs, asked: &Asked) {
        self.steps.clear();
        let delta = asked.delta.as_ref().filter(|_| self.may_be_put_off(asked.lba)).map(|delta| delta.len());
        self.policy.write(asked.lba, delta, &mut self.steps);
        self.translate(turns, jobs, Some(asked), None);
    }

    /// With an NVRAM parity of an unknown row is not: after a cut a row with deltas is a row of which all that its
    /// parity lacks is known.
    fn may_be_put_off(&self, lba: Lba) -> bool {
        self.nvram.is_none() || !self.unknown.lock().contains(&(lba.0 / self.row_sectors))
    }

    /// A read of one sector: where it is, its turn there, and whom to give what was read from the array.
    pub fn read(&mut self, turns: &Arc<Turns>, jobs: &mut Jobs, lba: Lba) -> (Source, Turn, Option<Promise>) {
        self.steps.clear();
        let newest = self.policy.read(lba, &mut self.steps);
        let source = self.source_of(lba, newest);
        let mut places = match &source {
            Source::Array => vec![
                (Place::Sector(lba), Mode::Shared),
                (Place::Data(lba.0 / self.row_sectors), Mode::Shared),
            ],
            Source::Page(page) | Source::Changed(page, _) => vec![(Place::Page(*page), Mode::Shared)],
        };
        if let Source::Changed(_, Delta::In(page, _)) = &source {
            places.push((Place::Page(*page), Mode::Shared));
        }
        let turn = turns.take(places);
        let fills = self.steps.list.iter().any(fills);
        let (promise, slot) = if fills { Some(Promise::new()).unzip() } else { (None, None) };
        self.steps.answered = 0; // But for what is read nothing is waited for.
        self.translate(turns, jobs, None, slot);
        (source, turn, promise)
    }

    fn source_of(&self, lba: Lba, newest: Newest) -> Source {
        match newest {
            Newest::Array => Source::Array,
            Newest::Page(page) => Source::Page(page),
            Newest::Changed(base, place) => Source::Changed(base, self.delta_at(lba, base, place)),
        }
    }

    /// The page and the delta of a sector whose parity is put off.
    pub fn newest(&self, lba: Lba) -> Option<(PageNo, Delta)> {
        match self.source_of(lba, self.policy.newest(lba)) {
            Source::Changed(base, delta) => Some((base, delta)),
            Source::Array | Source::Page(_) => None,
        }
    }

    fn delta_at(&self, lba: Lba, base: PageNo, place: DeltaPlace) -> Delta {
        match place {
            DeltaPlace::Staged => Delta::Here(self.staging[&base].clone()),
            DeltaPlace::In { page, offset, bytes } => Delta::In(page, Staged { base, lba, bytes, offset }),
        }
    }

    /// The policy's steps as jobs.
    fn translate(
        &mut self,
        turns: &Arc<Turns>,
        jobs: &mut Jobs,
        asked: Option<&Asked>,
        mut slot: Option<Arc<Slot>>,
    ) {
        let steps = std::mem::take(&mut self.steps);
        let mut listed: Vec<(PageNo, Delta)> = Vec::new();
        let mut intent = 0;
        for (at, step) in steps.list.iter().enumerate() {
            let to = |jobs: &mut Jobs, job| match at < steps.answered {
                true => jobs.now.push(job),
                false => jobs.behind.push(job),
            };
            match *step {
                Step::WriteArray(_) | Step::WriteWithoutParity(_) => {
                    let defer = matches!(step, Step::WriteWithoutParity(_));
                    let fills = steps.list.iter().any(fills);
                    let (promise, promised) = if fills { Some(Promise::new()).unzip() } else { (None, None) };
                    slot = promised;
                    if let Some(nvram) = self.nvram.as_ref().filter(|_| defer) {
                        intent = nvram.begin_intent();
                    }
                    let asked = asked.expect("a write was asked for");
                    self.write_array(turns, jobs, asked, defer, promise, intent);
                }
                Step::WritePage { page, why, .. } => {
                    let slot = slot.clone().expect("what is written comes from the request or the array");
                    let turn = turns.take(vec![(Place::Page(page), Mode::Alone)]);
                    let cause = if why == Why::Fill { Cause::CacheFill } else { Cause::CacheWrite };
                    let stamp = self.stamp();
                    self.record(|| Record::Begun(page, stamp));
                    to(jobs, Job::new(turn, Op::Fill { page, slot, cause, stamp }));
                }
                Step::Hold { page, .. } => {
                    *self.stamps.entry(page).or_default() += 1;
                    let slot = slot.clone().expect("what is held comes from the request or the array");
                    let turn = turns.take(vec![(Place::Page(page), Mode::Alone)]);
                    to(jobs, Job::new(turn, Op::Fill { page, slot, cause: Cause::CacheFill, stamp: 0 }));
                }
                Step::Promote { from, to: page, .. } => {
                    let places = vec![(Place::Page(from), Mode::Shared), (Place::Page(page), Mode::Alone)];
                    to(jobs, Job::new(turns.take(places), Op::Promote { from, to: page }));
                }
                Step::Refresh(page) => {
                    *self.stamps.entry(page).or_default() += 1;
                    let is_its = |(base, _): &&(PageNo, Delta)| *base == page;
                    let delta = listed.iter().find(is_its).expect("parity got it before").1.clone();
                    let mut places = vec![(Place::Page(page), Mode::Alone)];
                    if let Delta::In(page, _) = &delta {
                        places.push((Place::Page(*page), Mode::Shared));
                    }
                    to(jobs, Job::new(turns.take(places), Op::Refresh { page, delta }));
                }
                Step::Stage(staged) => {
                    let delta = asked.and_then(|asked| asked.delta.clone()).expect("its length was said");
                    self.staging.insert(staged.base, delta.clone());
                    let Staged { base, lba, .. } = staged;
                    self.record(|| Record::Staged { base, lba, stamp: intent, is_intent: true, delta });
                }
                Step::Unstage(base) => {
                    self.staging.remove(&base);
                    self.record(|| Record::Unstaged(base));
                }
                Step::CommitDeltas { page, from, count } => {
                    let staged = steps.staged_of(from, count).iter();
                    let take =
                        |s: &Staged| (*s, self.staging.remove(&s.base).expect("what is committed is staged"));
                    let deltas = staged.map(take).collect();
                    let stamp = self.stamp();
                    self.record(|| Record::Begun(page, stamp));
                    let turn = turns.take(vec![(Place::Page(page), Mode::Alone)]);
                    to(jobs, Job::new(turn, Op::Commit { page, deltas, stamp }));
                }
                Step::UpdateParity { row, from, count, .. } => {
                    let job = self.parity(turns, row, steps.parts_of(from, count));
                    if let Op::Parity { parts, .. } = &job.op {
                        listed.extend(parts.iter().filter_map(Part::delta));
                    }
                    if let Op::Parity { stamp, .. } = job.op {
                        self.record(|| Record::Cleaning(row, stamp));
                    }
                    self.joins = false;
                    to(jobs, job);
                }
                Step::Note(entry) => self.record(|| Record::Entry(entry)),
                Step::CommitLog { sequence, head, from, count } if self.nvram.is_some() => {
                    let entries = steps.entries_of(from, count).to_vec();
                    let pages = entries.iter().map(|entry| entry.page).collect();
                    self.record(|| Record::LogBegun { sequence, head, pages });
                    to(jobs, Job::new(turns.take(Vec::new()), Op::Log { sequence, head, entries }));
                }
                Step::Vacate { first, pages } => {
                    let all = (first.0..first.0 + pages).map(|page| (Place::Page(PageNo(page)), Mode::Alone));
                    to(jobs, Job::new(turns.take(all.collect()), Op::Vacate { first, pages }));
                }
                // What is read goes with what it is read for. Without an NVRAM the log is written when the cache is
                // closed. Pages that are written again need no discard.
                Step::ReadPage(_)
                | Step::ReadDeltas(_)
                | Step::ReadArray(_)
                | Step::CommitLog { .. }
                | Step::Discard(_) => {}
            }
        }
        self.steps = steps;
        self.append_records(jobs);
    }

    /// Joins the write before it, if it goes on where that ends.
    fn write_array(
        &mut self,
        turns: &Arc<Turns>,
        jobs: &mut Jobs,
        asked: &Asked,
        defer: bool,
        promise: Option<Promise>,
        intent: u64,
    ) {
        let row = asked.lba.0 / self.row_sectors;
        let places = vec![
            (Place::Sector(asked.lba), Mode::Alone),
            (Place::Data(row), Mode::Shared),
            (Place::Parity(row), if asked.alone { Mode::Alone } else { Mode::Shared }),
        ];
        let range = asked.at..asked.at + SECTOR_BYTES;
        let promise = promise.map(|promise| (promise, range.clone()));
        let last = jobs.now.iter_mut().rev().find(|job| matches!(job.op, Op::WriteArray { .. }));
        if let Some(Job {
            turn,
            op: Op::WriteArray { lba, bytes, defer: deferred, promises, intents, .. },
            ..
        }) = last.filter(|_| self.joins)
            && *deferred == defer
            && bytes.end == range.start
            && (!defer || lba.0 / self.row_sectors == row)
        {
            turn.extend(places);
            bytes.end = range.end;
            promises.extend(promise);
            intents.push(intent);
            return;
        }
        let promises = promise.into_iter().collect();
        let (lba, fua, intents) = (asked.lba, asked.fua, vec![intent]);
        let op = Op::WriteArray { lba, bytes: range, fua, defer, promises, intents };
        jobs.now.push(Job::new(turns.take(places), op));
        self.joins = true;
    }

    fn parity(&self, turns: &Arc<Turns>, row: u64, parts: &[ParityPart]) -> Job {
        let mut places = vec![(Place::Parity(row), Mode::Alone)];
        let mut listed = Vec::new();
        for part in parts {
            match *part {
                ParityPart::Delta(lba, base, place) => {
                    let delta = self.delta_at(lba, base, place);
                    places.push((Place::Page(base), Mode::Shared));
                    if let Delta::In(page, _) = &delta {
                        places.push((Place::Page(*page), Mode::Shared));
                    }
                    listed.push(Part::Delta(lba, base, delta));
                }
                ParityPart::Versions { lba, old, new } => {
                    places.extend([old, new].map(|page| (Place::Page(page), Mode::Shared)));
                    listed.push(Part::Versions(lba, old, new));
                }
                // The others are all that parity lacks.
                ParityPart::Same(..) => {}
            }
        }
        Job::new(turns.take(places), Op::Parity { row, parts: listed, stamp: self.stamp() })
    }
}

/// Whether a step needs a sector's content.
fn fills(step: &Step) -> bool {
    matches!(step, Step::WritePage { .. } | Step::Hold { .. })
}
