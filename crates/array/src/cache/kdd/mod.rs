//! KDD: old versions and deltas in the cache (kdd.txt, section III).
//!
//! 1. A page is old exactly while its delta is staged or in a delta page; parity lacks exactly the deltas of the old
//!    pages of its row.
//! 2. A delta page counts the old pages whose delta it has; when none is left it is freed.
//! 3. Old pages are not evicted: they are reclaimed when their row is cleaned.

mod clean;
mod restore;
mod segments;
mod window;

use super::admission::{Admission, Standing};
use super::map::Map;
use super::metalog::{MetaLog, entry_of};
use super::policy::{Census, Policy, Recipe, Scheme};
use super::shape::{CacheShape, PageState};
use super::staging::{DELTA_BYTES_MAX, Staging};
use super::step::{DeltaPlace, LogEntry, Newest, PageNo, Staged, Step, Steps, Why};
use segments::Segments;
use vellum_base::{Lba, SECTOR_BYTES};

/// See the module.
pub(super) struct Kdd {
    map: Map,
    log: MetaLog,
    staging: Staging,
    /// Shares of dirty pages in a set at which cleaning begins, and ends.
    high: f64,
    low: f64,
    defers: bool,
    /// Longer deltas are not used.
    delta_bytes_max: usize,
    /// `None`: everything is admitted.
    admission: Option<Admission>,
    /// `None`: pages are written in place.
    segments: Option<Segments>,
    /// The set to be cleaned next when idle.
    next: u32,
    /// Scratch space, kept for its capacity.
    row: Vec<PageNo>,
}

impl Kdd {
    pub fn new(shape: CacheShape, recipe: &Recipe) -> Kdd {
        Kdd {
            log: MetaLog::new(recipe.log_pages, shape.pages),
            staging: Staging::new(recipe.staging_bytes),
            high: recipe.dirty_high,
            low: recipe.dirty_low,
            defers: true,
            delta_bytes_max: recipe.delta_bytes_max.min(DELTA_BYTES_MAX),
            admission: (recipe.scheme == Scheme::Kdd)
                .then(|| Admission::new(shape.pages, recipe.run_max, recipe.budget)),
            segments: (shape.segment_pages > 0).then(|| Segments::new(&shape)),
            next: 0,
            row: Vec::new(),
            map: Map::new(shape),
        }
    }

    /// Gives a page to a sector that has none: in the window; without a window in its set, if a page can be had there.
    fn admit(&mut self, lba: Lba, why: Why, steps: &mut Steps) {
        if self.map.shape.window > 0 {
            return self.hold(lba, steps);
        }
        if let Some(admission) = &mut self.admission
            && (admission.miss(lba) != Standing::Proven || admission.is_broke())
        {
            return admission.remember(lba);
        }
        if let Some(page) = self.page_of(self.map.set_of(lba), steps) {
            self.map.insert(page, lba, PageState::Clean);
            steps.push(Step::WritePage { page, lba, why });
            self.spend();
            self.log.note(&mut self.map, page, steps);
        }
    }

    /// A page on the SSD, in this set.
    fn page_of(&mut self, set: u32, steps: &mut Steps) -> Option<PageNo> {
        if self.make_room(steps).is_some() {
            return self.segments.as_mut().map(Segments::take);
        }
        self.map.free_page(set).or_else(|| self.evict(set, steps))
    }

    /// Charges a page of data or deltas to the budget.
    fn spend(&mut self) {
        if let Some(admission) = &mut self.admission {
            admission.spend(SECTOR_BYTES);
        }
    }

    /// True if no flash may be written for now.
    fn is_broke(&self) -> bool {
        self.admission.as_ref().is_some_and(Admission::is_broke)
    }

    /// Counts a hit of the cache.
    fn hit(&mut self, page: PageNo) {
        if self.map.shape.is_window(page) {
            *self.map.uses(page) += 1;
        } else if let Some(admission) = &mut self.admission {
            admission.hit();
        }
    }

    fn evict(&mut self, set: u32, steps: &mut Steps) -> Option<PageNo> {
        let page = self.map.coldest_clean(set)?;
        self.drop_page(page, steps);
        Some(page)
    }

