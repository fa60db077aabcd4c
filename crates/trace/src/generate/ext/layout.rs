//! Layout of the model's file system, and allocation of blocks and inodes.
//!
//! One flex group: `superblock · group descriptors · block bitmaps · inode bitmaps · inode tables · journal · data`.
//! All sizes are in 4 KiB blocks, which are sectors of the device.

use vellum_base::{Error, Kind, Lba, Result};

/// Blocks per group, as many as the bits of a bitmap block.
pub const GROUP_BLOCKS: u64 = 32768;
/// Inodes per group.
pub const GROUP_INODES: u64 = 8192;
/// Inodes of 256 bytes per block.
pub const INODES_PER_BLOCK: u64 = 16;
/// Group descriptors of 64 bytes per block.
const DESCRIPTORS_PER_BLOCK: u64 = 64;
/// A quarter of the journal must have room for any single operation.
const JOURNAL_BLOCKS_MIN: u64 = 256;
const FIRST_INODE: u64 = 11;

/// See the module.
pub struct Layout {
    groups: u64,
    journal: Vec<(u64, u64)>,
    blocks: Bits,
    inodes: Bits,
}

impl Layout {
    /// Lays out `blocks` blocks with a journal of `journal_blocks` in `pieces` parts, separated by single blocks, where
    /// ext3 has indirect blocks.
    pub fn new(blocks: u64, journal_blocks: u64, pieces: u64) -> Result<Layout> {
        let groups = blocks.div_ceil(GROUP_BLOCKS);
        let mut layout = Layout {
            groups,
            journal: Vec::new(),
            blocks: Bits::new(blocks),
            inodes: Bits::new(groups * GROUP_INODES),
        };
        let mut at = layout.inode_table(groups);
        let pieces = pieces.clamp(1, journal_blocks.max(1));
        for piece in 0..pieces {
            let length = journal_blocks * (piece + 1) / pieces - journal_blocks * piece / pieces;
            layout.journal.push((at, length));
            at += length + 1;
        }
        if at + 64 > blocks || journal_blocks < JOURNAL_BLOCKS_MIN {
            return Err(Error::invalid(
                "the model's file system needs a journal of 256 blocks, and room behind it",
            ));
        }
        (0..at).for_each(|block| layout.blocks.set(block));
        (0..FIRST_INODE).for_each(|inode| layout.inodes.set(inode));
        Ok(layout)
    }

    /// The parts of the journal: first block and length.
    pub fn journal(&self) -> &[(u64, u64)] {
        &self.journal
    }

    /// The block of a journal slot.
    pub fn journal_block(&self, slot: u64) -> Lba {
        let mut left = slot;
        for (start, length) in &self.journal {
            if left < *length {
                return Lba(start + left);
            }
            left -= length;
        }
        unreachable!("the journal has no slot {slot}")
    }

    /// The block with the descriptor of a group, and the index in the block.
    pub fn descriptor(&self, group: u64) -> (u64, u64) {
        (1 + group / DESCRIPTORS_PER_BLOCK, group % DESCRIPTORS_PER_BLOCK)
    }

    /// The block bitmap of a group.
    pub fn block_bitmap(&self, group: u64) -> u64 {
        1 + self.groups.div_ceil(DESCRIPTORS_PER_BLOCK) + group
    }

    /// The inode bitmap of a group.
    pub fn inode_bitmap(&self, group: u64) -> u64 {
        self.block_bitmap(self.groups) + group
    }

    /// The first block of the inode table of a group.
    fn inode_table(&self, group: u64) -> u64 {
        self.inode_bitmap(self.groups) + group * (GROUP_INODES / INODES_PER_BLOCK)
    }

    /// The block with an inode, and the index in the block.
    pub fn inode(&self, inode: u64) -> (u64, u64) {
        (self.inode_table(0) + inode / INODES_PER_BLOCK, inode % INODES_PER_BLOCK)
    }

    /// Allocates the first free block from `goal` on.
    pub fn take_block(&mut self, goal: u64) -> Result<u64> {
        self.blocks.take(goal).ok_or_else(|| Error::new(Kind::NoSpace, "the model's file system is full"))
    }

