//! Segments of the SSD that are being filled: their pages stay in memory until the last one has arrived, and are then
//! written with a single write. Used only without an NVRAM, as with one each page is durable before anything depends on
//! it.
//!
//! 1. Each page of a segment is *settled* once per round, with or without content.
//! 2. Settling the last page writes the segment. Until that is done its pages are read from memory.
//! 3. A segment is vacated only after turns at all of its pages, so it has been written by then.

use crate::cache::step::PageNo;
use std::sync::Arc;
use vellum_base::hash::FixedMap;
use vellum_base::sync::Mutex;
use vellum_base::{Cause, SECTOR_BYTES};

/// Content of a page and the cause of its write; `None` for a page without content.
type Settled = Option<(Arc<[u8]>, Cause)>;

/// See the module.
pub(super) struct Segments {
    /// Pages per segment.
    pages: u32,
    open: Mutex<FixedMap<u32, Open>>,
}

struct Open {
    pages: Vec<Settled>,
    settled: u32,
}

/// Adjacent pages that are written together.
pub(super) struct Run {
    pub first: PageNo,
    pub bytes: Vec<u8>,
    /// The cause for each of the pages.
    pub causes: Vec<Cause>,
}

impl Segments {
    /// Segments of this many pages each.
    pub fn new(pages: u32) -> Segments {
        Segments { pages, open: Mutex::default() }
    }

    /// Settles a page; returns the segment to be written if that was its last one.
    pub fn settle(&self, page: PageNo, content: Settled) -> Option<Run> {
        let (segment, at) = (page.0 / self.pages, page.0 % self.pages);
        let mut open = self.open.lock();
        let begin = || Open { pages: vec![None; self.pages as usize], settled: 0 };
        let this = open.entry(segment).or_insert_with(begin);
        this.pages[at as usize] = content;
        this.settled += 1;
        (this.settled == self.pages).then(|| self.run(segment, &this.pages))
    }

    /// The content of a page that is in memory.
    pub fn read(&self, page: PageNo) -> Option<Arc<[u8]>> {
        let open = self.open.lock();
        let settled = &open.get(&(page.0 / self.pages))?.pages[(page.0 % self.pages) as usize];
        settled.as_ref().map(|(content, _)| content.clone())
    }

    /// Drops a segment from memory, as it is on the SSD.
    pub fn written(&self, run: &Run) {
        self.open.lock().remove(&(run.first.0 / self.pages));
    }

    /// Incomplete segments up to their last content, for when no more pages will be settled.
    pub fn rest(&self) -> Vec<Run> {
        let open = self.open.lock();
        let mut segments: Vec<u32> = open.keys().copied().collect();
        segments.sort_unstable();
        let run = |segment: &u32| {
            let pages = &open[segment].pages;
            let last = pages.iter().rposition(Option::is_some)?;
            Some(self.run(*segment, &pages[..=last]))
        };
        segments.iter().filter_map(run).collect()
    }

    /// Pages without content become zeros.
    fn run(&self, segment: u32, pages: &[Settled]) -> Run {
        let mut bytes = vec![0; pages.len() * SECTOR_BYTES];
        for (out, settled) in bytes.chunks_mut(SECTOR_BYTES).zip(pages) {
            if let Some((content, _)) = settled {
                out.copy_from_slice(content);
            }
        }
        let cause = |settled: &Settled| settled.as_ref().map_or(Cause::Padding, |(_, cause)| *cause);
        Run { first: PageNo(segment * self.pages), bytes, causes: pages.iter().map(cause).collect() }
    }
}
