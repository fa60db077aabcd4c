//! The window: missed sectors are kept in memory first (the idea is that of W-TinyLFU, Einziger et al., TOS 2017).
//! Sectors reused soon are served from there, and only those that prove useful are written to flash.
//!
//! Pages of the window may be bases with staged deltas: parity is deferred for them as for others. All that is lost in
//! a power failure, so a cache with a window is empty after one, and stale rows are resynchronised from data.

use super::Kdd;
use crate::cache::admission::Standing;
use crate::cache::shape::PageState;
use crate::cache::step::{PageNo, Step, Steps};
use vellum_base::Lba;

/// A sector used this often in memory is promoted to flash. One use less suffices while its set has free pages.
const USES_MIN: u32 = 2;
/// Added to the number of uses of sectors from long sequential runs.
const PASSING: u32 = 1 << 16;

impl Kdd {
    /// Puts a missed sector into the window.
    pub(super) fn hold(&mut self, lba: Lba, steps: &mut Steps) {
        let standing = self.admission.as_mut().map_or(Standing::New, |admission| admission.miss(lba));
        let Some(page) = self.window_page(steps) else { return };
        self.map.insert(page, lba, PageState::Clean);
        *self.map.uses(page) = match standing {
            Standing::New => 0,
            Standing::Proven => USES_MIN,
            Standing::Passing => PASSING,
        };
        steps.push(Step::Hold { page, lba });
    }

    /// A page of the window: a free one, or its coldest clean one.
    fn window_page(&mut self, steps: &mut Steps) -> Option<PageNo> {
        let window = self.map.shape.window_set();
        if let Some(page) = self.map.free_page(window) {
            return Some(page);
        }
        let page = self.map.coldest_clean(window)?;
        self.leave_window(page, steps);
        Some(page)
    }

    /// Removes a clean page from the window: it is promoted to the SSD, or its sector goes to the ghost list.
    fn leave_window(&mut self, page: PageNo, steps: &mut Steps) {
        let (lba, uses) = (self.map.lba(page), *self.map.uses(page));
        self.map.release(page);
        let has_room = match &self.segments {
            Some(segments) => segments.has_room(),
            None => self.map.free_page(self.map.set_of(lba)).is_some(),
        };
        if uses % PASSING >= USES_MIN - u32::from(has_room) && !self.is_broke() {
            return self.promote(page, lba, steps);
        }
        if uses < PASSING
            && let Some(admission) = &mut self.admission
        {
            admission.remember(lba);
        }
    }

    fn promote(&mut self, from: PageNo, lba: Lba, steps: &mut Steps) {
        let Some(to) = self.page_of(self.map.set_of(lba), steps) else { return };
        self.map.insert(to, lba, PageState::Clean);
        steps.push(Step::Promote { from, to, lba });
        self.spend();
        self.log.note(&mut self.map, to, steps);
    }
}
