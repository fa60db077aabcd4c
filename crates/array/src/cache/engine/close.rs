//! Closing a cache, so that the next opening finds it as it was.

use super::cached::CachedArray;
use super::core::Core;
use super::job::Jobs;
use super::log_page::LogPage;
use super::superblock::CacheSuperblock;
use crate::cache::metalog::ENTRIES_PER_LOG_PAGE;
use crate::cache::step::LogEntry;
use std::sync::Arc;
use vellum_base::{Cause, Error, Kind, Result};

impl CachedArray {
    /// Ends all tasks and closes cache and array; the next [`CachedArray::open`] finds the cache as it was.
    pub fn close(self) -> Result<()> {
        let CachedArray { cleaner, behind, io, logger, core, about } = self;
        drop(cleaner);
        behind.drain();
        drop(logger); // What is due from here on the next opening writes.
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
    /// Closes the SSD if its log was written; returns its last superblock, or `None` if the cache is not valid.
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

    /// Makes the NVRAM durable with everything, and without intents; false if that is impossible.
    fn rest_in_nvram(&self) -> Result<bool> {
        self.resync_unknown();
        self.flush()?;
        match (&self.nvram, self.ssd()) {
            (Some(nvram), Some(_)) => nvram.persist_all(),
            _ => Ok(false),
        }
    }

    /// Empties the staging buffer, and cleans unknown rows of which the policy has deltas.
    fn settle(&self) -> Result<()> {
        self.resync_unknown();
        let mut jobs = Jobs::default();
        self.brain.lock().ask(&self.turns, &mut jobs, |policy, steps| policy.settle(steps));
        match self.carry_all(jobs.now, &[]) {
            Err(error) if error.kind() == Kind::PowerLost => Err(error),
            // A row that could not be cleaned is unknown from then on.
            _ => self.array.core().check_writable(),
        }
    }

    /// Discards the policy's deltas of unknown rows by recomputing their parity from data. Where that fails, and in all
    /// other unknown rows, parity stays stale.
    fn resync_unknown(&self) {
        let unknown: Vec<u64> = self.unknown.lock().iter().copied().collect();
        unknown.into_iter().for_each(|row| drop(self.ask(|policy, steps| policy.clean_row(row, steps))));
    }

    /// Writes the policy's map to the log; false if there is no SSD to write to.
    fn write_log(&self, first: u64) -> Result<bool> {
        let Some(ssd) = self.ssd() else { return Ok(false) };
        if !ssd.write_rest()? {
            return Ok(false);
        }
        let mut entries: Vec<LogEntry> = {
            let brain = self.brain.lock();
            brain.policy.entries().into_iter().map(|entry| brain.logged(entry)).collect()
        };
        // A page that could not be filled holds the content of another sector.
        entries.retain(|entry| !ssd.is_bad(entry.page));
        entries.iter_mut().for_each(|entry| *entry = ssd.sums.complete(entry));
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
