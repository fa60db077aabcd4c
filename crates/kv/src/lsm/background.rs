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
use vellum_base::{Cause, Error, IoClass, Kind, Result, Task};

/// Starts the tasks.
pub(crate) fn start(core: &Arc<Core>) -> Vec<Task> {
    if core.options.read_only {
        return Vec::new();
    }
    let mut tasks = vec![spawn(core, "kv-flush", flush_loop)];
    for _ in 0..core.options.compaction_tasks.max(1) {
        tasks.push(spawn(core, "kv-compact", compact_loop));
    }
    tasks
}

fn spawn(core: &Arc<Core>, name: &str, body: fn(&Arc<Core>)) -> Task {
    let core_of_task = core.clone();
    core.env.clone().spawn(name, Box::new(move || body(&core_of_task)))
}

/// Tells the tasks to end.
pub(crate) fn stop(core: &Core) {
    let state = core.state.lock();
    core.stopping.store(true, Relaxed);
    drop(state);
    core.work.notify_all();
    core.progress.notify_all();
}

fn flush_loop(core: &Arc<Core>) {
    loop {
        let mut state = core.state.lock();
        let frozen = loop {
            if core.stopping.load(Relaxed) || state.failure.is_some() {
                return;
            }
            match state.frozen.front() {
                Some(frozen) if state.full.is_none() => break frozen.clone(),
                _ => core.work.wait(&mut state),
            }
        };
        drop(state);
        if let Err(error) = flush(core, &frozen) {
            core.rests_or_poisoned(error.context("flush"));
        }
        if let Err(error) = core.bury() {
            core.poison(error.context("erase"));
        }
        core.work.notify_all(); // there may be room for a compaction now
        core.progress.notify_all();
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
            Ok(()) => core.try_again(&mut state),
            Err(error) => {
                drop(state);
                core.rests_or_poisoned(named(error));
            }
        }
        core.work.notify_all();
        core.progress.notify_all();
    }
}

fn named(error: Error) -> Error {
    match error.kind() {
        Kind::PowerLost => error,
        _ => error.context("compaction"),
    }
}

/// Waits for a job and claims it. `None` when the task is to end.
fn next_job(core: &Core) -> Option<(Job, Arc<Version>)> {
    let mut state = core.state.lock();
    loop {
        if core.stopping.load(Relaxed) || state.failure.is_some() {
            return None;
        }
        let version = core.view.load().version.clone();
        // Those who merge parts of a job are not idle.
        let busy = state.running.len() + state.helpers + core.flushing_compactors(&state);
        let idle = busy < core.options.compaction_tasks.max(1);
        if idle
            && state.full.is_none()
            && let Some(job) = core.pick(&version, &state)
        {
            if job.claim.level == 0 {
                core.toll.forget();
            }
            state.running.push(job.claim.clone());
            core.leveldb.lock().begins(&job);
            return Some((job, version));
        }
        drop(version);
        core.work.wait(&mut state);
    }
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
        while !state.frozen.is_empty() && state.failure.is_none() && !self.stopping.load(Relaxed) {
            self.progress.wait(&mut state);
        }
        state.interrupted = false;
    }
}
