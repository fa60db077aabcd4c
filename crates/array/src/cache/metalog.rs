//! The metadata log as seen by a policy: a buffer with the newest entries, and a ring of log pages whose contents are
//! tracked in memory (kdd.txt, III.C).
//!
//! 1. A page's newest entry is in the buffer, in one log page, or nowhere; the map says which.
//! 2. Log pages from `head` to before `tail` are valid. The oldest is retired before a page is written, never after: a
//!    crash leaves the head that was stored with the last page written, and even with that head the next page's place
//!    is free.
//! 3. An entry for a free page is dropped when its log page is retired: any entry that it overrode is older, and gone
//!    already.

use super::map::Map;
use super::shape::PageState;
use super::step::{DeltaPlace, LogEntry, PageNo, Step, Steps};

/// Entries per log page (docs/formats/array.md).
pub const ENTRIES_PER_LOG_PAGE: usize = 253;

/// The page has no entry.
pub(super) const NOT_LOGGED: u32 = u32::MAX;
/// From this on: position of the entry in the buffer. Below: page of the ring.
const BUFFERED: u32 = 1 << 31;

/// Minimum size of the log for a cache of this many pages: a tenth more entries than pages, and a few pages to write
/// to.
pub fn log_pages_min(pages: u32) -> u32 {
    ((u64::from(pages) * 11 / 10).div_ceil(ENTRIES_PER_LOG_PAGE as u64) + 3) as u32
}

/// See the module.
pub(super) struct MetaLog {
    capacity: u64,
    head: u64,
    tail: u64,
    /// The pages whose entries each log page was written with.
    held: Vec<Vec<PageNo>>,
    /// Entries in the order in which they were noted.
    buffer: Vec<LogEntry>,
}

impl MetaLog {
    /// A ring of this many pages, or of as many as the cache needs.
    pub fn new(log_pages: u32, cache_pages: u32) -> MetaLog {
        let capacity = log_pages.max(log_pages_min(cache_pages));
        let held = vec![Vec::new(); capacity as usize];
        MetaLog { capacity: capacity.into(), head: 0, tail: 0, held, buffer: Vec::new() }
    }

    /// Number of valid log pages.
    pub fn used(&self) -> u64 {
        self.tail - self.head
    }

    /// Size of the ring in pages.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Notes the new state of a page. Pages in memory have no entries.
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

    /// Puts an entry into the buffer, in place of the page's earlier one there.
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

    /// Continues a log that was read: its entries, each with the sequence number of its log page or `None` for the
    /// buffer.
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
        // The buffer may have more than a page of entries, with those of retired pages.
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

    /// Retires the oldest log page: its valid entries go back into the buffer.
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

/// The current entry of a page. Staged deltas are not logged: their bases count as clean, until the NVRAM says
/// otherwise. Delta pages count as free.
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
