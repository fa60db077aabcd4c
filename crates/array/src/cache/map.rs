//! The map of sectors to pages: sets of pages, each with a hash chain and three LRU lists (kdd.txt, III.B and III.C).
//!
//! 1. A sector's page is in the set of its row, so stripe mates share a set, and in one hash chain of that set.
//! 2. Each set has a list of free pages, one of clean ones, and one of pinned ones, which are old or new; newest first.
//!    Delta pages are in no list, and neither are old pages of LeavO, which are reached from their new ones.
//! 3. The window is an additional set in memory; its page numbers follow those of the SSD. A sector's page is there or
//!    in its row's set.
//! 4. `deltas` is the number of delta pages in a set; sets are in buckets by that number.

use super::entries::{Entries, Link, NONE, NOWHERE, STAGED};
use super::shape::{CacheShape, PageState};
use super::step::{DeltaPlace, PageNo};
use vellum_base::Lba;

/// Sets with this many delta pages or more share a bucket.
const BUCKETS_MAX: u32 = 1 << 14;

#[derive(Clone, Copy)]
struct List {
    newest: u32,
    oldest: u32,
    count: u32,
}

const EMPTY: List = List { newest: NONE, oldest: NONE, count: 0 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Free,
    Clean,
    Pinned,
}

struct Set {
    lists: [List; 3],
    deltas: u32,
    /// Neighbours in its bucket.
    before: u32,
    behind: u32,
}

/// See the module.
pub(super) struct Map {
    pub shape: CacheShape,
    entries: Entries,
    chains: Vec<u32>,
    sets: Vec<Set>,
    /// First and last set of each bucket.
    buckets: Vec<(u32, u32)>,
    /// Number of pages in each state.
    pub counts: [u64; 5],
}

impl Map {
    pub fn new(shape: CacheShape) -> Map {
        let set = || Set { lists: [EMPTY; 3], deltas: 0, before: NOWHERE, behind: NOWHERE };
        let mut map = Map {
            shape,
            entries: Entries::new(shape.all_pages(), shape.ways.max(shape.window.into())),
            chains: vec![NONE; shape.all_pages() as usize],
            sets: (0..=shape.sets()).map(|_| set()).collect(),
            buckets: vec![(NOWHERE, NOWHERE); shape.ways.min(BUCKETS_MAX) as usize + 1],
            counts: [u64::from(shape.all_pages()), 0, 0, 0, 0],
        };
        (0..shape.sets()).for_each(|set| map.bucket_push(set));
        (0..shape.all_pages()).rev().for_each(|page| map.list_push(Which::Free, PageNo(page)));
        map
    }

    /// The page of a sector; the one with its newest version if there are two.
    #[inline]
    pub fn find(&self, lba: Lba) -> Option<PageNo> {
        let of_set = self.find_in(self.set_of(lba), lba);
        if self.shape.window == 0 {
            of_set
        } else {
            of_set.or_else(|| self.find_in(self.shape.window_set(), lba))
        }
    }

    #[inline]
    fn find_in(&self, set: u32, lba: Lba) -> Option<PageNo> {
        let base = self.base_of(set);
        let mut way = self.chains[base as usize + self.bucket_of(lba, set)];
        while way != NONE {
            let at = (base + way) as usize;
            let entry = &self.entries[at];
            if entry.lba_low == lba.0 as u32 && entry.lba_high == (lba.0 >> 32) as u8 {
                return Some(PageNo(base + way));
            }
            way = self.entries.link(at, Link::Chain);
        }
        None
    }

    /// The set of a sector's row.
    #[inline]
    pub fn set_of(&self, lba: Lba) -> u32 {
        let row = self.shape.row_of(lba);
        let hash = row.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        ((hash * u64::from(self.shape.sets())) >> 32) as u32
    }

    pub fn sets(&self) -> u32 {
        self.shape.sets()
    }

    pub fn state(&self, page: PageNo) -> PageState {
        self.entries[page.0 as usize].state
    }

    pub fn lba(&self, page: PageNo) -> Lba {
        let entry = &self.entries[page.0 as usize];
        Lba(u64::from(entry.lba_low) | u64::from(entry.lba_high) << 32)
    }

    /// Where the page's log entry is, in the log's own terms.
    pub fn log_place(&mut self, page: PageNo) -> &mut u32 {
        &mut self.entries[page.0 as usize].log
    }

