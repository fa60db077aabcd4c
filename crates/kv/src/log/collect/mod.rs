//! Collecting: what segments still hold is copied into new ones, which take their place (Freewrite, section 3.2).
//!
//! Runs of records that are all live keep their places within units, by bubbles that the planner of compaction judges,
//! so that what is below need not write them again.
//!
//! Invariants
//! 1. New segments are safe before the manifest names them, and their orders are between those of the neighbours of the
//!    old ones. Old ones are erased when the manifest that does not name them is durable and nobody reads them.
//! 2. The index follows after the manifest: what was overwritten meanwhile is found to be so, and is garbage at once.
//! 3. A record that is hidden goes when what hides it is durable.
//! 4. A delete goes when no segment older than those collected has garbage: all that it hid goes with it, or is gone.
//! 5. What was copied of a segment that stays, as there was no room for all of it, counts unless that has a delete of
//!    the same hash: the copies are older than the segment, whose deletes may be of what it put again.

mod output;
mod pick;
#[cfg(test)]
mod tests;

pub(crate) use output::{Output, Part, Source};
pub(crate) use pick::{Wanted, Weight, needs_deletes, pick};

use super::core::Core;
use super::hint::{Note, UNIT_BYTES, units_max};
use super::index::{Change, Pointer};
use super::segment::{Home, Reading, START_BYTES, Segment, note_of};
use crate::freewrite::{Planner, ReuseStat};
use crate::journal::{Edit, SegmentMeta};
use crate::options::Reuse;
use crate::prefetch::Prefetch;
use output::Done;
use std::sync::Arc;
use vellum_base::sync::atomic::Ordering::Relaxed;
use vellum_base::{Cause, Error, IoClass, Kind, Nanos, Result};

/// Pointers that are changed before others have a turn.
const MOVES: usize = 1024;
/// One for each so many bytes of a segment, or little more, are kept: they take as much memory as two segments.
const MOVE_SHARE: u64 = 24;
/// What is won at least where room is short.
const SHORT_SHARE: f64 = 1.0 / 16.0;
/// Neighbours that are collected together where room is short, and where a segment takes a whole table, at least.
const WINDOW_SHORT: usize = 64;
const WINDOW_WHOLE: usize = 4;
/// Orders between two segments that were written one after the other.
pub(crate) const ORDERS: u64 = 1 << 16;

/// Segments to be collected.
pub(crate) struct Picked {
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

/// A record that was copied.
#[derive(Clone, Copy)]
struct Move {
    hash: u64,
    old: Pointer,
    /// Which new segment it is in, and where.
    output: usize,
    offset: u64,
    bytes: u32,
    delete: bool,
}

impl Core {
    /// All segments, the oldest first, and what those weigh that are tables: the newest are none yet.
    fn weighed(&self) -> (Vec<Arc<Segment>>, Vec<Weight>) {
        let all = self.view.load().in_order();
        let tables = all.iter().take_while(|segment| segment.meta().is_some());
        let weights = tables.map(|segment| segment.weight()).collect();
        (all, weights)
    }

    /// What is worth collecting, or, where room is `short`, what wins some.
    pub(crate) fn pick(&self, short: bool) -> Option<Picked> {
        let (all, weights) = self.weighed();
        let shape = self.media.shape();
        let wanted = Wanted {
            table_max: self.limits.segment_bytes / 16 * 15,
            whole_tables: shape.whole_tables,
            share: if short { SHORT_SHARE } else { self.options.garbage_share },
            window: self.window(short),
        };
        pick(&weights, &wanted).map(|range| Picked::of(&all, &weights, range))
    }

    /// Neighbours that are collected together. Where a segment takes a whole table, some are needed to win one; where
    /// room is short, that may be many: what there is no room for is collected later.
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
        while state.is_collecting && !state.health.has_failed() {
            self.state.wait(&mut state);
        }
        state.is_collecting = true;
        drop(state);
        let result = self.state.check_writable().and_then(|()| {
            self.collect_each().map_err(|error| match error.kind() {
                Kind::NoSpace | Kind::Corrupt => error,
                _ => self.state.poison(error),
            })
        });
        self.state.lock().is_collecting = false;
        self.state.wake_all();
        result
    }

