//! What the erase blocks of a superblock are good for.

use super::superblock::UNIT_BYTES;
use vellum_base::{BlockState, Flash};

/// Erases of all its blocks.
pub(super) fn wear(flash: &dyn Flash, index: u32) -> u64 {
    let geometry = flash.geometry();
    (0..geometry.dies()).map(|die| flash.report(geometry.block_on(die, index)).erase_count as u64).sum()
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

/// Units of the pages at the end of two lists.
pub(super) fn list_pages(flash: &dyn Flash) -> u64 {
    2 * u64::from(flash.geometry().page_bytes).div_ceil(UNIT_BYTES)
}
