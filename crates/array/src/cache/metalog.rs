//! The metadata log as a policy sees it: a buffer with the newest entry of each page, and a ring of log pages of which
//! it is known in memory which entries they hold (kdd.txt, III.C).
//!
//! 1. A page's newest entry is in the buffer, in one page of the log, or nowhere; the map says which.
//! 2. Pages of the log from `head` to before `tail` count. The oldest is given up before a page is written, never
//!    after: what is known after a cut is the head that the last page was written with, and with that one, too, the
//!    page that comes next is free.
//! 3. An entry that says free is not kept when its page of the log is: whatever it took back is older, and gone.

use super::map::Map;
use super::shape::PageState;
use super::step::{DeltaPlace, LogEntry, PageNo, Step, Steps};

/// What a page of the log holds (docs/formats/array.md).
pub const ENTRIES_PER_LOG_PAGE: usize = 253;

/// The page has no entry.
pub(super) const NOT_LOGGED: u32 = u32::MAX;
/// Its newest entry is the buffer's first, and so on. Below are pages of the ring.
const BUFFERED: u32 = 1 << 31;

/// The least pages of a log for so many pages of a cache: a tenth more entries than pages, and some to write to.
pub fn log_pages_min(pages: u32) -> u32 {
    ((u64::from(pages) * 11 / 10).div_ceil(ENTRIES_PER_LOG_PAGE as u64) + 3) as u32
}

/// See the module.
pub(super) struct MetaLog {
    capacity: u64,
    head: u64,
    tail: u64,
    /// What each page of the ring was written with.
    held: Vec<Vec<PageNo>>,
    /// As they were noted.
    buffer: Vec<LogEntry>,
}

impl MetaLog {
    /// A ring of so many pages, or as many as the cache needs.
    pub fn new(log_pages: u32, cache_pages: u32) -> MetaLog {
        let capacity = log_pages.max(log_pages_min(cache_pages));
        let held = vec![Vec::new(); capacity as usize];
        MetaLog { capacity: capacity.into(), head: 0, tail: 0, held, buffer: Vec::new() }
    }

    /// Pages that count.
    pub fn used(&self) -> u64 {
        self.tail - self.head
    }

    /// The ring's size.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The state of a page has changed. Pages in memory have no entries.
    pub fn note(&mut self, map: &mut Map, page: PageNo, steps: &mut Steps) {
        if map.shape.is_window(page) {
            return;
        }
        let entry = entry_of(map, page);
        let place = map.log_place(page);
        let is_news = entry.state != PageState::Free || *place != NOT_LOGGED;
        if !is_news {
            return;
        }
        steps.push(Step::Note(entry));
        self.put(map, entry);
        if self.buffer.len() >= ENTRIES_PER_LOG_PAGE {
            self.commit(map, steps);
        }
    }

    /// Into the buffer, in place of the page's entry there.
    fn put(&mut self, map: &mut Map, entry: LogEntry) {
        let place = map.log_place(entry.page);
        match place.checked_sub(BUFFERED).and_then(|at| self.buffer.get_mut(at as usize)) {
            Some(buffered) => *buffered = entry,
            None => {
                *place = BUFFERED + self.buffer.len() as u32;
                self.buffer.push(entry);
            }
        }
    }

    /// Goes on from a log that was read: what each page of it held, by its sequence, and what the buffer did.
    pub fn resume(&mut self, map: &mut Map, log: (u64, u64), entries: &[(LogEntry, Option<u64>)]) {
        (self.head, self.tail) = log;
        for (entry, sequence) in entries {
            match sequence {
                Some(sequence) => {
                    let slot = (sequence % self.capacity) as usize;
                    *map.log_place(entry.page) = slot as u32;
                    self.held[slot].push(entry.page);
                }
                None => self.put(map, *entry),
            }
        }
    }

    fn commit(&mut self, map: &mut Map, steps: &mut Steps) {
        while self.buffer.len() >= ENTRIES_PER_LOG_PAGE {
            while self.used() + 1 >= self.capacity {
                self.retire_oldest(map, steps);
            }
            self.write_page(map, steps);
        }
    }

    fn write_page(&mut self, map: &mut Map, steps: &mut Steps) {
        let slot = (self.tail % self.capacity) as usize;
        let from = steps.entries.len() as u32;
        let held = &mut self.held[slot];
        held.clear();
        // With what was given up the buffer may have more than a page's.
        for entry in self.buffer.drain(..ENTRIES_PER_LOG_PAGE) {
            *map.log_place(entry.page) = slot as u32;
            held.push(entry.page);
            steps.entries.push(entry);
        }
        for (at, entry) in self.buffer.iter().enumerate() {
            *map.log_place(entry.page) = BUFFERED + at as u32;
        }
        let count = ENTRIES_PER_LOG_PAGE as u32;
        steps.push(Step::CommitLog { sequence: self.tail, head: self.head, from, count });
        self.tail += 1;
    }

    /// Puts what counts of the oldest page into the buffer again.
    fn retire_oldest(&mut self, map: &mut Map, steps: &mut Steps) {
        let slot = (self.head % self.capacity) as usize;
        self.head += 1;
        for page in std::mem::take(&mut self.held[slot]) {
            let entry = entry_of(map, page);
            let place = map.log_place(page);
            if *place != slot as u32 {
                continue;
            }
            if entry.state == PageState::Free {
                *place = NOT_LOGGED;
                continue;
            }
            steps.push(Step::Note(entry));
            self.put(map, entry);
        }
    }
}

/// A page's entry now. Staged deltas are not in the log: their bases are clean to it, until NVRAM says otherwise. Delta
/// pages are free to it.
pub(super) fn entry_of(map: &Map, page: PageNo) -> LogEntry {
    let (state, delta) = match (map.state(page), map.delta(page)) {
        (PageState::Delta, _) => (PageState::Free, None),
        (PageState::Old, Some(DeltaPlace::Staged)) => (PageState::Clean, None),
        (PageState::Old, Some(DeltaPlace::In { page, offset, bytes })) => {
            (PageState::Old, Some((page, offset, bytes)))
        }
        (state, _) => (state, None),
    };
    let lba = if state == PageState::Free { vellum_base::Lba(0) } else { map.lba(page) };
    LogEntry { page, state, lba, delta, sum: None }
}
