//! KDD: data and deltas in the cache (kdd.txt, section III).
//!
//! 1. A page is old exactly while its delta is staged or in a delta page, and parity lacks exactly the deltas of the
//!    old pages of its row.
//! 2. A delta page's count is the number of old pages whose delta it has; at none it is free again.
//! 3. Old pages are not evicted: they go when their row is cleaned.

mod clean;
mod restore;

use super::map::{CacheShape, Map, PageState};
use super::metalog::MetaLog;
use super::policy::{Census, Policy, Recipe};
use super::staging::{DELTA_BYTES_MAX, Staging};
use super::step::{DeltaPlace, Newest, PageNo, Staged, Step, Steps, Why};
use vellum_base::Lba;

/// See the module.
pub(super) struct Kdd {
    map: Map,
    log: MetaLog,
    staging: Staging,
    /// Pages of a set that are neither free nor clean: cleaning begins, and ends.
    high: u32,
    low: u32,
    defers: bool,
    /// The set that is cleaned next when idle.
    next: u32,
    /// Kept for its room.
    row: Vec<PageNo>,
}

impl Kdd {
    pub fn new(shape: CacheShape, recipe: &Recipe) -> Kdd {
        let share = |share: f64| (share * f64::from(shape.ways)) as u32;
        Kdd {
            log: MetaLog::new(recipe.log_pages, shape.pages),
            staging: Staging::new(recipe.staging_bytes),
            high: share(recipe.dirty_high),
            low: share(recipe.dirty_low),
            defers: true,
            next: 0,
            row: Vec::new(),
            map: Map::new(shape),
        }
    }

    /// A page for a sector that has none, if its set has one to give.
    fn admit(&mut self, lba: Lba, why: Why, steps: &mut Steps) {
        let set = self.map.set_of(lba);
        let Some(page) = self.map.free_page(set).or_else(|| self.evict(set, steps)) else { return };
        self.map.insert(page, lba, PageState::Clean);
        steps.push(Step::WritePage { page, lba, why });
        self.log.note(&mut self.map, page, steps);
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
        steps.push(Step::ReadPage(base));
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
        self.keep_clean(self.map.set_of(lba), steps);
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

    fn commit_deltas(&mut self, steps: &mut Steps) -> bool {
        let Some(home) = self.map.delta_home() else { return false };
        if self.map.state(home) == PageState::Clean {
            self.drop_page(home, steps);
        }
        let from = steps.staged.len();
        let map = &self.map;
        self.staging.take_page(|base| map.lba(base), &mut steps.staged);
        let count = (steps.staged.len() - from) as u32;
        self.map.insert_deltas(home, count as u16);
        steps.push(Step::CommitDeltas { page: home, from: from as u32, count });
        // All of them first: the log may be written while they are noted, and must not call any of them staged.
        for Staged { base, bytes, offset, .. } in &steps.staged[from..] {
            self.map.set_delta(*base, DeltaPlace::In { page: home, offset: *offset, bytes: *bytes }, 0);
        }
        for at in from..from + count as usize {
            self.log.note(&mut self.map, steps.staged[at].base, steps);
        }
        true
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
                steps.push(Step::Discard(page));
            }
            Some(DeltaPlace::In { .. }) | None => {}
        }
    }

    /// A write that is not put off: the sector leaves the cache, and its parity is right.
    fn pass_by(&mut self, lba: Lba, steps: &mut Steps) {
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
        self.map.touch(page);
        steps.push(Step::ReadPage(page));
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
            (Some(base), Some(bytes)) if self.defers && bytes <= DELTA_BYTES_MAX => {
                self.put_off(lba, base, bytes as u16, steps);
            }
            (Some(_), _) => self.pass_by(lba, steps),
        }
    }

    fn forget(&mut self, lba: Lba, steps: &mut Steps) {
        let Some(page) = self.map.find(lba) else { return };
        match self.map.state(page) {
            PageState::Old => self.clean(self.map.shape.row_of(lba), steps),
            _ => {
                self.drop_page(page, steps);
                steps.push(Step::Discard(page));
            }
        }
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

    fn census(&self) -> Census {
        let [free, clean, old, new, delta] = self.map.counts;
        let staged_bytes = self.staging.bytes() as u64;
        Census { free, clean, old, new, delta, staged_bytes, log_pages: self.log.used() }
    }
}