    /// Allocates the first free inode from those of `group` on.
    pub fn take_inode(&mut self, group: u64) -> Result<u64> {
        let goal = group % self.groups * GROUP_INODES;
        self.inodes
            .take(goal)
            .ok_or_else(|| Error::new(Kind::NoSpace, "the model's file system has no inode left"))
    }

    /// Frees a block.
    pub fn free_block(&mut self, block: u64) {
        self.blocks.clear(block);
    }

    /// Frees an inode.
    pub fn free_inode(&mut self, inode: u64) {
        self.inodes.clear(inode);
    }

    /// Number of block groups.
    pub fn groups(&self) -> u64 {
        self.groups
    }

    /// A block bitmap, as words.
    pub fn block_bitmap_words(&self, group: u64) -> &[u64] {
        self.blocks.words(group * GROUP_BLOCKS, GROUP_BLOCKS)
    }

    /// The used part of an inode bitmap, as words.
    pub fn inode_bitmap_words(&self, group: u64) -> &[u64] {
        self.inodes.words(group * GROUP_INODES, GROUP_INODES)
    }
}

/// A bitmap with allocation.
struct Bits {
    words: Vec<u64>,
    len: u64,
}

impl Bits {
    fn new(len: u64) -> Bits {
        let mut bits = Bits { words: vec![0; len.next_multiple_of(GROUP_BLOCKS) as usize / 64], len };
        (len..bits.words.len() as u64 * 64).for_each(|n| bits.set(n));
        bits
    }

    fn set(&mut self, n: u64) {
        self.words[n as usize / 64] |= 1 << (n % 64);
    }

    fn clear(&mut self, n: u64) {
        self.words[n as usize / 64] &= !(1 << (n % 64));
    }

    /// Sets and returns the first clear bit from `goal` on, wrapping around.
    fn take(&mut self, goal: u64) -> Option<u64> {
        let goal = if goal < self.len { goal } else { 0 };
        let first = goal as usize / 64;
        let count = self.words.len();
        for step in 0..=count {
            let at = (first + step) % count;
            let below_goal = if step == 0 { (1 << (goal % 64)) - 1 } else { 0 };
            let free = !(self.words[at] | below_goal);
            if free != 0 {
                let n = at as u64 * 64 + u64::from(free.trailing_zeros());
                self.set(n);
                return Some(n);
            }
        }
        None
    }

    fn words(&self, first: u64, len: u64) -> &[u64] {
        let start = (first as usize / 64).min(self.words.len());
        let end = (start + len as usize / 64).min(self.words.len());
        &self.words[start..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn regions_do_not_overlap() {
        let layout = Layout::new(10 * GROUP_BLOCKS, 1000, 5).unwrap();
        let mut seen = BTreeSet::from([0]);
        let mut claim = |block| assert!(seen.insert(block), "{block} twice");
        claim(layout.descriptor(0).0);
        for group in 0..10 {
            claim(layout.block_bitmap(group));
            claim(layout.inode_bitmap(group));
        }
        (0..10 * GROUP_INODES).step_by(16).for_each(|inode| claim(layout.inode(inode).0));
        (0..1000).for_each(|slot| claim(layout.journal_block(slot).0));
        assert_eq!(layout.journal().len(), 5);
        assert!(seen.iter().all(|b| *b <= layout.journal_block(999).0));
    }

    #[test]
    fn blocks_are_taken_once_until_none_is_left() {
        let mut layout = Layout::new(GROUP_BLOCKS, 256, 1).unwrap();
        let mut taken = BTreeSet::new();
        while let Ok(block) = layout.take_block(20_000) {
            assert!(taken.insert(block) && block < GROUP_BLOCKS && block > layout.journal_block(255).0);
        }
        assert_eq!(taken.len() as u64, GROUP_BLOCKS - layout.journal_block(255).0 - 2);
        layout.free_block(20_005);
        assert_eq!(layout.take_block(0).unwrap(), 20_005);
        assert!(Layout::new(800, 256, 1).is_err());
    }
}