    fn drop_page(&mut self, page: PageNo, steps: &mut Steps) {
        self.map.release(page);
        self.log.note(&mut self.map, page, steps);
    }

    /// A write to a sector that the cache has: data are written without parity, and the delta is staged.
    fn put_off(&mut self, lba: Lba, base: PageNo, bytes: u16, steps: &mut Steps) {
        self.read_page(base, steps);
        steps.push(Step::WriteWithoutParity(lba));
        steps.answer();
        match self.map.state(base) {
            PageState::Clean => self.map.change(base, PageState::Old),
            _ => {
                self.map.touch(base);
                self.drop_delta(base, steps);
            }
        }
        let place = self.staging.push(base, bytes);
        self.map.set_delta(base, DeltaPlace::Staged, place);
        steps.push(Step::Stage(Staged { base, lba, bytes, offset: 0 }));
        self.relieve_staging(steps);
        self.keep_clean(self.map.set(base), steps);
    }

    /// Reads a page; those in memory need no step.
    fn read_page(&self, page: PageNo, steps: &mut Steps) {
        if !self.map.shape.is_window(page) {
            steps.push(Step::ReadPage(page));
        }
    }

    /// Moves staged deltas to delta pages while there are too many; if no page is available, cleans a row instead.
    fn relieve_staging(&mut self, steps: &mut Steps) {
        while self.staging.is_over() {
            if !self.commit_deltas(steps) {
                let oldest = self.staging.oldest().expect("what is over is not empty");
                self.clean(self.map.shape.row_of(self.map.lba(oldest)), steps);
            }
        }
    }

    /// Writes staged deltas to a page. False if there is no page for them, or flash may not be written.
    fn commit_deltas(&mut self, steps: &mut Steps) -> bool {
        if self.is_broke() {
            return false;
        }
        let Some(home) = self.delta_home(steps) else { return false };
        if self.staging.oldest().is_none() {
            return true; // Pages were vacated for it, and rows cleaned, all of those that wait.
        }
        let from = steps.staged.len();
        let map = &self.map;
        self.staging.take_page(|base| map.lba(base), &mut steps.staged);
        let count = (steps.staged.len() - from) as u32;
        self.map.insert_deltas(home, count as u16);
        if let Some(segments) = &mut self.segments {
            segments.take();
            steps.staged[from..].iter().for_each(|staged| segments.pack(home, staged.base));
        }
        steps.push(Step::CommitDeltas { page: home, from: from as u32, count });
        self.spend();
        // Update all entries first: notes may commit the log, which must not record any of them as staged.
        for Staged { base, bytes, offset, .. } in &steps.staged[from..] {
            self.map.set_delta(*base, DeltaPlace::In { page: home, offset: *offset, bytes: *bytes }, 0);
        }
        for at in from..from + count as usize {
            self.log.note(&mut self.map, steps.staged[at].base, steps);
        }
        true
    }

    /// A page for deltas.
    fn delta_home(&mut self, steps: &mut Steps) -> Option<PageNo> {
        if let Some(page) = self.make_room(steps) {
            return Some(page);
        }
        let home = self.map.delta_home()?;
        if self.map.state(home) == PageState::Clean {
            self.drop_page(home, steps);
        }
        Some(home)
    }

    /// Drops the delta of an old page.
    fn drop_delta(&mut self, base: PageNo, steps: &mut Steps) {
        match self.map.delta(base) {
            Some(DeltaPlace::Staged) => {
                self.staging.remove(self.map.staged_at(base));
                steps.push(Step::Unstage(base));
            }
            Some(DeltaPlace::In { page, .. }) if self.map.drop_delta(page) => {
                self.map.release(page);
                if let Some(segments) = &mut self.segments {
                    segments.unpack(page);
                }
                steps.push(Step::Discard(page));
            }
            Some(DeltaPlace::In { .. }) | None => {}
        }
    }

