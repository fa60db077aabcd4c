//! An array with a cache: how it is made, opened, closed, and lost again.
//!
//! 1. Before anything on the SSD changes its superblock says that it was not closed. Whoever finds that empties it.
//! 2. Array and cache are closed with the same new bond, the cache first. Once one of them is in use neither has it.
//! 3. Rows that are stale and of which the cache has nothing are unknown: their parity is made anew from data.

use super::behind::Behind;
use super::budget::Budget;
use super::cleaner::Cleaner;
use super::core::Core;
use super::job::{Brain, Jobs};
use super::log_page::LogPage;
use super::nvram::{Nvram, State, last_generation};
use super::opening::{Opened, check_may_go_without, found, made, recipe};
use super::recovery::Recovered;
use super::ssd::Ssd;
use super::superblock::CacheSuperblock;
use crate::array::Array;
use crate::assemble::Device;
use crate::cache::metalog::ENTRIES_PER_LOG_PAGE;
use crate::cache::policy::{Recipe, Restored, Scheme};
use crate::cache::shape::PageState;
use crate::cache::step::{LogEntry, PageNo};
use crate::lane::Lanes;
use crate::rebuild::{Progress, Rebuilt};
use crate::scrub::{Repair, Scrubbed};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vellum_base::{Cause, Env, Error, Kind, Lba, Nanos, Result};

/// Calls that read pages of the SSD for one request.
const READERS: usize = 8;
/// Rows that are scrubbed at once: not more than a report names.
const SCRUBBED_AT_ONCE: u64 = 1000;

/// What a cache is made with.
#[derive(Clone, Copy, Debug)]
pub struct CacheFormat {
    /// What decides what is kept.
    pub scheme: Scheme,
    /// Pages of a set.
    pub ways: u16,
    /// Pages of a segment (KDD in vellum mode); None: as the policy has it, 0: pages are written in place.
    pub segment_pages: Option<u32>,
    /// Bytes that may be written to the SSD a day (KDD in vellum mode only); None: as many as there are reasons for.
    pub budget: Option<u64>,
    /// Take an SSD that is a cache already.
    pub force: bool,
}

impl CacheFormat {
    /// Sets of 512 pages, as in the paper.
    pub fn new(scheme: Scheme) -> CacheFormat {
        CacheFormat { scheme, ways: 512, segment_pages: None, budget: None, force: false }
    }
}

/// How an array with a cache is run.
#[derive(Clone, Copy, Debug)]
pub struct CacheOptions {
    /// Bytes of the staging buffer; None: as the policy has it.
    pub staging_bytes: Option<usize>,
    /// Pages in memory before the SSD (KDD in vellum mode); None: as the policy has it.
    pub window: Option<u16>,
    /// Cleaning begins when this share of a set is not free and not clean...
    pub dirty_high: f64,
    /// ...and ends at this one.
    pub dirty_low: f64,
    /// About so many rows may be stale: those are without redundancy if the SSD is lost, until they are made anew.
    pub stale_rows_max: u64,
    /// Without requests for so long the array is idle, and rows are cleaned.
    pub idle_after: Nanos,
    /// Go on without the cache with which the array was closed: what that holds does not count any more. No data are
    /// lost by it.
    pub without_cache: bool,
}

impl Default for CacheOptions {
    fn default() -> CacheOptions {
        CacheOptions {
            staging_bytes: None,
            window: None,
            dirty_high: 0.5,
            dirty_low: 0.45,
            stale_rows_max: 16_384,
            idle_after: Nanos(2_000_000_000),
            without_cache: false,
        }
    }
}

/// An array and its cache. Dropped without [`CachedArray::close`] it is as after a power cut.
pub struct CachedArray {
    /// First of all: the cleaner, then those who work for requests, end before what they work on.
    cleaner: Option<Cleaner>,
    pub(super) behind: Behind,
    pub(super) io: Lanes,
    pub(super) core: Arc<Core>,
    pub(super) about: About,
}

/// What does not change while it is open.
pub(super) struct About {
    pub superblock: Option<CacheSuperblock>,
    /// Why the cache was found empty, if it was.
    pub emptied: Option<String>,
    /// The next page of the log to write.
    pub log_next: u64,
}

