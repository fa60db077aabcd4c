//! State shared by all parts of an open log store.
//!
//! Lock order: `writer`, `moves`, the lock of `Obsolete::erase`, `manifest`, `state`. `wal` and the locks of the index
//! are innermost: no other lock is taken while they are held. Background tasks never take `writer`, so a writer may
//! wait for them while it holds it.
//!
//! Invariants
//! 1. A pointer of the index refers to a segment of the view that is current when the index is read. A reader checks
//!    after reading the index that its view is still the current one; then it may follow the pointer as long as it
//!    holds the view.
//! 2. A slot is reused only when the current view does not have it any more.
//! 3. Of two records of a key, the later one is in a segment of higher order, or further on in the same segment.

use super::collect::Collected;
use super::hint::{SEGMENT_UNIT_BYTES, hash_of};
use super::index::{Index, Pointer};
use super::open_segment::Frozen;
use super::options::{Limits, Options};
use super::pointer::PointerFormat;
use super::room::Prospects;
use super::segment::{ReadContext, Segment};
use super::writer::Writer;
use crate::durable::Durable;
use crate::freewrite::Reuse;
use crate::freewrite::in_force;
use crate::journal::{Area, Edit, Floors, SegmentMeta, Wal};
use crate::key::EntryKind;
use crate::lifetime::{Counts, Lifetime};
use crate::manifest::Manifest;
use crate::media::{Intent, Media, Parallelism, Sharing, TableWriter};
use crate::obsolete::Obsolete;
use crate::shared::{Health, Shared};
use crate::swap::{ArcSwap, Guard};
use std::collections::VecDeque;
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_base::{Cause, Env, Error, IoClass, Kind, Result};

/// Most tables that are tried and found too small for what is to be written.
const TRIES: usize = 8;

/// See the module.
pub(crate) struct Core {
    pub env: Arc<dyn Env>,
    pub media: Arc<dyn Media>,
    pub options: Options,
    pub limits: Limits,
    pub format: PointerFormat,
    /// How units can be in two tables, if that is wanted.
    pub sharing: Sharing,
    /// What keys are hashed with.
    pub seed: u64,
    pub index: Index,
    /// Replaced with `state` held.
    pub view: ArcSwap<View>,
    pub writer: Mutex<Writer>,
    pub wal: Mutex<Wal>,
    /// Held while pointers of the index are changed.
    pub moves: Mutex<()>,
    pub manifest: Mutex<CurrentManifest>,
    pub state: Shared<State>,
    pub next_number: AtomicU64,
    pub obsolete: Arc<Obsolete>,
    pub counts: Counts,
    pub looks: Looks,
    pub collected: Mutex<Collected>,
    /// Counters from before this opening.
    pub before: Lifetime,
}

/// What readers read from: segments by their slots.
#[derive(Clone, Default)]
pub(crate) struct View {
    pub segments: Vec<Option<Arc<Segment>>>,
}

/// The manifest, and what it says.
pub(crate) struct CurrentManifest {
    pub manifest: Manifest,
    /// In their order.
    pub segments: Vec<SegmentMeta>,
}

/// What background tasks work on.
#[derive(Default)]
pub(crate) struct State {
    pub health: Health,
    /// Oldest first.
    pub frozen: VecDeque<Arc<Frozen>>,
    pub floors: Floors,
    /// Slots taken, in the view or about to be.
    pub slots: Vec<bool>,
    /// Writers wait for room.
    pub is_short: bool,
    /// A segment is being written to a table.
    pub is_sealing: bool,
    /// A collection runs.
    pub is_collecting: bool,
    /// Compactions on request that wait until none does.
    pub compactions: usize,
    /// The prospects when collecting last found no room.
    pub found_no_room: Option<Prospects>,
    /// [`Obsolete::rounds`] when the store began to rest.
    pub rested_rounds: u64,
}

/// Looks into segments.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    pub records: AtomicU64,
    /// Of these, records of other keys.
    pub wrong: AtomicU64,
}

/// A table that was begun.
pub(crate) struct NewTable {
    pub number: u64,
    pub table: Box<dyn TableWriter>,
}

