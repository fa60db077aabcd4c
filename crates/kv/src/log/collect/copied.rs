//! What is copied of segments that are collected: new ones, and where each record went.

use super::output::{FinishedSegment, Output, Part, Source};
use super::{ORDERS, PickedSegments};
use crate::freewrite::Planner;
use crate::freewrite::Reuse;
use crate::log::core::Core;
use crate::log::foot::Origin;
use crate::log::hint::Note;
use crate::log::index::Pointer;
use crate::log::segment::{ReadContext, Segment, note_of};
use crate::prefetch::Prefetch;
use crate::sum::sum_with;
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_base::sync::atomic::Ordering::Relaxed;
use vellum_base::{Cause, Error, IoClass, Kind, Nanos, Result};

/// At most about one [`Move`] per this many bytes of a segment is kept: all take as much memory as two segments.
const MOVE_SHARE: u64 = 24;
/// Where more segments come out than went in, this many fit between two orders, and as many again between two of these.
const SPREAD: u64 = 256;

/// A record that was copied.
#[derive(Clone, Copy)]
pub(super) struct Move {
    pub hash: u64,
    pub old: Pointer,
    /// Which new segment it is in, and where.
    pub output: usize,
    pub offset: u64,
    pub bytes: u32,
    pub delete: bool,
}

/// Segments that were made; given up if they are not taken.
pub(super) struct Collection<'a> {
    pub outputs: Vec<FinishedSegment>,
    pub moves: Vec<Move>,
    /// Hashes of the deletes in the segment that is copied.
    deletes: Vec<u64>,
    /// The same of the segment that was copied when the last new one ended: it may be in that in part.
    split_deletes: Vec<u64>,
    /// Number of the old ones that were copied completely.
    pub consumed: usize,
    /// Most bytes of a new one's table.
    bytes_max: u64,
    /// Numbers and orders of the old ones.
    numbers: Vec<u64>,
    orders: Vec<u64>,
    /// The order of the segment behind them.
    order_behind: u64,
    reuse: Reuse,
    core: &'a Core,
}

impl Drop for Collection<'_> {
    fn drop(&mut self) {
        for done in &self.outputs {
            // What cannot be erased now is erased when the store is opened again.
            let _ = self.core.media.erase_table(done.meta.number);
        }
    }
}

