//! LeavO (Lee, Oh, Lee: SSD caching to overcome small write problem of disk-based RAID, SAC 2015): a write hit keeps
//! the old version and writes the new one to another page; parity is updated when both are reclaimed.
//!
//! Here it uses KDD's log, and logs each version that it writes: this is less metadata than the KDD paper measured for
//! it (docs/decisions/0023-array-cache.md).

use super::map::Map;
use super::metalog::MetaLog;
use super::policy::{Census, Policy, Recipe, Restored};
use super::shape::{CacheShape, PageState};
use super::step::{LogEntry, Newest, PageNo, ParityPart, Step, Steps, Why};
use super::whole;
use vellum_base::{Lba, Result};

/// See the module.
pub(super) struct Leavo {
    map: Map,
    log: MetaLog,
    high: u32,
    low: u32,
    defers: bool,
    /// The set to be cleaned next when idle.
    next: u32,
    /// Scratch space, kept for its capacity.
    row: Vec<PageNo>,
}

impl Leavo {
    pub fn new(shape: CacheShape, recipe: &Recipe) -> Leavo {
        let share = |share: f64| (share * f64::from(shape.ways)) as u32;
        Leavo {
            log: MetaLog::new(recipe.log_pages, shape.pages),
            high: share(recipe.dirty_high),
            low: share(recipe.dirty_low),
            defers: true,
            next: 0,
            row: Vec::new(),
            map: Map::new(shape),
        }
    }

    /// See [`Recipe::restore`]. A clean stop leaves only clean pages.
    pub fn restore(shape: CacheShape, recipe: &Recipe, restored: &Restored) -> Result<Leavo> {
        let mut leavo = Leavo::new(shape, recipe);
        whole::restore(&mut leavo.map, recipe, restored)?;
        leavo.log.resume(&mut leavo.map, restored.log, &restored.entries);
        Ok(leavo)
    }

    /// A page of the set: a free one, or the coldest clean one unless that is `not`.
    fn page_of(&mut self, set: u32, not: Option<PageNo>, steps: &mut Steps) -> Option<PageNo> {
        if let Some(page) = self.map.free_page(set) {
            return Some(page);
        }
        let page = self.map.coldest_clean(set).filter(|page| Some(*page) != not)?;
        self.drop_page(page, steps);
        Some(page)
    }

    fn drop_page(&mut self, page: PageNo, steps: &mut Steps) {
        self.map.release(page);
        self.log.note(&mut self.map, page, steps);
    }

    fn admit(&mut self, lba: Lba, why: Why, steps: &mut Steps) {
        let set = self.map.set_of(lba);
        if let Some(page) = self.page_of(set, None, steps) {
            self.map.insert(page, lba, PageState::Clean);
            steps.push(Step::WritePage { page, lba, why });
            self.log.note(&mut self.map, page, steps);
        }
    }

    /// A write to a clean page: it becomes old, and the new version goes to another page. False if there is none for
    /// it.
    fn put_off(&mut self, lba: Lba, old: PageNo, steps: &mut Steps) -> bool {
        self.map.touch(old);
        let set = self.map.set_of(lba);
        let Some(new) = self.page_of(set, Some(old), steps) else { return false };
        self.map.hide(old);
        self.map.insert(new, lba, PageState::New);
        self.map.set_old_of(new, old);
        steps.push(Step::WriteWithoutParity(lba));
        steps.push(Step::WritePage { page: new, lba, why: Why::Update });
        steps.answer();
        self.log.note(&mut self.map, old, steps);
        self.log.note(&mut self.map, new, steps);
        self.keep_clean(set, steps);
        true
    }

    fn keep_clean(&mut self, set: u32, steps: &mut Steps) {
        if self.map.dirty(set) <= self.high {
            return;
        }
        while self.map.dirty(set) > self.low {
            let Some(coldest) = self.map.coldest_pinned(set) else { return };
            self.clean(self.map.shape.row_of(self.map.lba(coldest)), steps);
        }
    }

    fn clean(&mut self, row: u64, steps: &mut Steps) {
        let mut pages = std::mem::take(&mut self.row);
        self.map.pinned_of_row(row, &mut pages);
        if !pages.is_empty() {
            let from = steps.parts.len() as u32;
            for new in &pages {
                let (lba, old) = (self.map.lba(*new), self.map.old_of(*new));
                steps.push(Step::ReadPage(old));
                steps.push(Step::ReadPage(*new));
                steps.parts.push(ParityPart::Versions { lba, old, new: *new });
            }
            let count = pages.len() as u32;
            steps.push(Step::UpdateParity { row, from, count, whole: false });
        }
        for new in pages.drain(..) {
            let old = self.map.old_of(new);
            self.map.change(new, PageState::Clean);
            self.drop_page(old, steps);
            steps.push(Step::Discard(old));
            self.log.note(&mut self.map, new, steps);
        }
        self.row = pages;
    }
}

impl Policy for Leavo {
    fn base(&self, _lba: Lba) -> Option<PageNo> {
        None
    }

    fn newest(&self, lba: Lba) -> Newest {
        whole::newest(&self.map, lba)
    }

    fn read(&mut self, lba: Lba, steps: &mut Steps) -> Newest {
        let newest = whole::read(&mut self.map, lba, steps);
        if newest == Newest::Array {
            self.admit(lba, Why::Fill, steps);
        }
        newest
    }

    fn write(&mut self, lba: Lba, _delta_bytes: Option<usize>, steps: &mut Steps) {
        let Some(page) = self.map.find(lba) else {
            steps.push(Step::WriteArray(lba));
            steps.answer();
            return self.admit(lba, Why::Allocate, steps);
        };
        match self.map.state(page) {
            PageState::New if self.defers => {
                self.map.touch(page);
                steps.push(Step::WriteWithoutParity(lba));
                steps.push(Step::WritePage { page, lba, why: Why::Update });
                steps.answer();
                self.log.note(&mut self.map, page, steps);
            }
            PageState::Clean if self.defers && self.put_off(lba, page, steps) => {}
            _ => {
                self.forget(lba, steps);
                steps.push(Step::WriteArray(lba));
                steps.answer();
            }
        }
    }

    fn forget(&mut self, lba: Lba, steps: &mut Steps) {
        let Some(page) = self.map.find(lba) else { return };
        if self.map.state(page) == PageState::New {
            self.clean(self.map.shape.row_of(lba), steps);
        }
        self.drop_page(page, steps);
        steps.push(Step::Discard(page));
    }

    fn clean_row(&mut self, row: u64, steps: &mut Steps) {
        self.clean(row, steps);
    }

    fn idle(&mut self, steps: &mut Steps) -> bool {
        for _ in 0..self.map.sets() {
            let set = self.next;
            self.next = (set + 1) % self.map.sets();
            if let Some(coldest) = self.map.coldest_pinned(set) {
                self.clean(self.map.shape.row_of(self.map.lba(coldest)), steps);
                return true;
            }
        }
        false
    }

    fn allow_deferring(&mut self, allowed: bool) {
        self.defers = allowed;
    }

    fn settle(&mut self, steps: &mut Steps) {
        while self.idle(steps) {}
    }

    fn entries(&self) -> Vec<LogEntry> {
        whole::entries(&self.map)
    }

    fn census(&self) -> Census {
        let [free, clean, old, new, delta] = self.map.counts;
        Census { free, clean, old, new, delta, log_pages: self.log.used(), ..Census::default() }
    }
}
