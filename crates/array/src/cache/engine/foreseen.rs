//! What a cache will be good for when the array is opened with it, as far as reading tells.

use super::begin::dirty_rows;
use super::log_page::LogPage;
use super::nvram::State;
use super::opening::{
    Left, check_not_another_s, check_uses_nvram, closed, identified, left_together, read_log,
};
use super::options::CacheOptions;
use crate::assemble::Device;
use crate::cache::policy::Restored;
use crate::cache::step::{LogEntry, Staged};
use crate::superblock::Superblock;
use std::collections::{BTreeMap, BTreeSet};
use vellum_base::Result;

/// Rows of which the cache has what their parity lacks. None of those that were put off while it was not there, or
/// whose deltas went with a cut.
///
/// # Errors
/// Why the array is not opened with it, or would find it empty.
pub fn rows_kept(newest: &Superblock, ssd: &Device, nvram: Option<&Device>) -> Result<BTreeSet<u64>> {
    let superblock = identified(&newest.array, ssd)?;
    let row_sectors = newest.shape.row_sectors();
    match left_together(&superblock, newest.bond, nvram)? {
        Left::Nothing(_) => Ok(BTreeSet::new()),
        Left::Closed => Ok(dirty_rows(&closed(read_log(ssd, &superblock)?)?.restored, row_sectors)),
        Left::InNvram(state) => {
            let mut rows = dirty_rows(&together(read_log(ssd, &superblock)?, &state), row_sectors);
            rows.retain(|row| !state.cleaning.contains_key(row));
            Ok(rows)
        }
    }
}

/// Whether members whose newest superblock this is are opened with this cache and its NVRAM.
///
/// # Errors
/// Why not, but by force.
pub fn check_left_together(newest: &Superblock, ssd: &Device, nvram: Option<&Device>) -> Result<()> {
    let superblock = identified(&newest.array, ssd)?;
    if let Some(nvram) = nvram {
        check_uses_nvram(superblock.scheme)?;
        check_not_another_s(&**nvram, &superblock, newest.bond, &CacheOptions::default())?;
    }
    left_together(&superblock, newest.bond, nvram).map(drop)
}

/// Log and NVRAM, as the opening takes them together ([`super::recovery`]).
fn together(pages: Vec<LogPage>, state: &State) -> Restored {
    let (head, tail) = state.log;
    let counts = pages.into_iter().filter(|page| (head..tail).contains(&page.sequence));
    let mut logged: BTreeMap<u64, Vec<LogEntry>> = counts.map(|page| (page.sequence, page.entries)).collect();
    logged.extend(state.unwritten.clone());
    let entries = logged.into_values().flatten().chain(state.buffer.values().copied());
    let held = state.staged.iter().chain(state.moving.iter().map(|(base, (_, held))| (base, held)));
    let staged = held.map(|(base, held)| Staged { base: *base, lba: held.lba, bytes: 0, offset: 0 });
    Restored {
        entries: entries.map(|entry| (entry, None)).collect(),
        log: state.log,
        staged: staged.collect(),
    }
}
