//! The number of sectors that fit on flash.

use crate::format::root::DIRECTORIES_MAX;
use crate::room::reserved_blocks;
use vellum_base::Geometry;

/// Blocks of a die being filled: by the host and by garbage collection.
const OPEN_BLOCKS_PER_DIE: u64 = 2;
/// Blocks of a die being emptied.
const EMPTIED_BLOCKS_PER_DIE: u64 = 2;
/// The root block, and the next one.
const ROOT_BLOCKS: u64 = 2;
/// The share of slots that are free or await collection is at least one in this many.
const SLACK_SHARE_MIN: u32 = 32;

/// Sectors whose nodes fit in a root's list, with eight directories left for log nodes: 3.5 TiB.
const SECTORS_LISTED_MAX: u64 = (DIRECTORIES_MAX as u64 - 8) << 20;

/// The maximum number of sectors of a disk on this geometry with `bad_blocks` bad ones.
///
/// There are two bounds. Enough blocks must be left beyond the data. And of the slots that collection can write to,
/// enough must be unused that emptying blocks gains more than collection has to store (see room.rs): a thirty-second,
/// and a page of every block.
pub fn sectors_max(geometry: &Geometry, bad_blocks: u32) -> u64 {
    let beyond = |spare_of_die: u64| {
        let spare = spare_of_die * u64::from(geometry.dies()) + u64::from(bad_blocks) + ROOT_BLOCKS;
        u64::from(geometry.blocks()).saturating_sub(spare) * u64::from(geometry.slots_per_block())
    };
    let not_in_use = OPEN_BLOCKS_PER_DIE + reserved_blocks(geometry) as u64;
    let in_use = beyond(not_in_use);
    let slack = in_use.div_ceil(u64::from(geometry.pages_per_block.min(SLACK_SHARE_MIN)));
    let slots = beyond(not_in_use + EMPTIED_BLOCKS_PER_DIE).min(in_use - slack);
    // Two generations of nodes, with a u32 per sector each, and the log between checkpoints.
    (slots - slots.div_ceil(256)).min(SECTORS_LISTED_MAX)
}
