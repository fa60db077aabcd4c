//! Forecast of an opening: devices are evaluated by the code of the opening itself, which writes nothing before it has
//! a plan.

use super::begin::dirty_rows;
use super::opening::{Plan, plan};
use super::options::CacheOptions;
use super::recovery::Recovered;
use crate::assemble::Device;
use crate::survey::{StaleRows, Survey};
use std::collections::BTreeSet;
use vellum_base::Result;

/// What an opening will find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreseen {
    /// Stale rows: those whose parity lacks something.
    pub stale_rows: u64,
    /// Of these, rows whose missing deltas the cache has. Not included: rows deferred while the cache was absent, rows
    /// whose deltas were lost in a crash, and rows in doubt.
    pub known_rows: u64,
    /// Why the cache's content will not be valid, if it is not.
    pub emptied: Option<String>,
}

impl Foreseen {
    /// The forecast for an opening forced to do without the cache.
    pub fn without_cache(stale: &StaleRows) -> Foreseen {
        Foreseen { stale_rows: stale.count(), known_rows: 0, emptied: None }
    }
}

/// The forecast for an opening of the array with these stale rows.
///
/// # Errors
/// If the opening will be refused, with the reason.
pub fn foresee(
    survey: &Survey,
    stale: &StaleRows,
    ssd: Option<&Device>,
    nvram: Option<&Device>,
) -> Result<Foreseen> {
    let below = survey.below(stale);
    let opened = match plan(&below, ssd, nvram, &CacheOptions::default())? {
        Plan::With(opened) => opened,
        Plan::WithoutCache(emptied) => return Ok(Foreseen { emptied, ..Foreseen::without_cache(stale) }),
    };
    let (restored, redo, whole) = opened
        .recovered
        .map(|Recovered { restored, redo, state, .. }| (restored, redo, state.whole))
        .unwrap_or_default();
    let redo: BTreeSet<u64> = redo.into_iter().map(|lba| below.row_of(lba)).collect();
    let whole = whole.iter().filter(|row| below.stale.has(**row)).count() as u64;
    let added = redo.iter().filter(|row| !below.stale.has(**row)).count() as u64;
    let mut known = dirty_rows(&restored, below.shape.row_sectors());
    known.retain(|row| below.stale.has(*row) || redo.contains(row));
    Ok(Foreseen {
        stale_rows: stale.count() + added - whole,
        known_rows: known.len() as u64,
        emptied: opened.emptied,
    })
}
