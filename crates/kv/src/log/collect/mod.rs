//! Collection (garbage collection): live records of segments are copied to new ones, which replace them (Freewrite,
//! section 3.2).
//!
//! Runs of live records keep their alignment by bubbles, on which the same planner decides as in compaction, so that
//! the layer below need not write them again.
//!
//! Invariants
//! 1. New segments are durable before the manifest names them. Their orders lie between those of the old ones'
//!    neighbours; a segment contains its order, so it is chosen when the segment is begun. Old segments are erased when
//!    a manifest that does not name them is durable, and nobody reads them.
//! 2. The index is updated after the manifest. Records overwritten meanwhile are detected then, and their copies are
//!    garbage at once.
//! 3. An overwritten record is dropped only if the record that hides it is durable.
//! 4. A delete is dropped when no segment older than the collected ones has garbage: everything that it hid is dropped
//!    with it, or gone already.
//! 5. If only part of a segment fits, the segment stays and the copies are ordered before it. A copy is not used if the
//!    segment has a delete of the same hash, which would hide it.

mod copied;
mod output;
mod pick;
#[cfg(test)]
mod tests;

pub(crate) use pick::{Wanted, Weight, needs_deletes, pick};

use super::core::Core;
use super::hint::{SEGMENT_UNIT_BYTES, units_max};
use super::index::Change;
use super::segment::{Home, START_BYTES, Segment};
use crate::durable::Durable;
use crate::freewrite::Reuse;
use crate::freewrite::ReuseStat;
use crate::journal::{Edit, SegmentMeta};
use copied::{Collection, Move};
use output::FinishedSegment;
use std::sync::Arc;
use vellum_base::sync::atomic::Ordering::Relaxed;
use vellum_base::{Error, Kind, Result};

/// Most pointers that are changed under one lock, before others have a turn.
const MOVES: usize = 1024;
/// What is won at least where room is short.
const SHORT_SHARE: f64 = 1.0 / 16.0;
/// Neighbours that are collected together where room is short, and where a segment takes a whole table, at least.
const WINDOW_SHORT: usize = 64;
const WINDOW_WHOLE: usize = 4;
/// Orders between two segments that were written one after the other.
pub(crate) const ORDERS: u64 = 1 << 16;

/// Segments to be collected.
pub(crate) struct PickedSegments {
    /// Neighbours, the oldest first; all of them are tables.
    segments: Vec<Arc<Segment>>,
    /// Deletes in them may hide something older.
    deletes: bool,
    /// The order of the segment behind them.
    order_behind: u64,
}

/// What collecting did since the store was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Collected {
    /// Bytes of segments that were collected, and of those that they became.
    pub taken: u64,
    pub made: u64,
}

impl Core {
    /// All segments, the oldest first, and the weights of those that are tables: the newest are none yet.
    fn weighed(&self) -> (Vec<Arc<Segment>>, Vec<Weight>) {
        let all = self.view.load().in_order();
        let tables = all.iter().take_while(|segment| segment.meta().is_some());
        let weights = tables.map(|segment| segment.weight()).collect();
        (all, weights)
    }

    /// Bytes that are copied if everything is collected.
    pub(crate) fn kept_bytes(&self) -> u64 {
        let (_, weights) = self.weighed();
        weights.iter().map(|weight| weight.live.saturating_add(weight.deletes)).sum()
    }

    /// True if there is much more garbage than collecting is to leave: what was overwritten since is more than it could
    /// collect.
    pub(crate) fn is_behind(&self) -> bool {
        let (_, weights) = self.weighed();
        pick::is_behind(&weights, self.options.garbage_share, self.limits.segment_bytes)
    }

    /// What is worth collecting, or, where room is `short`, what wins some.
    pub(crate) fn pick(&self, short: bool) -> Option<PickedSegments> {
        let (all, weights) = self.weighed();
        let shape = self.media.shape();
        // A run of records is begun where the largest bubble fits in, too.
        let bubble = if self.reuse() == Reuse::Off { 0 } else { self.unit_bytes() };
        let wanted = Wanted {
            table_max: (self.made_bytes_max() / 16 * 15).saturating_sub(bubble),
            whole_tables: shape.whole_tables,
            share: if short { SHORT_SHARE } else { self.options.garbage_share },
            window: self.window(short),
        };
        pick(&weights, &wanted).map(|range| PickedSegments::of(&all, &weights, range))
    }