    fn collect_each(&self) -> Result<()> {
        let mut done = 0;
        // Not those that come later, or this might not end beside writers.
        let newest = self.weighed().0.last().map_or(0, |segment| segment.order);
        loop {
            let (mut all, mut weights) = self.weighed();
            weights.truncate(all.partition_point(|segment| segment.order <= newest));
            all.truncate(weights.len() + 1); // those behind say where orders end
            let has_garbage = |at: &usize| {
                all[*at].order > done
                    && !weights[*at].is_skipped
                    && weights[*at].has_garbage(needs_deletes(&weights[..*at]))
            };
            let Some(from) = (0..weights.len()).find(has_garbage) else { return Ok(()) };
            let most = weights.len().min(from.saturating_add(self.window(false)));
            let until = (from..most).find(|at| weights[*at].is_skipped).unwrap_or(most);
            let last = (from..until).rev().find(has_garbage).unwrap_or(from);
            let picked = Picked::of(&all, &weights, from..last + 1);
            drop((all, weights)); // or what is replaced would be held when it is to be erased
            done = self.collect(picked)?;
            self.bury().map_err(|error| self.state.poison(error))?;
        }
    }

    /// Collects; after an error nothing has changed. Returns the order up to which it did.
    pub(crate) fn collect(&self, mut picked: Picked) -> Result<u64> {
        let mut copied = self.copy_all(&mut picked, self.reuse());
        if copied.as_ref().is_err_and(|error| error.kind() == Kind::Invalid) {
            // With bubbles it would take more segments than there are orders for. Without it takes no more than before.
            copied = self.copy_all(&mut picked, Reuse::Off);
        }
        let done = picked.segments.last().map_or(0, |segment| segment.order);
        match copied {
            Ok(copied) => self.replace(picked, copied)?,
            Err(error) if error.kind() == Kind::Invalid => {
                picked.segments.iter().for_each(|segment| segment.account.is_skipped.store(true, Relaxed));
            }
            Err(error) => return Err(error),
        }
        Ok(done)
    }

    /// Copies what is live into new segments, which are safe then: of all, or of as many as there is room for.
    fn copy_all(&self, picked: &mut Picked, reuse: Reuse) -> Result<Copied<'_>> {
        let mut copied = Copied::new(self, reuse);
        match copied.add_all(&picked.segments, picked.deletes) {
            Err(error) if error.kind() == Kind::NoSpace && copied.consumed > 0 => {
                copied.leave_deleted(picked.segments[copied.consumed].slot);
                if !copied.wins(&picked.segments) {
                    return Err(error); // Else it would be done again and again.
                }
            }
            result => result?,
        }
        if let Some(rest) = picked.segments.get(copied.consumed) {
            picked.order_behind = rest.order;
            picked.segments.truncate(copied.consumed);
        }
        picked.order(&mut copied.outputs)?;
        Ok(copied)
    }

    /// New segments take the place of old ones.
    fn replace(&self, picked: Picked, mut copied: Copied<'_>) -> Result<()> {
        // What hides records that were left out must not be lost when they are.
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
        // After another error the manifest counts on them, perhaps.
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

    fn count(&self, gone: &[SegmentMeta], made: &[Done]) {
        self.counts.compactions.fetch_add(1, Relaxed);
        let mut collected = self.collected.lock();
        collected.taken += gone.iter().map(|meta| meta.bytes).sum::<u64>();
        for Done { meta, totals, relinked } in made {
            collected.made += meta.bytes;
            self.counts.reused.lock().add(&ReuseStat::new(*totals, *relinked));
        }
    }

    /// New segments, to be read.
    fn opened(&self, copied: &Copied<'_>) -> Result<Vec<Arc<Segment>>> {
        let mut fresh = Vec::new();
        for done in &copied.outputs {
            let segment = self.opened_one(done).inspect_err(|_| {
                fresh.iter().for_each(|segment: &Arc<Segment>| self.give_slot(segment.slot));
            })?;
            fresh.push(Arc::new(segment));
        }
        Ok(fresh)
    }

    fn opened_one(&self, done: &Done) -> Result<Segment> {
        let home = Home::Table(self.media.open_table(done.meta.number)?, done.meta);
        Ok(Segment::new(done.meta.order, self.take_slot()?, home, Arc::default(), &self.graves))
    }

    /// The index follows what was moved; what was overwritten meanwhile stays where it is.
    fn follow(&self, moves: &[Move], fresh: &[Arc<Segment>]) -> Result<()> {
        for some in moves.chunks(MOVES) {
            let (_moves, view) = (self.moves.lock(), self.view.load());
            for Move { hash, old, output, offset, bytes, delete } in some {
                let Segment { account, slot, .. } = &*fresh[*output];
                let new = self.layout.pointer(*slot, *offset);
                if *delete {
                    account.deletes.fetch_add(*bytes as u64, Relaxed);
                } else if self.index.change(Change { hash: *hash, old: Some(*old), new: Some(new) }) {
                    account.live.fetch_add(*bytes as u64, Relaxed);
                    view.segment(self.layout.slot(*old))?.account.live.fetch_sub(*bytes as u64, Relaxed);
                }
            }
        }
        Ok(())
    }
}

