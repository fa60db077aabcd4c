//! Translation of the policy's steps into jobs, each with its turn, and into records for the NVRAM.

use super::super::delta_page;
use super::super::job::{Asked, Delta, Job, Jobs, Op, Part};
use super::super::nvram::Record;
use super::super::slot::{Promise, Slot};
use super::super::turns::{Mode, Place, Turns};
use super::{Brain, fills};
use crate::cache::shape::PageState;
use crate::cache::step::{LogEntry, PageNo, ParityPart, Staged, Step, Steps, Why};
use std::sync::Arc;
use vellum_base::{Cause, SECTOR_BYTES};

/// An answer of the policy during its translation.
struct Answer<'a> {
    turns: &'a Arc<Turns>,
    steps: &'a Steps,
    /// The write that it answers.
    asked: Option<&'a Asked>,
    /// Content for pages that are filled.
    slot: Option<Arc<Slot>>,
    /// Deltas that parity gets.
    listed: Vec<(PageNo, Delta)>,
    /// Stamp of a write without its parity.
    intent: u64,
}

impl Brain {
    /// Translates the policy's steps. `slot` will have what is read from the array.
    pub(super) fn translate(
        &mut self,
        turns: &Arc<Turns>,
        jobs: &mut Jobs,
        asked: Option<&Asked>,
        slot: Option<Arc<Slot>>,
    ) {
        let steps = std::mem::take(&mut self.steps);
        let mut answer = Answer { turns, steps: &steps, asked, slot, listed: Vec::new(), intent: 0 };
        for (at, step) in steps.list.iter().enumerate() {
            if let Step::WriteArray(_) | Step::WriteWithoutParity(_) = step {
                self.write_to_array(&mut answer, jobs, matches!(step, Step::WriteWithoutParity(_)));
            } else if let Some(job) = self.job_of(&mut answer, step) {
                if at < steps.answered { &mut jobs.now } else { &mut jobs.behind }.push(job);
            }
        }
        self.steps = steps;
        self.append_records(jobs);
    }

    fn job_of(&mut self, answer: &mut Answer<'_>, step: &Step) -> Option<Job> {
        match *step {
            Step::WritePage { page, why, .. } => Some(self.write_page(answer, page, why)),
            Step::Hold { page, .. } => Some(self.hold(answer, page)),
            Step::Promote { from, to, .. } => {
                let places = vec![(Place::Page(from), Mode::Shared), (Place::Page(to), Mode::Alone)];
                Some(answer.job(places, Op::Promote { from, to }))
            }
            Step::Refresh(page) => Some(self.refresh(answer, page)),
            Step::Stage(staged) => self.stage(answer, staged),
            Step::Unstage(base) => self.unstage(base),
            Step::CommitDeltas { page, from, count } => {
                Some(self.commit_deltas(answer, page, answer.steps.staged_of(from, count)))
            }
            Step::UpdateParity { row, from, count, .. } => {
                Some(self.update_parity(answer, row, answer.steps.parts_of(from, count)))
            }
            Step::Note(entry) => self.note(entry),
            Step::CommitLog { sequence, head, from, count } => {
                self.commit_log((sequence, head), answer.steps.entries_of(from, count))
            }
            Step::Vacate { first, pages } => {
                let all = (first.0..first.0 + pages).map(|page| (Place::Page(PageNo(page)), Mode::Alone));
                Some(answer.job(all.collect(), Op::Vacate { first, pages }))
            }
            // Reads are part of the step that needs the content. Pages are discarded by segment only. Writes to the
            // array are translated separately, to be merged.
            Step::ReadPage(_)
            | Step::ReadDeltas(_)
            | Step::ReadArray(_)
            | Step::WriteArray(_)
            | Step::WriteWithoutParity(_)
            | Step::Discard(_) => None,
        }
    }

    /// Adds a write to the array, whose content may also fill pages.
    fn write_to_array(&mut self, answer: &mut Answer<'_>, jobs: &mut Jobs, defer: bool) {
        let is_wanted = answer.steps.list.iter().any(fills);
        let (promise, promised) = if is_wanted { Some(Promise::new()).unzip() } else { (None, None) };
        answer.slot = promised;
        if let Some(nvram) = self.nvram.as_ref().filter(|_| defer) {
            answer.intent = nvram.begin_intent();
        }
        self.join_write(answer, jobs, defer, promise);
    }

    /// Extends the preceding write if this one is adjacent to it.
    fn join_write(&mut self, answer: &Answer<'_>, jobs: &mut Jobs, defer: bool, promise: Option<Promise>) {
        let (asked, intent) = (answer.asked.expect("a write was asked for"), answer.intent);
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
        jobs.now.push(answer.job(places, op));
        self.joins = true;
    }

