//! Puts a cache into use, given what an opening found.

use super::brain::Brain;
use super::budget::Budget;
use super::cached::About;
use super::log_page::LogPage;
use super::nvram::{Nvram, State, blank_head, fitted, half_sectors, last_generation};
use super::opening::{Opened, recipe};
use super::options::CacheOptions;
use super::recovery::Recovered;
use super::ssd::Ssd;
use crate::array::Array;
use crate::assemble::Device;
use crate::cache::policy::Restored;
use crate::cache::shape::PageState;
use crate::cache::step::{LogEntry, PageNo};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vellum_base::{Cause, Lba, Result};

/// An SSD, its NVRAM, and what was found on them.
pub(super) struct Kept {
    pub ssd: Device,
    pub nvram: Option<Device>,
    pub opened: Opened,
}

/// A cache in use: its SSD, its brain, rows whose deltas it has, sectors to be written again.
pub(super) type Begun = (Option<Ssd>, Brain, BTreeSet<u64>, Vec<Lba>, About);

impl Kept {
    /// Puts the cache into use, and records that on SSD, NVRAM and members.
    pub fn begin(self, array: &Array, options: &CacheOptions) -> Result<Begun> {
        let Kept { ssd, nvram, mut opened } = self;
        let shape = array.core().shape;
        // An NVRAM without valid content is used in its full size.
        let used = opened.recovered.as_ref().map_or(0, |_| opened.superblock.nvram_half);
        let nvram = nvram.map(|nvram| fitted(&nvram, used));
        let as_found = opened.superblock.clone();
        let had_half = as_found.nvram_half;
        let recipe = recipe(&opened.superblock, nvram.as_ref(), options);
        let policy = match opened.policy.take() {
            Some(policy) => policy,
            None => recipe.build(&shape)?,
        };
        let Opened { mut superblock, emptied, log_next, recovered, .. } = opened;
        let is_empty = recovered.is_none();
        let whole = recovered.as_ref().map_or_else(BTreeSet::new, |recovered| recovered.state.whole.clone());
        if is_empty {
            (superblock.tag, superblock.bond) = (array.core().env.random(), 0);
        }
        // Also needed for the bond of the previous session, if the power was lost before the members had it.
        array.core().bind(superblock.bond)?;
        superblock.begin_session(array.core().env.random() | 1);
        (superblock.clean, superblock.nvram) = (false, nvram.is_some());
        superblock.nvram_half = nvram.as_ref().map_or(0, |nvram| half_sectors(&**nvram) as u32);
        let ssd = Ssd::new(ssd, as_found, &superblock, array.core());
        let budget = (superblock.budget > 0).then(|| Budget::new(superblock.budget, array.core().env.now()));
        let mut brain = Brain::new(policy, budget, shape.row_sectors());
        (brain.sums, brain.tag) = (ssd.sums.clone(), ssd.tag);
        if let Some(found) = &recovered {
            ssd.sums.restore(&found.restored, &found.state.staged);
            brain.restore(&found.restored.entries);
        }
        let (known, redo) = match &recovered {
            Some(recovered) => {
                write_log_pages(&ssd, recovered)?;
                (dirty_rows(&recovered.restored, shape.row_sectors()), recovered.redo.clone())
            }
            None => (BTreeSet::new(), Vec::new()),
        };
        if let Some(nvram) = nvram {
            let state = recovered.map_or_else(State::default, |recovered| recovered.state);
            brain.staging = state.staged.iter().map(|(base, held)| (*base, held.delta.clone())).collect();
            let state = State { session: (superblock.generation, false), ..state };
            let last = last_generation(&*nvram)?;
            let device = nvram.clone();
            let nvram = Nvram::begin(
                array.core().env.clone(),
                nvram,
                superblock.whose(),
                state,
                last,
                ssd.sums.clone(),
            )?;
            if is_empty {
                blank_head(&*device, had_half)?;
            }
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
        whole.into_iter().for_each(|row| array.core().stale.clear(row));
        array.core().has_cache.store(superblock.nvram && !ssd.is_detached(), Relaxed);
        Ok((Some(ssd), brain, known, redo, About { superblock: Some(superblock), emptied, log_next }))
    }
}

/// Writes pages of the log that were in flight when the power was lost.
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

/// Rows whose missing deltas the cache has.
pub(super) fn dirty_rows(restored: &Restored, row_sectors: u64) -> BTreeSet<u64> {
    let newest: BTreeMap<PageNo, LogEntry> =
        restored.entries.iter().map(|(entry, _)| (entry.page, *entry)).collect();
    let old = newest.values().filter(|entry| entry.state == PageState::Old).map(|entry| entry.lba);
    old.chain(restored.staged.iter().map(|staged| staged.lba)).map(|lba| lba.0 / row_sectors).collect()
}
