//! What an opening will find, as far as reading tells: what devices say goes through the code of an opening, which
//! writes nothing before it has a plan.

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
    /// Rows whose parity lacks something.
    pub stale_rows: u64,
    /// Of them, those of which the cache has what their parity lacks. None of those that were put off while it was not
    /// there, whose deltas went with a cut, or of which nobody knows what was under way.
    pub known_rows: u64,
    /// Why nothing of what the cache holds will count, if so.
    pub emptied: Option<String>,
}

impl Foreseen {
    /// By force, where an opening is refused: the cache is not used.
    pub fn without_cache(stale: &StaleRows) -> Foreseen {
        Foreseen { stale_rows: stale.count(), known_rows: 0, emptied: None }
    }
}

/// What an opening of the array will find that has these stale rows.
///
/// # Errors
/// Why it is refused.
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
