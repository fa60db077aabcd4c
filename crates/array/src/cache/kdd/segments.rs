//! Segments: pages of the SSD are allocated in order, as in a ring, and pages ahead are vacated some time before, a
//! whole segment at a time. This gives the SSD a flash-friendly load: long sequential writes, and erase blocks without
//! valid data.
//!
//! 1. The `vacant` pages from `next` on are free. Pages freed elsewhere stay unused until `next` gets there.
//! 2. Two segments are kept vacant, so that there is always a whole one: for each page that is allocated one is
//!    vacated, or two after a restart that found fewer. At least one page is always vacant.
//! 3. Vacating a page cleans its row if it is old, and the rows of its deltas if it is a delta page; a clean page is
//!    dropped.
//! 4. A segment is discarded (`Step::Vacate`) before any page of it is allocated again.

use super::Kdd;
use crate::cache::map::Map;
use crate::cache::shape::{CacheShape, PageState};
use crate::cache::step::{DeltaPlace, PageNo, Step, Steps};
use std::cmp::Reverse;
use vellum_base::hash::FixedMap;

/// Number of segments kept vacant.
const VACANT: u32 = 2;
/// Most pages with content that are vacated per page allocated.
const AT_ONCE: u32 = 2;

/// See the module.
pub(super) struct Segments {
    /// Pages per segment.
    pages: u32,
    /// Pages of the cache.
    all_pages: u32,
    /// The page to be allocated next.
    next: u32,
    /// Number of free pages from there on.
    vacant: u32,
    /// For each delta page, the bases of the deltas that it was written with; these may have newer deltas elsewhere.
    packed: FixedMap<PageNo, Vec<PageNo>>,
}

impl Segments {
    /// Segments of an empty cache.
    pub fn new(shape: &CacheShape) -> Segments {
        let (pages, all_pages) = (shape.segment_pages, shape.pages);
        Segments { pages, all_pages, next: 0, vacant: all_pages, packed: FixedMap::default() }
    }

    /// Continues with the content of the map: at the longest run of vacant segments, or at the emptiest segment.
    pub fn resume(&mut self, map: &Map) {
        let count = self.all_pages / self.pages;
        let held = |segment: u32| {
            let first = segment * self.pages;
            let pages = (first..first + self.pages).map(PageNo);
            pages.filter(|page| map.state(*page) != PageState::Free).count()
        };
        let held: Vec<usize> = (0..count).map(held).collect();
        let mut run = vec![0; held.len()];
        // Twice, so that a run may wrap around.
        for at in (0..held.len()).chain(0..held.len()).rev() {
            let behind = run[(at + 1) % held.len()];
            run[at] = if held[at] == 0 { (behind + 1).min(count) } else { 0 };
        }
        let best =
            (0..held.len()).max_by_key(|at| (run[*at], Reverse(held[*at]))).expect("there are segments");
        (self.next, self.vacant) = (best as u32 * self.pages, run[best] * self.pages);
    }

    /// The page to be allocated next.
    pub fn peek(&self) -> PageNo {
        PageNo(self.next)
    }

    /// Allocates that page.
    pub fn take(&mut self) -> PageNo {
        let page = self.next;
        self.next = (page + 1) % self.all_pages;
        self.vacant -= 1;
        PageNo(page)
    }

    /// True if there are more vacant segments than required.
    pub fn has_room(&self) -> bool {
        self.vacant > VACANT * self.pages
    }

    /// Records that a delta page has the delta of this base.
    pub fn pack(&mut self, home: PageNo, base: PageNo) {
        self.packed.entry(home).or_default().push(base);
    }

    /// Forgets a delta page whose deltas are all dropped.
    pub fn unpack(&mut self, home: PageNo) {
        self.packed.remove(&home);
    }
}

impl Kdd {
    /// Vacates pages as needed; returns the page to be allocated next, which is free. `None` without segments.
    pub(super) fn make_room(&mut self, steps: &mut Steps) -> Option<PageNo> {
        let mut cleared = 0;
        loop {
            let segments = self.segments.as_mut()?;
            let Segments { pages, all_pages, next, vacant, .. } = *segments;
            if vacant >= VACANT * pages || vacant > 0 && cleared >= AT_ONCE {
                return Some(segments.peek());
            }
            segments.vacant += 1;
            let page = (next + vacant) % all_pages;
            cleared += u32::from(self.vacate(PageNo(page), steps));
            let ends_segment = (page + 1).is_multiple_of(pages);
            if ends_segment && vacant + 1 >= pages {
                steps.push(Step::Vacate { first: PageNo(page + 1 - pages), pages });
            }
        }
    }

    /// Frees a page. True if it had content.
    fn vacate(&mut self, page: PageNo, steps: &mut Steps) -> bool {
        match self.map.state(page) {
            PageState::Free => return false,
            PageState::Old | PageState::New => self.clean(self.map.shape.row_of(self.map.lba(page)), steps),
            PageState::Delta => self.clean_packed(page, steps),
            PageState::Clean => {
                if let Some(admission) = &mut self.admission {
                    admission.remember(self.map.lba(page));
                }
                self.drop_page(page, steps);
            }
        }
        debug_assert_eq!(self.map.state(page), PageState::Free);
        true
    }

    /// Cleans all rows that need a delta of this page.
    fn clean_packed(&mut self, home: PageNo, steps: &mut Steps) {
        let segments = self.segments.as_mut().expect("only pages of segments are vacated");
        for base in segments.packed.remove(&home).unwrap_or_default() {
            if matches!(self.map.delta(base), Some(DeltaPlace::In { page, .. }) if page == home) {
                self.clean(self.map.shape.row_of(self.map.lba(base)), steps);
            }
        }
    }
}
