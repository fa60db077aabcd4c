//! What goes on beside requests: stale rows are cleaned, unknown ones made anew.
//!
//! 1. It rests until it is woken, or until the array may be idle while rows are stale.
//! 2. Rows whose parity lacks what nobody knows go first, then those beyond the bound, then, when there are no
//!    requests, all. While a member is lost those of which the cache knows it go before them: only these can be lost.
//!    The members hear of what is whole again (`marks.rs`).
//! 3. A row that cannot be made anew is tried again when other members count, or when it was known meanwhile.

use super::brain::Brain;
use super::core::Core;
use super::job::{Job, Jobs, Op};
use super::nvram::Record;
use super::turns::{Mode, Place};
use crate::bell::Bell;
use crate::cache::policy::Policy;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum_base::sync::Mutex;
use vellum_base::{Cause, Nanos, Result, Task};

/// Rows that are looked up at once.
const ROWS_AT_ONCE: usize = 64;

/// A task, until it is dropped.
pub(super) struct Cleaner {
    closing: Arc<AtomicBool>,
    bell: Arc<Bell>,
    task: Mutex<Option<Task>>,
}

impl Cleaner {
    /// Cleans when there were no requests for `idle_after`.
    pub fn start(core: &Arc<Core>, idle_after: Nanos) -> Cleaner {
        let closing = Arc::new(AtomicBool::new(false));
        let work = Work {
            core: core.clone(),
            closing: closing.clone(),
            idle_after,
            last: (0, core.now()),
            tried: Tried::default(),
            made_anew: false,
        };
        let task = core.env.clone().spawn("array-cleaner", Box::new(move || work.run()));
        Cleaner { closing, bell: core.array.core().bell.clone(), task: Mutex::new(Some(task)) }
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        self.closing.store(true, Relaxed);
        self.bell.ring();
        self.task.get_mut().take().into_iter().for_each(Task::join);
    }
}

struct Work {
    core: Arc<Core>,
    closing: Arc<AtomicBool>,
    idle_after: Nanos,
    /// Requests when there was the last one, and when.
    last: (u64, Nanos),
    tried: Tried,
    /// Rows were made anew, and the members have not heard of it.
    made_anew: bool,
}

/// Rows whose parity lacks what nobody knows, as far as they were tried.
#[derive(Default)]
struct Tried {
    /// The array's, when that began.
    event: u64,
    /// The next is this one or behind it.
    next: u64,
    /// All were tried, when so many had become unknown.
    all_of: Option<u64>,
}

