//! Requests: the policy's answer for each sector, and the transfer of data.
//!
//! 1. Requests for the same sector are kept apart while the policy is asked (`Core::apart`): so the base of a delta
//!    still has the content that the delta was made against, or the policy no longer knows that base. A page whose
//!    content never arrived, as that could not be read, cannot be a base: the policy forgets it.
//! 2. A request that waits for a turn holds only these locks, and no holder of a turn waits for them.
//! 3. What the array refuses is tried again once its row is clean, with exclusive access to the row. What the cache had
//!    of it is dropped. If it is refused again and the row is unknown, it is written without parity.
//! 4. Once the SSD is detached, writes bypass the cache, but come after those that it has in flight.

use super::brain::Brain;
use super::cached::CachedArray;
use super::core::Core;
use super::job::{Asked, Delta, Job, Jobs, Op, Prior, Source};
use super::nvram::{DROP_BYTES, WRITE_BYTES};
use super::slot::Promise;
use super::turns::{Mode, Place, Turn};
use crate::cache::staging::encode_delta;
use crate::lane::{Call, together};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vellum_base::sync::MutexGuard;
use vellum_base::{Allocation, BlockDevice, DeviceInfo, Kind, Lba, Result, SECTOR_BYTES};

/// Sectors of a request for which the policy is asked under one lock.
const SECTORS_AT_ONCE: usize = 256;
/// Rows zeroed at a time.
const ROWS_AT_ONCE: u64 = 64;

/// A planned read of a sector.
type Planned = (Source, Turn, Option<Promise>);
/// The page that a write finds, and the delta to it.
type Found = Option<(Prior, Option<Arc<[u8]>>)>;

impl BlockDevice for CachedArray {
    fn info(&self) -> DeviceInfo {
        self.core.array.info()
    }

    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()> {
        self.core.array.bounds().check_buffer(lba, buf.len())?;
        self.core.counters.requests.fetch_add(1, Relaxed);
        if self.core.ssd().is_none() {
            let sectors = (buf.len() / SECTOR_BYTES) as u64;
            return self.core.past(lba, sectors, || self.core.array.read(lba, buf));
        }
        let chunks = buf.chunks_mut(SECTORS_AT_ONCE * SECTOR_BYTES);
        let firsts = (lba.0..).step_by(SECTORS_AT_ONCE);
        firsts.zip(chunks).try_for_each(|(first, out)| self.read_some(Lba(first), out))
    }

    fn write(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        self.core.array.bounds().check_buffer(lba, data.len())?;
        self.core.counters.requests.fetch_add(1, Relaxed);
        let most = self.core.nvram.as_ref().map_or(SECTORS_AT_ONCE, |nvram| nvram.most_of(WRITE_BYTES));
        let at_once = most.min(SECTORS_AT_ONCE);
        let firsts = (lba.0..).step_by(at_once);
        let chunks = data.chunks(at_once * SECTOR_BYTES);
        let written = firsts.zip(chunks).try_for_each(|(first, data)| {
            let sectors = (data.len() / SECTOR_BYTES) as u64;
            let written = match self.core.ssd() {
                Some(_) => self.write_some(Lba(first), data, fua),
                None => self.core.past(Lba(first), sectors, || self.core.write_past(Lba(first), data, fua)),
            };
            written.or_else(|refused| self.core.write_unread(Lba(first), data, fua, refused))
        });
        // Includes what was written before an error.
        let settled = self.core.settle_written(lba, (data.len() / SECTOR_BYTES) as u64, fua);
        written.and(settled)
    }

    fn trim(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.zero(lba, sectors, false)
    }

    fn write_zeroes(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        self.zero(lba, sectors, fua)?;
        self.core.settle_written(lba, sectors, fua)
    }

    /// The data are on the array, so the cache need not be flushed, unless a member is lost: then its data are computed
    /// from parity, which must be current. This flush may be what detects the loss.
    fn flush(&self) -> Result<()> {
        if self.core.array.lost_members() == 0 {
            self.core.flush()?;
            if self.core.array.lost_members() == 0 {
                return Ok(());
            }
        }
        self.flush_degraded()
    }

    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)> {
        self.core.array.allocation(lba, sectors)
    }
}

