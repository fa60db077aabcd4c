//! Background work: stale rows are cleaned, unknown ones resynchronised.
//!
//! 1. The cleaner sleeps until it is woken, or while rows are stale until the array may be idle.
//! 2. Unknown rows go first, then rows beyond the bound, then, when there are no requests, all others. While a member
//!    is lost, known rows go before unknown ones: only their data can still be saved. The members' marks are cleared in
//!    between (`marks.rs`).
//! 3. A row that cannot be resynchronised is tried again when the roster has changed, or when the row was known in the
//!    meantime.

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

/// Rows looked up at a time.
const ROWS_AT_ONCE: usize = 64;

/// The cleaner's task; dropping this ends it.
pub(super) struct Cleaner {
    closing: Arc<AtomicBool>,
    bell: Arc<Bell>,
    task: Mutex<Option<Task>>,
}

impl Cleaner {
    /// Starts the cleaner, which treats the array as idle after `idle_after` without requests.
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
    /// Number of requests at the last look that found new ones, and its time.
    last: (u64, Nanos),
    tried: Tried,
    /// Rows were resynchronised, and their marks on members not cleared since.
    made_anew: bool,
}

/// Progress of resynchronising unknown rows.
#[derive(Default)]
struct Tried {
    /// The roster's event when this pass began.
    event: u64,
    /// The pass continues at this row.
    next: u64,
    /// All were tried when the counter of rows that became unknown had this value.
    all_of: Option<u64>,
}

impl Work {
    fn run(mut self) {
        while !self.closing.load(Relaxed) && self.core.array.core().check_writable().is_ok() {
            let is_degraded = self.core.array.lost_members() > 0;
            let cleaned = is_degraded && self.clean_one();
            let resynced = !cleaned && self.resync_one();
            let worked = cleaned || resynced || !is_degraded && self.clean_one();
            // No rows are unknown any more: their marks are cleared even under load.
            let all_known = !cleaned && !resynced && std::mem::take(&mut self.made_anew);
            let told = match all_known || !worked && (is_degraded || self.is_idle()) {
                true => self.core.tell_whole_rows(),
                false => self.core.tell_many_whole_rows(),
            };
            // An error means that the array has ended.
            if !worked || told.is_err() {
                self.rest();
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.core.now() >= self.last.1 + self.idle_after
    }

    /// Sleeps until there is immediate work, until the array may be idle, or, if nothing is stale, until there is any
    /// work.
    fn rest(&self) {
        let bell = &self.core.array.core().bell;
        bell.await_any(true);
        let deadline = self.owes().then(|| self.next_look());
        bell.await_any(deadline.is_none());
        bell.wait(&*self.core.env, deadline);
    }

    /// True if there is work for when the array is idle.
    fn owes(&self) -> bool {
        let stale = &self.core.array.core().stale;
        stale.count() > 0 || stale.is_behind()
    }

    /// When the array may be idle. If it is already, and the remaining work cannot be done now: `idle_after` from now.
    fn next_look(&self) -> Nanos {
        let idle = self.last.1 + self.idle_after;
        if idle > self.core.now() { idle } else { self.core.now() + self.idle_after }
    }

    /// Resynchronises an unknown row. False if there is none.
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

    /// The next unknown row, round robin, so that stuck rows are not visited each time.
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

    /// Cleans one or more rows if it is time for that. False if it is not, or if there are none.
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
    /// Called after a request: wakes the cleaner if there may be work.
    pub fn wake_cleaner(&self) {
        let bell = &self.array.core().bell;
        if self.is_near_bound() { bell.ring() } else { bell.ring_if_awaited() }
    }

    /// Marks a row as unknown: the deltas that its parity lacks are no longer known.
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

    /// Makes the cleaner try this row again, even if it failed before.
    pub fn try_again(&self, row: u64) {
        {
            // Under one lock, so that both changes are seen together.
            let mut stuck = self.stuck.lock();
            stuck.remove(&row);
            self.counters.lost_track.fetch_add(1, Relaxed);
        }
        self.array.core().bell.ring();
    }

    /// Notes that the row's parity covers all its data; `stamp` was drawn with the turn for that. If the row was lost
    /// track of since, the NVRAM refuses: it stays unknown until it is resynchronised with a newer stamp.
    pub fn is_whole(&self, row: u64, stamp: u64) {
        if self.nvram.as_ref().is_none_or(|nvram| nvram.cleaned(row, stamp)) {
            self.unknown.lock().remove(&row);
            self.stuck.lock().remove(&row);
        }
    }

    fn is_near_bound(&self) -> bool {
        self.put_off() > self.stale_rows_max / 8 * 7
    }

    /// Tells the policy whether parity may be deferred, and grants the budget that time has brought.
    pub fn keep_up(&self, brain: &mut Brain) {
        if let (Some(budget), Some(ssd)) = (&mut brain.budget, &self.ssd) {
            let metadata = ssd.ledger.snapshot().programmed_by(Cause::CacheMetadata);
            let left = |policy: &dyn Policy| policy.census().budget_left.unwrap_or(0);
            let (brought, metadata) = budget.due(self.now(), metadata);
            brain.policy.grant(-metadata);
            let before = left(&*brain.policy);
            brain.policy.grant(brought);
            // What exceeds its capacity is lost.
            ssd.account.grant(left(&*brain.policy) - before);
        }
        let defers = self.may_put_off();
        if brain.defers != defers {
            brain.defers = defers;
            brain.policy.allow_deferring(defers);
        }
    }

    /// Cleans a few rows; false if there was nothing to clean.
    pub fn clean_some(&self) -> Result<bool> {
        let mut worked = false;
        self.ask(|policy, steps| worked = policy.idle(steps))?;
        Ok(worked)
    }

    /// Waits until fewer rows are deferred than the bound; requests in flight may exceed it by a few. Unknown rows do
    /// not count, or the first write after a crash might wait until all are resynchronised. With a member lost nothing
    /// is deferred, and there is no wait. A row that cannot be cleaned becomes unknown, which does not hold up the
    /// caller.
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

    /// Number of stale rows whose deltas the cache has.
    fn put_off(&self) -> u64 {
        self.array.core().stale.count().saturating_sub(self.unknown.lock().len() as u64)
    }

    /// The first unknown row from `first` on that is not stuck.
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

    /// Resynchronises a row that is unknown; otherwise cleans it by the deltas that the cache has.
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
