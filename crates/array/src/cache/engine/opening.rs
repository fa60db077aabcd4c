//! Examining an SSD before it becomes the cache of an array, and planning the opening.
//!
//! 1. A cache is valid if it was left together with the array (`left.rs`), and all of its log is readable.
//! 2. Nothing is written here.

use super::budget::check_budget;
use super::left::{Left, check_has_log, check_may_have_nvram, check_uses_nvram, identified, left_together};
use super::log_page::LogPage;
use super::nvram::{HALF_BYTES_MIN, State, check_size, fitted, has_room, read_region};
use super::options::{CacheFormat, CacheOptions};
use super::recovery::{Recovered, recover};
use super::superblock::{CachePlot, CacheSuperblock, WAYS_MAX};
use crate::array::Array;
use crate::assemble::Device;
use crate::below::Below;
use crate::cache::policy::{Policy, Recipe, Restored, Scheme};
use crate::owner::check_unused;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use vellum_base::{BlockDevice, Error, Kind, Lba, Result, SECTOR_BYTES};

/// Sectors of the log read at a time.
const LOG_SECTORS_AT_ONCE: u64 = 256;
/// With more unreadable sectors than this, reading the log fails.
const UNREADABLE_MAX: usize = 256;

/// What was found of a cache.
pub(super) struct Opened {
    pub superblock: CacheSuperblock,
    /// Its map, if it is valid.
    pub policy: Option<Box<dyn Policy>>,
    pub emptied: Option<String>,
    pub log_next: u64,
    /// With an NVRAM: the state that goes there, and what is to be done first.
    pub recovered: Option<Recovered>,
}

impl Opened {
    /// A cache without content.
    pub fn empty(superblock: CacheSuperblock, why: Option<String>) -> Opened {
        Opened { superblock, policy: None, emptied: why, log_next: 0, recovered: None }
    }
}