impl CachedArray {
    fn read_some(&self, lba: Lba, out: &mut [u8]) -> Result<()> {
        self.wait_for_room();
        let planned = self.plan_reads(lba, (out.len() / SECTOR_BYTES) as u64);
        // Jobs that fill pages wait for reads from the array; reads of pages may wait for these jobs. So the array
        // comes first.
        let (array, pages): (Vec<_>, Vec<_>) =
            (0..).zip(planned).partition(|(_, (source, ..))| matches!(source, Source::Array));
        let mut failed = Vec::new();
        self.read_planned(lba, array, out, &mut failed)?;
        self.read_planned(lba, pages, out, &mut failed)?;
        // All of them are retried, whatever the results, as each is dropped from the cache.
        let again = failed.into_iter().map(|(at, was_cached)| {
            let to = &mut out[at * SECTOR_BYTES..][..SECTOR_BYTES];
            self.core.read_anyhow(Lba(lba.0 + at as u64), was_cached, to)
        });
        again.collect::<Vec<_>>().into_iter().collect()
    }

    /// Reads sectors concurrently; adds those that failed to `failed`, with whether they were to come from the cache.
    fn read_planned(
        &self,
        lba: Lba,
        planned: Vec<(usize, Planned)>,
        out: &mut [u8],
        failed: &mut Vec<(usize, bool)>,
    ) -> Result<()> {
        planned.iter().for_each(|(_, (_, turn, _))| turn.wait());
        let runs = runs(&planned);
        let calls = runs.iter().map(|run| {
            let (first, (source, ..)) = &planned[run.start];
            let run = self.core.clone().reading(source, Lba(lba.0 + *first as u64), run.len());
            Call { lanes: &self.io, run }
        });
        let results = together(calls.collect());
        let mut planned = planned.into_iter();
        for (run, result) in runs.into_iter().zip(results) {
            if matches!(&result, Err(error) if error.kind() == Kind::PowerLost) {
                return result.map(drop);
            }
            for (i, (at, (source, _turn, promise))) in (0..run.len()).zip(&mut planned) {
                let to = &mut out[at * SECTOR_BYTES..][..SECTOR_BYTES];
                match &result {
                    Ok(bytes) => {
                        to.copy_from_slice(&bytes[i * SECTOR_BYTES..][..SECTOR_BYTES]);
                        promise.into_iter().for_each(|promise| promise.keep(to));
                    }
                    Err(_) => failed.push((at, !matches!(source, Source::Array))),
                }
            }
        }
        Ok(())
    }

    /// Waits while too many jobs or log pages are queued.
    fn wait_for_room(&self) {
        self.behind.wait_for_room();
        if let Some(logger) = &self.logger {
            logger.wait_for_room();
        }
    }

    fn plan_reads(&self, lba: Lba, sectors: u64) -> Vec<Planned> {
        let core = &self.core;
        let _apart = core.apart(lba, sectors);
        let mut brain = core.brain.lock();
        core.keep_up(&mut brain);
        let mut jobs = Jobs::default();
        let lbas = (lba.0..lba.0 + sectors).map(Lba);
        let planned: Vec<Planned> = lbas.map(|lba| brain.read(&core.turns, &mut jobs, lba)).collect();
        self.behind.push(core, jobs.behind);
        let misses = planned.iter().filter(|(source, ..)| matches!(source, Source::Array)).count() as u64;
        core.counters.read_misses.fetch_add(misses, Relaxed);
        core.counters.read_hits.fetch_add(sectors - misses, Relaxed);
        planned
    }

    fn write_some(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        let core = &self.core;
        let sectors = (data.len() / SECTOR_BYTES) as u64;
        let _room = core.room(data.len() / SECTOR_BYTES * WRITE_BYTES)?;
        let mut result = Ok(());
        for again in [false, true] {
            self.wait_for_room();
            core.keep_bound()?;
            result = self.try_write(lba, data, fua, again);
            match &result {
                Ok(()) => break,
                Err(error) if error.kind() == Kind::PowerLost => return result,
                Err(_) => core.drop_range(lba, sectors),
            }
        }
        core.wake_cleaner();
        result
    }

