//! A cache after a cut: what log and NVRAM come to.
//!
//! 1. A page that was pending holds nothing. A delta that was moving is staged again.
//! 2. A row of which it is not known whether parity has its deltas is not known at all: its old pages are dropped, and
//!    its parity is made anew from data. So is a row that the array does not call stale, unless that is because its
//!    sectors were not written yet.
//! 3. A clean page is what the array holds only if the log has brought that back. Rows without any parity have no
//!    record there, nor have writes whose parity was put off and whose row was about to be cleaned: what was not
//!    flushed may have gone from the array, so their pages are dropped.
//! 4. Nothing is written here.

use super::log_page::LogPage;
use super::nvram::State;
use crate::array::Array;
use crate::cache::policy::Restored;
use crate::cache::shape::PageState;
use crate::cache::step::{LogEntry, PageNo, Staged};
use std::collections::{BTreeMap, BTreeSet};
use vellum_base::{Error, Lba, Result};

/// What counts of a cache after a cut.
pub(super) struct Recovered {
    pub restored: Restored,
    /// With what the NVRAM goes on.
    pub state: State,
    /// Pages of the log that are to be written first.
    pub unwritten: BTreeMap<u64, Vec<LogEntry>>,
    /// Sectors to be written again.
    pub redo: Vec<Lba>,
}

/// Puts the pages of the log that the SSD has, and what the NVRAM knows, together.
///
/// # Errors
/// [`vellum_base::Kind::Corrupt`] if a page of the log is missing, or something cannot be.
pub(super) fn recover(array: &Array, pages: Vec<LogPage>, mut state: State) -> Result<Recovered> {
    check_can_be(array.core().shape.sectors(), &pages, &state)?;
    let mut entries = logged(pages, &state)?;
    state.staged.extend(std::mem::take(&mut state.moving).into_iter().map(|(base, (_, held))| (base, held)));
    let row_of = |lba: Lba| array.row_of(lba);
    let newest = newest(&entries, &state);
    let roster = array.core().roster();
    let mut dropped: BTreeSet<PageNo> = state.pending.keys().copied().collect();
    let doubtful = |entry: &&LogEntry| {
        entry.state == PageState::Clean
            && !state.staged.contains_key(&entry.page)
            && (array.core().parity_roles(&roster, row_of(entry.lba)).is_empty()
                || state.intents.contains_key(&entry.lba))
    };
    dropped.extend(newest.values().filter(doubtful).map(|entry| entry.page));
    let old: Vec<(PageNo, Lba)> = newest
        .values()
        .filter(|entry| {
            entry.state == PageState::Old
                || entry.state != PageState::Free && state.staged.contains_key(&entry.page)
        })
        .map(|entry| (entry.page, entry.lba))
        .collect();
    let is_lost = |page: &PageNo, lba: &Lba| {
        let delta = newest[page].delta.filter(|_| !state.staged.contains_key(page));
        let is_gone =
            dropped.contains(page) || delta.is_some_and(|(home, ..)| state.pending.contains_key(&home));
        is_gone || !array.is_stale(row_of(*lba)) && !state.intents.contains_key(lba)
    };
    let mut unsure: BTreeSet<u64> = state.cleaning.keys().copied().collect();
    unsure.extend(old.iter().filter(|(page, lba)| is_lost(page, lba)).map(|(_, lba)| row_of(*lba)));
    dropped.extend(old.iter().filter(|(_, lba)| unsure.contains(&row_of(*lba))).map(|(page, _)| *page));
    for page in dropped {
        state.staged.remove(&page);
        if newest.get(&page).is_some_and(|entry| entry.state != PageState::Free) {
            state.free(page);
        }
    }
    state.staged.retain(|base, held| newest.get(base).is_some_and(|entry| entry.lba == held.lba));
    let redo: Vec<Lba> = old
        .iter()
        .filter(|(_, lba)| state.intents.contains_key(lba) && !unsure.contains(&row_of(*lba)))
        .map(|(_, lba)| *lba)
        .collect();
    state.intents.retain(|lba, _| redo.contains(lba));
    state.pending.clear();
    state.cleaning.clear();
    entries.extend(state.buffer.values().map(|entry| (*entry, None)));
    let restored = Restored { entries, log: state.log, staged: staged(&state) };
    let unwritten = std::mem::take(&mut state.unwritten);
    Ok(Recovered { restored, state, unwritten, redo })
}

/// Refuses sectors beyond the array, and numbers after which there are not enough.
fn check_can_be(sectors: u64, pages: &[LogPage], state: &State) -> Result<()> {
    let logged = pages.iter().map(|page| &page.entries).chain(state.unwritten.values()).flatten();
    let entries = logged.chain(state.buffer.values()).map(|entry| entry.lba);
    let held = state.staged.values().chain(state.moving.values().map(|(_, held)| held));
    let mut lbas = entries.chain(held.map(|held| held.lba)).chain(state.intents.keys().copied());
    if lbas.any(|lba| lba.0 >= sectors) {
        return Err(Error::corrupt("an entry is of a sector beyond the array"));
    }
    match state.last_stamp().max(state.log.1) > u64::MAX / 2 {
        true => Err(Error::corrupt("a number in it cannot be")),
        false => Ok(()),
    }
}

/// Entries of the log, with the sequences of their pages.
fn logged(pages: Vec<LogPage>, state: &State) -> Result<Vec<(LogEntry, Option<u64>)>> {
    let mut by_sequence: BTreeMap<u64, Vec<LogEntry>> =
        pages.into_iter().map(|page| (page.sequence, page.entries)).collect();
    let mut entries = Vec::new();
    for sequence in state.log.0..state.log.1 {
        let unwritten = state.unwritten.get(&sequence).cloned();
        let Some(page) = unwritten.or_else(|| by_sequence.remove(&sequence)) else {
            return Err(Error::corrupt("a page of it is missing"));
        };
        entries.extend(page.into_iter().map(|entry| (entry, Some(sequence))));
    }
    Ok(entries)
}

/// The entry of each page that counts.
fn newest(entries: &[(LogEntry, Option<u64>)], state: &State) -> BTreeMap<PageNo, LogEntry> {
    let logged = entries.iter().map(|(entry, _)| (entry.page, *entry));
    logged.chain(state.buffer.iter().map(|(page, entry)| (*page, *entry))).collect()
}

/// Staged deltas in the order in which they came.
fn staged(state: &State) -> Vec<Staged> {
    let mut held: Vec<_> = state.staged.iter().collect();
    held.sort_by_key(|(_, held)| held.stamp);
    let staged = held.into_iter().map(|(base, held)| Staged {
        base: *base,
        lba: held.lba,
        bytes: held.delta.len() as u16,
        offset: 0,
    });
    staged.collect()
}
