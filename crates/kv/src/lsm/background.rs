//! Background tasks: one that flushes, some that compact. They sleep until there is work; an idle store writes nothing.

use crate::durable::Durable;
use crate::lsm::compaction::{Job, run};
use crate::lsm::core::{Core, Frozen, State};
use crate::lsm::flush::flush;
use crate::lsm::version::Version;
use crate::shared::Health;
use std::sync::Arc;
use vellum_base::{Error, Kind, Result};

/// Starts the tasks.
pub(crate) fn start(core: &Arc<Core>) {
    let spawn = |name, body: fn(&Arc<Core>)| {
        let core_of_task = core.clone();
        core.env.clone().spawn(name, Box::new(move || body(&core_of_task)))
    };
    if !core.options.read_only {
        let compact = (0..core.options.compaction_tasks.max(1)).map(|_| spawn("kv-compact", compact_loop));
        core.state.begin(std::iter::once(spawn("kv-flush", flush_loop)).chain(compact).collect());
    }
}

fn flush_loop(core: &Arc<Core>) {
    let next = |state: &mut State| {
        let frozen = state.frozen.front().cloned();
        state.is_flushing = frozen.is_some();
        frozen
    };
    while let Some(frozen) = core.state.next_work(next) {
        let rounds = core.library.obsolete.rounds();
        if let Err(error) = core.erase_after(timed_flush(core, &frozen), rounds) {
            core.rests_or_poisoned(error, "flush", rounds);
        }
        core.state.lock().is_flushing = false;
        core.state.wake_all(); // there may be room for a compaction now
    }
}

fn timed_flush(core: &Arc<Core>, frozen: &Frozen) -> Result<()> {
    let began = core.env.now();
    flush(core, frozen)?;
    core.note_flush(frozen.bytes, core.env.now().saturating_sub(began));
    Ok(())
}

fn compact_loop(core: &Arc<Core>) {
    // Back-pressure keeps writers from starving this task.
    core.env.give_way();
    while let Some((job, version)) = next_job(core) {
        let rounds = core.library.obsolete.rounds();
        let mut result = run(core, &job, &version);
        let has_no_room = result.as_ref().is_err_and(|error| error.kind() == Kind::NoSpace);
        if job.is_joining() && has_no_room && !core.library.obsolete.may_win(rounds) {
            let numbers = job.lower.iter().map(|table| table.meta.number);
            core.state.lock().leave_alone(&core.view.load().version, numbers);
            result = Ok(()); // others may fit
        }
        let claim = job.claim.clone();
        let done = (result.is_ok() && !job.piece.is_all()).then(|| job.done(&core.room()));
        drop((version, job)); // the last to hold its inputs, perhaps
        // Erase before the claim is dropped: while it stands, writers without room wait for what is freed here.
        let result = core.erase_after(result, rounds);
        let mut state = core.state.lock();
        state.running.retain(|running| *running != claim);
        if let Some(done) = done {
            state.begun.note(done, &core.view.load().version);
        }
        match result {
            Ok(()) => core.state.try_again(&mut state),
            Err(error) => {
                drop(state);
                core.rests_or_poisoned(error, "compaction", rounds);
            }
        }
        core.state.wake_all();
        core.env.give_memory_back(); // what others would need to cache what they read
    }
}

/// Waits for a job and claims it; `None` when the task is to end.
fn next_job(core: &Core) -> Option<(Job, Arc<Version>)> {
    core.state.next_work(|state| {
        // Helpers that merge parts of a job count as busy tasks.
        let busy = state.running.len() + state.helpers + core.flushing_compactors(state);
        if busy >= core.options.compaction_tasks.max(1) {
            return None;
        }
        let version = core.view.load().version.clone();
        let Some(job) = core.pick(&version, state) else {
            // The room that was free when this task was woken may be taken.
            core.state.found_nothing();
            return None;
        };
        if job.claim.level == 0 && !job.upper.is_empty() {
            core.toll.forget();
            state.asked_first = true;
        } else if job.is_asked_for(&state.requested) {
            state.asked_first = false;
        }
        state.running.push(job.claim.clone());
        core.rules.begins(&job);
        Some((job, version))
    })
}

impl Core {
    /// Handles an error of background work: the store rests or fails. It does not rest if anything was erased since the
    /// work began, as nobody would wake it: it did not rest yet when that was erased.
    fn rests_or_poisoned(&self, error: Error, work: &str, rounds: u64) {
        self.state.rests_or_poisoned(error, work, |state| {
            if self.library.obsolete.rounds() != rounds {
                self.state.try_again(state);
                return false;
            }
            state.rested_at = self.room().free().max(std::mem::take(&mut state.retried_at));
            true
        });
    }

    /// Compaction tasks that are busy flushing, where these do both.
    fn flushing_compactors(&self, state: &State) -> usize {
        usize::from(!self.rules.flushes_beside_merges() && !state.frozen.is_empty() && !state.interrupted)
    }

    /// Where tasks that compact also flush, one merge pauses meanwhile, as its task would be the one to do that.
    pub(crate) fn let_flush_go_first(&self) {
        if self.rules.flushes_beside_merges() {
            return;
        }
        let mut state = self.state.lock();
        // Another task is idle and can flush.
        let others = state.running.len() + state.helpers < self.options.compaction_tasks.max(1);
        if state.frozen.is_empty() || state.interrupted || others {
            return;
        }
        state.interrupted = true;
        // A flush that rests for lack of room needs what this merge frees.
        let waits = |health: &Health| !health.has_failed() && !health.is_resting();
        while !state.frozen.is_empty() && waits(&state.health) && !self.state.is_stopping() {
            self.state.wait(&mut state);
        }
        state.interrupted = false;
    }
}
