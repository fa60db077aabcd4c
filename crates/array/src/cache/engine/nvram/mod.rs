//! A small region that keeps a cache's state across a power loss: entries of the metadata buffer, staged deltas, and
//! operations in flight (docs/decisions/0023-array-cache.md, "What is durable, and when").
//!
//! 1. Records are appended in the order of the policy's changes, under its lock; at any time a prefix of them is
//!    durable. An action that depends on records waits for them first (`Nvram::persist`).
//! 2. The region has two halves. When one is full, everything still valid is written to the other, and then its head.
//! 3. An intent is retired by a flush of the members that began after its sector was written.
//! 4. After a failed write the NVRAM is no longer written, and the cache is detached.
//! 5. Each opening and each close begins a new *session*, with a number that is stored in the cache's superblock, and a
//!    bond that is stored there and on the members. The session is recorded here before they store it, and that they
//!    have stored it is recorded here before anything else changes.

mod fitted;
mod record;
mod region;
mod state;

pub(super) use fitted::fitted;
pub use record::{Record, decode_batch, encode_batch};
pub use region::check_size;
pub(crate) use region::region_owner;
pub use region::{HALF_BYTES_MAX, HALF_BYTES_MIN, Head as HalfHead, Whose, read_region, replay};
pub(super) use region::{blank_head, half_bytes, half_sectors, last_generation};
pub use state::{Held, State};

use super::logger::Due;
use super::sums::Sums;
use crate::assemble::Device;
use crate::cache::metalog::ENTRIES_PER_LOG_PAGE;
use crate::cache::step::{LogEntry, PageNo};
use record::BATCH_HEAD;
use region::Region;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vellum_base::sync::{Condvar, Mutex, MutexGuard};
use vellum_base::{BlockDevice, Env, Kind, Lba, Result, SECTOR_BYTES};

/// Most bytes of records for a sector that is written: one delta, and the changes of pages for it.
pub(super) const WRITE_BYTES: usize = SECTOR_BYTES + 128;
/// Most bytes of records for a page that is dropped, and a row that is cleaned for that.
pub(super) const DROP_BYTES: usize = 64;

/// True if a cache can continue with this state. It may be too large because of entries for pages that were all dropped
/// at once; a request takes room, up to a quarter of a half, before any of them can be released.
pub(super) fn has_room(nvram: &dyn BlockDevice, state: &State) -> bool {
    let are_few = state.buffer.len() <= 2 * ENTRIES_PER_LOG_PAGE;
    are_few || state.weight() <= half_bytes(nvram) / 2
}

/// See the module.
pub(super) struct Nvram {
    inner: Mutex<Inner>,
    changed: Condvar,
    /// Signalled when there may be more room.
    roomier: Condvar,
    /// Bytes of a half, without its head.
    half_bytes: usize,
    /// Checksums of the SSD's pages.
    sums: Arc<Sums>,
    env: Arc<dyn Env>,
}

struct Inner {
    /// `None` once the device is released.
    region: Option<Region>,
    state: State,
    /// Encoded records that are not written yet.
    queue: Vec<u8>,
    /// Number of appends so far, and how many of these are durable.
    appended: u64,
    durable: u64,
    is_writing: bool,
    has_failed: bool,
    stamp: u64,
    /// Intents whose sectors have not been written yet.
    under_way: BTreeSet<u64>,
    /// Room reserved by requests for records still to come.
    reserved: usize,
    /// Pages whose content was begun, with the stamp, and has neither arrived nor failed.
    filling: BTreeMap<PageNo, u64>,
}

impl Inner {
    /// True if requests or pages are in flight, which may free room; pages only as long as there is an SSD.
    fn is_busy(&self, has_ssd: bool) -> bool {
        self.reserved > 0 || has_ssd && !(self.state.pending.is_empty() && self.state.unwritten.is_empty())
    }
}

/// Room for the records of a request; released when dropped.
pub(super) struct Room<'a>(&'a Nvram, usize);

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.0.inner.lock().reserved -= self.1;
        self.0.roomier.notify_all();
    }
}

/// Marks the arrival, or the failure, of a page's content; dropping it ends the wait for that content.
pub(super) struct Filling<'a>(&'a Nvram, PageNo, u64);

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.inner.lock();
        if inner.filling.get(&self.1) == Some(&self.2) {
            inner.filling.remove(&self.1);
        }
        self.0.changed.notify_all();
        self.0.wake();
    }
}