impl CachedArray {
    /// Makes the SSD the array's cache. If that is refused the array is closed.
    ///
    /// # Errors
    /// [`Kind::Invalid`] if the SSD is too small or the array has a cache already, [`Kind::Busy`] if it is a cache or a
    /// member of an array already and `force` is not given.
    pub fn attach(
        array: Array,
        ssd: Device,
        format: &CacheFormat,
        options: CacheOptions,
    ) -> Result<CachedArray> {
        CachedArray::attach_with_nvram(array, ssd, None, format, options)
    }

    /// The same, with an NVRAM in which it keeps what it knows over a power cut (KDD only).
    pub fn attach_with_nvram(
        array: Array,
        ssd: Device,
        nvram: Option<Device>,
        format: &CacheFormat,
        options: CacheOptions,
    ) -> Result<CachedArray> {
        match made(&array, &ssd, nvram.as_ref(), format, &options) {
            Ok(superblock) => {
                let opened = Opened::empty(superblock, None);
                CachedArray::with(array, Some(Kept { ssd, nvram, opened }), options)
            }
            Err(error) => refused(array, error),
        }
    }

    /// An array with the cache that it had; without one if `ssd` is None or cannot be read: then parity that was put
    /// off is made anew from data. If that is refused the array is closed, and its cache counts as before.
    ///
    /// # Errors
    /// [`Kind::Invalid`] if this is not the array's cache, or it is not there and has something that counts, unless
    /// [`CacheOptions::without_cache`] is set; [`Kind::Corrupt`] if it is none.
    pub fn open(array: Array, ssd: Option<Device>, options: CacheOptions) -> Result<CachedArray> {
        CachedArray::open_with_nvram(array, ssd, None, options)
    }

    /// The same, with the NVRAM that its cache has, or is to have from now on.
    pub fn open_with_nvram(
        array: Array,
        ssd: Option<Device>,
        nvram: Option<Device>,
        options: CacheOptions,
    ) -> Result<CachedArray> {
        let Some(ssd) = ssd else {
            return match check_may_go_without(&array, &options, "the array has a cache, and no SSD is named")
            {
                Ok(()) => CachedArray::with(array, None, options),
                Err(error) => refused(array, error),
            };
        };
        match found(&array, &ssd, nvram.as_ref(), &options) {
            Ok(opened) => CachedArray::with(array, Some(Kept { ssd, nvram, opened }), options),
            Err(error) => match error.kind() {
                Kind::Io | Kind::Gone => {
                    let what = format!("the array's cache cannot be read: {error}");
                    if let Err(error) = check_may_go_without(&array, &options, &what) {
                        return refused(array, error);
                    }
                    let mut cached = CachedArray::with(array, None, options)?;
                    cached.about.emptied = Some(format!("the SSD cannot be read: {error}"));
                    Ok(cached)
                }
                _ => refused(array, error),
            },
        }
    }

    fn with(array: Array, kept: Option<Kept>, options: CacheOptions) -> Result<CachedArray> {
        let shape = array.core().shape;
        let stale: BTreeSet<u64> = array.stale_rows(0, usize::MAX).into_iter().collect();
        let (ssd, brain, known, redo, about) = match kept {
            None => {
                array.core().bind(0)?;
                let brain =
                    Brain::new(Recipe::new(Scheme::NoSsd, 4).build(&shape)?, None, shape.row_sectors());
                let about = About { superblock: None, emptied: None, log_next: 0 };
                (None, brain, BTreeSet::new(), Vec::new(), about)
            }
            Some(kept) => kept.begin(&array, &options)?,
        };
        let unknown = stale.difference(&known).copied().collect();
        let core = Arc::new(Core::new(array, ssd, brain, unknown, options.stale_rows_max));
        core.redo(&redo)?;
        Ok(CachedArray {
            cleaner: Some(Cleaner::start(&core, options.idle_after)),
            behind: Behind::start(&core.env),
            io: Lanes::start(&core.env, "array-cache-io", READERS),
            core,
            about,
        })
    }

    /// Its clock and tasks.
    pub fn env(&self) -> Arc<dyn Env> {
        self.core.env.clone()
    }