/// The newer superblock of an SSD. The error says why there is none.
pub fn examine_cache(ssd: &Device) -> Result<CacheSuperblock> {
    let read = |sector: u64| {
        let mut stored = vec![0; SECTOR_BYTES];
        ssd.read(Lba(sector), &mut stored)?;
        CacheSuperblock::decode(&stored)
    };
    let sectors = ssd.info().sectors;
    if sectors == 0 {
        return Err(Error::corrupt("it has no sectors"));
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

/// The superblock of a new cache.
pub(super) fn made(
    array: &Array,
    ssd: &Device,
    nvram: Option<&Device>,
    format: &CacheFormat,
    options: &CacheOptions,
) -> Result<CacheSuperblock> {
    if format.scheme == Scheme::NoSsd {
        return Err(Error::invalid("without an SSD there is no cache to attach"));
    }
    check_may_go_without(&array.below(), options, "the array has a cache already")?;
    check_unused(ssd, "the SSD", format.force)?;
    if let Some(nvram) = nvram {
        check_has_log(array.core().log_place)?;
        check_nvram(&**nvram, format)?;
    }
    check_budget(format)?;
    let plot = match format.scheme {
        Scheme::Kdd => CachePlot::in_segments(ssd.info().sectors, format)?,
        _ => CachePlot::divide(ssd.info().sectors, format.ways)?,
    };
    recipe_of(format.scheme, &plot).build(&array.core().shape)?;
    Ok(CacheSuperblock {
        array: array.core().array,
        tag: array.core().env.random(),
        generation: 0,
        bond: 0,
        bond_before: 0,
        scheme: format.scheme,
        nvram: nvram.is_some(),
        nvram_half: 0,
        clean: false,
        plot,
        budget: format.budget.unwrap_or(0),
        budget_left: 0,
        written: 0,
    })
}

/// Fails for a device that cannot be the NVRAM of such a cache.
fn check_nvram(nvram: &dyn BlockDevice, format: &CacheFormat) -> Result<()> {
    check_size(nvram)?;
    check_uses_nvram(format.scheme)?;
    match read_region(nvram) {
        Ok(None) => Ok(()),
        _ if format.force => Ok(()),
        Ok(Some(_)) => {
            Err(Error::new(Kind::Busy, "the NVRAM is a cache's already: take another, or force it"))
        }
        Err(error) => Err(Error::new(Kind::Busy, format!("the NVRAM: {error}: take another, or force it"))),
    }
}

/// Fails if the array is bound to a cache, whose content would be outdated from the first write on, unless forced.
fn check_may_go_without(below: &Below<'_>, options: &CacheOptions, what: &str) -> Result<()> {
    if below.bond == 0 || options.without_cache {
        return Ok(());
    }
    let stale = below.stale.count();
    Err(Error::invalid(format!(
        "{what}: name the array's cache, or go on without it by force; what it holds does not count from then on, and \
         the parity of its stale rows ({stale}) is made anew from data"
    )))
}

/// Plan for an opening.
pub(super) enum Plan {
    /// With the reason, if there is an SSD.
    WithoutCache(Option<String>),
    With(Box<Opened>),
}

/// Plans an opening with this SSD and NVRAM.
///
/// # Errors
/// The reason why the opening is refused.
pub(super) fn plan(
    below: &Below<'_>,
    ssd: Option<&Device>,
    nvram: Option<&Device>,
    options: &CacheOptions,
) -> Result<Plan> {
    let Some(ssd) = ssd else {
        check_may_go_without(below, options, "the array has a cache, and no SSD is named")?;
        return Ok(Plan::WithoutCache(None));
    };
    let without = |error: Error| Ok(Plan::WithoutCache(Some(format!("the SSD cannot be used: {error}"))));
    let opened = match identified(&below.array, ssd) {
        // Forced: whatever the device is, nothing is written to it.
        Err(error) if options.without_cache && error.kind() != Kind::PowerLost => return without(error),
        identified => identified.and_then(|superblock| found(below, ssd, superblock, nvram, options)),
    };
    match opened {
        Ok(opened) => Ok(Plan::With(Box::new(opened))),
        // It is unreadable or no longer a cache: go on without it if its content is not needed.
        Err(error) if matches!(error.kind(), Kind::Io | Kind::Gone | Kind::Corrupt) => {
            check_may_go_without(below, options, &format!("the array's cache cannot be read: {error}"))?;
            without(error)
        }
        Err(error) => Err(error),
    }
}

/// Evaluates the state that the cache was left in, and its log.
fn found(
    below: &Below<'_>,
    ssd: &Device,
    superblock: CacheSuperblock,
    nvram: Option<&Device>,
    options: &CacheOptions,
) -> Result<Opened> {
    let used = nvram.map(|nvram| fitted(nvram, superblock.nvram_half));
    let recipe = recipe(&superblock, used.as_ref(), options);
    recipe.build(&below.shape)?;
    if let Some(nvram) = nvram {
        check_may_have_nvram(&superblock, below.log, below.bond, nvram, options)?;
    }
    let nvram = used.as_ref();
    let left = match left_together(&superblock, below.bond, nvram) {
        Ok(left) => left,
        Err(error) if error.kind() == Kind::PowerLost => return Err(error),
        Err(error) => {
            check_may_go_without(below, options, &error.to_string())?;
            return Ok(Opened::empty(superblock, Some(error.to_string())));
        }
    };
    let read = match left {
        Left::InNvram(state) => read_log(ssd, &superblock).and_then(|log| recover(below, log.pages, *state)),
        Left::Closed => read_log(ssd, &superblock).and_then(closed),
        Left::Nothing(why) => return Ok(Opened::empty(superblock, Some(why.into()))),
    };
    match read.and_then(|found| Ok((restored(below, &recipe, nvram, &found)?, found))) {
        Ok((policy, found)) => Ok(Opened {
            superblock,
            policy: Some(policy),
            emptied: None,
            log_next: found.restored.log.1,
            recovered: Some(found),
        }),
        Err(error) if error.kind() == Kind::PowerLost => Err(error),
        Err(error) => {
            let why = format!("the cache's log: {error}");
            check_may_be_emptied(below, options, &why)?;
            Ok(Opened::empty(superblock, Some(why)))
        }
    }
}

/// The map of what was found.
fn restored(
    below: &Below<'_>,
    recipe: &Recipe,
    nvram: Option<&Device>,
    found: &Recovered,
) -> Result<Box<dyn Policy>> {
    let sectors = below.shape.sectors();
    if found.restored.entries.iter().any(|(entry, _)| entry.lba.0 >= sectors) {
        return Err(Error::corrupt("an entry is of a sector beyond the array"));
    }
    if nvram.is_some_and(|nvram| !has_room(&**nvram, &found.state)) {
        return Err(Error::new(Kind::NoSpace, "its NVRAM has no room for all that is to be dropped"));
    }
    recipe.restore(&below.shape, &found.restored)
}

/// Fails if emptying the cache could lose data: a member is missing, and rows are stale.
fn check_may_be_emptied(below: &Below<'_>, options: &CacheOptions, why: &str) -> Result<()> {
    if options.without_cache || !below.lacks_member() || below.stale.count() == 0 {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{why}: it may have what the parity of {} rows lacks, and a member is missing; by force the array goes on without \
         the cache",
        below.stale.count()
    )))
}

/// The log of an SSD, as far as it is readable.
struct LogFound {
    /// Valid pages.
    pages: Vec<LogPage>,
    /// Unreadable sectors, counted from the start of the log.
    unreadable: BTreeSet<u64>,
    /// Length of the log in sectors.
    sectors: u64,
}

