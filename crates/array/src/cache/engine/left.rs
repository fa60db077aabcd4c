//! The state in which a cache was left: whether SSD, NVRAM and members belong together.
//!
//! 1. A cache is valid if it was closed with the array (the superblocks of the array have its bond), or if its NVRAM
//!    has its state from when the power was lost.
//! 2. Nothing is written here.

use super::nvram::{State, check_size, fitted, half_sectors, read_region, region_owner};
use super::opening::examine_cache;
use super::options::CacheOptions;
use super::superblock::CacheSuperblock;
use crate::assemble::{Device, hex};
use crate::cache::policy::Scheme;
use crate::superblock::{Id, LogPlace, Superblock};
use vellum_base::size::format_size;
use vellum_base::{BlockDevice, Error, Result, SECTOR_BYTES};

/// Relation between the superblocks of a cache and of its array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bond {
    /// They were closed together.
    Closed,
    /// They were not closed together, and the content of the NVRAM decides.
    AsNvramSays,
    /// The power was lost, and without an NVRAM nothing is valid.
    NotClosed,
    /// The array was used without its cache.
    LeftBehind,
    /// They were not left together: one of them is an earlier copy.
    OutOfStep,
}

impl Bond {
    /// Compares a cache with members that have this bond.
    pub fn between(superblock: &CacheSuperblock, bond: u64) -> Bond {
        let CacheSuperblock { clean, nvram, bond: ours, bond_before, .. } = *superblock;
        match bond {
            0 if clean || nvram => Bond::LeftBehind,
            0 => Bond::NotClosed,
            _ if clean && bond == ours => Bond::Closed,
            _ if nvram => Bond::AsNvramSays,
            // The power was lost during an opening.
            _ if !clean && bond == bond_before => Bond::NotClosed,
            _ => Bond::OutOfStep,
        }
    }
}

/// Checks that members with this newest superblock may be opened with this cache, or without any if `ssd` is `None`;
/// unbound members always may. This is checked before anything is written, as the array and its cache are opened one
/// after the other.
///
/// # Errors
/// The reason why not; by force they may be opened all the same.
pub fn check_bound(newest: &Superblock, ssd: Option<&Device>, nvram: Option<&Device>) -> Result<()> {
    if newest.bond == 0 {
        return Ok(());
    }
    let left = match ssd {
        None => Err(Error::invalid("the array was closed with its cache")),
        Some(ssd) => identified(&newest.array, ssd)
            .and_then(|superblock| left_together(&superblock, newest.bond, nvram).map(drop)),
    };
    left.map_err(|error| {
        let what = "what it holds would not count any more, and parity that was put off would be made anew from data";
        Error::invalid(format!("{error}: {what}"))
    })
}

/// Checks that members with this newest superblock can be opened with this cache and its NVRAM.
///
/// # Errors
/// The reason why not, unless forced.
pub fn check_left_together(newest: &Superblock, ssd: &Device, nvram: Option<&Device>) -> Result<()> {
    let superblock = identified(&newest.array, ssd)?;
    if let Some(nvram) = nvram {
        check_may_have_nvram(&superblock, newest.log, newest.bond, nvram, &CacheOptions::default())?;
    }
    left_together(&superblock, newest.bond, nvram).map(drop)
}

/// The superblock of an SSD, which must be the array's cache.
pub(super) fn identified(array: &Id, ssd: &Device) -> Result<CacheSuperblock> {
    let superblock = examine_cache(ssd).map_err(|error| error.context("the SSD"))?;
    if superblock.array != *array {
        return Err(Error::invalid(format!(
            "the SSD is the cache of array {}, this is {}: name this array's, or detach it by force",
            hex(&superblock.array),
            hex(array)
        )));
    }
    if superblock.plot.ssd_sectors > ssd.info().sectors {
        return Err(Error::corrupt("the SSD is smaller than its cache superblock says: it was cut short"));
    }
    Ok(superblock)
}

