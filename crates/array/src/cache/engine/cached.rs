//! An array with a cache: how it is made, opened, closed, and lost again.
//!
//! 1. Before anything on the SSD changes its superblock says that it was not closed. Whoever finds that empties it.
//! 2. A cache counts if it was closed with the array: its event is the one that the assembly found.
//! 3. Rows that are stale and of which the cache has nothing are unknown: their parity is made anew from data.

use super::behind::Behind;
use super::budget::{Budget, check_budget};
use super::cleaner::Cleaner;
use super::core::Core;
use super::job::{Brain, Jobs};
use super::log_page::LogPage;
use super::ssd::Ssd;
use super::superblock::{CachePlot, CacheSuperblock};
use crate::array::Array;
use crate::assemble::{Device, hex};
use crate::cache::metalog::ENTRIES_PER_LOG_PAGE;
use crate::cache::policy::{Recipe, Restored, Scheme};
use crate::cache::shape::PageState;
use crate::cache::step::LogEntry;
use crate::lane::Lanes;
use crate::rebuild::{Progress, Rebuilt};
use crate::scrub::{Repair, Scrubbed};
use std::collections::BTreeSet;
use std::sync::Arc;
use vellum_base::{BlockDevice, Cause, Env, Error, Kind, Lba, Nanos, Result, SECTOR_BYTES};

/// Calls that read pages of the SSD for one request.
const READERS: usize = 8;
/// Sectors of the log that are read at once.
const LOG_SECTORS_AT_ONCE: u64 = 256;

/// Rows that are scrubbed at once: not more than a report names.
const SCRUBBED_AT_ONCE: u64 = 1000;

/// What a cache is made with.
#[derive(Clone, Copy, Debug)]
pub struct CacheFormat {
    /// What decides what is kept.
    pub scheme: Scheme,
    /// Pages of a set.
    pub ways: u16,
    /// Bytes that may be written to the SSD a day (KDD in vellum mode only); None: as many as there are reasons for.
    pub budget: Option<u64>,
    /// Take an SSD that is a cache already.
    pub force: bool,
}