impl Work {
    fn run(mut self) {
        while !self.closing.load(Relaxed) && self.core.array.core().check_writable().is_ok() {
            let is_degraded = self.core.array.lost_members() > 0;
            let cleaned = is_degraded && self.clean_one();
            let resynced = !cleaned && self.resync_one();
            let worked = cleaned || resynced || !is_degraded && self.clean_one();
            // Nobody knew them, and all are known again: the members hear of it however busy the array is.
            let all_known = !cleaned && !resynced && std::mem::take(&mut self.made_anew);
            let told = match all_known || !worked && (is_degraded || self.is_idle()) {
                true => self.core.tell_whole_rows(),
                false => self.core.tell_many_whole_rows(),
            };
            // An error is the array's end.
            if !worked || told.is_err() {
                self.rest();
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.core.now() >= self.last.1 + self.idle_after
    }

    /// Until there is something to do at once, or may be when the array is idle, or there is work at all.
    fn rest(&self) {
        let bell = &self.core.array.core().bell;
        bell.await_any(true);
        let deadline = self.owes().then(|| self.next_look());
        bell.await_any(deadline.is_none());
        bell.wait(&*self.core.env, deadline);
    }

    /// Whether there is something to do when the array is idle.
    fn owes(&self) -> bool {
        let stale = &self.core.array.core().stale;
        stale.count() > 0 || stale.is_behind()
    }

    /// When the array may be idle. If it is, and there is something that cannot be done: a while from now.
    fn next_look(&self) -> Nanos {
        let idle = self.last.1 + self.idle_after;
        if idle > self.core.now() { idle } else { self.core.now() + self.idle_after }
    }

    /// Makes a row anew whose parity lacks what nobody knows. False if there is none.
    fn resync_one(&mut self) -> bool {
        let Some(row) = self.next_unknown() else { return false };
        let lost_track = &self.core.counters.lost_track;
        let before = lost_track.load(Relaxed);
        if self.core.resync(row).is_ok() {
            self.made_anew = true;
            return true;
        }
        let mut stuck = self.core.stuck.lock();
        if lost_track.load(Relaxed) == before {
            stuck.insert(row); // and nobody wants it to be tried again already
        }
        true
    }

    /// One after the other, and around, so that those that are stuck are not gone through for each.
    fn next_unknown(&mut self) -> Option<u64> {
        let (core, tried) = (&self.core, &mut self.tried);
        let event = core.array.core().roster().event;
        if tried.event != event {
            core.stuck.lock().clear();
            *tried = Tried { event, ..Tried::default() };
        }
        let lost_track = core.counters.lost_track.load(Relaxed);
        if core.ssd().is_some() && tried.all_of == Some(lost_track) {
            return None;
        }
        let found = core.unknown_row(tried.next).or_else(|| core.unknown_row(0));
        match found {
            Some(row) => tried.next = row + 1,
            None => (tried.next, tried.all_of) = (0, Some(lost_track)),
        }
        found
    }

    /// Cleans a row or some, if it is time. False if it is not, or there are none.
    fn clean_one(&mut self) -> bool {
        let core = &self.core;
        let requests = core.counters.requests.load(Relaxed);
        if requests != self.last.0 {
            self.last = (requests, core.now());
        }
        let is_time = self.is_idle() || core.is_near_bound() || core.array.lost_members() > 0;
        if !is_time || core.ssd().is_none() {
            return false;
        }
        core.keep_up(&mut core.brain.lock());
        core.clean_some().unwrap_or(false)
    }
}

impl Core {
    /// After a request: there may be work for the cleaner now.
    pub fn wake_cleaner(&self) {
        let bell = &self.array.core().bell;
        if self.is_near_bound() { bell.ring() } else { bell.ring_if_awaited() }
    }

    /// Nobody knows any more what the parity of this row lacks.
    pub fn lose_track(&self, row: u64) {
        if !self.unknown.lock().insert(row) {
            return; // What the NVRAM has of it does not count already.
        }
        if let Some(nvram) = &self.nvram {
            let stamp = nvram.stamp();
            nvram.append([Record::Cleaning(row, stamp)]);
        }
        self.try_again(row);
    }

    /// The cleaner tries to make this row anew, also if that could not be done before.
    pub fn try_again(&self, row: u64) {
        {
            // Together: who sees the one sees the other.
            let mut stuck = self.stuck.lock();
            stuck.remove(&row);
            self.counters.lost_track.fetch_add(1, Relaxed);
        }
        self.array.core().bell.ring();
    }

    /// The row's parity has all of its data; `stamp` was drawn with the turn at it. Where track was lost since then the
    /// NVRAM does not agree: the row stays unknown, until it is made anew with a newer stamp.
    pub fn is_whole(&self, row: u64, stamp: u64) {
        if self.nvram.as_ref().is_none_or(|nvram| nvram.cleaned(row, stamp)) {
            self.unknown.lock().remove(&row);
            self.stuck.lock().remove(&row);
        }
    }

    fn is_near_bound(&self) -> bool {
        self.put_off() > self.stale_rows_max / 8 * 7
    }

    /// The policy hears of what has changed: whether parity may be put off, and the budget that time brings.
    pub fn keep_up(&self, brain: &mut Brain) {
        if let (Some(budget), Some(ssd)) = (&mut brain.budget, &self.ssd) {
            let metadata = ssd.ledger.snapshot().programmed_by(Cause::CacheMetadata);
            let left = |policy: &dyn Policy| policy.census().budget_left.unwrap_or(0);
            let (brought, metadata) = budget.due(self.now(), metadata);
            brain.policy.grant(-metadata);
            let before = left(&*brain.policy);
            brain.policy.grant(brought);
            // What was more than it holds is gone.
            ssd.account.grant(left(&*brain.policy) - before);
        }
        let defers = self.may_put_off();
        if brain.defers != defers {
            brain.defers = defers;
            brain.policy.allow_deferring(defers);
        }
    }

    /// Cleans a little; false if there was nothing to clean.
    pub fn clean_some(&self) -> Result<bool> {
        let mut worked = false;
        self.ask(|policy, steps| worked = policy.idle(steps))?;
        Ok(worked)
    }

    /// Returns when parity of fewer rows is put off than may be. Requests under way may make a few more so; rows that
    /// nobody knows do not count, or the first write after a cut might wait for a resync of them all.
    /// With a member lost nothing is put off, and nothing is waited for. A row that cannot be cleaned is unknown then,
    /// and no concern of who waits.
    pub fn keep_bound(&self) -> Result<()> {
        while self.put_off() >= self.stale_rows_max && self.array.lost_members() == 0 {
            match self.clean_some() {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => self.array.core().check_writable()?,
            }
        }
        Ok(())
    }

    /// Rows of which the cache has what their parity lacks.
    fn put_off(&self) -> u64 {
        self.array.core().stale.count().saturating_sub(self.unknown.lock().len() as u64)
    }

    /// A row whose parity lacks what nobody knows, from `first` on, that is not stuck.
    fn unknown_row(&self, mut first: u64) -> Option<u64> {
        let stuck = self.stuck.lock();
        if self.ssd().is_some() {
            return self.unknown.lock().range(first..).copied().find(|row| !stuck.contains(row));
        }
        loop {
            let rows = self.array.stale_rows(first, ROWS_AT_ONCE);
            if let Some(row) = rows.iter().copied().find(|row| !stuck.contains(row)) {
                return Some(row);
            }
            first = rows.last()? + 1;
        }
    }

    /// Makes a row anew that is unknown; what the cache has of it is cleaned with it.
    pub fn resync(&self, row: u64) -> Result<()> {
        let mut jobs = Jobs::default();
        {
            let mut brain = self.brain.lock();
            brain.ask(&self.turns, &mut jobs, |policy, steps| policy.clean_row(row, steps));
            if !jobs.now.iter().any(|job| matches!(job.op, Op::Parity { .. })) {
                let turn = self.turns.take(vec![(Place::Parity(row), Mode::Alone)]);
                let op = Op::Parity { row, parts: Vec::new(), stamp: brain.stamp() };
                jobs.now.push(Job::new(turn, op));
            }
        }
        self.carry_all(jobs.now, &[])
    }
}
