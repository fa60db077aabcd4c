//! Background tasks: one that flushes, some that compact. They sleep until there is work; an idle store writes nothing.

use crate::journal::{Edit, TableMeta};
use crate::lsm::compaction::{Job, Sweep, TableSink, Work, run};
use crate::lsm::core::{Core, Frozen, State};
use crate::lsm::memtable::MemtableCursor;
use crate::lsm::merge::Stream;
use crate::lsm::version::Version;
use crate::media::{Intent, Parallelism};
use crate::options::{CachePolicy, Rules};
use std::sync::Arc;
use vellum_base::sync::atomic::Ordering::Relaxed;
use vellum_base::{Cause, IoClass, Result};

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
    while let Some(frozen) = core.state.next_work(|state| state.frozen.front().cloned()) {
        if let Err(error) = flush(core, &frozen).and_then(|()| core.bury()) {
            core.state.rests_or_poisoned(error, "flush");
        }
        core.state.wake_all(); // there may be room for a compaction now
    }
}

/// Turns a memtable into tables of level 0.
fn flush(core: &Core, frozen: &Frozen) -> Result<()> {
    let added = tables_of(core, frozen)?;
    let edit = Edit {
        log_floor: Some(frozen.next_log),
        last_seq: Some(frozen.last_seq),
        next_number: Some(core.next_number.load(Relaxed)),
        added: added.into_iter().map(|meta| (0, meta)).collect(),
        ..Edit::default()
    };
    core.counts.flushes.fetch_add(1, Relaxed);
    core.install(&edit, |_, view| {
        view.frozen.retain(|memtable| !Arc::ptr_eq(memtable, &frozen.memtable));
    })?;
    core.remove_logs(&frozen.logs)?;
    // Only now is there room for another log.
    core.state.lock().frozen.pop_front();
    Ok(())
}

fn tables_of(core: &Core, frozen: &Frozen) -> Result<Vec<TableMeta>> {
    let mut entry = MemtableCursor::new(frozen.memtable.clone());
    let mut sweep = Sweep::of(core, &core.view.load().version.clone());
    let intent =
        Intent { cause: Cause::Flush, class: IoClass::UrgentCompaction, parallelism: Parallelism::Full };
    let mut sink = TableSink::new(core, intent).for_level(0);
    let mut work = Work::new(core);
    entry.first()?;
    while entry.is_valid() {
        work.entry(entry.key().len() + entry.value().len());
        if sweep.keeps(entry.key(), entry.stamp(), || false) {
            sink.add(entry.key(), entry.stamp(), entry.value())?;
            if core.options.cache_policy == CachePolicy::Lru {
                sink.heat();
            }
        }
        entry.next()?;
    }
    sink.finish()
}

fn compact_loop(core: &Arc<Core>) {
    // Back-pressure sees to it that writers do not starve it.
    core.env.give_way();
    while let Some((job, version)) = next_job(core) {
        let result = run(core, &job, &version);
        let (claim, progress) = (job.claim.clone(), (!job.piece.is_all()).then(|| job.progress()));
        drop((version, job)); // the last to hold its inputs, perhaps
        // As long as its claim stands, writers that find no room hope for what is erased here.
        let result = result.and_then(|()| core.bury());
        let mut state = core.state.lock();
        state.running.retain(|running| *running != claim);
        if result.is_ok()
            && let Some(progress) = progress
        {
            state.progress = progress;
        }
        match result {
            Ok(()) => core.state.try_again(&mut state),
            Err(error) => {
                drop(state);
                core.state.rests_or_poisoned(error, "compaction");
            }
        }
        core.state.wake_all();
    }
}

/// Waits for a job and claims it. `None` when the task is to end.
fn next_job(core: &Core) -> Option<(Job, Arc<Version>)> {
    core.state.next_work(|state| {
        // Those who merge parts of a job are not idle.
        let busy = state.running.len() + state.helpers + core.flushing_compactors(state);
        if busy >= core.options.compaction_tasks.max(1) {
            return None;
        }
        let version = core.view.load().version.clone();
        let job = core.pick(&version, state)?;
        if job.claim.level == 0 {
            core.toll.forget();
        }
        state.running.push(job.claim.clone());
        core.leveldb.lock().begins(&job);
        Some((job, version))
    })
}

impl Core {
    /// Compaction tasks that are taken up by flushes: under LevelDB's rules whoever compacts flushes.
    fn flushing_compactors(&self, state: &State) -> usize {
        usize::from(self.options.rules == Rules::LevelDb && !state.frozen.is_empty() && !state.interrupted)
    }

    /// Under LevelDB's rules one merge at a time waits while a memtable is flushed: it would be the one to do it.
    pub(crate) fn let_flush_go_first(&self) {
        if self.options.rules == Rules::Vellum {
            return;
        }
        let mut state = self.state.lock();
        // Another task has nothing to merge, and flushes.
        let others = state.running.len() + state.helpers < self.options.compaction_tasks.max(1);
        if state.frozen.is_empty() || state.interrupted || others {
            return;
        }
        state.interrupted = true;
        while !state.frozen.is_empty() && !state.health.has_failed() && !self.state.is_stopping() {
            self.state.wait(&mut state);
        }
        state.interrupted = false;
    }
}
