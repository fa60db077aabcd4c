//! Policies without deferred parity: no SSD, write-around, write-through and LARC. Metadata are written at a clean stop
//! only.

use super::admission::{Admission, Standing};
use super::map::Map;
use super::policy::{Census, Policy, Recipe, Restored, Scheme};
use super::shape::{CacheShape, PageState};
use super::step::{LogEntry, Newest, PageNo, Step, Steps, Why};
use super::whole;
use vellum_base::{Lba, Result};

/// Passes every request to the array.
pub(super) struct NoSsd;

impl Policy for NoSsd {
    fn base(&self, _lba: Lba) -> Option<PageNo> {
        None
    }

    fn newest(&self, _lba: Lba) -> Newest {
        Newest::Array
    }

    fn read(&mut self, lba: Lba, steps: &mut Steps) -> Newest {
        steps.push(Step::ReadArray(lba));
        steps.answer();
        Newest::Array
    }

    fn write(&mut self, lba: Lba, _delta_bytes: Option<usize>, steps: &mut Steps) {
        steps.push(Step::WriteArray(lba));
        steps.answer();
    }

    fn forget(&mut self, _lba: Lba, _steps: &mut Steps) {}

    fn clean_row(&mut self, _row: u64, _steps: &mut Steps) {}

    fn idle(&mut self, _steps: &mut Steps) -> bool {
        false
    }

    fn allow_deferring(&mut self, _allowed: bool) {}

    fn census(&self) -> Census {
        Census::default()
    }
}

/// Pages are clean or free. Read misses fill; writes go to the array, and through or around the cache. LARC (Huang et
/// al., Improving flash-based disk cache with lazy adaptive replacement, MSST 2013) is write-through for sectors that
/// are missed again while they are in the ghost list; evicted sectors do not go to that list.
pub(super) struct Bare {
    map: Map,
    through: bool,
    /// `None`: every miss is admitted.
    admission: Option<Admission>,
}

impl Bare {
    /// Write-around, write-through or LARC.
    pub fn new(shape: CacheShape, scheme: Scheme) -> Bare {
        let admission = (scheme == Scheme::Larc).then(|| Admission::new(shape.pages, u64::MAX, None));
        Bare { map: Map::new(shape), through: scheme != Scheme::WriteAround, admission }
    }

    /// See [`Recipe::restore`]. The ghost list starts empty.
    pub fn restore(shape: CacheShape, recipe: &Recipe, restored: &Restored) -> Result<Bare> {
        let mut bare = Bare::new(shape, recipe.scheme);
        whole::restore(&mut bare.map, recipe, restored)?;
        Ok(bare)
    }

    /// Gives a page to a sector that has none, if it is admitted.
    fn admit(&mut self, lba: Lba, why: Why, steps: &mut Steps) {
        if let Some(admission) = &mut self.admission
            && admission.miss(lba) != Standing::Proven
        {
            return admission.remember(lba);
        }
        let set = self.map.set_of(lba);
        let page = self.map.free_page(set).unwrap_or_else(|| {
            let coldest = self.map.coldest_clean(set).expect("pages are free or clean");
            self.map.release(coldest);
            coldest
        });
        self.map.insert(page, lba, PageState::Clean);
        steps.push(Step::WritePage { page, lba, why });
    }

    /// Counts a hit of the cache.
    fn hit(&mut self) {
        if let Some(admission) = &mut self.admission {
            admission.hit();
        }
    }
}

impl Policy for Bare {
    fn base(&self, _lba: Lba) -> Option<PageNo> {
        None
    }

    fn newest(&self, lba: Lba) -> Newest {
        whole::newest(&self.map, lba)
    }

    fn read(&mut self, lba: Lba, steps: &mut Steps) -> Newest {
        let newest = whole::read(&mut self.map, lba, steps);
        match newest {
            Newest::Array => self.admit(lba, Why::Fill, steps),
            _ => self.hit(),
        }
        newest
    }

    fn write(&mut self, lba: Lba, _delta_bytes: Option<usize>, steps: &mut Steps) {
        steps.push(Step::WriteArray(lba));
        match (self.map.find(lba), self.through) {
            (Some(page), true) => {
                self.hit();
                self.map.touch(page);
                steps.push(Step::WritePage { page, lba, why: Why::Update });
            }
            (None, true) => self.admit(lba, Why::Allocate, steps),
            (Some(page), false) => {
                self.map.release(page);
                steps.push(Step::Discard(page));
            }
            (None, false) => {}
        }
        steps.answer();
    }

    fn forget(&mut self, lba: Lba, steps: &mut Steps) {
        if let Some(page) = self.map.find(lba) {
            self.map.release(page);
            steps.push(Step::Discard(page));
        }
    }

    fn clean_row(&mut self, _row: u64, _steps: &mut Steps) {}

    fn idle(&mut self, _steps: &mut Steps) -> bool {
        false
    }

    fn allow_deferring(&mut self, _allowed: bool) {}

    fn entries(&self) -> Vec<LogEntry> {
        whole::entries(&self.map)
    }

    fn census(&self) -> Census {
        let [free, clean, ..] = self.map.counts;
        Census { free, clean, ..Census::default() }
    }
}
