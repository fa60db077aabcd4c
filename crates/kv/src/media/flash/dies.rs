//! Wear, usable dies and capacity of a superblock.

use super::list::LIST_HEAD_BYTES;
use super::superblock::EXTENT_UNIT_BYTES;
use vellum_base::{BlockState, Flash};

/// 64 times the mean erase count of its good blocks.
pub(super) fn wear(flash: &dyn Flash, index: u32) -> u64 {
    let geometry = flash.geometry();
    let erases = |die| u64::from(flash.report(geometry.block_on(die, index)).erase_count);
    let (sum, count) =
        good_dies(flash, index).fold((0, 0), |(sum, count), die| (sum + erases(die), count + 1));
    sum * 64 / u64::max(count, 1)
}

/// Dies whose block of the superblock is good.
pub(super) fn good_dies(flash: &dyn Flash, index: u32) -> impl Iterator<Item = u32> {
    let geometry = flash.geometry();
    (0..geometry.dies())
        .filter(move |die| flash.report(geometry.block_on(*die, index)).state == BlockState::Good)
}

/// Number of these dies.
pub(super) fn width(flash: &dyn Flash, index: u32) -> usize {
    good_dies(flash, index).count()
}

/// Capacity in units of a superblock of `width` dies.
pub(super) fn data_units(flash: &dyn Flash, width: usize) -> u64 {
    let geometry = flash.geometry();
    let pages = width as u64 * u64::from(geometry.pages_per_block.saturating_sub(2));
    pages * u64::from(geometry.page_bytes) / EXTENT_UNIT_BYTES
}

/// Of `room` units, those that collection can use for what it moves and for naming it. Not usable are a page between
/// the two lists, and fewer than four units that are left when nothing more fits, or go to naming a piece that is split
/// then.
pub(super) fn fill_units(room: u64, page_bytes: u32) -> u64 {
    room.saturating_sub((u64::from(page_bytes) + 2 * LIST_HEAD_BYTES as u64).div_ceil(EXTENT_UNIT_BYTES) + 4)
}