    /// The array below.
    pub fn array(&self) -> &Array {
        &self.core.array
    }

    /// Cleans all rows; parity that is lacking what nobody knows is made anew. `go_on` hears of the rows that are
    /// left, and stops it by false. What fails keeps nothing else from being cleaned; the first error is returned.
    pub fn clean_all(&self, mut go_on: impl FnMut(u64) -> bool) -> Result<()> {
        let result = self.clean_rows(&mut go_on, |_| true);
        result.and(self.core.array.core().settle_marks())
    }

    /// With a member out: what is flushed is to be there after a cut, too, which empties the cache. So nothing that is
    /// known is put off any more, and the members know. Rows that cannot be made whole stay stale.
    pub(super) fn flush_degraded(&self) -> Result<()> {
        let is_known = |row: &u64| !self.core.unknown.lock().contains(row);
        match self.clean_rows(&mut |_| true, is_known) {
            Err(error) if error.kind() == Kind::PowerLost => return Err(error),
            _ => self.core.flush()?,
        }
        self.core.array.core().settle_marks()
    }

    fn clean_rows(&self, go_on: &mut dyn FnMut(u64) -> bool, is_wanted: impl Fn(&u64) -> bool) -> Result<()> {
        self.behind.drain();
        let (array, mut result) = (&self.core.array, Ok(()));
        while go_on(array.core().stale.count()) {
            match self.core.clean_some() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => keep_first(&mut result, error, array)?,
            }
        }
        // Those that nobody knows, and those that somebody else is cleaning just now.
        for row in array.stale_rows(0, usize::MAX).into_iter().filter(is_wanted) {
            if !go_on(array.core().stale.count()) {
                break;
            }
            if let Err(error) = self.core.resync(row) {
                keep_first(&mut result, error, array)?;
            }
        }
        result
    }

    /// Cleans all rows, then rebuilds members that were added, as [`Array::rebuild`] does. The cache has nothing of
    /// sectors that are lost.
    pub fn rebuild(&self, give_up: bool, go_on: impl FnMut(Progress) -> bool) -> Result<Rebuilt> {
        match self.clean_all(|_| true) {
            Err(error) if !give_up || error.kind() == Kind::PowerLost => return Err(error),
            _ => {}
        }
        let rebuilt = self.core.array.rebuild(give_up, go_on)?;
        for lost in &rebuilt.lost {
            self.core.drop_range(Lba(lost.start), lost.end - lost.start);
            let rows = self.core.row_of(Lba(lost.start))..=self.core.row_of(Lba(lost.end - 1));
            rows.filter(|row| self.core.array.is_stale(*row)).for_each(|row| self.core.lose_track(row));
        }
        Ok(rebuilt)
    }

    /// Scrubs all rows, as [`Array::scrub`] does. The cache has nothing of rows that did not agree: what it had may be
    /// what was wrong.
    pub fn scrub(&self, repair: Repair, mut go_on: impl FnMut(Progress) -> bool) -> Result<Scrubbed> {
        let of = self.core.array.core().shape.rows;
        let row_sectors = self.core.array.core().shape.row_sectors();
        let mut all = Scrubbed { complete: true, ..Scrubbed::default() };
        for first in (0..of).step_by(SCRUBBED_AT_ONCE as usize) {
            let rows = first..(first + SCRUBBED_AT_ONCE).min(of);
            let some = self.core.array.scrub(rows, repair, &mut go_on)?;
            for row in &some.mismatched_rows {
                self.core.drop_range(Lba(row * row_sectors), row_sectors);
            }
            all.add(some);
            if !all.complete {
                break;
            }
        }
        Ok(all)
    }

    /// Ends everything; the cache is found as it was at the next [`CachedArray::open`].
    pub fn close(self) -> Result<()> {
        let CachedArray { cleaner, behind, io, core, about } = self;
        drop(cleaner);
        behind.drain();
        let log = match &core.nvram {
            Some(_) => core.rest_in_nvram(),
            None => core.settle().and_then(|()| core.write_log(about.log_next)),
        };
        core.keep_up(&mut core.brain.lock());
        drop((behind, io));
        let core = Arc::into_inner(core).ok_or_else(|| Error::invalid("the array is still in use"))?;
        let superblock = core.leave(about.superblock, log?)?;
        let (nvram, bond) = (core.nvram, superblock.as_ref().map_or(0, |superblock| superblock.bond));
        core.array.close_bound(bond)?;
        match (nvram, superblock) {
            (Some(nvram), Some(superblock)) => nvram.tell_session(superblock.generation, true).map(drop),
            _ => Ok(()),
        }
    }
}

