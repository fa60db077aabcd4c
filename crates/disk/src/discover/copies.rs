//! Redundant metadata of ext file systems: backups of the superblock and of the group descriptors.
//!
//! One bad block must not take all copies, so a disk that deduplicates can be told not to share these (`--keep-copies
//! ext4`). Their locations follow from the superblock; nothing else is read.

use super::ext::Superblock;
use crate::discover::ext::{COMPAT_RESIZE_INODE, INCOMPAT_META_BG};
use std::ops::Range;
use vellum_base::{Lba, SECTOR_BYTES};

/// Maximum number of groups examined: those of 16 TiB in blocks of 4 KiB.
const GROUPS_MAX: u64 = 1 << 17;
/// Maximum number of sectors kept per file system: 4 GiB. No real one has a thousandth of that.
const SECTORS_MAX: u64 = 1 << 20;

/// Sectors that hold superblocks and group descriptors of a file system in `region`, ascending.
pub(super) fn kept(fs: &Superblock, region: &Range<u64>, reserved_blocks: u16) -> Vec<Range<Lba>> {
    let Some(groups) = fs.groups().filter(|groups| *groups <= GROUPS_MAX) else { return Vec::new() };
    let per_block = u64::from(fs.descriptors_per_block());
    let table_blocks = groups.div_ceil(per_block);
    let uses_meta = fs.incompat & INCOMPAT_META_BG != 0;
    let plain_blocks = if uses_meta { table_blocks.min(fs.first_meta_bg.into()) } else { table_blocks };
    let has_reserved = fs.compat & COMPAT_RESIZE_INODE != 0;
    let reserved = if has_reserved { u64::from(reserved_blocks) } else { 0 };
    let mut found = Kept { region, block_bytes: fs.block_bytes.into(), ranges: Vec::new(), sectors: 0 };
    for group in 0..groups {
        let start = u64::from(fs.first_data_block) + group * u64::from(fs.blocks_per_group);
        let backup = fs.has_superblock(group as u32);
        if backup {
            found.add(start, 1 + plain_blocks + reserved);
        }
        // After the leading plain ones, each block of descriptors is in the first, second and last of its groups.
        let (table_block, within) = (group / per_block, group % per_block);
        if table_block >= plain_blocks && [0, 1, per_block - 1].contains(&within) {
            found.add(start + u64::from(backup), 1);
        }
    }
    found.ranges
}

struct Kept<'a> {
    region: &'a Range<u64>,
    block_bytes: u64,
    ranges: Vec<Range<Lba>>,
    sectors: u64,
}

impl Kept<'_> {
    /// Adds blocks as far as they lie in the region. Calls must be in ascending order.
    fn add(&mut self, block: u64, blocks: u64) {
        let bytes = |block: u64| block.saturating_mul(self.block_bytes).saturating_add(self.region.start);
        let end = bytes(block.saturating_add(blocks)).min(self.region.end);
        let before = self.ranges.last().map_or(0, |last| last.end.0);
        let first = (bytes(block) / SECTOR_BYTES as u64).max(before);
        let end = end.div_ceil(SECTOR_BYTES as u64);
        let room = SECTORS_MAX - self.sectors;
        if first < end && end - first <= room {
            self.sectors += end - first;
            self.ranges.push(Lba(first)..Lba(end));
        }
    }
}
