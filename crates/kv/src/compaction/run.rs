//! Carrying out a compaction.

use super::parts::{self, Merged};
use super::{Job, Piece, Sweep, TableSink, Work, cause_of};
use crate::core::Core;
use crate::journal::{Edit, LEVELS};
use crate::level::stream_of;
use crate::media::{Intent, Parallelism};
use crate::merge::{Merge, Stream};
use crate::table::{Table, TableStream};
use crate::version::Version;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vellum_base::{IoClass, Result};

/// Entries between two looks at whether the store is being closed.
const ENTRIES_A_LOOK: u32 = 1024;
/// An output is cut where it would overlap with more than so many full tables two levels down.
const GRANDPARENTS_MAX: u64 = 10;

/// Merges the job's tables and puts the result in force, unless the store is being closed meanwhile.
pub(crate) fn run(core: &Arc<Core>, job: &Job, version: &Arc<Version>) -> Result<()> {
    let level = job.output_level();
    let mut edit = Edit {
        removed: job.replaced().map(|(level, table)| (level, table.meta.number)).collect(),
        ..Edit::default()
    };
    if job.discard {
        core.counts.discarded.fetch_add(job.upper.len() as u64, Relaxed);
    } else if job.is_move() {
        edit.added = job.upper.iter().map(|table| (level as u8, table.meta.clone())).collect();
        core.counts.moves.fetch_add(1, Relaxed);
        core.counts.moved_bytes.fetch_add(job.upper.iter().map(|t| t.meta.bytes).sum(), Relaxed);
    } else {
        let parallelism = match core.options.adaptive_parallelism {
            true => core.window.turn(core.visible.load(Relaxed), level),
            false => Parallelism::Full,
        };
        let Some(tables) = parts::merge(core, job, version, parallelism)? else { return Ok(()) };
        edit.added = tables.into_iter().map(|meta| (level as u8, meta)).collect();
        core.counts.compactions.fetch_add(1, Relaxed);
    }
    core.install(&edit, |_, _| ())
}

/// Merges the keys of a piece.
pub(super) fn merge_piece(
    core: &Core,
    job: &Job,
    version: &Version,
    piece: &Piece,
    parallelism: Parallelism,
) -> Merged {
    let level = job.output_level();
    // Foreground writes wait for level 0 to be emptied (FlashKV, section 3.5).
    let class = if level == 1 { IoClass::UrgentCompaction } else { IoClass::Background };
    let mut sources: Vec<Box<dyn Stream>> = Vec::new();
    match level {
        1 => {
            let stream = |table: &Arc<Table>| TableStream::within(table.clone(), class, piece.clone());
            job.upper.iter().for_each(|table| sources.push(Box::new(stream(table))));
        }
        _ => sources.push(Box::new(stream_of(job.upper.clone(), class, piece.clone()))),
    }
    sources.push(Box::new(stream_of(job.lower.clone(), class, piece.clone())));
    let mut merge = Merge::new(sources);
    let mut sweep = Sweep::of(core, version);
    let intent = Intent { cause: cause_of(level), class, parallelism };
    let mut sink = TableSink::new(core, intent).for_level(level);
    let mut work = Work::new(core);
    let mut below = Below::new(version, level, core);
    merge.first()?;
    let mut countdown = 0;
    while let Some(entry) = merge.current() {
        if countdown == 0 {
            countdown = ENTRIES_A_LOOK;
            if core.stopping.load(Relaxed) {
                return Ok(None);
            }
        }
        countdown -= 1;
        work.entry(entry.key().len() + entry.value().len());
        if sweep.keeps(entry.key(), entry.stamp(), || below.is_bottom(entry.key())) {
            if below.cuts_before(entry.key(), sink.fill()) {
                sink.cut()?;
            }
            sink.add(entry.key(), entry.stamp(), entry.value())?;
            if entry.is_hot() {
                sink.heat();
            }
        }
        merge.next()?;
    }
    sink.finish().map(Some)
}

/// The levels below the output's, followed in step with the merge.
struct Below<'a> {
    version: &'a Version,
    level: usize,
    /// For each level, the first table that does not end before the key at hand.
    at: [usize; LEVELS],
    /// Of the key at hand.
    keyspace: Option<u8>,
    /// Bytes of the level after next that the open output overlaps with.
    grandparent_bytes: u64,
    table_bytes: u64,
    whole_tables: bool,
}

impl<'a> Below<'a> {
    fn new(version: &'a Version, level: usize, core: &Core) -> Below<'a> {
        let shape = core.media.shape();
        Below {
            version,
            level,
            at: [0; LEVELS],
            keyspace: None,
            grandparent_bytes: 0,
            table_bytes: shape.table_bytes,
            whole_tables: shape.whole_tables,
        }
    }

    /// True if no table below the output's level may hold `key`. Keys come in order.
    fn is_bottom(&mut self, key: &[u8]) -> bool {
        (self.level + 1..LEVELS).all(|level| {
            let tables = &self.version.levels[level];
            let at = &mut self.at[level];
            while tables.get(*at).is_some_and(|table| table.meta.largest[..] < *key) {
                *at += 1;
            }
            tables.get(*at).is_none_or(|table| table.meta.smallest[..] > *key)
        })
    }

    /// True if the open output should end before `key`: where a table of the next level below ends or another keyspace
    /// begins, if enough was written to make it worth while, or if it would overlap with too much there.
    fn cuts_before(&mut self, key: &[u8], fill: Option<(u64, u64)>) -> bool {
        let keyspace_ends = std::mem::replace(&mut self.keyspace, key.first().copied()) != self.keyspace;
        let Some(tables) = self.version.levels.get(self.level + 1) else { return false };
        let at = &mut self.at[self.level + 1];
        let mut passed = false;
        while tables.get(*at).is_some_and(|table| table.meta.largest[..] < *key) {
            self.grandparent_bytes += tables[*at].meta.bytes;
            passed = true;
            *at += 1;
        }
        let Some((bytes, capacity)) = fill else {
            self.grandparent_bytes = 0;
            return false;
        };
        // A table that takes a whole superblock should fill it.
        let enough = if self.whole_tables { capacity / 8 * 7 } else { capacity / 2 };
        let enough = if keyspace_ends && !self.whole_tables { capacity / 16 } else { enough };
        let passed = passed || keyspace_ends;
        let cut = passed && (bytes >= enough || self.grandparent_bytes > GRANDPARENTS_MAX * self.table_bytes);
        if cut {
            self.grandparent_bytes = 0;
        }
        cut
    }
}
