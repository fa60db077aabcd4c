//! State shared by the parts of the engine, and the execution of jobs.
//!
//! 1. A row is *unknown* while its parity lacks deltas that are not known; it is only recomputed from data. A row
//!    becomes known again only under an exclusive turn at `Place::Parity`. It becomes unknown under one, too, or when a
//!    write to it fails.
//! 2. When the SSD is detached, parity is no longer deferred. Staged deltas stay valid.
//! 3. A deferred write is always carried through, as the policy relies on it. If a member is lost meanwhile, its rows
//!    are cleaned before the request is answered.

use super::brain::Brain;
use super::job::{Delta, Job, Jobs, Op, Source};
use super::log_page::LogPage;
use super::logger::Due;
use super::nvram::{Nvram, Record, Room};
use super::slot::{Promise, Slot};
use super::ssd::Ssd;
use super::turns::{Mode, Place, Turns};
use crate::array::Array;
use crate::cache::step::PageNo;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use vellum_base::sync::Mutex;
use vellum_base::{BlockDevice, Cause, Env, Error, Kind, Lba, Nanos, Result};
use vellum_codes::delta;

/// Locks that separate requests for the same sector.
const STRIPES: usize = 1024;

/// Counters for [`super::CacheStatus`].
#[derive(Default)]
pub(super) struct Counters {
    pub read_hits: AtomicU64,
    pub read_misses: AtomicU64,
    pub write_hits: AtomicU64,
    pub write_misses: AtomicU64,
    pub rows_cleaned: AtomicU64,
    pub rows_resynced: AtomicU64,
    pub cleaning_ns: AtomicU64,
    pub deltas_recomputed: AtomicU64,
    /// Number of requests, to see whether the array is idle.
    pub requests: AtomicU64,
    /// How often a row became unknown, or was to be tried again.
    pub lost_track: AtomicU64,
}

/// See the module.
pub(super) struct Core {
    pub env: Arc<dyn Env>,
    pub array: Array,
    pub ssd: Option<Ssd>,
    /// The same as in the brain.
    pub nvram: Option<Arc<Nvram>>,
    pub brain: Mutex<Brain>,
    pub turns: Arc<Turns>,
    pub stripes: Vec<Mutex<()>>,
    /// The same as in the brain.
    pub unknown: Arc<Mutex<BTreeSet<u64>>>,
    /// Unknown rows that could not be resynchronised, and were not known since.
    pub stuck: Mutex<BTreeSet<u64>>,
    pub counters: Counters,
    pub stale_rows_max: u64,
    pub opened_at: Nanos,
    /// Number of [`NothingPutOff`] guards.
    nothing_put_off: AtomicUsize,
    /// Held while the members' marks are cleared.
    pub telling: Mutex<()>,
}

/// While this guard exists, no more parity is deferred.
pub(super) struct NothingPutOff<'a>(&'a Core);

impl Drop for NothingPutOff<'_> {
    fn drop(&mut self) {
        self.0.nothing_put_off.fetch_sub(1, Relaxed);
    }
}

impl Core {
    pub fn new(
        array: Array,
        ssd: Option<Ssd>,
        mut brain: Brain,
        unknown: BTreeSet<u64>,
        stale_rows_max: u64,
    ) -> Core {
        let unknown = Arc::new(Mutex::new(unknown));
        brain.unknown = unknown.clone();
        Core {
            env: array.core().env.clone(),
            opened_at: array.core().env.now(),
            nothing_put_off: AtomicUsize::new(0),
            telling: Mutex::new(()),
            array,
            ssd,
            nvram: brain.nvram.clone(),
            brain: Mutex::new(brain),
            turns: Arc::default(),
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
            unknown,
            stuck: Mutex::default(),
            counters: Counters::default(),
            stale_rows_max,
        }
    }

    /// The SSD, unless it is detached.
    pub fn ssd(&self) -> Option<&Ssd> {
        self.ssd.as_ref().filter(|ssd| !ssd.is_detached())
    }

