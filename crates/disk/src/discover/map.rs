//! Block map of the journal's inode: extent trees and indirect blocks.
//!
//! Invariants:
//! 1. A journal has no holes, so each step must continue exactly where the last one ended. So every leaf makes
//!    progress, and a cyclic map ends with an error.
//! 2. At most [`NODES_MAX`] map blocks are visited and [`PIECES_MAX`] pieces kept.

use super::Why;
use super::ext::Volume;
use super::reader::Reader;
use std::ops::Range;

/// Maximum number of extents kept for one journal.
pub const PIECES_MAX: usize = 1 << 16;
/// Maximum number of map blocks visited for one journal.
const NODES_MAX: u32 = 2048;

const EXTENT_MAGIC: u16 = 0xF30A;
const EXTENT_DEPTH_MAX: u16 = 5;
/// Bytes of the map inside an inode.
const ROOT_BYTES: u32 = 60;
const ENTRY_BYTES: u32 = 12;
/// Lengths above this mark unwritten extents and are larger by it (which matters to file contents, not here).
const EXTENT_BLOCKS_MAX: u16 = 1 << 15;

/// The blocks of a file, in logical order, from the extent tree whose root is at byte `root_at`.
pub(super) fn from_extent_tree(
    reader: &mut Reader,
    volume: &Volume,
    root_at: u64,
    blocks: u32,
) -> Why<Vec<Range<u64>>> {
    let mut walk = Walk::new(reader, volume, blocks);
    let depth = walk.reader.le16(root_at + 6)?;
    if depth > EXTENT_DEPTH_MAX {
        return Err(format!("the journal's extent tree claims {depth} levels"));
    }
    walk.extent_node(root_at, ROOT_BYTES, depth)?;
    walk.finish()
}

/// The blocks of a file, in logical order, from the direct and indirect block numbers at byte `map_at`.
pub(super) fn from_indirect_blocks(
    reader: &mut Reader,
    volume: &Volume,
    map_at: u64,
    blocks: u32,
) -> Why<Vec<Range<u64>>> {
    let mut walk = Walk::new(reader, volume, blocks);
    // Twelve direct blocks, then one tree of each height.
    for slot in 0..15u32 {
        if walk.is_complete() {
            break;
        }
        let block = walk.reader.le32(map_at + 4 * slot as u64)? as u64;
        walk.indirect_node(block, slot.saturating_sub(11))?;
    }
    walk.finish()
}

/// A walk over a map that collects the contents of its leaves.
struct Walk<'w, 'd> {
    reader: &'w mut Reader<'d>,
    volume: &'w Volume,
    /// Number of blocks of the file, and how many of them have been found.
    blocks: u64,
    found: u64,
    pieces: Vec<Range<u64>>,
    nodes: u32,
}

impl<'w, 'd> Walk<'w, 'd> {
    fn new(reader: &'w mut Reader<'d>, volume: &'w Volume, blocks: u32) -> Walk<'w, 'd> {
        Walk { reader, volume, blocks: blocks as u64, found: 0, pieces: Vec::new(), nodes: 0 }
    }

    fn is_complete(&self) -> bool {
        self.found >= self.blocks
    }

    /// Visits the extent tree node of `bytes` at byte `at`, `depth` levels above the leaves.
    fn extent_node(&mut self, at: u64, bytes: u32, depth: u16) -> Why<()> {
        self.count_node()?;
        let [magic, entries, max, found_depth] = [0, 2, 4, 6].map(|offset| self.reader.le16(at + offset));
        let (magic, entries, max) = (magic?, entries?, max?);
        let fits = (bytes - ENTRY_BYTES) / ENTRY_BYTES;
        if magic != EXTENT_MAGIC || found_depth? != depth {
            return Err("the journal's extent tree is damaged".into());
        }
        if entries == 0 || entries > max || max as u32 > fits {
            return Err(format!(
                "the journal's extent tree has a node of {entries} entries, room for {fits}"
            ));
        }
        for index in 1..=entries as u64 {
            if self.is_complete() {
                break;
            }
            let entry = self.reader.array::<12>(at + index * ENTRY_BYTES as u64)?;
            match depth {
                0 => self.extent(&entry)?,
                _ => {
                    let child = self.volume.block_at(u48(&entry, 4, 8))?;
                    self.extent_node(child, self.volume.block_bytes, depth - 1)?;
                }
            }
        }
        Ok(())
    }

    fn extent(&mut self, entry: &[u8; 12]) -> Why<()> {
        let logical = u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]) as u64;
        let raw = u16::from_le_bytes([entry[4], entry[5]]);
        let length = if raw > EXTENT_BLOCKS_MAX { raw - EXTENT_BLOCKS_MAX } else { raw };
        if logical != self.found || length == 0 {
            return Err(format!("the journal has a hole or a fold at its block {}", self.found));
        }
        self.push(u48(entry, 8, 6), length as u64)
    }

    /// Visits the tree of indirect blocks of `height` with root `block`; at height 0, `block` itself is data.
    fn indirect_node(&mut self, block: u64, height: u32) -> Why<()> {
        if height == 0 {
            return self.push(block, 1);
        }
        self.count_node()?;
        let at = self.volume.block_at(block)?;
        for slot in 0..self.volume.block_bytes as u64 / 4 {
            if self.is_complete() {
                break;
            }
            let child = self.reader.le32(at + 4 * slot)? as u64;
            self.indirect_node(child, height - 1)?;
        }
        Ok(())
    }

    /// Adds the next `length` blocks of the file, which begin at `block`.
    fn push(&mut self, block: u64, length: u64) -> Why<()> {
        let length = length.min(self.blocks - self.found);
        self.volume.block_at(block)?;
        self.volume.block_at(block + (length - 1))?;
        let is_full = self.pieces.len() == PIECES_MAX;
        match self.pieces.last_mut() {
            Some(last) if last.end == block => last.end += length,
            _ if is_full => {
                return Err(format!("the journal is in more than {PIECES_MAX} pieces"));
            }
            _ => self.pieces.push(block..block + length),
        }
        self.found += length;
        Ok(())
    }

    fn count_node(&mut self) -> Why<()> {
        self.nodes += 1;
        match self.nodes <= NODES_MAX {
            true => Ok(()),
            false => Err(format!("the journal's map has more than {NODES_MAX} blocks")),
        }
    }

    fn finish(self) -> Why<Vec<Range<u64>>> {
        if !self.is_complete() {
            return Err(format!("only {} of the journal's {} blocks are mapped", self.found, self.blocks));
        }
        let mut sorted: Vec<&Range<u64>> = self.pieces.iter().collect();
        sorted.sort_unstable_by_key(|piece| piece.start);
        match sorted.windows(2).any(|pair| pair[0].end > pair[1].start) {
            true => Err("the journal's extents overlap".into()),
            false => Ok(self.pieces),
        }
    }
}

/// A 48-bit block number: 32 low bits at `low`, 16 high bits at `high`.
fn u48(entry: &[u8; 12], low: usize, high: usize) -> u64 {
    let low = u32::from_le_bytes(std::array::from_fn(|i| entry[low + i]));
    let high = u16::from_le_bytes([entry[high], entry[high + 1]]);
    (high as u64) << 32 | low as u64
}