    /// With `again`, rows are cleaned first, with exclusive access to them.
    fn try_write(&self, lba: Lba, data: &[u8], fua: bool, again: bool) -> Result<()> {
        let core = &self.core;
        let sectors = (data.len() / SECTOR_BYTES) as u64;
        let mut jobs = Jobs::default();
        {
            let _apart = core.apart(lba, sectors);
            let found = self.find(lba, data)?;
            let mut brain = core.brain.lock();
            core.keep_up(&mut brain);
            if again {
                core.ask_to_clean(&mut brain, &mut jobs, lba, sectors);
            }
            let mut hits = 0;
            for (i, found) in found.into_iter().enumerate() {
                let lba = Lba(lba.0 + i as u64);
                hits += u64::from(brain.policy.newest(lba) != crate::cache::Newest::Array);
                let found = found.filter(|(prior, _)| brain.prior(lba) == Some(*prior));
                if found.as_ref().is_some_and(|(prior, _)| core.is_void(prior)) {
                    brain.ask(&core.turns, &mut jobs, |policy, steps| policy.forget(lba, steps));
                }
                let delta = found.and_then(|(_, delta)| delta);
                let asked = Asked { lba, at: i * SECTOR_BYTES, fua, delta, alone: again };
                brain.write(&core.turns, &mut jobs, &asked);
            }
            self.behind.push(core, std::mem::take(&mut jobs.behind));
            core.counters.write_hits.fetch_add(hits, Relaxed);
            core.counters.write_misses.fetch_add(sectors - hits, Relaxed);
        }
        core.carry_all(jobs.now, data)
    }

    /// The pages that a write finds, and deltas to those that are bases.
    fn find(&self, lba: Lba, data: &[u8]) -> Result<Vec<Found>> {
        let core = &self.core;
        let priors: Vec<Option<(Prior, Option<Delta>, Turn)>> = {
            let brain = core.brain.lock();
            let lbas = (0..data.len() / SECTOR_BYTES).map(|i| Lba(lba.0 + i as u64));
            lbas.map(|lba| brain.prior(lba).map(|prior| core.find_base(&brain, lba, prior))).collect()
        };
        priors.iter().flatten().for_each(|(.., turn)| turn.wait());
        let bases = priors.iter().flatten().filter(|(prior, ..)| prior.is_base);
        let calls = bases.map(|(prior, delta, _)| {
            let (core, page, delta) = (core.clone(), prior.page, delta.clone());
            Call { lanes: &self.io, run: Box::new(move || core.read_base_with(page, delta.as_ref())) }
        });
        let mut read = together(calls.collect()).into_iter();
        let mut found = Vec::with_capacity(priors.len());
        for (prior, new) in priors.into_iter().zip(data.chunks(SECTOR_BYTES)) {
            let Some((prior, _, _turn)) = prior else {
                found.push(None);
                continue;
            };
            let delta = match prior.is_base.then(|| read.next().expect("each base was read")) {
                Some(Ok(old)) => encode(&old, new),
                Some(Err(error)) if error.kind() == Kind::PowerLost => return Err(error),
                Some(Err(_)) | None => None,
            };
            found.push(Some((prior, delta)));
        }
        Ok(found)
    }

    fn zero(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        self.core.array.bounds().check_range(lba, sectors)?;
        let core = &self.core;
        core.counters.requests.fetch_add(1, Relaxed);
        let (end, per_row) = (lba.0 + sectors, core.brain.lock().row_sectors);
        let (at_once, bytes) = core.rows_at_once();
        let mut first = lba.0;
        while first < end {
            let next = ((first / per_row + at_once) * per_row).min(end);
            let _room = core.room(bytes)?;
            // Also with a detached cache: deltas of these rows may still be on their way to parity.
            if core.ssd.is_none() {
                core.array.write_zeroes(Lba(first), next - first, fua)?;
            } else {
                match core.zero_some(first..next, fua, false) {
                    Err(error) if error.kind() != Kind::PowerLost => {
                        core.zero_some(first..next, fua, true)?;
                    }
                    result => result?,
                }
            }
            first = next;
        }
        Ok(())
    }
}

impl Core {
    /// A turn at the page that a write finds, and the delta of that page if it has the page's checksum.
    fn find_base(&self, brain: &Brain, lba: Lba, prior: Prior) -> (Prior, Option<Delta>, Turn) {
        let is_with_delta = self.ssd().is_some_and(|ssd| ssd.sums.is_with_delta(prior.page));
        let (source, turn) = match is_with_delta {
            true => brain.find(&self.turns, lba),
            false => (Source::Array, self.turns.take(vec![(Place::Page(prior.page), Mode::Shared)])),
        };
        let delta = if let Source::Changed(_, delta) = source { Some(delta) } else { None };
        (prior, delta, turn)
    }