impl Nvram {
    /// Starts with a known state, which is durable on return.
    pub fn begin(
        env: Arc<dyn Env>,
        device: Device,
        whose: Whose,
        state: State,
        generation: u64,
        sums: Arc<Sums>,
    ) -> Result<Nvram> {
        let stamp = state.last_stamp();
        let mut region = Region::new(device, whose, generation);
        let half_bytes = region.half_bytes();
        region.switch(&state, env.random())?;
        let inner = Inner {
            region: Some(region),
            state,
            queue: Vec::new(),
            appended: 0,
            durable: 0,
            is_writing: false,
            has_failed: false,
            stamp,
            under_way: BTreeSet::new(),
            reserved: 0,
            filling: BTreeMap::new(),
        };
        Ok(Nvram {
            inner: Mutex::new(inner),
            changed: Condvar::new(),
            roomier: Condvar::new(),
            half_bytes,
            sums,
            env,
        })
    }

    /// Appends records as one unit for durability; returns what to [`Nvram::persist`]. The caller holds the policy's
    /// lock, so that they are in the order of its changes.
    pub fn append(&self, records: impl IntoIterator<Item = Record>) -> u64 {
        let inner = &mut *self.inner.lock();
        // The sum of a page that is being filled is corrected by `Filled`.
        for mut record in records {
            self.complete(&mut record);
            inner.state.apply(&record);
            if let Record::Begun(page, stamp) = record {
                inner.filling.insert(page, stamp);
            }
            // After a failure nobody would take them out of the queue.
            if !inner.has_failed {
                record.encode(&mut inner.queue);
            }
        }
        inner.appended += 1;
        self.roomier.notify_all();
        inner.appended
    }