    /// A write whose parity is not deferred: it is written with parity, and the sector is dropped from the SSD. A page
    /// in memory gets the new version.
    fn pass_by(&mut self, lba: Lba, page: PageNo, steps: &mut Steps) {
        if self.map.shape.is_window(page) {
            self.clean(self.map.shape.row_of(lba), steps);
            steps.push(Step::WriteArray(lba));
            steps.answer();
            return steps.push(Step::Hold { page, lba });
        }
        self.forget(lba, steps);
        steps.push(Step::WriteArray(lba));
        steps.answer();
    }
}

impl Policy for Kdd {
    fn base(&self, lba: Lba) -> Option<PageNo> {
        self.map.find(lba).filter(|_| self.defers)
    }

    fn newest(&self, lba: Lba) -> Newest {
        let Some(page) = self.map.find(lba) else { return Newest::Array };
        self.map.delta(page).map_or(Newest::Page(page), |delta| Newest::Changed(page, delta))
    }

    fn read(&mut self, lba: Lba, steps: &mut Steps) -> Newest {
        let Some(page) = self.map.find(lba) else {
            steps.push(Step::ReadArray(lba));
            steps.answer();
            self.admit(lba, Why::Fill, steps);
            return Newest::Array;
        };
        self.hit(page);
        self.map.touch(page);
        self.read_page(page, steps);
        let delta = self.map.delta(page);
        if let Some(DeltaPlace::In { page, .. }) = delta {
            steps.push(Step::ReadDeltas(page));
        }
        steps.answer();
        delta.map_or(Newest::Page(page), |delta| Newest::Changed(page, delta))
    }

    fn write(&mut self, lba: Lba, delta_bytes: Option<usize>, steps: &mut Steps) {
        match (self.map.find(lba), delta_bytes) {
            (None, _) => {
                steps.push(Step::WriteArray(lba));
                steps.answer();
                self.admit(lba, Why::Allocate, steps);
            }
            (Some(base), Some(bytes)) if self.defers && bytes <= self.delta_bytes_max => {
                self.hit(base);
                self.put_off(lba, base, bytes as u16, steps);
            }
            (Some(page), _) => self.pass_by(lba, page, steps),
        }
    }

    fn forget(&mut self, lba: Lba, steps: &mut Steps) {
        if self.map.find(lba).is_some_and(|page| self.map.state(page) == PageState::Old) {
            self.clean(self.map.shape.row_of(lba), steps);
        }
        if let Some(page) = self.map.find(lba) {
            self.drop_page(page, steps);
            steps.push(Step::Discard(page));
        }
    }

    fn clean_row(&mut self, row: u64, steps: &mut Steps) {
        self.clean(row, steps);
    }

    fn idle(&mut self, steps: &mut Steps) -> bool {
        for _ in 0..=self.map.sets() {
            let set = self.next;
            self.next = (set + 1) % (self.map.sets() + 1);
            if let Some(coldest) = self.map.coldest_pinned(set) {
                self.clean(self.map.shape.row_of(self.map.lba(coldest)), steps);
                return true;
            }
        }
        false
    }

    fn grant(&mut self, bytes: i64) {
        if let Some(admission) = &mut self.admission {
            admission.grant(bytes);
        }
    }

    fn allow_deferring(&mut self, allowed: bool) {
        self.defers = allowed;
    }

    fn settle(&mut self, steps: &mut Steps) {
        // Content in memory will be lost, so parity must not lack deltas of it.
        while self.map.shape.window > 0
            && let Some(page) = self.map.coldest_pinned(self.map.shape.window_set())
        {
            self.clean(self.map.shape.row_of(self.map.lba(page)), steps);
        }
        while let Some(oldest) = self.staging.oldest() {
            if !self.commit_deltas(steps) {
                self.clean(self.map.shape.row_of(self.map.lba(oldest)), steps);
            }
        }
    }

    fn entries(&self) -> Vec<LogEntry> {
        self.map.kept().into_iter().map(|page| entry_of(&self.map, page)).collect()
    }

    fn census(&self) -> Census {
        let [free, clean, old, new, delta] = self.map.counts;
        let staged_bytes = self.staging.bytes() as u64;
        let (log_pages, window) = (self.log.used(), self.map.shape.window.into());
        let budget_left = self.admission.as_ref().and_then(Admission::left);
        Census { free, clean, old, new, delta, staged_bytes, log_pages, window, budget_left }
    }
}
