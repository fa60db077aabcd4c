//! Segments: pages of the SSD are handed out in order, from one end to the other and around, and what is in the way is
//! vacated a while before, a whole segment at a time. So the SSD sees what is good for flash: long writes in order, and
//! erase blocks that hold nothing.
//!
//! 1. `vacant` pages from `next` on hold nothing. What is released elsewhere stays dead until `next` comes near.
//! 2. Two segments are kept vacant, so that there is always a whole one: each page that is handed out lets one be
//!    vacated, or two after a restart that has found fewer. At least one always is.
//! 3. Vacating: the rows of an old page, and of the deltas of a delta page, are cleaned; clean pages are dropped.
//! 4. A segment is given up (`Step::Vacate`) before any page of it is handed out again.

use super::Kdd;
use crate::cache::map::Map;
use crate::cache::shape::{CacheShape, PageState};
use crate::cache::step::{DeltaPlace, PageNo, Step, Steps};
use std::cmp::Reverse;
use vellum_base::hash::FixedMap;

/// Segments that are kept vacant.
const VACANT: u32 = 2;
/// Pages that hold something, and are vacated for one that is handed out.
const AT_ONCE: u32 = 2;

/// See the module.
pub(super) struct Segments {
    /// Of a segment.
    pages: u32,
    /// Of the cache.
    all_pages: u32,
    /// The page that is handed out next.
    next: u32,
    /// So many pages from there on hold nothing.
    vacant: u32,
    /// The old pages whose deltas a delta page was written with: they may have others by now.
    packed: FixedMap<PageNo, Vec<PageNo>>,
}

impl Segments {
    /// All of them vacant.
    pub fn new(shape: &CacheShape) -> Segments {
        let (pages, all_pages) = (shape.segment_pages, shape.pages);
        Segments { pages, all_pages, next: 0, vacant: all_pages, packed: FixedMap::default() }
    }

    /// Goes on with what the map has: in front of the longest run of vacant segments, or with the emptiest one.
    pub fn resume(&mut self, map: &Map) {
        let count = self.all_pages / self.pages;
        let held = |segment: u32| {
            let first = segment * self.pages;
            let pages = (first..first + self.pages).map(PageNo);
            pages.filter(|page| map.state(*page) != PageState::Free).count()
        };
        let held: Vec<usize> = (0..count).map(held).collect();
        let mut run = vec![0; held.len()];
        // Twice, so that a run may go over the end.
        for at in (0..held.len()).chain(0..held.len()).rev() {
            let behind = run[(at + 1) % held.len()];
            run[at] = if held[at] == 0 { (behind + 1).min(count) } else { 0 };
        }
        let best =
            (0..held.len()).max_by_key(|at| (run[*at], Reverse(held[*at]))).expect("there are segments");
        (self.next, self.vacant) = (best as u32 * self.pages, run[best] * self.pages);
    }

    /// The page that is handed out next.
    pub fn peek(&self) -> PageNo {
        PageNo(self.next)
    }

    /// Hands it out.
    pub fn take(&mut self) -> PageNo {
        let page = self.next;
        self.next = (page + 1) % self.all_pages;
        self.vacant -= 1;
        PageNo(page)
    }

    /// Whether there are more vacant segments than have to be.
    pub fn has_room(&self) -> bool {
        self.vacant > VACANT * self.pages
    }

    /// The page has the delta of this base.
    pub fn pack(&mut self, home: PageNo, base: PageNo) {
        self.packed.entry(home).or_default().push(base);
    }

    /// The page has no delta that counts any more.
    pub fn unpack(&mut self, home: PageNo) {
        self.packed.remove(&home);
    }
}

impl Kdd {
    /// The page that is handed out next; it holds nothing. None: pages are not handed out in order.
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

    /// True if it held something.
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