    /// Number of uses of a page in the window.
    pub fn uses(&mut self, page: PageNo) -> &mut u32 {
        self.log_place(page)
    }

    /// Makes a page the newest of its list.
    #[inline]
    pub fn touch(&mut self, page: PageNo) {
        if let Some(which) = which(self.state(page)) {
            let newest = self.sets[self.set(page) as usize].lists[which as usize].newest;
            if newest != self.way(page) {
                self.list_remove(which, page);
                self.list_push(which, page);
            }
        }
    }

    /// A free page of the set.
    pub fn free_page(&self, set: u32) -> Option<PageNo> {
        self.oldest(set, Which::Free)
    }

    /// The least recently used clean page of the set.
    pub fn coldest_clean(&self, set: u32) -> Option<PageNo> {
        self.oldest(set, Which::Clean)
    }

    /// The least recently used pinned page of the set.
    pub fn coldest_pinned(&self, set: u32) -> Option<PageNo> {
        self.oldest(set, Which::Pinned)
    }

    /// Number of pages of the set that are neither free nor clean.
    pub fn dirty(&self, set: u32) -> u32 {
        let lists = &self.sets[set as usize].lists;
        self.pages_of(set) - lists[Which::Free as usize].count - lists[Which::Clean as usize].count
    }

    /// All pinned pages of a row, coldest first.
    pub fn pinned_of_row(&self, row: u64, out: &mut Vec<PageNo>) {
        self.pinned_of(self.set_of(Lba(row * self.shape.row_sectors)), row, out);
        if self.shape.window > 0 {
            self.pinned_of(self.shape.window_set(), row, out);
        }
    }

    fn pinned_of(&self, set: u32, row: u64, out: &mut Vec<PageNo>) {
        let base = self.base_of(set);
        let pinned = self.sets[set as usize].lists[Which::Pinned as usize].count;
        if u64::from(pinned) > self.shape.row_sectors {
            let sectors = (row * self.shape.row_sectors..).take(self.shape.row_sectors as usize);
            let pages = sectors.filter_map(|sector| self.find_in(set, Lba(sector)));
            return out.extend(pages.filter(|page| which(self.state(*page)) == Some(Which::Pinned)));
        }
        let mut way = self.sets[set as usize].lists[Which::Pinned as usize].oldest;
        while way != NONE {
            let page = PageNo(base + way);
            if self.shape.row_of(self.lba(page)) == row {
                out.push(page);
            }
            way = self.entries.link(page.0 as usize, Link::Newer);
        }
    }

    /// Data pages, set by set: clean ones, then pinned ones, coldest first.
    pub fn kept(&self) -> Vec<PageNo> {
        let mut out = Vec::new();
        for set in 0..self.sets() {
            for which in [Which::Clean, Which::Pinned] {
                let mut page = self.oldest(set, which);
                while let Some(at) = page {
                    out.push(at);
                    let newer = self.entries.link(at.0 as usize, Link::Newer);
                    page = (newer != NONE).then(|| PageNo(at.0 - self.way(at) + newer));
                }
            }
        }
        out
    }

    /// Assigns a free page to a sector.
    pub fn insert(&mut self, page: PageNo, lba: Lba, state: PageState) {
        debug_assert_eq!(self.state(page), PageState::Free);
        self.list_remove(Which::Free, page);
        let (bucket, way) = (self.bucket_of(lba, self.set(page)), self.way(page));
        let head = std::mem::replace(&mut self.chains[(page.0 - way) as usize + bucket], way);
        self.entries.set_link(page.0 as usize, Link::Chain, head);
        let entry = &mut self.entries[page.0 as usize];
        (entry.lba_low, entry.lba_high) = (lba.0 as u32, (lba.0 >> 32) as u8);
        self.set_state(page, state);
        self.list_push(which(state).expect("pages with sectors are in a list"), page);
    }

    /// Changes the state of a page that has a sector.
    pub fn change(&mut self, page: PageNo, state: PageState) {
        if let Some(which) = which(self.state(page)) {
            self.list_remove(which, page);
        }
        self.set_state(page, state);
        self.list_push(which(state).expect("pages with sectors are in a list"), page);
    }