/// Segments that were made; given up if they are not taken.
struct Copied<'a> {
    outputs: Vec<Done>,
    moves: Vec<Move>,
    /// Hashes of the deletes in the segment that is copied.
    deletes: Vec<u64>,
    /// The same of the segment that was copied when the last new one ended: it may be in that in part.
    split_deletes: Vec<u64>,
    /// So many of the old ones are in them with all that they have.
    consumed: usize,
    reuse: Reuse,
    core: &'a Core,
}

impl Drop for Copied<'_> {
    fn drop(&mut self) {
        for done in &self.outputs {
            // What cannot be erased now is erased when the store is opened again.
            let _ = self.core.media.erase_table(done.meta.number);
        }
    }
}

impl<'a> Copied<'a> {
    fn new(core: &'a Core, reuse: Reuse) -> Copied<'a> {
        let (deletes, split_deletes) = (Vec::new(), Vec::new());
        Copied { outputs: Vec::new(), moves: Vec::new(), deletes, split_deletes, consumed: 0, reuse, core }
    }

    fn add_all(&mut self, segments: &[Arc<Segment>], deletes: bool) -> Result<()> {
        let (mut writing, mut ahead) = (None, None);
        for (number, segment) in segments.iter().enumerate() {
            let reading = ahead.take().unwrap_or_else(|| read(self.core, segment));
            // What the device cannot read is passed by, as what does not check out.
            let data = reading.wait().map_err(|error| match error.kind() {
                Kind::Io => Error::corrupt(error.to_string()),
                _ => error,
            });
            // The next is read in the time that hashing and writing this one take.
            ahead = segments.get(number + 1).map(|next| read(self.core, next));
            let added = data.and_then(|data| self.add(segment, &data, number, deletes, &mut writing));
            added.inspect_err(|error| {
                if error.kind() == Kind::Corrupt {
                    segment.account.is_skipped.store(true, Relaxed);
                }
            })?;
            // There is memory for so many. If fewer segments came of it, that is worth it: else it might be done again
            // and again.
            let (taken, made) = (number + 1, self.outputs.len() + usize::from(writing.is_some()));
            if self.moves.len() as u64 > self.core.limits.segment_bytes / MOVE_SHARE && made < taken {
                return self.end(writing, taken);
            }
        }
        self.end(writing, segments.len())
    }

    /// Copies what is live of a segment.
    fn add(
        &mut self,
        segment: &Segment,
        data: &[u8],
        number: usize,
        deletes: bool,
        writing: &mut Option<Output>,
    ) -> Result<()> {
        let core = self.core;
        core.env.charge(Nanos(core.options.cpu.merge_kib.0 * (data.len() as u64 / 1024)));
        self.deletes.clear();
        let parts = live_parts(core, segment, data, deletes, |hash| self.deletes.push(hash))?;
        let source = Source { table: segment.meta().map_or(0, |meta| meta.number), data };
        let mut rest = &parts[..];
        while !rest.is_empty() {
            let run = rest.windows(2).position(|two| two[0].end() != two[1].offset);
            let run = &rest[..run.map_or(rest.len(), |last| last + 1)];
            if run.iter().all(|part| part.note.is_none()) {
                rest = &rest[run.len()..]; // Bubbles alone are no reason to begin a table.
                continue;
            }
            let output = match writing {
                Some(output) => output,
                None => {
                    self.consumed = number; // What came before is in those that ended, or was nothing.
                    writing.insert(self.begin()?)
                }
            };
            let fitting = output.fitting(run, core.limits.segment_bytes);
            if fitting == 0 {
                if output.is_empty() {
                    return Err(Error::new(Kind::NoSpace, "no table that is free can have a record"));
                }
                self.end(writing.take(), number)?;
                continue;
            }
            let (made, moves) = (self.outputs.len(), &mut self.moves);
            output.append(source, &run[..fitting], |note, offset| {
                moves.push(Move {
                    hash: note.hash,
                    old: core.layout.pointer(segment.slot, note.offset),
                    output: made,
                    offset,
                    bytes: note.bytes,
                    delete: note.delete,
                });
            })?;
            rest = &rest[fitting..];
        }
        Ok(())
    }

    /// There was no room for all of the segment in this slot: it stays, and so do its deletes. Where one has the hash
    /// of a copied record, the index stays with the old one; the copy is garbage.
    fn leave_deleted(&mut self, slot: usize) {
        let (made, layout) = (self.outputs.len(), &self.core.layout);
        self.split_deletes.sort_unstable();
        let deleted = |moved: &Move| self.split_deletes.binary_search(&moved.hash).is_ok();
        let stays = |moved: &Move| layout.slot(moved.old) == slot && deleted(moved);
        self.moves.retain(|moved| moved.output < made && !stays(moved));
    }

    /// True if something is won though not all of `segments` was copied: a segment, garbage, or records of the one that
    /// stays.
    fn wins(&self, segments: &[Arc<Segment>]) -> bool {
        let (gone, stays) = (&segments[..self.consumed], segments[self.consumed].slot);
        let taken = gone.iter().filter_map(|segment| segment.meta()).map(|meta| meta.data_bytes);
        let made = self.outputs.iter().map(|done| done.meta.data_bytes);
        self.outputs.len() < gone.len()
            || made.sum::<u64>() < taken.sum::<u64>()
            || self.moves.iter().any(|moved| self.core.layout.slot(moved.old) == stays)
    }

    fn begin(&self) -> Result<Output> {
        let core = self.core;
        if self.outputs.len() >= core.free_slots() {
            return Err(Error::new(Kind::NoSpace, "the index can tell no more segments apart"));
        }
        let begun = core.begin_table(core.limits.segment_bytes / 2, Cause::Gc, IoClass::Background)?;
        let unit_bytes = core.options.unit_bytes.unwrap_or(UNIT_BYTES as u64);
        let planner = Planner::new(unit_bytes, core.options.caps, core.options.island_bytes_min.unwrap_or(0));
        Ok(Output::new(begun, self.reuse, planner))
    }

    /// Ends a segment, if one was begun; so many were copied whole then.
    fn end(&mut self, writing: Option<Output>, consumed: usize) -> Result<()> {
        if let Some(output) = writing {
            self.outputs.push(output.finish(self.core.seed)?);
        }
        self.split_deletes.clone_from(&self.deletes);
        self.consumed = consumed;
        Ok(())
    }
}

/// Begins to read a segment.
fn read(core: &Core, segment: &Arc<Segment>) -> Prefetch<Vec<u8>> {
    let (env, segment) = (core.env.clone(), segment.clone());
    Prefetch::begin(&core.env, "kv-prefetch", move || {
        segment.data(Reading { env: &*env, class: IoClass::Background })
    })
}

/// What of a segment is to be copied, as it lies: records that the index points to, deletes that are needed, and
/// bubbles. Tells the hashes of all its deletes.
fn live_parts(
    core: &Core,
    segment: &Segment,
    data: &[u8],
    deletes: bool,
    mut deleted: impl FnMut(u64),
) -> Result<Vec<Part>> {
    let mut parts: Vec<Part> = Vec::new();
    segment.each(data, |offset, record, bytes| {
        let note: Option<Note> = record.map(|record| note_of(&record, core.seed, offset, bytes));
        note.iter().filter(|note| note.delete).for_each(|note| deleted(note.hash));
        let is_live = match &note {
            None => true,
            Some(note) if note.delete => deletes,
            Some(note) => core.index.points(note.hash, core.layout.pointer(segment.slot, offset)),
        };
        if is_live {
            parts.push(Part { offset: offset as usize, bytes, note });
        }
    })?;
    Ok(parts)
}

impl Segment {
    fn weight(&self) -> Weight {
        let meta = self.meta().copied().unwrap_or_default();
        Weight {
            data: meta.data_bytes.saturating_sub(START_BYTES as u64),
            live: self.account.live.load(Relaxed),
            deletes: self.account.deletes.load(Relaxed),
            bubbles: meta.bubble_bytes,
            hint: units_max(meta.records) * UNIT_BYTES as u64,
            is_skipped: self.account.is_skipped.load(Relaxed),
        }
    }
}

impl Picked {
    fn of(all: &[Arc<Segment>], weights: &[Weight], range: std::ops::Range<usize>) -> Picked {
        let order_behind = all.get(range.end).map_or(u64::MAX, |segment| segment.order);
        Picked {
            deletes: needs_deletes(&weights[..range.start]),
            order_behind,
            segments: all[range].to_vec(),
        }
    }

    /// Gives new segments their orders: as many as there were have those that there were, others are spread over what
    /// is left up to the segment behind.
    fn order(&self, outputs: &mut [Done]) -> Result<()> {
        let last = self.segments.last().map_or(0, |segment| segment.order);
        let room = (self.order_behind - last).min(ORDERS);
        let more = outputs.len().saturating_sub(self.segments.len()) as u64;
        if more >= room {
            return Err(Error::invalid("there is no order for another segment"));
        }
        let spread = (1..=more).map(|number| last + room * number / (more + 1));
        let orders = self.segments.iter().map(|segment| segment.order).chain(spread);
        outputs.iter_mut().zip(orders).for_each(|(done, order)| done.meta.order = order);
        Ok(())
    }
}