    /// Most bytes of the table of a segment that collection makes. Where each takes a whole table, it may be as long as
    /// any that exists, though new segments are shorter: else it might take more tables than the old ones did.
    fn made_bytes_max(&self) -> u64 {
        if !self.media.shape().whole_tables {
            return self.limits.segment_bytes;
        }
        let view = self.view.load();
        let tables = view.segments.iter().flatten().filter_map(|segment| segment.meta());
        tables.map(|meta| meta.bytes).max().unwrap_or(0).max(self.limits.segment_bytes)
    }

    /// True if collecting would drop anything, whether it is worth it or not.
    pub(crate) fn has_garbage(&self) -> bool {
        let (_, weights) = self.weighed();
        let is_some = |at: usize| weights[at].has_garbage(needs_deletes(&weights[..at]));
        (0..weights.len()).any(|at| !weights[at].is_skipped && is_some(at))
    }

    /// Neighbours that are collected together. Where a segment takes a whole table, several are needed to free one;
    /// where room is short, that may be many: what there is no room for is collected later.
    fn window(&self, short: bool) -> usize {
        let least = match (short, self.media.shape().whole_tables) {
            (true, _) => WINDOW_SHORT,
            (_, true) => WINDOW_WHOLE,
            _ => 1,
        };
        self.options.collect_max.max(least)
    }

    /// Collects everything that has garbage. Segments without any among them are left as they are.
    pub(crate) fn collect_all(&self) -> Result<()> {
        let mut state = self.state.lock();
        self.state.try_again(&mut state);
        // Beside writers there is always something to collect: it would be another collection's turn each time.
        state.compactions += 1;
        while state.is_collecting && !state.health.has_failed() {
            self.state.wait(&mut state);
        }
        state.compactions -= 1;
        state.is_collecting = true;
        drop(state);
        let result = self.state.check_writable().and_then(|()| {
            self.collect_each().map_err(|error| match error.kind() {
                Kind::NoSpace | Kind::Corrupt => error,
                _ => self.state.poison(error),
            })
        });
        self.has_collected();
        result
    }

    /// In passes: what there is no room for is tried again once others have won some.
    fn collect_each(&self) -> Result<()> {
        let (all, _) = self.weighed();
        // Segments that are written later are left out, and passes are limited: this must end while others write.
        let (newest, mut passes) = (all.last().map_or(0, |segment| segment.order), all.len());
        drop(all);
        loop {
            let (mut upto, mut has_won, mut refused) = (0, false, None);
            while let Some(picked) = self.next_with_garbage(upto, newest) {
                let last = picked.segments.last().map_or(newest, |segment| segment.order);
                match self.collect(picked) {
                    Ok(done) => (upto, has_won) = (done, true),
                    Err(error) if error.kind() == Kind::NoSpace => (upto, refused) = (last, Some(error)),
                    Err(error) => return Err(error),
                }
                self.erase_obsolete().map_err(|error| self.state.poison(error))?;
                self.has_won_room(&mut self.state.lock());
            }
            match refused {
                None => return Ok(()),
                Some(error) if !has_won || passes == 0 => return Err(error),
                Some(_) => passes -= 1,
            }
        }
    }

    /// The first neighbours behind an order that have garbage, up to another order.
    fn next_with_garbage(&self, behind: u64, newest: u64) -> Option<PickedSegments> {
        let (mut all, mut weights) = self.weighed();
        weights.truncate(all.partition_point(|segment| segment.order <= newest));
        all.truncate(weights.len() + 1); // those behind say where orders end
        let has_garbage = |at: &usize| {
            all[*at].order > behind
                && !weights[*at].is_skipped
                && weights[*at].has_garbage(needs_deletes(&weights[..*at]))
        };
        let from = (0..weights.len()).find(has_garbage)?;
        let most = weights.len().min(from.saturating_add(self.window(false)));
        let until = (from..most).find(|at| weights[*at].is_skipped).unwrap_or(most);
        let last = (from..until).rev().find(has_garbage).unwrap_or(from);
        Some(PickedSegments::of(&all, &weights, from..last + 1))
    }