impl CacheFormat {
    /// Sets of 512 pages, as in the paper.
    pub fn new(scheme: Scheme) -> CacheFormat {
        CacheFormat { scheme, ways: 512, budget: None, force: false }
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

/// The newest superblock of an SSD. The error says why there is none.
pub fn examine_cache(ssd: &Device) -> Result<CacheSuperblock> {
    let read = |sector: u64| {
        let mut stored = vec![0; SECTOR_BYTES];
        ssd.read(Lba(sector), &mut stored)?;
        CacheSuperblock::decode(&stored)
    };
    let sectors = ssd.info().sectors;
    if sectors == 0 {
        return Err(Error::invalid("it has no sectors"));
    }
    let first = read(0);
    let last = first.as_ref().map_or(sectors, |found| found.plot.ssd_sectors);
    match (first, read(last - 1)) {
        (Ok(first), Ok(copy)) if copy.array == first.array && copy.generation > first.generation => Ok(copy),
        (Ok(first), _) => Ok(first),
        (Err(_), Ok(copy)) => Ok(copy),
        (Err(error), Err(_)) => Err(error),
    }
}

impl CachedArray {
    /// Makes the SSD the array's cache. If that is refused the array is closed.
    ///
    /// # Errors
    /// [`Kind::Invalid`] if the SSD is too small, [`Kind::Busy`] if it is a cache or a member of an array already and
    /// `force` is not given.
    pub fn attach(
        array: Array,
        ssd: Device,
        format: &CacheFormat,
        options: CacheOptions,
    ) -> Result<CachedArray> {
        match made(&array, &ssd, format) {
            Ok(superblock) => {
                let opened = Opened { log_next: 0, emptied: None, restored: None, superblock };
                CachedArray::with(array, Some((ssd, opened)), options)
            }
            Err(error) => refused(array, error),
        }
    }

    /// An array with the cache that it had; without one if `ssd` is None or cannot be read: then parity that was put
    /// off is made anew from data. If that is refused the array is closed.
    ///
    /// # Errors
    /// [`Kind::Invalid`] if this is another array's cache, [`Kind::Corrupt`] if it is none.
    pub fn open(array: Array, ssd: Option<Device>, options: CacheOptions) -> Result<CachedArray> {
        let Some(ssd) = ssd else { return CachedArray::with(array, None, options) };
        match found(&array, &ssd, &options) {
            Ok(opened) => CachedArray::with(array, Some((ssd, opened)), options),
            Err(error) => match error.kind() {
                Kind::Io => {
                    let mut cached = CachedArray::with(array, None, options)?;
                    cached.about.emptied = Some(format!("the SSD cannot be read: {error}"));
                    Ok(cached)
                }
                _ => refused(array, error),
            },
        }
    }

    fn with(array: Array, cache: Option<(Device, Opened)>, options: CacheOptions) -> Result<CachedArray> {
        let shape = array.core().shape;
        let stale: BTreeSet<u64> = array.stale_rows(0, usize::MAX).into_iter().collect();
        let (ssd, policy, known, about) = match cache {
            None => {
                let policy = Recipe::new(Scheme::NoSsd, 4).build(&shape)?;
                (None, policy, BTreeSet::new(), About { superblock: None, emptied: None, log_next: 0 })
            }
            Some((device, mut opened)) => {
                if opened.emptied.is_some() {
                    // What was written since is not known.
                    opened.superblock.budget_left = opened.superblock.budget_left.min(0);
                }
                let recipe = recipe(&opened.superblock, &options);
                let (policy, known) = match opened.restored.take().map(|r| (recipe.restore(&shape, &r), r)) {
                    Some((Ok(policy), restored)) => (policy, dirty_rows(&restored, shape.row_sectors())),
                    Some((Err(error), _)) => {
                        opened.emptied = Some(error.to_string());
                        (recipe.build(&shape)?, BTreeSet::new())
                    }
                    None => (recipe.build(&shape)?, BTreeSet::new()),
                };
                if opened.emptied.is_some() {
                    opened.superblock.tag = array.core().env.random();
                }
                opened.superblock.generation += 1;
                opened.superblock.clean = false;
                let Opened { superblock, emptied, log_next, .. } = opened;
                let ssd = Ssd::new(device, superblock.plot, superblock.tag);
                write_superblock(&ssd, &superblock)?;
                (Some(ssd), policy, known, About { superblock: Some(superblock), emptied, log_next })
            }
        };
        let unknown = stale.difference(&known).copied().collect();
        let bytes_a_day = about.superblock.as_ref().map_or(0, |superblock| superblock.budget);
        let budget = (bytes_a_day > 0).then(|| Budget::new(bytes_a_day, array.core().env.now()));
        let brain = Brain::new(policy, budget, shape.row_sectors());
        let core = Arc::new(Core::new(array, ssd, brain, unknown, options.stale_rows_max));
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
        self.behind.drain();
        let (array, mut result) = (&self.core.array, Ok(()));
        while go_on(array.core().stale.count()) {
            match self.core.clean_some() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => keep_first(&mut result, error, array)?,
            }
        }
        let mut first = 0;
        while let Some(row) = array.stale_rows(first, 1).first().copied() {
            if !go_on(array.core().stale.count()) {
                break;
            }
            if let Err(error) = self.core.resync(row) {
                keep_first(&mut result, error, array)?;
            }
            first = row + 1;
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
            self.core.unknown.lock().extend(rows.filter(|row| self.core.array.is_stale(*row)));
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
        let log = core.settle().and_then(|()| core.write_log(about.log_next));
        core.keep_up(&mut core.brain.lock());
        drop((behind, io));
        let core = Arc::into_inner(core).ok_or_else(|| Error::invalid("the array is still in use"))?;
        let Core { array, ssd, brain, .. } = core;
        let budget_left = brain.into_inner().policy.census().budget_left.unwrap_or(0);
        let event = array.close_at()?;
        match (ssd.filter(|ssd| !ssd.is_detached()), about.superblock, log?) {
            (Some(ssd), Some(mut superblock), true) => {
                (superblock.event, superblock.clean) = (event, true);
                superblock.generation += 1;
                superblock.account(&ssd.ledger, budget_left);
                write_superblock(&ssd, &superblock)
            }
            _ => Ok(()),
        }
    }
}

impl Core {
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
        let mut entries = self.brain.lock().policy.entries();
        // What a page holds that could not be filled is another sector's.
        entries.retain(|entry| !ssd.is_bad(entry.page));
        let mut pages: Vec<&[LogEntry]> = entries.chunks(ENTRIES_PER_LOG_PAGE).collect();
        if pages.is_empty() {
            pages.push(&[]);
        }
        for (sequence, entries) in (first..).zip(pages) {
            let page = LogPage { tag: ssd.tag, sequence, head: first, entries: entries.to_vec() };
            let sector = CachePlot::LOG + sequence % u64::from(ssd.plot.log_pages);
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

/// What was found of a cache.
struct Opened {
    superblock: CacheSuperblock,
    restored: Option<Restored>,
    emptied: Option<String>,
    log_next: u64,
}

fn refused(array: Array, error: Error) -> Result<CachedArray> {
    array
        .close()
        .map_err(|second| Error::new(error.kind(), format!("{error}; closing the array: {second}")))?;
    Err(error)
}

/// A superblock for a new cache.
fn made(array: &Array, ssd: &Device, format: &CacheFormat) -> Result<CacheSuperblock> {
    if format.scheme == Scheme::NoSsd {
        return Err(Error::invalid("without an SSD there is no cache to attach"));
    }
    if !format.force {
        if let Ok(found) = examine_cache(ssd) {
            let why = format!("the SSD is the cache of array {}", hex(&found.array));
            return Err(Error::new(Kind::Busy, format!("{why}: take another, or force it")));
        }
        if let Ok(found) = crate::examine(ssd) {
            let why = format!("the SSD is a member of array {}", hex(&found.array));
            return Err(Error::new(Kind::Busy, format!("{why}: take another, or force it")));
        }
    }
    check_budget(format)?;
    let plot = CachePlot::divide(ssd.info().sectors, format.ways)?;
    recipe_of(format.scheme, &plot).build(&array.core().shape)?;
    Ok(CacheSuperblock {
        array: array.core().array,
        tag: array.core().env.random(),
        generation: 0,
        event: array.found_event(),
        scheme: format.scheme,
        nvram: false,
        clean: false,
        plot,
        budget: format.budget.unwrap_or(0),
        budget_left: 0,
        written: 0,
    })
}

/// What the SSD says, and what its log holds, if that counts.
fn found(array: &Array, ssd: &Device, options: &CacheOptions) -> Result<Opened> {
    let superblock = examine_cache(ssd).map_err(|error| error.context("the SSD"))?;
    if superblock.array != array.core().array {
        return Err(Error::invalid(format!(
            "the SSD is the cache of array {}, this is {}: name this array's, or detach it by force",
            hex(&superblock.array),
            hex(&array.core().array)
        )));
    }
    if superblock.plot.ssd_sectors > ssd.info().sectors {
        return Err(Error::corrupt("the SSD is smaller than its cache superblock says: it was cut short"));
    }
    recipe(&superblock, options).build(&array.core().shape)?;
    let empty =
        |superblock, why: String| Ok(Opened { superblock, restored: None, emptied: Some(why), log_next: 0 });
    if !superblock.clean {
        return empty(superblock, "the cache was not closed".into());
    }
    if superblock.event != array.found_event() {
        return empty(superblock, "the array was in use without its cache".into());
    }
    let sectors = array.core().shape.sectors();
    match read_log(ssd, &superblock) {
        Ok(restored) if restored.entries.iter().any(|(entry, _)| entry.lba.0 >= sectors) => {
            empty(superblock, "the cache's log: an entry is of a sector beyond the array".into())
        }
        Ok(restored) => {
            let log_next = restored.log.1;
            Ok(Opened { superblock, restored: Some(restored), emptied: None, log_next })
        }
        Err(error) if error.kind() == Kind::PowerLost => Err(error),
        Err(error) => empty(superblock, format!("the cache's log: {error}")),
    }
}

/// The entries of a log, from its head on.
fn read_log(ssd: &Device, superblock: &CacheSuperblock) -> Result<Restored> {
    let log_pages = u64::from(superblock.plot.log_pages);
    let mut pages = Vec::new();
    for first in (0..log_pages).step_by(LOG_SECTORS_AT_ONCE as usize) {
        let count = LOG_SECTORS_AT_ONCE.min(log_pages - first) as usize;
        let mut stored = vec![0; count * SECTOR_BYTES];
        ssd.read(Lba(CachePlot::LOG + first), &mut stored)?;
        let valid = stored.chunks(SECTOR_BYTES).filter_map(|page| LogPage::decode(page).ok());
        pages.extend(valid.filter(|page| page.tag == superblock.tag));
    }
    pages.sort_by_key(|page| page.sequence);
    let Some(newest) = pages.last() else { return Err(Error::corrupt("it has no page that is valid")) };
    let Some(tail) = newest.sequence.checked_add(1) else {
        return Err(Error::corrupt("a page of it has a number that cannot be"));
    };
    let head = newest.head;
    pages.retain(|page| page.sequence >= head);
    if !pages.iter().map(|page| page.sequence).eq(head..tail) {
        return Err(Error::corrupt("a page of it is missing"));
    }
    let entries = pages.iter().flat_map(|page| page.entries.iter().map(|e| (*e, Some(page.sequence))));
    Ok(Restored { entries: entries.collect(), log: (head, tail), staged: Vec::new() })
}

fn recipe_of(scheme: Scheme, plot: &CachePlot) -> Recipe {
    Recipe { ways: plot.ways as u16, log_pages: plot.log_pages, ..Recipe::new(scheme, plot.pages) }
}

fn recipe(superblock: &CacheSuperblock, options: &CacheOptions) -> Recipe {
    let recipe = recipe_of(superblock.scheme, &superblock.plot);
    Recipe {
        staging_bytes: options.staging_bytes.unwrap_or(recipe.staging_bytes),
        window: options.window.unwrap_or(recipe.window),
        dirty_high: options.dirty_high,
        dirty_low: options.dirty_low,
        budget: (superblock.budget > 0).then_some(superblock.budget_left),
        ..recipe
    }
}

/// Rows that old pages are of.
fn dirty_rows(restored: &Restored, row_sectors: u64) -> BTreeSet<u64> {
    let old = restored.entries.iter().filter(|(entry, _)| entry.state == PageState::Old);
    old.map(|(entry, _)| entry.lba.0 / row_sectors).collect()
}

/// Both copies, one after the other, and durable.
fn write_superblock(ssd: &Ssd, superblock: &CacheSuperblock) -> Result<()> {
    let stored = superblock.encode();
    for sector in [0, ssd.plot.ssd_sectors - 1] {
        ssd.write_sector(sector, &stored, Cause::CacheMetadata)?;
        ssd.flush()?;
    }
    Ok(())
}
