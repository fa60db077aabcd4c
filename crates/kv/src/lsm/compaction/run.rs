//! Execution of a compaction: its whole result is installed by one edit, or not at all. It is abandoned when the store
//! is being closed.

use super::layout::{Deeper, MergeLayout};
use super::parts::{self, Merged};
use super::{Job, MergeRange, Sweep, TableSink, Work};
use crate::freewrite::Reuse;
use crate::journal::Edit;
use crate::key::Stamp;
use crate::lifetime::cause_of;
use crate::lsm::core::{Core, State};
use crate::lsm::level::stream_of;
use crate::lsm::merge::{Merge, Stream};
use crate::lsm::table::{LeavesRead, StoredLeaf, StreamOptions, Table, TableStream};
use crate::lsm::version::Version;
use crate::media::{Intent, Parallelism};
use std::collections::BTreeSet;
use std::sync::Arc;
use vellum_base::sync::atomic::Ordering::Relaxed;
use vellum_base::{IoClass, Result};

/// Entries between checks whether the store is being closed.
const ENTRIES_A_LOOK: u32 = 1024;

/// Merges the job's tables and installs the result, unless the store is closed meanwhile.
pub(crate) fn run(core: &Arc<Core>, job: &Job, version: &Arc<Version>) -> Result<()> {
    let level = job.output_level();
    let mut edit = Edit {
        removed: job.replaced().map(|(level, table)| (level, table.meta.number)).collect(),
        ..Edit::default()
    };
    let (counts, mut in_vain) = (&core.counts, Vec::new());
    // What the edit does is counted before it, as it has the counters in it.
    let counted = if job.discard {
        vec![(&counts.discarded, job.upper.len() as u64)]
    } else if job.is_move() {
        edit.added = job.upper.iter().map(|table| (level as u8, table.meta.clone())).collect();
        vec![(&counts.moves, 1), (&counts.moved_bytes, job.upper.iter().map(|t| t.meta.bytes).sum())]
    } else {
        let parallelism = match core.options.adaptive_parallelism {
            true => core.window.turn(core.visible.load(Relaxed), level),
            false => Parallelism::Full,
        };
        job.claim.taken.forget(); // of a try that found no room
        let Some(tables) = parts::merge(core, job, version, parallelism)? else { return Ok(()) };
        let is_in_vain = job.upper.is_empty() && job.lower.len() > 1 && tables.len() >= job.lower.len();
        in_vain.extend(tables.iter().map(|meta| meta.number).filter(|_| is_in_vain));
        edit.added = tables.into_iter().map(|meta| (level as u8, meta)).collect();
        vec![(&counts.compactions, 1)]
    };
    for (counter, by) in &counted {
        counter.fetch_add(*by, Relaxed);
    }
    let installed = core.install(&edit, |state, view| state.leave_alone(&view.version, in_vain));
    installed.inspect_err(|_| {
        for (counter, by) in &counted {
            counter.fetch_sub(*by, Relaxed);
        }
    })
}

impl State {
    /// Notes tables that became no fewer when they were gathered, or did not fit.
    pub(crate) fn leave_alone(&mut self, version: &Version, tables: impl IntoIterator<Item = u64>) {
        let mut tables = tables.into_iter().peekable();
        if tables.peek().is_some() {
            let present: BTreeSet<u64> = version.levels.iter().flatten().map(|t| t.meta.number).collect();
            self.gathered_in_vain.retain(|number| present.contains(number));
            self.gathered_in_vain.extend(tables);
        }
    }
}

/// True if the output may be larger than the job's tables, as they were written with other options: it is planned by
/// what these take.
fn may_grow(core: &Core, job: &Job) -> bool {
    let plain = |table: &Arc<Table>| table.data_bytes.max(table.meta.merged_bytes());
    let bytes = job.upper.iter().chain(&job.lower).map(plain).sum::<u64>();
    let parts = if core.has_large_units() { 2 } else { 1 };
    let version = core.view.load().version.clone();
    let has_room = || core.budget(&version, &core.state.lock()).may_take(parts * bytes);
    !job.is_tight && job.piece.is_all() && has_room()
}