    /// Collects; after an error nothing has changed. Returns the order up to which it did.
    pub(crate) fn collect(&self, mut picked: PickedSegments) -> Result<u64> {
        let reuse = self.reuse();
        let mut copied = self.copy_all(&mut picked, reuse);
        let has_no_room = copied.as_ref().is_err_and(|error| error.kind() == Kind::NoSpace);
        if has_no_order(&copied) || has_no_room && reuse != Reuse::Off {
            // With bubbles it takes more segments than without, and more room.
            copied = self.copy_all(&mut picked, Reuse::Off);
        }
        while has_no_order(&copied) && self.add_neighbours(&mut picked) {
            copied = self.copy_all(&mut picked, Reuse::Off);
        }
        let done = picked.segments.last().map_or(0, |segment| segment.order);
        match copied? {
            Some(copied) => self.replace(picked, copied)?,
            None => {
                picked.segments.iter().for_each(|segment| segment.account.is_skipped.store(true, Relaxed))
            }
        }
        self.state.lock().found_no_room = None;
        Ok(done)
    }

    /// Adds up to as many segments behind, to use their orders; false if there are none.
    fn add_neighbours(&self, picked: &mut PickedSegments) -> bool {
        let (all, weights) = self.weighed();
        let count = picked.segments.len();
        let from = all.partition_point(|segment| segment.order < picked.segments[0].order);
        let most = weights.len().min(from + 2 * count);
        let until = (from + count..most).find(|at| weights[*at].is_skipped).unwrap_or(most);
        let is_more = until > from + count;
        if is_more {
            *picked = PickedSegments::of(&all, &weights, from..until);
        }
        is_more
    }