    /// Makes a clean page old and reachable only from its new one.
    pub fn hide(&mut self, page: PageNo) {
        self.chain_remove(page);
        self.list_remove(Which::Clean, page);
        self.set_state(page, PageState::Old);
    }

    /// Sets the old page of a new one.
    pub fn set_old_of(&mut self, new: PageNo, old: PageNo) {
        self.entries[new.0 as usize].delta = old.0;
    }

    /// The old page of a new one.
    pub fn old_of(&self, new: PageNo) -> PageNo {
        PageNo(self.entries[new.0 as usize].delta)
    }

    /// Frees a page in any state.
    pub fn release(&mut self, page: PageNo) {
        match self.state(page) {
            PageState::Delta => self.count_deltas(self.set(page), -1),
            state => {
                let way = self.way(page);
                let in_chain = self.chain_of(page).any(|other| other == way);
                if in_chain {
                    self.chain_remove(page);
                    self.list_remove(which(state).expect("in a chain, in a list"), page);
                }
            }
        }
        self.clear_delta(page);
        self.set_state(page, PageState::Free);
        self.list_push(Which::Free, page);
    }

    /// Where the delta of an old page is; `None` if it has none yet.
    pub fn delta(&self, page: PageNo) -> Option<DeltaPlace> {
        let entry = &self.entries[page.0 as usize];
        match entry.delta {
            NOWHERE => None,
            STAGED => Some(DeltaPlace::Staged),
            of => Some(DeltaPlace::In { page: PageNo(of), offset: entry.offset, bytes: entry.bytes }),
        }
    }

    /// Sets where the delta of an old page is; if it is staged, `staged_at` is its place in the staging buffer.
    pub fn set_delta(&mut self, page: PageNo, place: DeltaPlace, staged_at: u16) {
        let entry = &mut self.entries[page.0 as usize];
        (entry.delta, entry.offset, entry.bytes) = match place {
            DeltaPlace::Staged => (STAGED, staged_at, 0),
            DeltaPlace::In { page, offset, bytes } => (page.0, offset, bytes),
        };
    }

    /// Records that the page has no delta.
    pub fn clear_delta(&mut self, page: PageNo) {
        let entry = &mut self.entries[page.0 as usize];
        (entry.delta, entry.offset, entry.bytes) = (NOWHERE, 0, 0);
    }

    /// Place of the page's delta in the staging buffer.
    pub fn staged_at(&self, page: PageNo) -> u16 {
        self.entries[page.0 as usize].offset
    }

    /// Makes a free page a delta page with this many deltas.
    pub fn insert_deltas(&mut self, page: PageNo, count: u16) {
        self.list_remove(Which::Free, page);
        self.entries[page.0 as usize].offset = count;
        self.set_state(page, PageState::Delta);
        self.count_deltas(self.set(page), 1);
    }

    /// Counts one delta of a delta page less; true if that was the last.
    pub fn drop_delta(&mut self, page: PageNo) -> bool {
        let count = &mut self.entries[page.0 as usize].offset;
        *count -= 1;
        *count == 0
    }

    /// Counts one delta of a delta page more (when a map is restored).
    pub fn add_delta(&mut self, page: PageNo) {
        self.entries[page.0 as usize].offset += 1;
    }

    /// A page for deltas, free or else clean: in the set with the fewest delta pages among those that have such a page.
    pub fn delta_home(&self) -> Option<PageNo> {
        for (first, _) in &self.buckets {
            let mut set = *first;
            while set != NOWHERE {
                if let Some(page) = self.free_page(set).or_else(|| self.coldest_clean(set)) {
                    return Some(page);
                }
                set = self.sets[set as usize].behind;
            }
        }
        None
    }

    /// The set of a page.
    pub fn set(&self, page: PageNo) -> u32 {
        if self.shape.is_window(page) { self.shape.window_set() } else { page.0 / self.shape.ways }
    }

    /// The first page of a set.
    fn base_of(&self, set: u32) -> u32 {
        set * self.shape.ways
    }

    /// Number of pages in a set.
    pub fn pages_of(&self, set: u32) -> u32 {
        if set == self.shape.window_set() { self.shape.window.into() } else { self.shape.ways }
    }

    fn way(&self, page: PageNo) -> u32 {
        page.0 - self.base_of(self.set(page))
    }

