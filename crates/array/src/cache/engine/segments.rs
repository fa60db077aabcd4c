//! Segments of the SSD that are being written: their pages stay in memory until the last one is there, and go to the
//! SSD with one write. Only without an NVRAM: with one each page is durable before anything depends on it.
//!
//! 1. Each page of a segment is *settled* once a round: with a content, or without one.
//! 2. Who settles the last one writes the segment. Until that is done its pages are read from memory.
//! 3. Whoever gives a segment up has had its turn at all of its pages: it was written.

use crate::cache::step::PageNo;
use std::sync::Arc;
use vellum_base::hash::FixedMap;
use vellum_base::sync::Mutex;
use vellum_base::{Cause, SECTOR_BYTES};

/// A page, and what it is written for. None: it has no content.
type Settled = Option<(Arc<[u8]>, Cause)>;

/// See the module.
pub(super) struct Segments {
    /// Of a segment.
    pages: u32,
    open: Mutex<FixedMap<u32, Open>>,
}

struct Open {
    pages: Vec<Settled>,
    settled: u32,
}

/// What is written at once.
pub(super) struct Run {
    pub first: PageNo,
    pub bytes: Vec<u8>,
    /// What each of its pages is written for.
    pub causes: Vec<Cause>,
}

impl Segments {
    /// Of so many pages each.
    pub fn new(pages: u32) -> Segments {
        Segments { pages, open: Mutex::default() }
    }

    /// Settles a page; the segment, if that was its last one.
    pub fn settle(&self, page: PageNo, content: Settled) -> Option<Run> {
        let (segment, at) = (page.0 / self.pages, page.0 % self.pages);
        let mut open = self.open.lock();
        let begin = || Open { pages: vec![None; self.pages as usize], settled: 0 };
        let this = open.entry(segment).or_insert_with(begin);
        this.pages[at as usize] = content;
        this.settled += 1;
        (this.settled == self.pages).then(|| self.run(segment, &this.pages))
    }

    /// A page that is in memory.
    pub fn read(&self, page: PageNo) -> Option<Arc<[u8]>> {
        let open = self.open.lock();
        let settled = &open.get(&(page.0 / self.pages))?.pages[(page.0 % self.pages) as usize];
        settled.as_ref().map(|(content, _)| content.clone())
    }

    /// A segment is on the SSD: memory needs it no more.
    pub fn written(&self, run: &Run) {
        self.open.lock().remove(&(run.first.0 / self.pages));
    }

    /// What there is of segments that are not full, when nothing more is settled.
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

    /// Pages without a content are zeros.
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
