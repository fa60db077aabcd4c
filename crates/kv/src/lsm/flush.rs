//! Flush: a memtable becomes tables of level 0, which hold its values, or pointers to their places in its logs
//! (docs/decisions/0026).
//!
//! 1. Logs that tables point into are durable before the edit that names the tables; the other logs are removed after
//!    it.
//! 2. Readers see each entry of the memtable exactly once: tables are added to the view when the memtable is removed.
//! 3. The memtable leaves the queue last, as there is room for another log only when its own are removed.
//! 4. By then the flush holds no table: a search for room while nothing is under way takes what is held for what
//!    readers hold, and gives up.

use crate::journal::{Area, Edit, TableMeta};
use crate::lsm::compaction::{Sweep, TableSink, Work};
use crate::lsm::core::{Core, Frozen};
use crate::lsm::kept_log::{POINTED_BYTES_MIN, Pointer};
use crate::lsm::memtable::{LogPlace, MemtableCursor};
use crate::lsm::merge::Stream;
use crate::lsm::version::Version;
use crate::media::{Intent, Parallelism};
use crate::options::CachePolicy;
use crate::prefetch::Prefetch;
use std::collections::BTreeSet;
use std::sync::Arc;
use vellum_base::sync::atomic::Ordering::Relaxed;
use vellum_base::{Cause, IoClass, Result};

/// Logs are kept only if at least one in this many bytes written to them belongs to a newest value.
const GARBAGE_PARTS_MAX: u64 = 2;
/// A memtable normally has one log, or two. More come from openings too short to fill a memtable; keeping each as an
/// open file would gain little.
const MEMTABLE_LOGS_MAX: usize = 2;

impl Core {
    /// True if flushes may leave values in logs.
    pub(crate) fn points(&self) -> bool {
        self.options.level0_in_log && self.rules.keeps_values_in_logs() && self.media.keeps_areas()
    }
}

/// Turns a memtable into tables of level 0.
pub(crate) fn flush(core: &Arc<Core>, frozen: &Frozen) -> Result<()> {
    let kept = install(core, frozen)?;
    let removed = frozen.logs.iter().filter(|log| !kept.contains(log));
    removed.copied().try_for_each(|log| core.media.remove_area(Area::log(log)))?;
    let closed = core.wal.lock().forget_below(frozen.next_log);
    drop(closed); // the file system may have much to free
    // Only now is there room for another log.
    core.state.lock().frozen.pop_front();
    Ok(())
}

/// Writes the tables, and puts them in force. Returns the logs that they point into.
fn install(core: &Arc<Core>, frozen: &Frozen) -> Result<BTreeSet<u64>> {
    let version = core.view.load().version.clone();
    let points = core.points() && is_worth_a_log(frozen, &version);
    // Logs that stay are synced while the tables are written; both take about as long.
    let synced = points.then(|| sync_logs(core, frozen));
    let added = tables_of(core, frozen, &version, points);
    // Wait even if writing the tables failed: a failed sync may be reported only once.
    let synced = synced.map_or(Ok(()), Prefetch::wait);
    let added = added?;
    synced.inspect_err(|_| added.iter().for_each(|meta| drop(core.give_up(meta.number))))?;
    let kept = added.iter().flat_map(|meta| &meta.logs).map(|log| log.number).collect();
    let edit = Edit {
        log_floor: Some(frozen.next_log),
        last_seq: Some(frozen.last_seq),
        added: added.into_iter().map(|meta| (0, meta)).collect(),
        ..Edit::default()
    };
    core.counts.flushes.fetch_add(1, Relaxed);
    let installed = core.install(&edit, |_, view| {
        view.frozen.retain(|memtable| !Arc::ptr_eq(memtable, &frozen.memtable));
    });
    installed.inspect_err(|_| {
        core.counts.flushes.fetch_sub(1, Relaxed);
    })?;
    Ok(kept)
}

fn sync_logs(core: &Arc<Core>, frozen: &Frozen) -> Prefetch<()> {
    let (shared, logs) = (core.clone(), frozen.logs.clone());
    let sync = move || {
        let synced = logs.into_iter().try_for_each(|log| shared.media.sync_area(Area::log(log)));
        // Fail the store at once: a later sync of these logs would wrongly report success.
        synced.map_err(|error| shared.state.refused_or_poisoned(error))
    };
    Prefetch::begin(&core.env, "kv-sync", sync)
}

fn tables_of(core: &Core, frozen: &Frozen, version: &Version, points: bool) -> Result<Vec<TableMeta>> {
    let mut entry = MemtableCursor::new(frozen.memtable.clone());
    let mut sweep = Sweep::of(core, version);
    let intent =
        Intent { cause: Cause::Flush, class: IoClass::UrgentCompaction, parallelism: Parallelism::Full };
    let mut sink = TableSink::new(core, intent).for_level(0);
    let mut work = Work::new(core);
    entry.first()?;
    while entry.is_valid() {
        work.entry(entry.key().len() + entry.value().len());
        if sweep.keeps(entry.key(), entry.stamp(), || false) {
            match points.then(|| entry.place_in_log()).flatten() {
                Some(LogPlace { log, offset }) => {
                    let pointer = Pointer::to(entry.value(), log, offset);
                    sink.point(entry.key(), entry.stamp().in_log(), &pointer)?;
                }
                None => sink.add(entry.key(), entry.stamp(), entry.value())?,
            }
            if core.options.cache_policy == CachePolicy::Lru {
                sink.heat();
            }
        }
        entry.next()?;
    }
    sink.finish()
}

/// True if the table will have to be merged anyway, and enough of its logs is live.
fn is_worth_a_log(frozen: &Frozen, version: &Version) -> bool {
    if frozen.logs.len() > MEMTABLE_LOGS_MAX {
        return false;
    }
    let Some((smallest, largest)) = frozen.memtable.bounds() else { return false };
    let overlaps = |level: usize| !version.overlap(level, &smallest, &largest).is_empty();
    (overlaps(0) || overlaps(1)) && {
        let (newest, all) = frozen.memtable.newest_bytes(POINTED_BYTES_MIN);
        newest > 0 && newest * GARBAGE_PARTS_MAX >= all
    }
}
