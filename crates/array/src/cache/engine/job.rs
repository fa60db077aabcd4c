//! Steps as jobs: what is done outside the policy's lock, with a turn at everything it touches.
//!
//! 1. Jobs are made, and take their turns, under the policy's lock, in the order of the steps.
//! 2. The staging buffer follows the steps at once, under that lock: jobs hold the deltas that they need.

use super::budget::Budget;
use super::slot::{Promise, Slot};
use super::turns::{Mode, Place, Turn, Turns};
use crate::cache::policy::Policy;
use crate::cache::step::{DeltaPlace, Newest, PageNo, ParityPart, Staged, Step, Steps, Why};
use std::ops::Range;
use std::sync::Arc;
use vellum_base::hash::FixedMap;
use vellum_base::{Cause, Lba, SECTOR_BYTES};

/// A delta, or where it is.
#[derive(Clone)]
pub(super) enum Delta {
    /// It was staged.
    Here(Arc<[u8]>),
    /// In this page, as it says.
    In(PageNo, Staged),
}

/// What parity lacks of a sector.
pub(super) enum Part {
    /// This delta of what this page holds.
    Delta(Lba, PageNo, Delta),
    /// What two pages differ by.
    Versions(Lba, PageNo, PageNo),
}

impl Part {
    fn delta(&self) -> Option<(PageNo, Delta)> {
        match self {
            Part::Delta(_, base, delta) => Some((*base, delta.clone())),
            Part::Versions(..) => None,
        }
    }
}

/// Whether a step needs a sector's content.
fn fills(step: &Step) -> bool {
    matches!(step, Step::WritePage { .. } | Step::Hold { .. })
}

/// What is done.
pub(super) enum Op {
    /// Write these bytes of the request to the array.
    WriteArray {
        lba: Lba,
        bytes: Range<usize>,
        fua: bool,
        /// Without parity.
        defer: bool,
        promises: Vec<(Promise, Range<usize>)>,
    },
    /// Write what was promised into a page, of the SSD or of the window.
    Fill { page: PageNo, slot: Arc<Slot>, cause: Cause },
    /// Write what a page of the window holds into one of the SSD.
    Promote { from: PageNo, to: PageNo },
    /// Apply a delta to a page of the window.
    Refresh { page: PageNo, delta: Delta },
    /// Write deltas into a page.
    Commit { page: PageNo, deltas: Vec<(Staged, Arc<[u8]>)> },
    /// Update the parity of a row.
    Parity { row: u64, parts: Vec<Part> },
    /// Zero sectors of the array.
    Zero { lba: Lba, sectors: u64, fua: bool },
}

/// Something to do, and its turn.
pub(super) struct Job {
    pub turn: Turn,
    pub op: Op,
}

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
}

/// A sector of a request.
pub(super) struct Asked {
    pub lba: Lba,
    /// Where it is in the request's bytes.
    pub at: usize,
    pub fua: bool,
    /// Against its base.
    pub delta: Option<Arc<[u8]>>,
    /// Nobody else writes to its row meanwhile.
    pub alone: bool,
}

/// Jobs of a request: those that it waits for, and those behind.
#[derive(Default)]
pub(super) struct Jobs {
    pub now: Vec<Job>,
    pub behind: Vec<Job>,
}

