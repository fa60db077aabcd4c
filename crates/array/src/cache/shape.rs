//! Size of a cache, and states of its pages.

use super::step::PageNo;
use crate::layout::Shape;
use vellum_base::{Error, Lba, Result};

/// State of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum PageState {
    /// It has no content.
    #[default]
    Free,
    /// It has the content of the array.
    Clean,
    /// It has the version that the parity of its row covers; the array is newer.
    Old,
    /// It has the newest version of an old page's sector (LeavO).
    New,
    /// It holds deltas.
    Delta,
}

/// Fewest segments: one is being written, one is vacant, and the others have content.
pub(super) const SEGMENTS_MIN: u32 = 4;

/// Size of a cache, and the relevant dimensions of its array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    /// Pages on the SSD, a multiple of `ways`.
    pub pages: u32,
    /// Pages per set.
    pub ways: u32,
    /// Data sectors in a row.
    pub row_sectors: u64,
    /// Sectors in a chunk.
    pub chunk_sectors: u64,
    /// Pages in memory.
    pub window: u16,
    /// Pages per segment, all in a single set; 0: pages are written in place.
    pub segment_pages: u32,
}

impl CacheShape {
    /// A cache of whole sets of at most `ways` pages; or of whole segments in a single set.
    pub(super) fn new(
        array: &Shape,
        pages: u32,
        ways: u16,
        window: u16,
        segment_pages: u32,
    ) -> Result<CacheShape> {
        if ways == 0 || ways.max(window) > 1 << 14 {
            return Err(Error::invalid(
                "a set of the cache has 1 to 16384 pages, its window at most as many",
            ));
        }
        let unit = if segment_pages > 0 { segment_pages } else { u32::from(ways).min(pages.max(1)) };
        let pages = pages / unit * unit;
        let ways = if segment_pages > 0 { pages } else { unit };
        if pages < 4 || segment_pages > pages / SEGMENTS_MIN {
            return Err(Error::invalid("a cache has at least 4 pages, and 4 segments: take a larger SSD"));
        }
        if array.sectors() > 1 << 38 {
            return Err(Error::invalid("an array with a cache has at most 1 PiB"));
        }
        let (row_sectors, chunk_sectors) = (array.row_sectors(), u64::from(array.chunk_sectors));
        Ok(CacheShape { pages, ways, row_sectors, chunk_sectors, window, segment_pages })
    }

    /// The row of a sector.
    pub fn row_of(&self, lba: Lba) -> u64 {
        lba.0 / self.row_sectors
    }

    /// Number of sets on the SSD.
    pub(super) fn sets(&self) -> u32 {
        self.pages / self.ways
    }

    /// Number of pages on the SSD and in the window.
    pub(super) fn all_pages(&self) -> u32 {
        self.pages + u32::from(self.window)
    }

    /// The number of the window's set.
    pub(super) fn window_set(&self) -> u32 {
        self.sets()
    }

    /// True if a page is in memory.
    pub(super) fn is_window(&self, page: PageNo) -> bool {
        page.0 >= self.pages
    }
}
