//! How many sectors fit on flash.

use crate::format::root::DIRECTORIES_MAX;
use crate::room::reserved_blocks;
use vellum_base::Geometry;

/// Blocks of a die that are being filled: by the host and by the collector.
const OPEN_BLOCKS_PER_DIE: u64 = 2;
/// Blocks of a die that are being emptied.
const EMPTIED_BLOCKS_PER_DIE: u64 = 2;
/// The root block, and the next one.
const ROOT_BLOCKS: u64 = 2;
/// One slot in so many is free or waits for collection, at least.
const SLACK_SHARE_MIN: u32 = 32;

/// Sectors whose nodes a root can list, with eight directories left for log nodes: 3.4 TiB.
const SECTORS_LISTED_MAX: u64 = (DIRECTORIES_MAX as u64 - 8) << 20;

/// The most sectors a disk can have on this geometry with `bad_blocks` bad ones.
///
/// Two bounds: so many blocks must be left beyond the data, and such a share of the slots that collection can be
/// written to, that emptying blocks wins more than what it has to store (see room.rs): a thirty-second, and a page of
/// every block.
pub fn sectors_max(geometry: &Geometry, bad_blocks: u32) -> u64 {
    let beyond = |spare_of_die: u64| {
        let spare = spare_of_die * u64::from(geometry.dies()) + u64::from(bad_blocks) + ROOT_BLOCKS;
        u64::from(geometry.blocks()).saturating_sub(spare) * u64::from(geometry.slots_per_block())
    };
    let not_in_use = OPEN_BLOCKS_PER_DIE + reserved_blocks(geometry) as u64;
    let in_use = beyond(not_in_use);
    let slack = in_use.div_ceil(u64::from(geometry.pages_per_block.min(SLACK_SHARE_MIN)));
    let slots = beyond(not_in_use + EMPTIED_BLOCKS_PER_DIE).min(in_use - slack);
    // Two generations of nodes, one u32 a sector each, and the log between checkpoints.
    (slots - slots.div_ceil(256)).min(SECTORS_LISTED_MAX)
}