/// Where a sector is read.
pub(super) enum Source {
    Array,
    Page(PageNo),
    Changed(PageNo, Delta),
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
        }
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

    /// The page against which a write of this sector wants a delta, and the stamp of its content.
    pub fn base(&self, lba: Lba) -> Option<(PageNo, u32)> {
        let page = self.policy.base(lba)?;
        Some((page, self.stamps.get(&page).copied().unwrap_or(0)))
    }

    /// A write of one sector.
    pub fn write(&mut self, turns: &Arc<Turns>, jobs: &mut Jobs, asked: &Asked) {
        self.steps.clear();
        let delta = asked.delta.as_ref().map(|delta| delta.len());
        self.policy.write(asked.lba, delta, &mut self.steps);
        self.translate(turns, jobs, Some(asked), None);
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
                    self.write_array(turns, jobs, asked.expect("a write was asked for"), defer, promise);
                }
                Step::WritePage { page, why, .. } => {
                    let slot = slot.clone().expect("what is written comes from the request or the array");
                    let turn = turns.take(vec![(Place::Page(page), Mode::Alone)]);
                    let cause = if why == Why::Fill { Cause::CacheFill } else { Cause::CacheWrite };
                    to(jobs, Job { turn, op: Op::Fill { page, slot, cause } });
                }
                Step::Hold { page, .. } => {
                    *self.stamps.entry(page).or_default() += 1;
                    let slot = slot.clone().expect("what is held comes from the request or the array");
                    let turn = turns.take(vec![(Place::Page(page), Mode::Alone)]);
                    to(jobs, Job { turn, op: Op::Fill { page, slot, cause: Cause::CacheFill } });
                }
                Step::Promote { from, to: page, .. } => {
                    let places = vec![(Place::Page(from), Mode::Shared), (Place::Page(page), Mode::Alone)];
                    to(jobs, Job { turn: turns.take(places), op: Op::Promote { from, to: page } });
                }
                Step::Refresh(page) => {
                    *self.stamps.entry(page).or_default() += 1;
                    let is_its = |(base, _): &&(PageNo, Delta)| *base == page;
                    let delta = listed.iter().find(is_its).expect("parity got it before").1.clone();
                    let mut places = vec![(Place::Page(page), Mode::Alone)];
                    if let Delta::In(page, _) = &delta {
                        places.push((Place::Page(*page), Mode::Shared));
                    }
                    to(jobs, Job { turn: turns.take(places), op: Op::Refresh { page, delta } });
                }
                Step::Stage(staged) => {
                    let delta = asked.and_then(|asked| asked.delta.clone()).expect("its length was said");
                    self.staging.insert(staged.base, delta);
                }
                Step::Unstage(base) => drop(self.staging.remove(&base)),
                Step::CommitDeltas { page, from, count } => {
                    let staged = steps.staged_of(from, count).iter();
                    let take =
                        |s: &Staged| (*s, self.staging.remove(&s.base).expect("what is committed is staged"));
                    let op = Op::Commit { page, deltas: staged.map(take).collect() };
                    to(jobs, Job { turn: turns.take(vec![(Place::Page(page), Mode::Alone)]), op });
                }
                Step::UpdateParity { row, from, count, .. } => {
                    let job = self.parity(turns, row, steps.parts_of(from, count));
                    if let Op::Parity { parts, .. } = &job.op {
                        listed.extend(parts.iter().filter_map(Part::delta));
                    }
                    self.joins = false;
                    to(jobs, job);
                }
                // What is read goes with what it is read for. Without an NVRAM the log is written when the cache is
                // closed. Pages that are written again need no discard.
                Step::ReadPage(_)
                | Step::ReadDeltas(_)
                | Step::ReadArray(_)
                | Step::Note(_)
                | Step::CommitLog { .. }
                | Step::Discard(_) => {}
            }
        }
        self.steps = steps;
    }

    /// Joins the write before it, if it goes on where that ends.
    fn write_array(
        &mut self,
        turns: &Arc<Turns>,
        jobs: &mut Jobs,
        asked: &Asked,
        defer: bool,
        promise: Option<Promise>,
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
        if let Some(Job { turn, op: Op::WriteArray { lba, bytes, defer: deferred, promises, .. } }) =
            last.filter(|_| self.joins)
            && *deferred == defer
            && bytes.end == range.start
            && (!defer || lba.0 / self.row_sectors == row)
        {
            turn.extend(places);
            bytes.end = range.end;
            promises.extend(promise);
            return;
        }
        let promises = promise.into_iter().collect();
        let op = Op::WriteArray { lba: asked.lba, bytes: range, fua: asked.fua, defer, promises };
        jobs.now.push(Job { turn: turns.take(places), op });
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
        Job { turn: turns.take(places), op: Op::Parity { row, parts: listed } }
    }
}
