//! The shape of a flash device.

use crate::error::{Error, Result};
use crate::units::{BlockAddr, PageAddr, SECTOR_BYTES, SlotAddr};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The largest page a device may have.
pub const PAGE_BYTES_MAX: u32 = 64 * 1024;

/// Channels × dies × erase blocks × pages, and the size of a page.
///
/// ```
/// use vellum_base::Geometry;
/// let (channels, dies_per_channel, blocks_per_die) = (4, 2, 64);
/// let (pages_per_block, page_bytes, oob_bytes) = (256, 16384, 256);
/// let g = Geometry { channels, dies_per_channel, blocks_per_die, pages_per_block, page_bytes, oob_bytes };
/// g.validate().unwrap();
/// assert_eq!(g.slots_per_page(), 4);
/// assert_eq!(g.capacity_bytes(), 2 << 30);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// Independent buses between controller and dies.
    pub channels: u32,
    /// Dies that share one channel; each programs and erases on its own.
    pub dies_per_channel: u32,
    /// Erase blocks in a die.
    pub blocks_per_die: u32,
    /// Pages in an erase block.
    pub pages_per_block: u32,
    /// Bytes in a page: a multiple of 4 KiB, at most [`PAGE_BYTES_MAX`].
    pub page_bytes: u32,
    /// Out-of-band bytes that belong to each page, for its owner's use.
    pub oob_bytes: u32,
}

impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} channels x {} dies x {} blocks x {} pages of {} KiB",
            self.channels,
            self.dies_per_channel,
            self.blocks_per_die,
            self.pages_per_block,
            self.page_bytes / 1024
        )
    }
}

impl Geometry {
    /// All dies.
    pub const fn dies(&self) -> u32 {
        self.channels * self.dies_per_channel
    }
    /// All erase blocks.
    pub const fn blocks(&self) -> u32 {
        self.dies() * self.blocks_per_die
    }
    /// All pages.
    pub const fn pages(&self) -> u64 {
        self.blocks() as u64 * self.pages_per_block as u64
    }
    /// Sector-sized slots in a page.
    pub const fn slots_per_page(&self) -> u32 {
        self.page_bytes / SECTOR_BYTES as u32
    }
    /// Sector-sized slots in an erase block.
    pub const fn slots_per_block(&self) -> u32 {
        self.pages_per_block * self.slots_per_page()
    }
    /// All slots.
    pub const fn slots(&self) -> u64 {
        self.pages() * self.slots_per_page() as u64
    }
    /// Bytes in an erase block.
    pub const fn block_bytes(&self) -> u64 {
        self.pages_per_block as u64 * self.page_bytes as u64
    }
    /// Raw bytes, without out-of-band bytes.
    pub const fn capacity_bytes(&self) -> u64 {
        self.blocks() as u64 * self.block_bytes()
    }
    /// The die of a block.
    pub const fn die_of(&self, block: BlockAddr) -> u32 {
        block.0 % self.dies()
    }
    /// The channel of a die. Neighbouring dies sit on different channels.
    pub const fn channel_of(&self, die: u32) -> u32 {
        die % self.channels
    }
    /// The block with index `index` on `die`.
    pub const fn block_on(&self, die: u32, index: u32) -> BlockAddr {
        BlockAddr(index * self.dies() + die)
    }
    /// Number of a page, counted through the device.
    pub const fn page_index(&self, page: PageAddr) -> u64 {
        page.block.0 as u64 * self.pages_per_block as u64 + page.page as u64
    }
    /// The slot `slot` of `page`.
    pub const fn slot_of(&self, page: PageAddr, slot: u32) -> SlotAddr {
        SlotAddr(self.page_index(page) as u32 * self.slots_per_page() + slot)
    }
    /// The erase block of a slot.
    pub const fn block_of_slot(&self, slot: SlotAddr) -> BlockAddr {
        BlockAddr(slot.0 / self.slots_per_block())
    }
    /// The page of a slot, and its index in it.
    pub const fn page_of_slot(&self, slot: SlotAddr) -> (PageAddr, u32) {
        let per_page = self.slots_per_page();
        let page = slot.0 / per_page;
        let addr = BlockAddr(page / self.pages_per_block).page(page % self.pages_per_block);
        (addr, slot.0 % per_page)
    }

    /// Refuses shapes that no code here can serve; the message says which bound was passed.
    pub fn validate(&self) -> Result<()> {
        let counts = [
            ("channels", self.channels, 1024),
            ("dies per channel", self.dies_per_channel, 1024),
            ("blocks per die", self.blocks_per_die, 1 << 24),
            ("pages per block", self.pages_per_block, 1 << 16),
        ];
        for (name, value, max) in counts {
            if value == 0 || value > max {
                return Err(Error::invalid(format!("geometry: {name} is {value}, must be 1 to {max}")));
            }
        }
        if self.page_bytes == 0
            || !self.page_bytes.is_multiple_of(SECTOR_BYTES as u32)
            || self.page_bytes > PAGE_BYTES_MAX
        {
            return Err(Error::invalid(format!(
                "geometry: page size is {}, must be a multiple of 4 KiB and at most 64 KiB",
                self.page_bytes
            )));
        }
        if self.oob_bytes > 16 * 1024 {
            return Err(Error::invalid("geometry: more than 16 KiB out-of-band bytes a page"));
        }
        let slots = self.channels as u128
            * self.dies_per_channel as u128
            * self.blocks_per_die as u128
            * self.slots_per_block() as u128;
        if slots >= 1 << 31 {
            return Err(Error::invalid("geometry: the device would pass 8 TiB, the largest supported"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: Geometry = Geometry {
        channels: 3,
        dies_per_channel: 2,
        blocks_per_die: 5,
        pages_per_block: 7,
        page_bytes: 8192,
        oob_bytes: 64,
    };

    #[test]
    fn slots_and_pages_round_trip() {
        for block in 0..G.blocks() {
            for page in 0..G.pages_per_block {
                for slot in 0..G.slots_per_page() {
                    let addr = BlockAddr(block).page(page);
                    let s = G.slot_of(addr, slot);
                    assert_eq!(G.page_of_slot(s), (addr, slot));
                    assert_eq!(G.block_of_slot(s), BlockAddr(block));
                }
            }
        }
    }

    #[test]
    fn a_superblock_is_contiguous_and_covers_every_die() {
        let dies: Vec<u32> = (12..18).map(|b| G.die_of(BlockAddr(b))).collect();
        assert_eq!(dies, [0, 1, 2, 3, 4, 5]);
        assert_eq!(G.block_on(4, 2), BlockAddr(16));
    }

    #[test]
    fn impossible_shapes_are_refused() {
        for bad in [
            Geometry { channels: 0, ..G },
            Geometry { page_bytes: 5000, ..G },
            Geometry { page_bytes: 0, ..G },
            Geometry { page_bytes: 1 << 20, ..G },
            Geometry { blocks_per_die: 1 << 24, pages_per_block: 1 << 16, ..G },
            Geometry { channels: u32::MAX, ..G },
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
    }
}