/// Evaluates a log that was written completely when the cache was closed.
fn closed(LogFound { mut pages, unreadable, sectors }: LogFound) -> Result<Recovered> {
    pages.sort_by_key(|page| page.sequence);
    let Some(newest) = pages.last() else { return Err(Error::corrupt("it has no page that is valid")) };
    if newest.sequence > u64::MAX / 2 {
        return Err(Error::corrupt("a page of it has a number that cannot be"));
    }
    let (head, tail) = (newest.head, newest.sequence + 1);
    if unreadable.contains(&(tail % sectors)) {
        return Err(Error::corrupt("a page of it cannot be read, and may be its last"));
    }
    pages.retain(|page| page.sequence >= head);
    if !pages.iter().map(|page| page.sequence).eq(head..tail) {
        return Err(Error::corrupt("a page of it is missing"));
    }
    let entries = pages.iter().flat_map(|page| page.entries.iter().map(|e| (*e, Some(page.sequence))));
    let restored = Restored { entries: entries.collect(), log: (head, tail), staged: Vec::new() };
    let state = State { log: restored.log, ..State::default() };
    Ok(Recovered { restored, state, unwritten: BTreeMap::new(), redo: Vec::new() })
}

/// Reads a log, sector by sector where it is not readable in one call: sectors that are no longer valid need not be
/// readable.
fn read_log(ssd: &Device, superblock: &CacheSuperblock) -> Result<LogFound> {
    let sectors = u64::from(superblock.plot.log_pages);
    let mut found = LogFound { pages: Vec::new(), unreadable: BTreeSet::new(), sectors };
    for first in (0..sectors).step_by(LOG_SECTORS_AT_ONCE as usize) {
        let end = (first + LOG_SECTORS_AT_ONCE).min(sectors);
        let stored = match read_at(ssd, first..end) {
            Ok(stored) => stored,
            Err(error) if !may_be_left_out(&error) => return Err(error),
            Err(_) => {
                let read = |sector| match read_at(ssd, sector..sector + 1) {
                    Err(error) if may_be_left_out(&error) && found.unreadable.len() < UNREADABLE_MAX => {
                        found.unreadable.insert(sector);
                        Ok(vec![0; SECTOR_BYTES])
                    }
                    read => read,
                };
                (first..end).map(read).collect::<Result<Vec<_>>>()?.concat()
            }
        };
        let valid = stored.chunks(SECTOR_BYTES).filter_map(|page| LogPage::decode(page).ok());
        found.pages.extend(valid.filter(|page| page.tag == superblock.tag));
    }
    Ok(found)
}

/// True for an error of a sector, as opposed to the loss of the whole SSD.
fn may_be_left_out(error: &Error) -> bool {
    !matches!(error.kind(), Kind::PowerLost | Kind::Gone)
}

/// Reads sectors of the log.
fn read_at(ssd: &Device, sectors: Range<u64>) -> Result<Vec<u8>> {
    let mut stored = vec![0; (sectors.end - sectors.start) as usize * SECTOR_BYTES];
    ssd.read(Lba(CachePlot::LOG + sectors.start), &mut stored).map(|()| stored)
}

fn recipe_of(scheme: Scheme, plot: &CachePlot) -> Recipe {
    let CachePlot { ways, segment_pages, log_pages, pages, .. } = *plot;
    Recipe { ways: ways.min(WAYS_MAX) as u16, segment_pages, log_pages, ..Recipe::new(scheme, pages) }
}

pub(super) fn recipe(superblock: &CacheSuperblock, nvram: Option<&Device>, options: &CacheOptions) -> Recipe {
    let recipe = recipe_of(superblock.scheme, &superblock.plot);
    let recipe = Recipe {
        staging_bytes: options.staging_bytes.unwrap_or(recipe.staging_bytes),
        window: options.window.unwrap_or(recipe.window),
        dirty_high: options.dirty_high,
        dirty_low: options.dirty_low,
        budget: (superblock.budget > 0).then_some(superblock.budget_left),
        ..recipe
    };
    match nvram {
        // Content in memory only would be lost, and staged deltas must fit into the NVRAM beside everything else.
        Some(nvram) => Recipe {
            window: 0,
            staging_bytes: recipe.staging_bytes.min(staging_bytes_max(&**nvram)),
            ..recipe
        },
        None => recipe,
    }
}

/// An eighth of the NVRAM.
fn staging_bytes_max(nvram: &dyn BlockDevice) -> usize {
    (nvram.info().bytes() / 8).clamp(HALF_BYTES_MIN / 4, usize::MAX as u64 / 2) as usize
}