    /// Number of rows zeroed at a time, and the room that their records take in NVRAM.
    fn rows_at_once(&self) -> (u64, usize) {
        let Some(nvram) = &self.nvram else { return (ROWS_AT_ONCE, 0) };
        let rows = nvram.most_of(self.row_bytes()).min(ROWS_AT_ONCE as usize);
        (rows as u64, rows * self.row_bytes())
    }

    /// Most bytes of records in NVRAM for a row that is dropped: all its pages are in one set.
    pub fn row_bytes(&self) -> usize {
        let ways = self.ssd.as_ref().map_or(0, |ssd| ssd.plot.ways.into());
        (self.array.core().shape.row_sectors().min(ways) as usize + 1) * DROP_BYTES
    }

    /// Called before a write is answered. With a member out, the parity of its rows must be current, and their marks
    /// cleared if the write is to be durable: otherwise a power loss would lose the member's sectors. Parity of some
    /// may already have been deferred when the member was lost. A row whose parity cannot be updated stays stale; then
    /// the write fails if it includes sectors that only the parity could tell.
    fn settle_written(&self, lba: Lba, sectors: u64, durably: bool) -> Result<()> {
        if sectors == 0 || self.array.lost_members() == 0 {
            return Ok(());
        }
        let is_unknown = |row| self.unknown.lock().contains(&row);
        for row in self.row_of(lba)..=self.row_of(Lba(lba.0 + sectors - 1)) {
            if self.array.is_stale(row) && !is_unknown(row) {
                // Waits for the cleaner if that is at this row.
                let _room = self.room(self.row_bytes())?;
                self.resync(row).or_else(|error| if is_unknown(row) { Ok(()) } else { Err(error) })?;
            }
        }
        self.array.check_told(lba, sectors, is_unknown)?;
        if durably { self.tell_whole_rows() } else { Ok(()) }
    }

