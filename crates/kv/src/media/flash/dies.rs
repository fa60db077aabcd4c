//! What the erase blocks of a superblock are good for.

use super::list::HEAD_BYTES;
use super::superblock::UNIT_BYTES;
use vellum_base::{BlockState, Flash};

/// Erases of a block of it that can take part, of all those the mean, 64 times.
pub(super) fn wear(flash: &dyn Flash, index: u32) -> u64 {
    let geometry = flash.geometry();
    let erases = |die| u64::from(flash.report(geometry.block_on(die, index)).erase_count);
    let (sum, count) =
        good_dies(flash, index).fold((0, 0), |(sum, count), die| (sum + erases(die), count + 1));
    sum * 64 / u64::max(count, 1)
}

/// Dies of a superblock that can take part.
pub(super) fn good_dies(flash: &dyn Flash, index: u32) -> impl Iterator<Item = u32> {
    let geometry = flash.geometry();
    (0..geometry.dies())
        .filter(move |die| flash.report(geometry.block_on(*die, index)).state == BlockState::Good)
}

/// How many those are.
pub(super) fn width(flash: &dyn Flash, index: u32) -> usize {
    good_dies(flash, index).count()
}

/// Units of a superblock of so many dies.
pub(super) fn data_units(flash: &dyn Flash, width: usize) -> u64 {
    let geometry = flash.geometry();
    let pages = width as u64 * u64::from(geometry.pages_per_block.saturating_sub(2));
    pages * u64::from(geometry.page_bytes) / UNIT_BYTES
}

/// Of so many units, those that collection has for what it moves, and to name it: there is a page between its two
/// lists, and what is left over when nothing more fits, and for a piece that is in two parts then, is less than four
/// units.
pub(super) fn fill_units(room: u64, page_bytes: u32) -> u64 {
    room.saturating_sub((u64::from(page_bytes) + 2 * HEAD_BYTES as u64).div_ceil(UNIT_BYTES) + 4)
}