/// What is valid of a cache.
pub(super) enum Left {
    InNvram(Box<State>),
    Closed,
    /// Nothing, for this reason.
    Nothing(&'static str),
}

/// Determines what of a cache is valid with members that have this bond.
///
/// # Errors
/// They name the device that was not left together with the others.
pub(super) fn left_together(superblock: &CacheSuperblock, bond: u64, nvram: Option<&Device>) -> Result<Left> {
    match (Bond::between(superblock, bond), superblock.nvram) {
        (Bond::LeftBehind, _) => return Ok(Left::Nothing("the array was in use without its cache")),
        (Bond::NotClosed, _) => return Ok(Left::Nothing("the cache was not closed")),
        (Bond::Closed, false) => return Ok(Left::Closed),
        (Bond::OutOfStep, _) => {
            return Err(Error::invalid(
                "the SSD and the members were not closed together: one has an earlier state",
            ));
        }
        (Bond::Closed | Bond::AsNvramSays, _) => {}
    }
    let CacheSuperblock { generation, bond: ours, bond_before, .. } = *superblock;
    let state = known(superblock, nvram).map_err(|error| error.context("the cache's NVRAM"))?;
    let (session, is_told) = state.session;
    match session.checked_sub(generation) {
        Some(0) if bond == ours || !is_told && bond == bond_before => Ok(Left::InNvram(Box::new(state))),
        // The power was lost before the SSD was updated; the members are updated after the SSD.
        Some(1) if !is_told && bond == ours => Ok(Left::InNvram(Box::new(state))),
        Some(0) => Err(Error::invalid("the members have an earlier state than the cache")),
        Some(_) => Err(Error::invalid("the SSD has an earlier state of the cache than its NVRAM")),
        None => Err(Error::invalid("the cache's NVRAM: it is an earlier copy")),
    }
}

/// The state in the NVRAM of a cache.
fn known(superblock: &CacheSuperblock, nvram: Option<&Device>) -> Result<State> {
    let Some(nvram) = nvram else { return Err(Error::invalid("it is not named")) };
    let nvram = fitted(nvram, superblock.nvram_half);
    if half_sectors(&*nvram) < superblock.nvram_half.into() {
        let size = |sectors: u64| format_size(sectors * SECTOR_BYTES as u64);
        let (has, had) = (size(nvram.info().sectors), size(u64::from(superblock.nvram_half) * 2));
        return Err(Error::corrupt(format!("it was cut short: it has {has}, and {had} of it were used")));
    }
    let Some(found) = read_region(&*nvram)? else { return Err(Error::corrupt("it holds nothing")) };
    match found.head.whose == superblock.whose() {
        true => Ok(found.state),
        false => Err(Error::invalid("it is another cache's")),
    }
}

/// Fails for an NVRAM that the cache cannot use, or that is not its own.
pub(super) fn check_may_have_nvram(
    superblock: &CacheSuperblock,
    log: LogPlace,
    bond: u64,
    nvram: &Device,
    options: &CacheOptions,
) -> Result<()> {
    check_uses_nvram(superblock.scheme)?;
    check_has_log(log)?;
    check_size(&**nvram)?;
    check_not_another_s(nvram, superblock, bond, options)
}

/// Fails for an NVRAM with content of another array or cache, which would be lost.
fn check_not_another_s(
    nvram: &Device,
    superblock: &CacheSuperblock,
    bond: u64,
    options: &CacheOptions,
) -> Result<()> {
    let another_s = || "it is another cache's".to_string();
    let (array, begins) = (superblock.array, !superblock.nvram || bond == 0);
    let what = match read_region(&*fitted(nvram, superblock.nvram_half)) {
        Ok(Some(found)) if found.head.whose.array != array => another_s(),
        Err(error) if begins => error.to_string(),
        // If its halves have another length than this cache's, its head is elsewhere.
        _ if begins && region_owner(&**nvram).flatten().is_some_and(|owner| owner != array) => another_s(),
        // Whether it is the one that this cache was left with is checked later, if its content matters.
        _ => return Ok(()),
    };
    match options.without_cache {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "the cache's NVRAM: {what}: name another, or make it this cache's by force"
        ))),
    }
}

/// Fails for an array without a log: its parity is recomputed after every crash, so the cache's state would be useless.
pub(super) fn check_has_log(log: LogPlace) -> Result<()> {
    match log {
        LogPlace::None => Err(Error::invalid(
            "an array without a log makes its parity anew after a power cut: an NVRAM is of no use to its cache",
        )),
        LogPlace::Members | LogPlace::Device => Ok(()),
    }
}

/// Fails for a policy that does not record its whole state in an NVRAM, which would be wrong after a crash.
pub(super) fn check_uses_nvram(scheme: Scheme) -> Result<()> {
    match scheme {
        Scheme::Kdd | Scheme::KddPaper => Ok(()),
        _ => Err(Error::invalid(format!(
            "only kdd and kdd-paper keep what they know in an NVRAM, this cache is {}: do not name one",
            scheme.name()
        ))),
    }
}