impl NewTable {
    /// One that can have `bytes`.
    pub(crate) fn on(
        media: &dyn Media,
        number: impl Fn() -> u64,
        intent: Intent,
        bytes: u64,
    ) -> Result<NewTable> {
        let mut too_small = Vec::new();
        while too_small.len() < TRIES {
            let number = number();
            let table = media.create_table(number, intent)?;
            if table.capacity() >= bytes {
                return Ok(NewTable { number, table });
            }
            too_small.push(table);
        }
        Err(Error::new(Kind::NoSpace, format!("no table that is free can have {bytes} bytes")))
    }
}

impl View {
    pub(crate) fn segment(&self, slot: usize) -> Result<&Arc<Segment>> {
        let segment = self.segments.get(slot).and_then(Option::as_ref);
        segment.ok_or_else(|| Error::corrupt("the index names a segment that is not there"))
    }

    /// All of them, the oldest first.
    pub(crate) fn in_order(&self) -> Vec<Arc<Segment>> {
        let mut all: Vec<_> = self.segments.iter().flatten().cloned().collect();
        all.sort_by_key(|segment| segment.order);
        all
    }

    pub(crate) fn put(&mut self, segment: Arc<Segment>) {
        let slot = segment.slot;
        if self.segments.len() <= slot {
            self.segments.resize(slot + 1, None);
        }
        self.segments[slot] = Some(segment);
    }
}

impl State {
    /// True if something is under way that may give room back.
    pub(crate) fn is_busy(&self) -> bool {
        let is_collected = self.is_collecting || self.compactions > 0;
        is_collected || self.is_sealing || !self.health.is_resting() && !self.frozen.is_empty()
    }

    /// True if the background may begin a collection: one runs at a time, and a compaction on request comes first.
    pub(crate) fn may_collect(&self) -> bool {
        !self.is_collecting && self.compactions == 0
    }
}

impl AsMut<Health> for State {
    fn as_mut(&mut self) -> &mut Health {
        &mut self.health
    }
}

impl Durable for Core {
    type State = State;
    fn shared(&self) -> &Shared<State> {
        &self.state
    }
    fn wal(&self) -> &Mutex<Wal> {
        &self.wal
    }
    fn media(&self) -> &dyn Media {
        &*self.media
    }
    fn obsolete(&self) -> &Obsolete {
        &self.obsolete
    }
}

