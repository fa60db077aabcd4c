//! Where the next page is programmed: an open block on each die, and the page being filled.

use crate::blocks::Blocks;
use crate::format::oob::Oob;
use vellum_base::{BlockAddr, Geometry, PageAddr, SECTOR_BYTES};

/// The open block of a die and its next page.
#[derive(Clone, Copy, Default)]
pub(crate) struct Frontier {
    block: Option<BlockAddr>,
    page: u32,
}

impl Frontier {
    /// Continues at a page of a block that is already open.
    pub(crate) fn resume(at: PageAddr) -> Frontier {
        Frontier { block: Some(at.block), page: at.page }
    }

    /// The next page, if the open block has one.
    pub(crate) fn next(&self, geometry: &Geometry) -> Option<PageAddr> {
        self.block.filter(|_| self.page < geometry.pages_per_block).map(|b| b.page(self.page))
    }

    /// Number of pages left in the open block.
    pub(crate) fn pages_left(&self, geometry: &Geometry) -> u32 {
        self.block.map_or(0, |_| geometry.pages_per_block - self.page)
    }

    /// Advances after the next `pages` pages were programmed.
    pub(crate) fn advance(&mut self, pages: u32) {
        self.page += pages;
    }

    /// Closes the block if it is used up. True if a new block is needed.
    pub(crate) fn close_if_full(&mut self, geometry: &Geometry, blocks: &mut Blocks, seq: u64) -> bool {
        if self.next(geometry).is_none()
            && let Some(full) = self.block.take()
        {
            blocks.close(full, seq);
        }
        self.block.is_none()
    }

    /// Begins a new block at its first page.
    pub(crate) fn begin(&mut self, block: BlockAddr) {
        *self = Frontier { block: Some(block), page: 0 };
    }

    /// Gives up a block that turned out bad.
    pub(crate) fn abandon(&mut self) -> Option<BlockAddr> {
        self.block.take()
    }
}

/// The page that host data is being gathered for. With one slot per page it is programmed as soon as it is chosen.
pub(crate) struct OpenPage {
    pub at: Option<PageAddr>,
    pub oobs: Vec<Oob>,
    /// Bytes of the slots gathered so far.
    pub data: Vec<u8>,
}

impl OpenPage {
    pub(crate) fn new(geometry: &Geometry) -> OpenPage {
        let slots = geometry.slots_per_page() as usize;
        OpenPage {
            at: None,
            oobs: Vec::with_capacity(slots),
            data: Vec::with_capacity((slots - 1) * SECTOR_BYTES),
        }
    }

    /// Bytes of a gathered slot.
    pub(crate) fn slot(&self, page: PageAddr, slot: u32) -> Option<&[u8]> {
        let from = slot as usize * SECTOR_BYTES;
        if self.at == Some(page) { self.data.get(from..from + SECTOR_BYTES) } else { None }
    }

    pub(crate) fn clear(&mut self) {
        self.at = None;
        self.oobs.clear();
        self.data.clear();
    }
}