impl Core {
    /// The SSD is closed, if its log was written; returns what it says, None if it does not count.
    fn leave(&self, superblock: Option<CacheSuperblock>, is_logged: bool) -> Result<Option<CacheSuperblock>> {
        let (Some(ssd), Some(mut superblock), true) = (self.ssd(), superblock, is_logged) else {
            return Ok(None);
        };
        // Not before the array's data are durable.
        self.array.core().flush_members()?;
        superblock.clean = true;
        superblock.begin_session(self.env.random() | 1);
        if let Some(nvram) = &self.nvram
            && !nvram.tell_session(superblock.generation, false)?
        {
            return Ok(None);
        }
        let budget_left = self.brain.lock().policy.census().budget_left.unwrap_or(0);
        Ok(ssd.end_account(&superblock, budget_left)?.then_some(superblock))
    }

    /// The NVRAM has everything, and no intents; false if that cannot be.
    fn rest_in_nvram(&self) -> Result<bool> {
        let unknown: Vec<u64> = self.unknown.lock().iter().copied().collect();
        for row in unknown {
            // One that cannot be made anew stays stale.
            let _ = self.resync(row);
        }
        self.flush()?;
        match (&self.nvram, self.ssd()) {
            (Some(nvram), Some(_)) => nvram.persist_all(),
            _ => Ok(false),
        }
    }

    /// Nothing is staged any more, and no row that the policy has deltas of is unknown.
    fn settle(&self) -> Result<()> {
        let unknown: Vec<u64> = self.unknown.lock().iter().copied().collect();
        for row in unknown {
            // One that cannot be made anew stays stale.
            let _ = self.resync(row);
        }
        let mut jobs = Jobs::default();
        self.brain.lock().ask(&self.turns, &mut jobs, |policy, steps| policy.settle(steps));
        self.carry_all(jobs.now, &[])
    }

    /// Writes what the policy has to the log; false if there is no SSD to write to.
    fn write_log(&self, first: u64) -> Result<bool> {
        let Some(ssd) = self.ssd() else { return Ok(false) };
        if !ssd.write_rest()? {
            return Ok(false);
        }
        let mut entries = self.brain.lock().policy.entries();
        // What a page holds that could not be filled is another sector's.
        entries.retain(|entry| !ssd.is_bad(entry.page));
        let mut pages: Vec<&[LogEntry]> = entries.chunks(ENTRIES_PER_LOG_PAGE).collect();
        if pages.is_empty() {
            pages.push(&[]);
        }
        for (sequence, entries) in (first..).zip(pages) {
            let page = LogPage { tag: ssd.tag, sequence, head: first, entries: entries.to_vec() };
            let sector = ssd.plot.log_sector(sequence);
            if !ssd.write_sector(sector, &page.encode(), Cause::CacheMetadata)? {
                return Ok(false);
            }
        }
        ssd.flush()
    }
}

/// Keeps the first error; returns one after which nothing more can be done.
fn keep_first(result: &mut Result<()>, error: Error, array: &Array) -> Result<()> {
    if error.kind() == Kind::PowerLost || array.core().check_writable().is_err() {
        return Err(error);
    }
    if result.is_ok() {
        *result = Err(error);
    }
    Ok(())
}

/// An SSD, the NVRAM beside it, and what was found there.
struct Kept {
    ssd: Device,
    nvram: Option<Device>,
    opened: Opened,
}

/// A cache in use: its SSD, its brain, rows whose deltas it has, sectors to be written again.
type Begun = (Option<Ssd>, Brain, BTreeSet<u64>, Vec<Lba>, About);

