//! Size of a cache, and what its pages are good for.

use super::step::PageNo;
use crate::layout::Shape;
use vellum_base::{Error, Lba, Result};

/// What a page is good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum PageState {
    /// Nothing.
    #[default]
    Free,
    /// It is what the array holds.
    Clean,
    /// It is what the parity of its row knows; the array is newer.
    Old,
    /// It is the newest version of an old page's sector (LeavO).
    New,
    /// It holds deltas.
    Delta,
}

/// One is written, one is free, and others hold something.
pub(super) const SEGMENTS_MIN: u32 = 4;

/// Size of a cache, and the array that it is in front of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    /// A multiple of `ways`.
    pub pages: u32,
    /// Pages of a set.
    pub ways: u32,
    /// Data sectors of a row.
    pub row_sectors: u64,
    /// Sectors of a chunk.
    pub chunk_sectors: u64,
    /// Pages in memory.
    pub window: u16,
    /// Pages of a segment, all of which are in one set; 0: pages are written in place.
    pub segment_pages: u32,
}

impl CacheShape {
    /// Whole sets of at most `ways` pages; or whole segments, and one set.
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

    /// Sets of the SSD.
    pub(super) fn sets(&self) -> u32 {
        self.pages / self.ways
    }

    /// Pages of the SSD and of the window.
    pub(super) fn all_pages(&self) -> u32 {
        self.pages + u32::from(self.window)
    }

    /// The window, as a set.
    pub(super) fn window_set(&self) -> u32 {
        self.sets()
    }

    /// Whether a page is in memory.
    pub(super) fn is_window(&self, page: PageNo) -> bool {
        page.0 >= self.pages
    }
}
