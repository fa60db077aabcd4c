//! KDD: data and deltas in the cache (kdd.txt, section III).
//!
//! 1. A page is old exactly while its delta is staged or in a delta page, and parity lacks exactly the deltas of the
//!    old pages of its row.
//! 2. A delta page's count is the number of old pages whose delta it has; at none it is free again.
//! 3. Old pages are not evicted: they go when their row is cleaned.

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
    /// Share of a set that is neither free nor clean: cleaning begins, and ends.
    high: f64,
    low: f64,
    defers: bool,
    /// Longer deltas are given up.
    delta_bytes_max: usize,
    /// None: everything comes in.
    admission: Option<Admission>,
    /// None: pages are written in place.
    segments: Option<Segments>,
    /// The set that is cleaned next when idle.
    next: u32,
    /// Kept for its room.
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

    /// A page for a sector that has none: in the window, or, without one, in its set, if that has one to give.
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

    /// A page of a set of the SSD.
    fn page_of(&mut self, set: u32, steps: &mut Steps) -> Option<PageNo> {
        if self.make_room(steps).is_some() {
            return self.segments.as_mut().map(Segments::take);
        }
        self.map.free_page(set).or_else(|| self.evict(set, steps))
    }

    /// A page of data or deltas is written.
    fn spend(&mut self) {
        if let Some(admission) = &mut self.admission {
            admission.spend(SECTOR_BYTES);
        }
    }

    /// Whether flash may not be written for now.
    fn is_broke(&self) -> bool {
        self.admission.as_ref().is_some_and(Admission::is_broke)
    }

    /// The cache had it.
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

    /// A write to a page that the cache has: the data without parity, the delta into the staging buffer.
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

    /// Pages in memory need no reading.
    fn read_page(&self, page: PageNo, steps: &mut Steps) {
        if !self.map.shape.is_window(page) {
            steps.push(Step::ReadPage(page));
        }
    }

    /// Staged deltas that are too many go to delta pages; where no page can be had, a row is cleaned instead.
    fn relieve_staging(&mut self, steps: &mut Steps) {
        while self.staging.is_over() {
            if !self.commit_deltas(steps) {
                let oldest = self.staging.oldest().expect("what is over is not empty");
                self.clean(self.map.shape.row_of(self.map.lba(oldest)), steps);
            }
        }
    }

    /// False if there is no page for them, or flash may not be written.
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
        // All of them first: the log may be written while they are noted, and must not call any of them staged.
        for Staged { base, bytes, offset, .. } in &steps.staged[from..] {
            self.map.set_delta(*base, DeltaPlace::In { page: home, offset: *offset, bytes: *bytes }, 0);
        }
        for at in from..from + count as usize {
            self.log.note(&mut self.map, steps.staged[at].base, steps);
        }
        true
    }

    /// A page that deltas may be written to.
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

    /// The delta of an old page does not count any more.
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

    /// A write that is not put off: the sector leaves the SSD, and its parity is right. Memory holds the new version.
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
        // What is in memory is lost: parity must not lack its deltas.
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
