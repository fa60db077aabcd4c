//! Recovery of a cache after a crash, from its log and NVRAM.
//!
//! 1. A pending page holds nothing. A moving delta is staged again.
//! 2. If it is not known whether a row's parity includes its deltas, the row is unknown: its old pages are dropped, and
//!    its parity is recomputed from data. The same holds for a row that the array does not mark stale, unless that is
//!    because its sectors were not written yet.
//! 3. A clean page has the content of the array only if the array's log has restored that. Rows without any parity have
//!    no record there, and neither have deferred writes whose row was about to be cleaned: unflushed content of these
//!    may be lost, so their pages are dropped.
//! 4. Of rows whose log records are unreadable (`Below::doubted`) nothing is kept: neither the state of their parity
//!    nor what was replayed is known. The pages are dropped durably before the cache's log goes on, as the next opening
//!    does not know of the doubt.
//! 5. A row that was whole when its marks were not cleared yet is whole, whatever the members say, if it has no old
//!    page since, and none of its log records is in doubt.
//! 6. Nothing is written here.

use super::log_page::LogPage;
use super::nvram::State;
use crate::below::Below;
use crate::cache::policy::Restored;
use crate::cache::shape::PageState;
use crate::cache::step::{LogEntry, PageNo, Staged};
use std::collections::{BTreeMap, BTreeSet};
use vellum_base::{Error, Lba, Result};

/// What is valid of a cache after a crash.
pub(super) struct Recovered {
    pub restored: Restored,
    /// The state with which the NVRAM goes on.
    pub state: State,
    /// Log pages to be written first.
    pub unwritten: BTreeMap<u64, Vec<LogEntry>>,
    /// Sectors to be written again, in order.
    pub redo: Vec<Lba>,
}

/// Combines the log pages on the SSD with the state in NVRAM.
///
/// # Errors
/// [`vellum_base::Kind::Corrupt`] if a log page is missing, or if something is inconsistent.
pub(super) fn recover(below: &Below<'_>, pages: Vec<LogPage>, mut state: State) -> Result<Recovered> {
    check_can_be(below, &pages, &state)?;
    let mut entries = logged(pages, &state)?;
    state.staged.extend(std::mem::take(&mut state.moving).into_iter().map(|(base, (_, held))| (base, held)));
    let newest = newest(&entries, &state);
    let mut dropped: BTreeSet<PageNo> = state.pending.keys().copied().collect();
    dropped.extend(newest.values().filter(|entry| is_doubtful(below, &state, entry)).map(|entry| entry.page));
    let in_doubt = newest.values().filter(|entry| below.doubted.contains(&below.row_of(entry.lba)));
    dropped.extend(in_doubt.map(|entry| entry.page));
    let old: Vec<&LogEntry> = newest.values().filter(|entry| is_old(&state, entry)).collect();
    let mut unsure: BTreeSet<u64> = state.cleaning.keys().copied().collect();
    let lost = old.iter().filter(|entry| is_lost(below, &state, entry, &dropped));
    unsure.extend(lost.map(|entry| below.row_of(entry.lba)));
    let was_put_off: BTreeSet<u64> = old.iter().map(|entry| below.row_of(entry.lba)).collect();
    let (unknown, known): (Vec<&LogEntry>, Vec<&LogEntry>) =
        old.into_iter().partition(|entry| unsure.contains(&below.row_of(entry.lba)));
    dropped.extend(unknown.iter().map(|entry| entry.page));
    drop_pages(&mut state, &newest, dropped);
    let is_intended = |lba: &Lba| state.intents.contains_key(lba);
    let redo: BTreeSet<Lba> = known.iter().map(|entry| entry.lba).filter(is_intended).collect();
    state.intents.retain(|lba, _| redo.contains(lba));
    state.whole.append(&mut state.telling);
    state
        .whole
        .retain(|row| !(was_put_off.contains(row) || unsure.contains(row) || below.doubted.contains(row)));
    state.pending.clear();
    state.cleaning.clear();
    entries.extend(state.buffer.values().map(|entry| (*entry, None)));
    let restored = Restored { entries, log: state.log, staged: staged(&state) };
    let unwritten = std::mem::take(&mut state.unwritten);
    Ok(Recovered { restored, state, unwritten, redo: redo.into_iter().collect() })
}

/// True if a clean page may have content that the array has lost.
fn is_doubtful(below: &Below<'_>, state: &State, entry: &LogEntry) -> bool {
    entry.state == PageState::Clean
        && !state.staged.contains_key(&entry.page)
        && (!below.has_parity(below.row_of(entry.lba)) || state.intents.contains_key(&entry.lba))
}

/// True if the page has the version that parity covers, and the array a newer one.
fn is_old(state: &State, entry: &LogEntry) -> bool {
    entry.state == PageState::Old || entry.state != PageState::Free && state.staged.contains_key(&entry.page)
}

/// True if an old page, its delta, or what its row's parity lacks is no longer known.
fn is_lost(below: &Below<'_>, state: &State, entry: &LogEntry, dropped: &BTreeSet<PageNo>) -> bool {
    let delta = entry.delta.filter(|_| !state.staged.contains_key(&entry.page));
    dropped.contains(&entry.page)
        || delta.is_some_and(|(home, ..)| state.pending.contains_key(&home))
        || !below.stale.has(below.row_of(entry.lba)) && !state.intents.contains_key(&entry.lba)
}

fn drop_pages(state: &mut State, newest: &BTreeMap<PageNo, LogEntry>, dropped: BTreeSet<PageNo>) {
    for page in dropped {
        state.staged.remove(&page);
        if newest.get(&page).is_some_and(|entry| entry.state != PageState::Free) {
            state.free(page);
        }
    }
    state.staged.retain(|base, held| newest.get(base).is_some_and(|entry| entry.lba == held.lba));
}

/// Fails for sectors and rows beyond the array, and for numbers so large that they might run out.
fn check_can_be(below: &Below<'_>, pages: &[LogPage], state: &State) -> Result<()> {
    let sectors = below.shape.sectors();
    let logged = pages.iter().map(|page| &page.entries).chain(state.unwritten.values()).flatten();
    let entries = logged.chain(state.buffer.values()).map(|entry| entry.lba);
    let held = state.staged.values().chain(state.moving.values().map(|(_, held)| held));
    let mut lbas = entries.chain(held.map(|held| held.lba)).chain(state.intents.keys().copied());
    if lbas.any(|lba| lba.0 >= sectors) {
        return Err(Error::corrupt("an entry is of a sector beyond the array"));
    }
    let rows = [&state.whole, &state.telling].into_iter().flatten().chain(state.cleaning.keys());
    if rows.into_iter().any(|row| *row >= below.shape.rows) {
        return Err(Error::corrupt("a row in it is beyond the array"));
    }
    match state.last_stamp().max(state.log.1) > u64::MAX / 2 {
        true => Err(Error::corrupt("a number in it cannot be")),
        false => Ok(()),
    }
}

/// Entries of the log, with the sequence numbers of their pages.
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

/// The valid entry of each page.
fn newest(entries: &[(LogEntry, Option<u64>)], state: &State) -> BTreeMap<PageNo, LogEntry> {
    let logged = entries.iter().map(|(entry, _)| (entry.page, *entry));
    logged.chain(state.buffer.iter().map(|(page, entry)| (*page, *entry))).collect()
}

/// Staged deltas in the order of their arrival.
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