    fn bucket_of(&self, lba: Lba, set: u32) -> usize {
        let hash = lba.0.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 32;
        ((hash * u64::from(self.pages_of(set))) >> 32) as usize
    }

    fn set_state(&mut self, page: PageNo, state: PageState) {
        let entry = &mut self.entries[page.0 as usize];
        self.counts[entry.state as usize] -= 1;
        self.counts[state as usize] += 1;
        entry.state = state;
    }

    /// The pages, as positions in the set, of the hash chain that the page belongs to.
    fn chain_of(&self, page: PageNo) -> impl Iterator<Item = u32> {
        let base = (page.0 - self.way(page)) as usize;
        let mut way = self.chains[base + self.bucket_of(self.lba(page), self.set(page))];
        std::iter::from_fn(move || {
            let this = way;
            (this != NONE).then(|| {
                way = self.entries.link(base + this as usize, Link::Chain);
                this
            })
        })
    }

    fn chain_remove(&mut self, page: PageNo) {
        let way = self.way(page);
        let base = (page.0 - way) as usize;
        let bucket = self.bucket_of(self.lba(page), self.set(page));
        let before = self.chain_of(page).take_while(|other| *other != way).last();
        let next = self.entries.link(page.0 as usize, Link::Chain);
        self.entries.set_link(page.0 as usize, Link::Chain, NONE);
        match before {
            Some(before) => self.entries.set_link(base + before as usize, Link::Chain, next),
            None => self.chains[base + bucket] = next,
        }
    }

    fn oldest(&self, set: u32, which: Which) -> Option<PageNo> {
        let way = self.sets[set as usize].lists[which as usize].oldest;
        (way != NONE).then(|| PageNo(self.base_of(set) + way))
    }

    fn list_push(&mut self, which: Which, page: PageNo) {
        let (set, way) = (self.set(page), self.way(page));
        let base = (page.0 - way) as usize;
        let list = &mut self.sets[set as usize].lists[which as usize];
        let older = std::mem::replace(&mut list.newest, way);
        list.count += 1;
        match older {
            NONE => list.oldest = way,
            older => self.entries.set_link(base + older as usize, Link::Newer, way),
        }
        self.entries.set_link(page.0 as usize, Link::Newer, NONE);
        self.entries.set_link(page.0 as usize, Link::Older, older);
    }

    fn list_remove(&mut self, which: Which, page: PageNo) {
        let set = self.set(page);
        let base = (page.0 - self.way(page)) as usize;
        let [newer, older] = [Link::Newer, Link::Older].map(|link| self.entries.link(page.0 as usize, link));
        let list = &mut self.sets[set as usize].lists[which as usize];
        list.count -= 1;
        match newer {
            NONE => list.newest = older,
            newer => self.entries.set_link(base + newer as usize, Link::Older, older),
        }
        match older {
            NONE => list.oldest = newer,
            older => self.entries.set_link(base + older as usize, Link::Newer, newer),
        }
    }

    fn count_deltas(&mut self, set: u32, change: i32) {
        let Set { deltas, before, behind, .. } = self.sets[set as usize];
        let bucket = deltas.min(BUCKETS_MAX) as usize;
        match before {
            NOWHERE => self.buckets[bucket].0 = behind,
            before => self.sets[before as usize].behind = behind,
        }
        match behind {
            NOWHERE => self.buckets[bucket].1 = before,
            behind => self.sets[behind as usize].before = before,
        }
        self.sets[set as usize].deltas = deltas.wrapping_add_signed(change);
        self.bucket_push(set);
    }

    /// Appends a set to its bucket.
    fn bucket_push(&mut self, set: u32) {
        let bucket = &mut self.buckets[self.sets[set as usize].deltas.min(BUCKETS_MAX) as usize];
        let last = std::mem::replace(&mut bucket.1, set);
        match last {
            NOWHERE => bucket.0 = set,
            last => self.sets[last as usize].behind = set,
        }
        let entry = &mut self.sets[set as usize];
        (entry.before, entry.behind) = (last, NOWHERE);
    }
}

/// The list for pages in a state.
fn which(state: PageState) -> Option<Which> {
    match state {
        PageState::Free => Some(Which::Free),
        PageState::Clean => Some(Which::Clean),
        PageState::Old | PageState::New => Some(Which::Pinned),
        PageState::Delta => None,
    }
}