impl<'a> Collection<'a> {
    pub(super) fn new(core: &'a Core, reuse: Reuse, picked: &PickedSegments) -> Collection<'a> {
        let PickedSegments { segments, order_behind, .. } = picked;
        let numbers = segments.iter().filter_map(|segment| segment.meta()).map(|meta| meta.number);
        Collection {
            outputs: Vec::new(),
            moves: Vec::new(),
            deletes: Vec::new(),
            split_deletes: Vec::new(),
            consumed: 0,
            bytes_max: core.made_bytes_max(),
            numbers: numbers.collect(),
            orders: segments.iter().map(|segment| segment.order).collect(),
            order_behind: *order_behind,
            reuse,
            core,
        }
    }

    pub(super) fn add_all(&mut self, segments: &[Arc<Segment>], deletes: bool) -> Result<()> {
        let (mut writing, mut ahead) = (None, None);
        for (number, segment) in segments.iter().enumerate() {
            let reading = ahead.take().unwrap_or_else(|| read(self.core, segment));
            // What the device cannot read is skipped, like what does not check out.
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
            // The memory for moves is used up. It is worth stopping here if this made fewer segments; else it might be
            // done again and again.
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
            let fitting = output.fitting(run, self.bytes_max);
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
                    old: core.format.pointer(segment.slot, note.offset),
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

    /// There was no room for all of the segment in this slot: it stays, and so do its deletes. Where a delete has the
    /// hash of a copied record, the index keeps pointing to the old record; the copy is garbage.
    pub(super) fn leave_deleted(&mut self, slot: usize) {
        let (made, format) = (self.outputs.len(), &self.core.format);
        self.split_deletes.sort_unstable();
        let deleted = |moved: &Move| self.split_deletes.binary_search(&moved.hash).is_ok();
        let stays = |moved: &Move| format.slot(moved.old) == slot && deleted(moved);
        self.moves.retain(|moved| moved.output < made && !stays(moved));
    }

    /// True if copying only part of `segments` gained something: a table; or, without bubbles, less garbage, or earlier
    /// places for records of the one that stays, and later places for none. So it comes to an end, however often it is
    /// done.
    pub(super) fn wins(&self, segments: &[Arc<Segment>]) -> bool {
        let (made, freed) = (self.outputs.len() as u64, self.freed());
        if made < freed {
            return true;
        }
        let places: BTreeMap<usize, usize> = segments.iter().map(|segment| segment.slot).zip(0..).collect();
        let forward = |moved: &Move| places[&self.core.format.slot(moved.old)].cmp(&moved.output);
        let gone = segments[..self.consumed].iter().filter_map(|segment| segment.meta());
        let is_less = self.outputs.iter().map(|done| done.meta.data_bytes).sum::<u64>()
            < gone.map(|meta| meta.data_bytes).sum::<u64>();
        self.reuse == Reuse::Off
            && made == freed
            && self.moves.iter().all(|moved| forward(moved).is_ge())
            && (is_less || self.moves.iter().any(|moved| forward(moved).is_gt()))
    }

    /// Number of tables that fit where the copied old ones are.
    fn freed(&self) -> u64 {
        self.core.media.tables_in_place_of(&self.numbers[..self.consumed])
    }

    /// True if it leaves no table for the next collection.
    pub(super) fn takes_the_last(&self) -> bool {
        let media = &self.core.media;
        let takes = !self.outputs.is_empty() && media.room_bytes().is_none();
        takes && media.tables_free() == 0 && self.freed() == 0
    }

    /// True if what was made belongs before a segment of this order.
    pub(super) fn ends_below(&self, order: u64) -> bool {
        self.outputs.last().is_none_or(|done| done.meta.order < order)
    }

    fn begin(&self) -> Result<Output> {
        let core = self.core;
        if self.outputs.len() >= core.free_slots() {
            return Err(Error::new(Kind::NoSpace, "the index can tell no more segments apart"));
        }
        let mut begun = core.begin_table(core.limits.table_bytes_min(), Cause::Gc, IoClass::Background)?;
        if self.reuse == Reuse::Off {
            begun.table.links_nothing();
        }
        let planner = Planner::new(
            core.unit_bytes(),
            core.options.reuse.caps,
            core.options.reuse.island_bytes_min.unwrap_or(0),
        );
        let origin = Origin {
            order: self.next_order(),
            log_floor: core.state.lock().floors.log_floor,
            sources: self.numbers.clone(),
            consumed: 0,
            gone: core.obsolete.retired(),
        };
        Ok(Output::new(begun, origin, self.reuse, planner))
    }

    /// The order of the next output: that of the old segment with the same index, if copying has come that far; else
    /// one behind the last output, with room for others. As long as there are no more outputs than old segments, their
    /// orders stay below that of what is behind.
    fn next_order(&self) -> u64 {
        let (made, copying) = (self.outputs.len(), self.consumed);
        let Some(last) = self.outputs.last().map(|done| done.meta.order) else { return self.orders[0] };
        if made <= copying {
            return self.orders[made].max(last + 1);
        }
        let behind = self.orders.get(copying + 1).copied().unwrap_or(self.order_behind);
        last + (behind.saturating_sub(last).min(ORDERS) / SPREAD).max(1)
    }

    /// Ends a segment, if one was begun, with `consumed` old ones copied completely.
    fn end(&mut self, writing: Option<Output>, consumed: usize) -> Result<()> {
        if let Some(output) = writing {
            self.outputs.push(output.finish(self.core.seed, consumed)?);
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
        segment.data(ReadContext { env: &*env, class: IoClass::Background })
    })
}

/// What of a segment is to be copied, as it lies: records that the index points to, deletes that are needed, and
/// bubbles. Reports the hashes of all its deletes.
fn live_parts(
    core: &Core,
    segment: &Segment,
    data: &[u8],
    deletes: bool,
    mut deleted: impl FnMut(u64),
) -> Result<Vec<Part>> {
    let (mut parts, mut sum) = (Vec::<Part>::new(), 0);
    segment.each(data, |offset, record, bytes| {
        let note: Option<Note> = record.map(|record| note_of(&record, core.seed, offset, bytes));
        sum = if note.is_some() { sum_with(sum, &data[offset as usize..]) } else { sum };
        note.iter().filter(|note| note.delete).for_each(|note| deleted(note.hash));
        let is_live = match &note {
            None => true,
            Some(note) if note.delete => deletes,
            Some(note) => core.index.points(note.hash, core.format.pointer(segment.slot, offset)),
        };
        if is_live {
            parts.push(Part { offset: offset as usize, bytes, note });
        }
    })?;
    segment.check_sum(sum)?;
    Ok(parts)
}
