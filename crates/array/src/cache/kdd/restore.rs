//! A cache as an earlier one left it: entries of the log, then what NVRAM held (kdd.txt, III.E).

use super::Kdd;
use crate::cache::policy::{Recipe, Restored};
use crate::cache::shape::{CacheShape, PageState};
use crate::cache::step::{DeltaPlace, LogEntry, PageNo, Staged};
use std::collections::BTreeMap;
use vellum_base::{Error, Result};

impl Kdd {
    /// See [`Recipe::restore`].
    pub fn restore(shape: CacheShape, recipe: &Recipe, restored: &Restored) -> Result<Kdd> {
        let mut kdd = Kdd::new(shape, recipe);
        let pages = newest_of(&shape, restored, kdd.log.capacity())?;
        let staged: BTreeMap<PageNo, Staged> = restored.staged.iter().map(|s| (s.base, *s)).collect();
        for (order, entry) in in_order(restored, &pages) {
            kdd.restore_page(&entry, staged.contains_key(&entry.page))
                .map_err(|what| Error::corrupt(format!("entry {order} of the cache's log: {what}")))?;
        }
        for staged in &restored.staged {
            kdd.restore_staged(staged)
                .map_err(|what| Error::corrupt(format!("a staged delta of {}: {what}", staged.lba.0)))?;
        }
        let newest: Vec<(LogEntry, Option<u64>)> = restored.entries.clone();
        kdd.log.resume(&mut kdd.map, restored.log, &newest);
        Ok(kdd)
    }

    fn restore_page(&mut self, entry: &LogEntry, is_staged: bool) -> std::result::Result<(), &'static str> {
        let is_of_set = self.map.set_of(entry.lba) == entry.page.0 / u32::from(self.map.shape.ways);
        if !is_of_set {
            return Err("its sector belongs to another set");
        }
        if self.map.state(entry.page) != PageState::Free || self.map.find(entry.lba).is_some() {
            return Err("its page or its sector has another use");
        }
        self.map.insert(entry.page, entry.lba, entry.state);
        match (entry.state, entry.delta) {
            (PageState::Clean, None) => Ok(()),
            (PageState::Old, _) if is_staged => Ok(()),
            (PageState::Old, Some(delta)) => self.restore_delta(entry.page, delta),
            (PageState::Old, None) => Err("it is old and has no delta"),
            _ => Err("no such state in this policy"),
        }
    }

    fn restore_delta(
        &mut self,
        base: PageNo,
        (page, offset, bytes): (PageNo, u16, u16),
    ) -> std::result::Result<(), &'static str> {
        if page.0 >= self.map.shape.pages {
            return Err("its delta is beyond the cache");
        }
        match self.map.state(page) {
            PageState::Free => self.map.insert_deltas(page, 1),
            PageState::Delta => self.map.add_delta(page),
            _ => return Err("its delta is in a page of data"),
        }
        self.map.set_delta(base, DeltaPlace::In { page, offset, bytes }, 0);
        Ok(())
    }

    fn restore_staged(&mut self, staged: &Staged) -> std::result::Result<(), &'static str> {
        if staged.base.0 >= self.map.shape.pages || self.map.find(staged.lba) != Some(staged.base) {
            return Err("its base is not in the cache");
        }
        if self.map.delta(staged.base).is_some() {
            return Err("it is there twice");
        }
        if self.map.state(staged.base) == PageState::Clean {
            self.map.change(staged.base, PageState::Old);
        }
        let place = self.staging.push(staged.base, staged.bytes);
        self.map.set_delta(staged.base, DeltaPlace::Staged, place);
        Ok(())
    }
}

/// The index of the newest entry of each page.
fn newest_of(shape: &CacheShape, restored: &Restored, log_capacity: u64) -> Result<BTreeMap<PageNo, usize>> {
    let (head, tail) = restored.log;
    if head > tail || tail - head > log_capacity {
        return Err(Error::corrupt("the cache's log has more pages than it has room for"));
    }
    let mut newest = BTreeMap::new();
    for (at, (entry, _)) in restored.entries.iter().enumerate() {
        if entry.page.0 >= shape.pages {
            return Err(Error::corrupt(format!(
                "entry {at} of the cache's log is of a page beyond the cache"
            )));
        }
        newest.insert(entry.page, at);
    }
    Ok(newest)
}

/// The entries that count and are not free, in the order in which they were written: so pages of data come with their
/// first use, and what is used later is newer in the lists.
fn in_order(restored: &Restored, newest: &BTreeMap<PageNo, usize>) -> Vec<(usize, LogEntry)> {
    let mut order: Vec<usize> = newest.values().copied().collect();
    order.sort_unstable();
    let entries = order.into_iter().map(|at| (at, restored.entries[at].0));
    entries.filter(|(_, entry)| entry.state != PageState::Free).collect()
}