impl Core {
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        hash_of(self.seed, key)
    }

    pub(crate) fn reading(&self, class: IoClass) -> ReadContext<'_> {
        ReadContext { env: &*self.env, class }
    }

    /// Pointers of keys whose hash may be this one, and the view in which they can be followed.
    pub(crate) fn candidates(&self, hash: u64, found: &mut Vec<Pointer>) -> Guard<Arc<View>> {
        loop {
            let view = self.view.load();
            found.clear();
            self.index.candidates(hash, found);
            if Arc::ptr_eq(&view, &*self.view.load()) {
                return view;
            }
        }
    }

    /// The value of `key`.
    pub(crate) fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        self.env.charge(self.options.cpu.get);
        let mut pointers = Vec::new();
        let view = self.candidates(self.hash(key), &mut pointers);
        for pointer in pointers {
            let segment = view.segment(self.format.slot(pointer))?;
            let reading = self.reading(IoClass::Foreground);
            let found = segment.record(reading, self.format.offset(pointer), |record, _| {
                let is_it = record.key == key && record.kind == EntryKind::Put;
                if is_it {
                    out.clear();
                    out.extend_from_slice(record.value);
                }
                is_it
            })?;
            self.looks.records.fetch_add(1, Relaxed);
            if found {
                return Ok(true);
            }
            self.looks.wrong.fetch_add(1, Relaxed);
        }
        Ok(false)
    }

    /// A number for a table or an area, never used before.
    pub(crate) fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Relaxed)
    }

    /// A slot for a segment.
    pub(crate) fn take_slot(&self) -> Result<usize> {
        let mut state = self.state.lock();
        let slot = state.slots.iter().position(|taken| !taken).unwrap_or(state.slots.len());
        if slot >= self.format.slots() {
            let most = self.format.slots();
            return Err(Error::new(
                Kind::NoSpace,
                format!("the index can tell {most} segments apart, no more"),
            ));
        }
        match state.slots.get_mut(slot) {
            Some(taken) => *taken = true,
            None => state.slots.push(true),
        }
        Ok(slot)
    }

    /// Slots that nobody has taken.
    pub(crate) fn free_slots(&self) -> usize {
        let taken = self.state.lock().slots.iter().filter(|taken| **taken).count();
        self.format.slots().saturating_sub(taken)
    }

    pub(crate) fn give_slot(&self, slot: usize) {
        self.state.lock().slots[slot] = false;
    }

    /// Begins a table that can have `bytes`. One that was used less than another may have fewer good blocks.
    pub(crate) fn begin_table(&self, bytes: u64, cause: Cause, class: IoClass) -> Result<NewTable> {
        let intent = Intent { cause, class, parallelism: Parallelism::Full };
        self.erase_obsolete()?;
        NewTable::on(&*self.media, || self.number(), intent, bytes)
    }

    /// Makes an edit durable, and the view follow it.
    pub(crate) fn install(&self, edit: Edit, change: impl FnOnce(&mut State, &mut View)) -> Result<()> {
        let current = &mut *self.manifest.lock();
        self.state.check_writable()?;
        let mut segments: Vec<SegmentMeta> = current
            .segments
            .iter()
            .filter(|meta| !edit.segments_gone.contains(&meta.number))
            .copied()
            .collect();
        segments.extend(&edit.segments);
        segments.sort_by_key(|meta| meta.order);
        let floors = self.state.lock().floors.after(&edit);
        let edit =
            Edit { lifetime: self.lifetime(), next_number: Some(self.next_number.load(Relaxed)), ..edit };
        let whole = || {
            let (seed, segments) = (Some(self.seed), segments.clone());
            floors.recorded_in(Edit { seed, segments, segments_gone: Vec::new(), ..edit.clone() })
        };
        let appended = current.manifest.append(&edit, whole, || self.number());
        appended.map_err(|error| self.state.refused_or_poisoned(error))?;
        current.segments = segments;
        let mut state = self.state.lock();
        state.floors = floors;
        let mut next = (**self.view.load()).clone();
        change(&mut state, &mut next);
        let old = self.view.swap(Arc::new(next));
        drop(state);
        drop(old); // may be the last to hold a segment
        self.state.wake_all();
        Ok(())
    }

    /// Changes the view alone.
    pub(crate) fn show(&self, change: impl FnOnce(&mut View)) {
        let state = self.state.lock();
        let mut next = (**self.view.load()).clone();
        change(&mut next);
        let old = self.view.swap(Arc::new(next));
        drop(state);
        drop(old);
    }

    /// Removes logs that are in tables.
    pub(crate) fn remove_logs(&self, logs: &[u64]) -> Result<()> {
        logs.iter().try_for_each(|log| self.media.remove_area(Area::log(*log)))
    }

    /// What is done now with records that need not change.
    pub(crate) fn reuse(&self) -> Reuse {
        in_force(self.options.reuse.mode, &*self.media)
    }

    /// Records keep their place in these when they are collected.
    pub(crate) fn unit_bytes(&self) -> u64 {
        self.options.reuse.unit_bytes.unwrap_or(SEGMENT_UNIT_BYTES as u64)
    }

    /// What the store did since it was made.
    pub(crate) fn lifetime(&self) -> Lifetime {
        self.before.with(&self.counts, self.sharing, &*self.media)
    }
}

#[cfg(test)]
mod tests {
    use crate::log::{Options, Store};
    use crate::map::Map;
    use crate::media::{Directory, DirectoryOptions};
    use std::sync::Arc;
    use vellum_base::{Env, Error, Kind, Nanos, RealEnv};

    #[test]
    fn a_write_that_began_before_the_store_failed_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let media = Directory::open(dir.path(), DirectoryOptions::default()).unwrap();
        let env = RealEnv::new();
        let store = Arc::new(Store::open(media, env.clone(), Options::default()).unwrap());
        let writer = store.core.writer.lock();
        let put = {
            let store = store.clone();
            move || assert_eq!(store.put(b"k", b"v").unwrap_err().kind(), Kind::Poisoned)
        };
        let task = env.clone().spawn("writer", Box::new(put));
        env.sleep_until(env.now() + Nanos::from_ms(50)); // it waits for the lock
        store.core.state.poison(Error::new(Kind::Io, "a sync failed"));
        drop(writer);
        task.join();
        assert_eq!(store.get(b"k").unwrap(), None);
    }
}
