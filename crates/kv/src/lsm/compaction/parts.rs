//! Splits a job into parts by key, each merged by its own task. One edit installs the results of all.

use super::run::merge_piece;
use super::{Job, MergeRange};
use crate::journal::TableMeta;
use crate::lsm::core::{Core, State};
use crate::lsm::table::LeavesRead;
use crate::lsm::version::Version;
use crate::media::Parallelism;
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{Error, Kind, Result, Task, spawn_or_run};

/// Fewest input tables per part.
const TABLES_A_PART: usize = 4;

/// Result of a merge: the new tables, or `None` if the store is being closed.
pub(super) type Merged = Result<Option<Vec<TableMeta>>>;

/// Merges a job, in parts if other compaction tasks are idle.
pub(super) fn merge(core: &Arc<Core>, job: &Job, version: &Arc<Version>, parallelism: Parallelism) -> Merged {
    let helpers = {
        let mut state = core.state.lock();
        // If a job has to be done in successive pieces there is no room for concurrent parts.
        let parts = if job.piece.is_all() { job.replaced().count() / TABLES_A_PART } else { 1 };
        let parts = if job.upper.is_empty() { 1 } else { parts }; // they are to become one table
        let parts = if core.rules.merges_in_parts() { parts } else { 1 };
        let helpers = idle(core, &state).min(parts.saturating_sub(1));
        state.helpers += helpers;
        helpers
    };
    let result = match pieces(job, helpers + 1) {
        Ok(pieces) => in_parts(core, job, version, parallelism, pieces),
        Err(error) => Err(error),
    };
    core.state.lock().helpers -= helpers;
    core.state.wake_tasks();
    result
}

/// Idle tasks, but no more than there is room for: each part ends with a table that is not full.
fn idle(core: &Core, state: &State) -> usize {
    let busy = state.running.len() + state.helpers;
    let idle = core.options.compaction_tasks.saturating_sub(busy);
    idle.min(usize::try_from(core.room().beside(&state.running).free()).unwrap_or(usize::MAX))
}

fn in_parts(
    core: &Arc<Core>,
    job: &Job,
    version: &Arc<Version>,
    parallelism: Parallelism,
    mut pieces: Vec<MergeRange>,
) -> Merged {
    let own = pieces.pop().unwrap_or_default();
    let leaves_read = (!pieces.is_empty()).then(LeavesRead::default);
    let spawn = |piece: MergeRange| {
        let result = Arc::new(Mutex::new(Ok(None)));
        let (core_of_task, job, version) = (core.clone(), job.clone(), version.clone());
        let (of_task, leaves) = (result.clone(), leaves_read.clone());
        let body = move || {
            core_of_task.env.give_way();
            let merged = merge_piece(&core_of_task, &job, &version, &piece, parallelism, leaves);
            *of_task.lock() = merged;
        };
        (spawn_or_run(&core.env, "kv-part", Box::new(body)), result)
    };
    let others: Vec<(Option<Task>, Arc<Mutex<Merged>>)> = pieces.into_iter().map(spawn).collect();
    let own = merge_piece(core, job, version, &own, parallelism, leaves_read.clone());
    let mut all: Vec<Merged> = others
        .into_iter()
        .map(|(task, result)| {
            task.into_iter().for_each(Task::join);
            std::mem::replace(&mut *result.lock(), Ok(None))
        })
        .collect();
    all.push(own);
    let tables = joined(core, all)?;
    if let (Some(read), Some(tables)) = (&leaves_read, &tables) {
        let checked = job.replaced().try_for_each(|(_, table)| read.check(table));
        checked.inspect_err(|_| give_up(core, tables))?;
    }
    Ok(tables)
}

/// What cannot be erased now is found and erased when the store is opened again.
fn give_up(core: &Core, tables: &[TableMeta]) {
    tables.iter().for_each(|meta| drop(core.give_up(meta.number)));
}

/// The tables of all parts in order. If one part failed or stopped, those of the others are erased. Where one found no
/// room and another failed otherwise, the latter is what counts: the store must not go on as if it were only full.
fn joined(core: &Core, all: Vec<Merged>) -> Merged {
    let (mut tables, mut whole, mut failure) = (Vec::<TableMeta>::new(), true, None::<Error>);
    for merged in all {
        match merged {
            Ok(Some(made)) => tables.extend(made),
            Ok(None) => whole = false,
            Err(error) if failure.as_ref().is_none_or(|before| before.kind() == Kind::NoSpace) => {
                failure = Some(error);
            }
            Err(_) => {}
        }
    }
    if whole && failure.is_none() {
        return Ok(Some(tables));
    }
    give_up(core, &tables);
    failure.map_or(Ok(None), Err)
}

/// Splits the job's keys into at most `parts` pieces of about equal size.
fn pieces(job: &Job, parts: usize) -> Result<Vec<MergeRange>> {
    let mut keys = Vec::new();
    if parts > 1 {
        for (_, table) in job.replaced() {
            keys.extend(table.run_ends()?);
        }
    }
    keys.sort_unstable();
    let mut bounds: Vec<Vec<u8>> =
        (1..parts).filter_map(|part| keys.get(part * keys.len() / parts).cloned()).collect();
    bounds.dedup();
    let mut pieces = vec![job.piece.clone()];
    for bound in bounds {
        if let Some(last) = pieces.last_mut() {
            last.until = Some(bound.clone());
        }
        pieces.push(MergeRange { after: Some(bound), until: None });
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Directory, DirectoryOptions, Options, Store};
    use vellum_base::RealEnv;

    /// Whoever is told that there was no room tries again, with a medium that fails.
    #[test]
    fn a_failure_counts_more_than_a_lack_of_room() {
        let dir = tempfile::tempdir().unwrap();
        let media = Directory::open(dir.path(), DirectoryOptions::default()).unwrap();
        let store = Store::open(media, RealEnv::new(), Options::default()).unwrap();
        let failure = |kinds: &[Kind]| {
            let all = kinds.iter().map(|kind| Err(Error::new(*kind, "no"))).chain([Ok(None)]);
            joined(&store.core, all.collect()).unwrap_err().kind()
        };
        assert_eq!(failure(&[Kind::Io, Kind::NoSpace]), Kind::Io);
        assert_eq!(failure(&[Kind::NoSpace, Kind::PowerLost, Kind::NoSpace]), Kind::PowerLost);
        assert_eq!(failure(&[Kind::NoSpace]), Kind::NoSpace);
    }
}