    /// Returns a guard: when it is dropped, the content begun with this stamp has arrived or failed.
    pub fn ends(&self, page: PageNo, stamp: u64) -> Filling<'_> {
        Filling(self, page, stamp)
    }

    /// Wakes those who wait for room: there may be more, or none will come because the SSD is gone.
    pub fn wake(&self) {
        self.roomier.notify_all();
    }

    /// Waits until the contents that a log page's entries refer to have arrived or failed, and returns the entries.
    /// `None` if the page is not to be written.
    pub fn await_contents(&self, due: &Due) -> Option<Vec<LogEntry>> {
        let mut inner = self.inner.lock();
        loop {
            let entries = inner.state.unwritten.get(&due.sequence).filter(|_| !inner.has_failed)?;
            let comes =
                |entry: &LogEntry| inner.filling.get(&entry.page).is_some_and(|began| *began <= due.stamp);
            if !entries.iter().any(comes) {
                return Some(entries.clone());
            }
            self.changed.wait(&mut inner);
        }
    }

    /// Completes a record by the checksum of the page that it refers to.
    fn complete(&self, record: &mut Record) {
        match record {
            Record::Entry(entry) => *entry = self.sums.complete(entry),
            Record::Staged { base: page, sum, .. } | Record::Filled(page, _, sum) => {
                *sum = self.sums.get(*page)
            }
            _ => {}
        }
    }

    /// Records that the row's parity covers all its data, as far as was known when the stamp was drawn; false if a
    /// later record says that track of it was lost.
    pub fn cleaned(&self, row: u64, stamp: u64) -> bool {
        self.append([Record::Cleaned(row, stamp)]);
        !self.inner.lock().state.cleaning.contains_key(&row)
    }

    /// What to persist to make everything appended so far durable.
    pub fn appended(&self) -> u64 {
        self.inner.lock().appended
    }

    /// Records that the cache's superblock is about to get this session number, or that SSD and members have it.
    /// Durable on return; false if that failed.
    pub fn tell_session(&self, session: u64, is_told: bool) -> Result<bool> {
        self.persist(self.append([Record::Session(session, is_told)]))
    }

    /// Releases the device: its content is invalidated, nothing is written any more, and others may use it.
    pub fn let_go(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        while inner.is_writing {
            self.changed.wait(&mut inner);
        }
        inner.has_failed = true;
        let region = inner.region.take();
        drop(inner);
        self.changed.notify_all();
        self.roomier.notify_all();
        region.map_or(Ok(()), |region| region.blank())
    }

    /// A number that was not used before.
    pub fn stamp(&self) -> u64 {
        let mut inner = self.inner.lock();
        inner.stamp += 1;
        inner.stamp
    }

    /// The last number used.
    pub fn last_stamp(&self) -> u64 {
        self.inner.lock().stamp
    }

    /// A stamp for an intent, whose sector is about to be written.
    pub fn begin_intent(&self) -> u64 {
        let mut inner = self.inner.lock();
        inner.stamp += 1;
        let stamp = inner.stamp;
        inner.under_way.insert(stamp);
        stamp
    }

    /// The intent's sector was written, or that failed for good.
    pub fn end_intent(&self, stamp: u64) {
        self.inner.lock().under_way.remove(&stamp);
    }

    /// All intents below this have been written: a flush that begins now makes them durable.
    pub fn bound(&self) -> u64 {
        let inner = self.inner.lock();
        inner.under_way.first().copied().unwrap_or(inner.stamp + 1)
    }

    /// True if some of these sectors may not be durable.
    pub fn has_intents(&self, first: Lba, sectors: u64) -> bool {
        self.inner.lock().state.intents.range(first..first.offset(sectors)).next().is_some()
    }

    /// Records that sectors below the bound are durable; omitted if that retires no intent, as a guest that only
    /// flushes would otherwise fill the queue, which only writes empty.
    pub fn retire(&self, bound: u64) {
        let retires = self.inner.lock().state.intents.values().any(|stamp| *stamp < bound);
        if retires {
            self.append([Record::Retired(bound)]);
        }
    }

    /// True if there are rows that are no longer stale but may be marked on members.
    pub fn knows_whole_rows(&self) -> bool {
        self.inner.lock().state.has_whole()
    }

    /// Reserves this many bytes for records. `None` if intents and outdated marks take too much room: the members must
    /// be flushed and marks cleared first. There is no wait if nothing in flight can free room.
    pub fn room(&self, need: usize, has_ssd: impl Fn() -> bool) -> Option<Room<'_>> {
        // Never waits for more than can be free.
        let need = need.min(self.half_bytes / 4);
        let mut inner = self.inner.lock();
        loop {
            let has_room = inner.state.weight() + inner.reserved + need <= self.half_bytes / 4 * 3;
            let is_busy = inner.is_busy(has_ssd());
            if has_room || inner.has_failed || !is_busy && inner.state.weight_of_told() == 0 {
                inner.reserved += need;
                return Some(Room(self, need));
            }
            if inner.state.weight_of_told() > self.half_bytes / 8 || !is_busy {
                return None;
            }
            self.roomier.wait(&mut inner);
        }
    }

    /// How many operations with this many bytes of records fit at once.
    pub fn most_of(&self, bytes: usize) -> usize {
        (self.half_bytes / 4 / bytes).max(1)
    }

    /// Waits until all records up to `upto` are durable; false if that failed. An error means that the power is lost.
    pub fn persist(&self, upto: u64) -> Result<bool> {
        let mut inner = self.inner.lock();
        loop {
            match &*inner {
                Inner { has_failed: true, .. } => return Ok(false),
                Inner { durable, .. } if *durable >= upto => return Ok(true),
                Inner { is_writing: true, .. } => self.changed.wait(&mut inner),
                _ => inner = self.write_queue(inner)?,
            }
        }
    }

    /// Makes everything appended so far durable.
    pub fn persist_all(&self) -> Result<bool> {
        self.persist(self.appended())
    }

    fn write_queue<'a>(&'a self, mut inner: MutexGuard<'a, Inner>) -> Result<MutexGuard<'a, Inner>> {
        let Some(mut region) = inner.region.clone() else { return Ok(inner) }; // It counts as failed.
        inner.is_writing = true;
        let appended = inner.appended;
        let queue = std::mem::take(&mut inner.queue);
        let state = (!region.has_room(BATCH_HEAD + queue.len())).then(|| inner.state.clone());
        drop(inner);
        let result = match state {
            None => region.append(&queue),
            Some(state) => region.switch(&state, self.env.random()),
        };
        let mut inner = self.inner.lock();
        inner.is_writing = false;
        match &result {
            Ok(()) => (inner.region, inner.durable) = (Some(region), appended),
            Err(_) => inner.has_failed = true,
        }
        self.changed.notify_all();
        self.roomier.notify_all();
        match result {
            Err(error) if error.kind() == Kind::PowerLost => Err(error),
            _ => Ok(inner),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_media::{RamDisk, ramdisk::Power};
    use vellum_sim::Sim;

    fn with_nvram(test: impl FnOnce(&Nvram)) {
        let sim = Sim::new(1);
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            let device = RamDisk::new(128, &Power::new(1));
            let (sums, whose) = (Arc::new(Sums::new(0)), Whose::default());
            test(&Nvram::begin(env, device, whose, State::default(), 0, sums).unwrap());
        });
    }

    fn queued(nvram: &Nvram) -> usize {
        nvram.inner.lock().queue.len()
    }

    #[test]
    fn flushes_that_retire_nothing_leave_no_records() {
        with_nvram(|nvram| {
            let stamp = nvram.begin_intent();
            nvram.append([Record::Intent(Lba(7), stamp)]);
            nvram.end_intent(stamp);
            let before = queued(nvram);
            nvram.retire(nvram.bound());
            assert!(queued(nvram) > before && !nvram.has_intents(Lba(7), 1));
            let before = queued(nvram);
            (0..1000).for_each(|_| nvram.retire(nvram.bound()));
            assert_eq!(queued(nvram), before);
        });
    }

    #[test]
    fn records_that_nobody_will_write_are_not_kept() {
        with_nvram(|nvram| {
            nvram.let_go().unwrap();
            for row in 0..1000 {
                nvram.append([Record::Cleaned(row, 0)]);
            }
            assert!(nvram.knows_whole_rows());
            assert_eq!(queued(nvram), 0);
        });
    }
}