/// Merges the keys of a piece of the job.
pub(super) fn merge_piece(
    core: &Core,
    job: &Job,
    version: &Version,
    piece: &MergeRange,
    parallelism: Parallelism,
    leaves_read: Option<LeavesRead>,
) -> Merged {
    let level = job.output_level();
    // Foreground writes wait for level 0 to be emptied (FlashKV, section 3.5).
    let empties_level0 = level == 1 && !job.upper.is_empty();
    let class = if empties_level0 { IoClass::UrgentCompaction } else { IoClass::Background };
    let inputs = 1 + if level == 1 { job.upper.len() } else { 1 };
    let options =
        StreamOptions::beside(class, inputs, core.options.compaction_bytes).reporting_to(leaves_read);
    let mut sources: Vec<Box<dyn Stream>> = Vec::new();
    match level {
        1 => {
            let stream =
                |table: &Arc<Table>| TableStream::within(table.clone(), options.clone(), piece.clone());
            job.upper.iter().for_each(|table| sources.push(Box::new(stream(table))));
        }
        _ => sources.push(Box::new(stream_of(job.upper.clone(), options.clone(), piece.clone()))),
    }
    // In a merge in pieces the lower tables are merged whole, including the last one of the previous piece.
    let of_lower =
        MergeRange { after: if job.piece.is_all() { piece.after.clone() } else { None }, ..piece.clone() };
    sources.push(Box::new(stream_of(job.lower.clone(), options, of_lower)));
    let mut merge = Merge::new(sources);
    let intent = Intent { cause: cause_of(level), class, parallelism };
    let replaced = job.replaced().map(|(_, table)| table.meta.number);
    let sink = TableSink::new(core, intent).for_level(level).instead_of(replaced).counting(&job.claim.taken);
    let sink = if job.piece.is_all() { sink } else { sink.longer() };
    let inputs = job.upper.iter().chain(&job.lower);
    let sink = if may_grow(core, job) { sink } else { sink.no_larger_than(inputs) };
    let mut out = Out {
        sweep: Sweep::of(core, version),
        deeper: Deeper::new(version, level),
        layout: MergeLayout::new(core, version, job, sink),
        work: Work::new(core),
    };
    let keeps = core.reuse() != Reuse::Off;
    let (mut countdown, mut last) = (0, Vec::new());
    merge.first()?;
    loop {
        if countdown == 0 {
            countdown = ENTRIES_A_LOOK;
            core.let_flush_go_first();
            if core.state.is_stopping() {
                return Ok(None);
            }
        }
        countdown -= 1;
        if keeps {
            let newest_only = !out.sweep.looks_back();
            let passed = |bytes| out.work.entry(bytes);
            if let Some(leaf) = merge.take_leaf(&mut last, newest_only, passed)? {
                out.leaf(leaf)?;
                continue;
            }
        }
        let Some(entry) = merge.current() else { break };
        if out.keeps(entry.key(), entry.stamp(), entry.value_bytes()) {
            merge.load()?;
            merge.current().map_or(Ok(()), |entry| out.entry(entry))?;
        }
        merge.next()?;
    }
    let (tables, reused) = out.layout.finish()?;
    core.counts.reused.lock().add(&reused);
    Ok(Some(tables))
}

/// Filters merged entries and passes them to the layout.
struct Out<'a> {
    sweep: Sweep,
    deeper: Deeper<'a>,
    layout: MergeLayout<'a>,
    work: Work<'a>,
}

impl Out<'_> {
    /// True if the next entry is still needed.
    fn keeps(&mut self, key: &[u8], stamp: Stamp, value_bytes: usize) -> bool {
        self.work.entry(key.len() + value_bytes);
        self.sweep.keeps(key, stamp, || self.deeper.is_bottom(key))
    }

    fn entry(&mut self, entry: &dyn Stream) -> Result<()> {
        self.layout.entry(entry.key(), entry.stamp(), entry.value(), entry.is_hot())
    }

    /// Passes on a leaf that no other source overlaps with: whole if all its entries are needed, else entry by entry.
    fn leaf(&mut self, leaf: StoredLeaf) -> Result<()> {
        let mut needed = Vec::with_capacity(leaf.entries as usize);
        leaf.each(|key, stamp, value| {
            self.work.entry(key.len() + value.len());
            needed.push(self.sweep.keeps(key, stamp, || self.deeper.is_bottom(key)));
            Ok(())
        })?;
        if needed.iter().all(|needed| *needed) {
            return self.layout.leaf(leaf);
        }
        let mut needed = needed.into_iter();
        leaf.each(|key, stamp, value| match needed.next() {
            Some(true) => self.layout.entry(key, stamp, value, leaf.is_hot),
            _ => Ok(()),
        })
    }
}