    /// Keeps other requests for these sectors away while the policy is asked.
    pub fn apart(&self, lba: Lba, sectors: u64) -> Vec<MutexGuard<'_, ()>> {
        let count = self.stripes.len() as u64;
        let mut stripes: Vec<u64> = (lba.0..lba.0 + sectors.min(count)).map(|lba| lba % count).collect();
        stripes.sort_unstable();
        stripes.into_iter().map(|stripe| self.stripes[stripe as usize].lock()).collect()
    }

    /// True if content never arrived in the page. If a base is wanted, the policy notices itself, as there is no delta.
    fn is_void(&self, prior: &Prior) -> bool {
        !prior.is_base && self.ssd().is_some_and(|ssd| ssd.is_bad(prior.page))
    }

    /// The call that reads sectors from where they are; more than one only from the array.
    fn reading(
        self: Arc<Self>,
        source: &Source,
        lba: Lba,
        sectors: usize,
    ) -> Box<dyn FnOnce() -> Result<Vec<u8>> + Send> {
        match source {
            Source::Array => Box::new(move || {
                let mut out = vec![0; sectors * SECTOR_BYTES];
                self.array.read(lba, &mut out).map(|()| out)
            }),
            Source::Page(page) => {
                let page = *page;
                Box::new(move || self.read_page(page))
            }
            Source::Changed(base, delta) => {
                let (base, delta) = (*base, delta.clone());
                Box::new(move || self.read_changed(base, &delta))
            }
        }
    }

    /// Reads a sector that could not be read from where the policy said. It is dropped from the cache.
    fn read_anyhow(&self, lba: Lba, was_cached: bool, out: &mut [u8]) -> Result<()> {
        let from_array = was_cached && self.array.read(lba, out).is_ok();
        self.drop_range(lba, 1);
        if from_array {
            return Ok(());
        }
        let mut jobs = Jobs::default();
        let turn = {
            let mut brain = self.brain.lock();
            self.ask_to_clean(&mut brain, &mut jobs, lba, 1);
            self.turns.take(vec![(Place::Parity(self.row_of(lba)), Mode::Alone)])
        };
        let cleaned = self.carry_all(jobs.now, &[]);
        turn.wait();
        self.array.read(lba, out).map_err(|error| match cleaned {
            Err(cause) if cause.kind() == Kind::PowerLost => cause,
            _ => error,
        })
    }

    /// Asks the policy to clean the rows of these sectors.
    fn ask_to_clean(&self, brain: &mut Brain, jobs: &mut Jobs, lba: Lba, sectors: u64) {
        for row in self.row_of(lba)..=self.row_of(Lba(lba.0 + sectors - 1)) {
            brain.ask(&self.turns, jobs, |policy, steps| policy.clean_row(row, steps));
        }
    }

    /// Drops sectors from the cache and cleans their rows. Rows that cannot be cleaned become unknown.
    pub fn drop_range(&self, lba: Lba, sectors: u64) {
        for lba in (lba.0..lba.0 + sectors).map(Lba) {
            // Errors are ignored: the array reports its own to the next that uses it.
            let _ = self.ask(|policy, steps| policy.forget(lba, steps));
        }
        let _ = self.clean_range(lba, sectors);
    }

    /// Makes jobs that clean a row and drop some of its sectors from the cache; returns an exclusive turn after them.
    pub fn take_row(
        &self,
        brain: &mut Brain,
        jobs: &mut Jobs,
        row: u64,
        dropped: impl Iterator<Item = u64>,
    ) -> Turn {
        brain.ask(&self.turns, jobs, |policy, steps| policy.clean_row(row, steps));
        for lba in dropped.map(Lba) {
            brain.ask(&self.turns, jobs, |policy, steps| policy.forget(lba, steps));
        }
        self.turns.take(vec![(Place::Data(row), Mode::Alone), (Place::Parity(row), Mode::Alone)])
    }

    /// Cleans a row and drops some of its sectors from the cache, durably; others stay away until the turn is dropped.
    pub fn clear_row(&self, row: u64, dropped: impl Iterator<Item = u64>) -> Result<Turn> {
        let mut jobs = Jobs::default();
        let turn = self.take_row(&mut self.brain.lock(), &mut jobs, row, dropped);
        // Errors are ignored: the array reports its own to the next that uses it.
        let _ = self.carry_all(jobs.now, &[]);
        turn.wait();
        self.persist_all().map(|()| turn)
    }

    /// Cleans the rows of these sectors.
    pub fn clean_range(&self, lba: Lba, sectors: u64) -> Result<()> {
        let mut jobs = Jobs::default();
        self.ask_to_clean(&mut self.brain.lock(), &mut jobs, lba, sectors);
        self.carry_all(jobs.now, &[])
    }

    fn zero_some(&self, range: Range<u64>, fua: bool, again: bool) -> Result<()> {
        let mut jobs = Jobs::default();
        {
            let mut brain = self.brain.lock();
            if again {
                let sectors = range.end - range.start;
                self.ask_to_clean(&mut brain, &mut jobs, Lba(range.start), sectors);
            }
            for lba in range.clone().map(Lba) {
                brain.ask(&self.turns, &mut jobs, |policy, steps| policy.forget(lba, steps));
            }
            let rows = self.row_of(Lba(range.start))..=self.row_of(Lba(range.end - 1));
            let places = rows.flat_map(|row| [Place::Data(row), Place::Parity(row)]);
            let turn = self.turns.take(places.map(|place| (place, Mode::Alone)).collect());
            let (sectors, stamp) = (range.end - range.start, brain.stamp());
            let op = Op::Zero { lba: Lba(range.start), sectors, fua, stamp };
            let after = self.nvram.as_ref().map_or(0, |nvram| nvram.appended());
            jobs.now.push(Job { turn, op, after });
        }
        self.carry_all(jobs.now, &[])
    }
}

/// Groups sectors that are read with one call: those that are adjacent on the array.
fn runs(planned: &[(usize, Planned)]) -> Vec<Range<usize>> {
    let follows = |a: &(usize, Planned), b: &(usize, Planned)| {
        matches!((&a.1.0, &b.1.0), (Source::Array, Source::Array)) && a.0 + 1 == b.0
    };
    let mut end = 0;
    let run = |run: &[(usize, Planned)]| {
        end += run.len();
        end - run.len()..end
    };
    planned.chunk_by(follows).map(run).collect()
}

fn encode(old: &[u8], new: &[u8]) -> Option<Arc<[u8]>> {
    let mut coded = Vec::new();
    encode_delta(old, new, &mut coded).then(|| coded.into())
}