    fn write_page(&mut self, answer: &Answer<'_>, page: PageNo, why: Why) -> Job {
        let cause = if why == Why::Fill { Cause::CacheFill } else { Cause::CacheWrite };
        let stamp = self.stamp();
        self.record(|| Record::Begun(page, stamp));
        answer.job(
            vec![(Place::Page(page), Mode::Alone)],
            Op::Fill { page, slot: answer.content(), cause, stamp },
        )
    }

    fn hold(&mut self, answer: &Answer<'_>, page: PageNo) -> Job {
        *self.stamps.entry(page).or_default() += 1;
        let op = Op::Fill { page, slot: answer.content(), cause: Cause::CacheFill, stamp: 0 };
        answer.job(vec![(Place::Page(page), Mode::Alone)], op)
    }

    fn refresh(&mut self, answer: &Answer<'_>, page: PageNo) -> Job {
        *self.stamps.entry(page).or_default() += 1;
        let listed = answer.listed.iter().find(|(base, _)| *base == page);
        let delta = listed.expect("parity got it before").1.clone();
        let mut places = vec![(Place::Page(page), Mode::Alone)];
        places.extend(home_of(&delta));
        answer.job(places, Op::Refresh { page, delta })
    }

    fn stage(&mut self, answer: &Answer<'_>, Staged { base, lba, .. }: Staged) -> Option<Job> {
        let delta = answer.asked.and_then(|asked| asked.delta.clone()).expect("its length was said");
        self.staging.insert(base, delta.clone());
        self.record(|| Record::Staged { base, lba, stamp: answer.intent, is_intent: true, sum: None, delta });
        None
    }

    fn unstage(&mut self, base: PageNo) -> Option<Job> {
        self.staging.remove(&base);
        self.record(|| Record::Unstaged(base));
        None
    }

    fn commit_deltas(&mut self, answer: &Answer<'_>, page: PageNo, staged: &[Staged]) -> Job {
        let take = |s: &Staged| (*s, self.staging.remove(&s.base).expect("what is committed is staged"));
        let deltas: Vec<_> = staged.iter().map(take).collect();
        // Bases do not change while they have deltas, so their sums are known.
        let content = delta_page::encode(self.tag, &deltas, |base| self.sums.get(base));
        let check = delta_page::check_of(&content);
        self.checks.extend(staged.iter().map(|staged| (staged.base, check)));
        let stamp = self.stamp();
        self.record(|| Record::Begun(page, stamp));
        answer.job(vec![(Place::Page(page), Mode::Alone)], Op::Commit { page, content, stamp })
    }

    fn update_parity(&mut self, answer: &mut Answer<'_>, row: u64, parts: &[ParityPart]) -> Job {
        let mut places = vec![(Place::Parity(row), Mode::Alone)];
        let mut listed = Vec::new();
        for part in parts {
            match *part {
                ParityPart::Delta(lba, base, place) => {
                    let delta = self.delta_at(lba, base, place);
                    places.push((Place::Page(base), Mode::Shared));
                    places.extend(home_of(&delta));
                    listed.push(Part::Delta(lba, base, delta));
                }
                ParityPart::Versions { lba, old, new } => {
                    places.extend([old, new].map(|page| (Place::Page(page), Mode::Shared)));
                    listed.push(Part::Versions(lba, old, new));
                }
                // Parity lacks only the other parts.
                ParityPart::Same(..) => {}
            }
        }
        answer.listed.extend(listed.iter().filter_map(Part::delta));
        let stamp = self.stamp();
        self.record(|| Record::Cleaning(row, stamp));
        self.joins = false;
        answer.job(places, Op::Parity { row, parts: listed, stamp })
    }

    fn note(&mut self, entry: LogEntry) -> Option<Job> {
        if entry.state == PageState::Free {
            self.checks.remove(&entry.page);
        }
        let entry = self.logged(entry);
        self.record(|| Record::Entry(entry));
        None
    }

    /// The logger's task writes it (`logger.rs`). Without an NVRAM the log is written when the cache is closed.
    fn commit_log(&mut self, (sequence, head): (u64, u64), entries: &[LogEntry]) -> Option<Job> {
        let pages = || entries.iter().map(|entry| entry.page).collect();
        self.record(|| Record::LogBegun { sequence, head, pages: pages() });
        None
    }
}

impl Answer<'_> {
    /// A job with a turn at these places.
    fn job(&self, places: Vec<(Place, Mode)>, op: Op) -> Job {
        Job::new(self.turns.take(places), op)
    }

    fn content(&self) -> Arc<Slot> {
        self.slot.clone().expect("what is written or held comes from the request or the array")
    }
}

/// The delta page of a delta.
fn home_of(delta: &Delta) -> Option<(Place, Mode)> {
    match delta {
        Delta::In(stored) => Some((Place::Page(stored.home), Mode::Shared)),
        Delta::Here(_) => None,
    }
}