    /// Ends deferring for new writes; some may still be in flight without parity.
    pub fn put_nothing_off(&self) -> NothingPutOff<'_> {
        self.nothing_put_off.fetch_add(1, Relaxed);
        self.keep_up(&mut self.brain.lock());
        NothingPutOff(self)
    }

    /// Waits until writes in flight without parity have marked their rows stale.
    pub fn await_writes(&self) {
        for row in self.turns.rows() {
            let turn = {
                let _no_turn_grows_meanwhile = self.brain.lock();
                self.turns.take(vec![(Place::Parity(row), Mode::Alone)])
            };
            turn.wait();
        }
    }

    /// True if parity may be deferred.
    pub fn may_put_off(&self) -> bool {
        self.nothing_put_off.load(Relaxed) == 0 && self.array.lost_members() == 0
    }

    /// The row of a sector.
    pub fn row_of(&self, lba: Lba) -> u64 {
        self.array.row_of(lba)
    }

    /// Asks the policy, and carries out its answer.
    pub fn ask(
        &self,
        ask: impl FnOnce(&mut dyn crate::cache::Policy, &mut crate::cache::Steps),
    ) -> Result<()> {
        let mut jobs = Jobs::default();
        self.brain.lock().ask(&self.turns, &mut jobs, ask);
        self.carry_all(jobs.now, &[])
    }

    /// Carries out all jobs, one after the other; returns the first error.
    pub fn carry_all(&self, jobs: Vec<Job>, data: &[u8]) -> Result<()> {
        let results: Vec<Result<()>> = jobs.into_iter().map(|job| self.carry(job, data)).collect();
        results.into_iter().collect()
    }

    /// Carries out a job when it is its turn. `data` is the request's.
    pub fn carry(&self, job: Job, data: &[u8]) -> Result<()> {
        let Job { turn, op, after } = job;
        turn.wait();
        self.await_nvram(after)?;
        match op {
            Op::WriteArray { lba, bytes, fua, defer, promises, intents } => {
                let result = self.write_array(lba, &data[bytes], fua, defer);
                if let Some(nvram) = &self.nvram {
                    intents.into_iter().for_each(|stamp| nvram.end_intent(stamp));
                }
                result?;
                promises.into_iter().for_each(|(promise, range): (Promise, Range<usize>)| {
                    promise.keep(&data[range]);
                });
                Ok(())
            }
            Op::Fill { page, slot, cause, stamp } => self.fill(page, &slot, cause, stamp),
            Op::Promote { from, to } => self.promote(from, to),
            Op::Refresh { page, delta } => self.refresh(page, &delta),
            Op::Commit { page, content, stamp } => self.commit(page, &content, stamp),
            Op::Parity { row, parts, stamp } => self.update_parity(row, &parts, stamp),
            Op::Vacate { first, pages } => self.ssd().map_or(Ok(()), |ssd| ssd.discard(first, pages)),
            Op::Zero { lba, sectors, fua, stamp } => {
                self.array.write_zeroes(lba, sectors, fua)?;
                let rows = self.row_of(lba)..=self.row_of(Lba(lba.0 + sectors - 1));
                let unknown: Vec<u64> = self.unknown.lock().range(rows).copied().collect();
                let whole = unknown.into_iter().filter(|row| !self.array.is_stale(*row));
                whole.for_each(|row| self.is_whole(row, stamp));
                Ok(())
            }
        }
    }

    /// Waits until NVRAM records up to `upto` are durable. If they cannot be, the cache is detached.
    fn await_nvram(&self, upto: u64) -> Result<()> {
        let Some(nvram) = self.nvram.as_ref().filter(|_| upto > 0) else { return Ok(()) };
        if !nvram.persist(upto)?
            && let Some(ssd) = &self.ssd
        {
            ssd.detach("the NVRAM failed");
        }
        Ok(())
    }

    /// Makes all records appended to the NVRAM durable.
    pub fn persist_all(&self) -> Result<()> {
        self.await_nvram(self.nvram.as_ref().map_or(0, |nvram| nvram.appended()))
    }

    /// Appends a record that does not come from a step of the policy.
    fn record(&self, record: Record) {
        if let Some(nvram) = &self.nvram {
            nvram.append([record]);
        }
    }

    /// Takes this many bytes of room in the NVRAM.
    pub fn room(&self, bytes: usize) -> Result<Option<Room<'_>>> {
        let Some(nvram) = &self.nvram else { return Ok(None) };
        loop {
            if let Some(room) = nvram.room(bytes, || self.ssd().is_some()) {
                return Ok(Some(room));
            }
            self.flush()?;
            self.tell_whole_rows()?;
        }
    }

    /// Makes all written data durable, and retires their intents.
    pub fn flush(&self) -> Result<()> {
        let bound = self.nvram.as_ref().map(|nvram| nvram.bound());
        BlockDevice::flush(&self.array)?;
        if let (Some(nvram), Some(bound)) = (&self.nvram, bound) {
            nvram.retire(bound);
        }
        Ok(())
    }

    fn write_array(&self, lba: Lba, data: &[u8], fua: bool, defer: bool) -> Result<()> {
        let row = self.row_of(lba);
        // Read once: the SSD may be detached at any moment.
        let is_attached = self.ssd().is_some();
        if defer && !is_attached {
            // The policy has a delta of this, which parity will not lack.
            self.lose_track(row);
        }
        if !defer || !is_attached {
            return self.array.write(lba, data, fua);
        }
        let is_unknown = self.unknown.lock().contains(&row);
        let result = match self.array.write_without_parity_update(lba, data, fua) {
            Err(error) if error.kind() == Kind::Unsupported && !is_unknown => {
                self.array.write_data_only(lba, data, fua)
            }
            result => result,
        };
        if result.is_err() {
            self.lose_track(row);
        }
        result
    }

    fn fill(&self, page: PageNo, slot: &Slot, cause: Cause, stamp: u64) -> Result<()> {
        let _ends = self.nvram.as_ref().map(|nvram| nvram.ends(page, stamp));
        let Some(ssd) = self.ssd() else { return Ok(()) };
        // An array that has ended may hold less now than after the next opening has replayed its log.
        let content = slot.wait().filter(|_| self.array.core().check_writable().is_ok());
        let written = match content {
            Some(content) => ssd.write_page(page, &content, cause)?,
            None => false,
        };
        match written {
            true => self.record(Record::Filled(page, stamp, None)),
            false => ssd.spoil(page)?,
        }
        Ok(())
    }

    fn promote(&self, from: PageNo, to: PageNo) -> Result<()> {
        let Some(ssd) = self.ssd() else { return Ok(()) };
        let written = match ssd.read_page(from) {
            Ok(content) => ssd.write_page(to, &content, Cause::CacheFill)?,
            Err(_) => false,
        };
        if written { Ok(()) } else { ssd.spoil(to) }
    }

    fn refresh(&self, page: PageNo, delta: &Delta) -> Result<()> {
        let Some(ssd) = self.ssd() else { return Ok(()) };
        match self.read_changed(page, delta) {
            Ok(content) => ssd.write_page(page, &content, Cause::CacheWrite).map(drop),
            Err(error) if error.kind() == Kind::PowerLost => Err(error),
            Err(_) => ssd.spoil(page),
        }
    }

    fn commit(&self, page: PageNo, content: &[u8], stamp: u64) -> Result<()> {
        let _ends = self.nvram.as_ref().map(|nvram| nvram.ends(page, stamp));
        let Some(ssd) = self.ssd() else { return Ok(()) };
        if ssd.write_page(page, content, Cause::Delta)? {
            self.record(Record::Filled(page, stamp, None));
        }
        Ok(())
    }

    /// Writes a page of the log once its entries' contents are there. For `logger.rs`.
    pub fn write_log_page(&self, due: Due) -> Result<()> {
        let Due { sequence, head, .. } = due;
        self.await_nvram(due.after)?;
        let Some(nvram) = &self.nvram else { return Ok(()) };
        let entries = nvram.await_contents(&due);
        if let (Some(ssd), Some(entries)) = (self.ssd(), entries) {
            let page = LogPage { tag: ssd.tag, sequence, head, entries };
            let sector = ssd.plot.log_sector(sequence);
            if ssd.write_sector(sector, &page.encode(), Cause::CacheMetadata)? {
                self.record(Record::LogWritten(sequence));
                return Ok(());
            }
        }
        nvram.wake();
        Ok(())
    }

    /// The encoded form of a delta. `read` caches the delta page read last.
    pub fn coded(&self, delta: &Delta, read: &mut Option<(PageNo, Vec<u8>)>) -> Result<Arc<[u8]>> {
        match delta {
            Delta::Here(coded) => Ok(coded.clone()),
            Delta::In(stored) => {
                let ssd = self.needed_ssd()?;
                if read.as_ref().is_none_or(|(held, _)| *held != stored.home) {
                    *read = Some((stored.home, ssd.read_unchecked(stored.home)?));
                }
                let (_, page) = read.as_ref().expect("just read");
                let found = super::delta_page::find(page, ssd.tag, stored);
                let (coded, sum) = found.inspect_err(|_| ssd.count_wrong())?;
                ssd.sums.learn(stored.base, sum);
                Ok(coded)
            }
        }
    }

    /// The cache's content of a sector, if it is readable. The caller has the turn for it.
    pub fn content(&self, source: &Source) -> Option<Vec<u8>> {
        match source {
            Source::Array => None,
            Source::Page(page) => self.read_page(*page).ok(),
            Source::Changed(base, delta) => self.read_changed(*base, delta).ok(),
        }
    }

    /// Reads a data page.
    pub fn read_page(&self, page: PageNo) -> Result<Vec<u8>> {
        self.needed_ssd()?.read_page(page)
    }

    /// Reads a data page that is the base of this delta; reads the delta first, as its page may have the base's
    /// checksum.
    pub fn read_base_with(&self, base: PageNo, delta: Option<&Delta>) -> Result<Vec<u8>> {
        if let Some(delta) = delta {
            self.coded(delta, &mut None)?;
        }
        self.read_page(base)
    }

    /// Reads a data page and applies a delta to it.
    pub fn read_changed(&self, base: PageNo, delta: &Delta) -> Result<Vec<u8>> {
        // First: the checksum of the base may come with it.
        let coded = self.coded(delta, &mut None)?;
        let mut out = self.read_page(base)?;
        apply(&coded, &mut out)?;
        Ok(out)
    }

    /// The SSD, or an error.
    pub fn needed_ssd(&self) -> Result<&Ssd> {
        self.ssd().ok_or_else(|| Error::new(Kind::Io, "the cache is detached"))
    }

    /// Current time.
    pub fn now(&self) -> Nanos {
        self.env.now()
    }
}

/// Applies an encoded delta.
pub(super) fn apply(coded: &[u8], page: &mut [u8]) -> Result<()> {
    delta::apply(coded, page).map_err(|error| Error::corrupt(error.to_string()))
}