impl Kept {
    /// From here on the cache is in use: SSD, NVRAM and array say so.
    fn begin(self, array: &Array, options: &CacheOptions) -> Result<Begun> {
        let Kept { ssd, nvram, mut opened } = self;
        let shape = array.core().shape;
        let as_found = opened.superblock.clone();
        let recipe = recipe(&opened.superblock, nvram.as_ref(), options);
        let policy = match opened.restored.take().map(|restored| recipe.restore(&shape, &restored)) {
            Some(Ok(policy)) => policy,
            Some(Err(error)) => {
                opened = Opened::empty(opened.superblock, Some(error.to_string()));
                recipe.build(&shape)?
            }
            None => recipe.build(&shape)?,
        };
        let Opened { mut superblock, emptied, log_next, recovered, .. } = opened;
        let is_empty = recovered.is_none();
        if recovered.is_none() {
            (superblock.tag, superblock.bond) = (array.core().env.random(), 0);
        }
        // Of the session before, too, if the power went before the members were told.
        array.core().bind(superblock.bond)?;
        superblock.begin_session(array.core().env.random() | 1);
        (superblock.clean, superblock.nvram) = (false, nvram.is_some());
        let ssd = Ssd::new(ssd, as_found, &superblock, array.core());
        let budget = (superblock.budget > 0).then(|| Budget::new(superblock.budget, array.core().env.now()));
        let mut brain = Brain::new(policy, budget, shape.row_sectors());
        let (known, redo) = match (&recovered, &nvram) {
            (Some(recovered), _) => {
                write_log_pages(&ssd, recovered)?;
                (dirty_rows(&recovered.restored, shape.row_sectors()), recovered.redo.clone())
            }
            (None, _) => (BTreeSet::new(), Vec::new()),
        };
        if let Some(nvram) = nvram {
            let state = recovered.map_or_else(State::default, |recovered| recovered.state);
            brain.staging = state.staged.iter().map(|(base, held)| (*base, held.delta.clone())).collect();
            let state = State { session: (superblock.generation, false), ..state };
            let last = last_generation(&*nvram)?;
            let nvram = Nvram::begin(array.core().env.clone(), nvram, superblock.whose(), state, last)?;
            brain.nvram = Some(Arc::new(nvram));
        }
        if ssd.begin_account(&superblock)? {
            if is_empty {
                ssd.discard(PageNo(0), superblock.plot.pages)?;
            }
            array.core().bind(if superblock.nvram { superblock.bond } else { 0 })?;
            if let Some(nvram) = &brain.nvram
                && !nvram.tell_session(superblock.generation, true)?
            {
                ssd.detach("the NVRAM failed");
            }
        }
        array.core().has_cache.store(superblock.nvram && !ssd.is_detached(), Relaxed);
        Ok((Some(ssd), brain, known, redo, About { superblock: Some(superblock), emptied, log_next }))
    }
}

/// Pages of the log that were on their way when the power went.
fn write_log_pages(ssd: &Ssd, recovered: &Recovered) -> Result<()> {
    for (sequence, entries) in &recovered.unwritten {
        let head = recovered.state.log.0;
        let page = LogPage { tag: ssd.tag, sequence: *sequence, head, entries: entries.clone() };
        ssd.write_sector(ssd.plot.log_sector(*sequence), &page.encode(), Cause::CacheMetadata)?;
    }
    if !recovered.unwritten.is_empty() {
        ssd.flush()?;
    }
    Ok(())
}

fn refused(array: Array, error: Error) -> Result<CachedArray> {
    array
        .close()
        .map_err(|second| Error::new(error.kind(), format!("{error}; closing the array: {second}")))?;
    Err(error)
}

/// Rows of which the cache has what their parity lacks.
fn dirty_rows(restored: &Restored, row_sectors: u64) -> BTreeSet<u64> {
    let newest: BTreeMap<PageNo, LogEntry> =
        restored.entries.iter().map(|(entry, _)| (entry.page, *entry)).collect();
    let old = newest.values().filter(|entry| entry.state == PageState::Old).map(|entry| entry.lba);
    old.chain(restored.staged.iter().map(|staged| staged.lba)).map(|lba| lba.0 / row_sectors).collect()
}