    /// Copies what is live into new segments, which are safe then: of all, or of as many as there is room for. `None`
    /// if there are too few orders for them.
    fn copy_all(&self, picked: &mut PickedSegments, reuse: Reuse) -> Result<Option<Collection<'_>>> {
        let mut copied = Collection::new(self, reuse, picked);
        match copied.add_all(&picked.segments, picked.deletes) {
            Err(error) if error.kind() == Kind::NoSpace && copied.consumed > 0 => {
                let rest = picked.segments[copied.consumed].clone();
                copied.leave_deleted(rest.slot);
                // Else it would be done again and again.
                if !copied.wins(&picked.segments) || !copied.ends_below(rest.order) {
                    return Err(error);
                }
            }
            result => result?,
        }
        if copied.takes_the_last() {
            return Err(Error::new(Kind::NoSpace, "what segments share has no room elsewhere"));
        }
        if let Some(rest) = picked.segments.get(copied.consumed) {
            picked.order_behind = rest.order;
            picked.segments.truncate(copied.consumed);
        }
        Ok(copied.ends_below(picked.order_behind).then_some(copied))
    }

    /// New segments take the place of old ones.
    fn replace(&self, picked: PickedSegments, mut copied: Collection<'_>) -> Result<()> {
        // Records that hide those left out must be durable before these are lost.
        self.sync_log()?;
        let fresh = self.opened(&copied)?;
        let gone: Vec<SegmentMeta> =
            picked.segments.iter().filter_map(|segment| segment.meta().copied()).collect();
        let edit = Edit {
            segments: copied.outputs.iter().map(|done| done.meta).collect(),
            segments_gone: gone.iter().map(|meta| meta.number).collect(),
            ..Edit::default()
        };
        // Before the manifest, which says what was done so far: perhaps no other edit follows.
        let before = (*self.collected.lock(), *self.counts.reused.lock());
        self.count(&gone, &copied.outputs);
        // The index may name either from here on.
        let installed =
            self.install(edit, |_, view| fresh.iter().for_each(|segment| view.put(segment.clone())));
        if installed.as_ref().is_err_and(|error| error.kind() == Kind::NoSpace) {
            self.counts.compactions.fetch_sub(1, Relaxed);
            (*self.collected.lock(), *self.counts.reused.lock()) = before;
            fresh.iter().for_each(|segment| self.give_slot(segment.slot));
            return installed;
        }
        // After any other error the manifest may name them.
        copied.outputs.clear();
        installed?;
        self.follow(&copied.moves, &fresh)?;
        picked.segments.iter().for_each(|segment| segment.retire());
        let slots: Vec<usize> = picked.segments.iter().map(|segment| segment.slot).collect();
        drop(picked);
        self.show(|view| slots.iter().for_each(|slot| view.segments[*slot] = None));
        slots.into_iter().for_each(|slot| self.give_slot(slot));
        Ok(())
    }

    fn count(&self, gone: &[SegmentMeta], made: &[FinishedSegment]) {
        self.counts.compactions.fetch_add(1, Relaxed);
        let mut collected = self.collected.lock();
        collected.taken += gone.iter().map(|meta| meta.bytes).sum::<u64>();
        for FinishedSegment { meta, totals, relinked } in made {
            collected.made += meta.bytes;
            self.counts.reused.lock().add(&ReuseStat::new(*totals, *relinked));
        }
    }

    /// New segments, to be read.
    fn opened(&self, copied: &Collection<'_>) -> Result<Vec<Arc<Segment>>> {
        let mut fresh = Vec::new();
        for done in &copied.outputs {
            let segment = self.opened_one(done).inspect_err(|_| {
                fresh.iter().for_each(|segment: &Arc<Segment>| self.give_slot(segment.slot));
            })?;
            fresh.push(Arc::new(segment));
        }
        Ok(fresh)
    }

    fn opened_one(&self, done: &FinishedSegment) -> Result<Segment> {
        let home = Home::Table(self.media.open_table(done.meta.number)?, done.meta);
        Ok(Segment::new(done.meta.order, self.take_slot()?, home, Arc::default(), &self.obsolete))
    }

    /// Points the index to what was moved, unless it was overwritten meanwhile.
    fn follow(&self, moves: &[Move], fresh: &[Arc<Segment>]) -> Result<()> {
        for some in moves.chunks(MOVES) {
            let (_moves, view) = (self.moves.lock(), self.view.load());
            for Move { hash, old, output, offset, bytes, delete } in some {
                let Segment { account, slot, .. } = &*fresh[*output];
                let new = self.format.pointer(*slot, *offset);
                if *delete {
                    account.deletes.fetch_add(*bytes as u64, Relaxed);
                } else if self.index.change(Change { hash: *hash, old: Some(*old), new: Some(new) }) {
                    account.live.fetch_add(*bytes as u64, Relaxed);
                    view.segment(self.format.slot(*old))?.account.live.fetch_sub(*bytes as u64, Relaxed);
                }
            }
        }
        Ok(())
    }
}

/// True if it was refused as there are too few orders between those of the neighbours.
fn has_no_order(copied: &Result<Option<Collection<'_>>>) -> bool {
    copied.as_ref().is_ok_and(Option::is_none)
}

impl Segment {
    fn weight(&self) -> Weight {
        let meta = self.meta().copied().unwrap_or_default();
        Weight {
            data: meta.data_bytes.saturating_sub(START_BYTES as u64),
            live: self.account.live.load(Relaxed),
            deletes: self.account.deletes.load(Relaxed),
            bubbles: meta.bubble_bytes,
            hint: units_max(meta.records) * SEGMENT_UNIT_BYTES as u64,
            is_skipped: self.account.is_skipped.load(Relaxed),
        }
    }
}

impl PickedSegments {
    fn of(all: &[Arc<Segment>], weights: &[Weight], range: std::ops::Range<usize>) -> PickedSegments {
        let order_behind = all.get(range.end).map_or(u64::MAX, |segment| segment.order);
        PickedSegments {
            deletes: needs_deletes(&weights[..range.start]),
            order_behind,
            segments: all[range].to_vec(),
        }
    }
}
