//! Rescue of slots that only NVRAM holds.
//!
//! Invariants:
//! 1. Until everything staged is stored elsewhere and completed, or in the page being continued, nothing is collected,
//!    persisted or checkpointed: collection would find the staged slots empty, and the next image would overwrite one
//!    that is still needed.
//! 2. The first image written includes what the cut undid (see `undone`): it makes programs count as completed that
//!    were not when this opening checked.
//! 3. A block is continued only after an intact page: a torn page must remain the last of its block.

use super::Recovery;
use super::scan::is_on_flash;
use crate::blocks::State;
use crate::format::nvram::NvramImage;
use crate::frontier::Frontier;
use crate::map::Owner;
use crate::read::{read_entries, read_named};
use crate::room::ROOM_BLOCKS;
use crate::store::Recorded;
use vellum_base::{BlockAddr, BlockState, Cause, Kind, PageAddr, Result, SECTOR_BYTES};

impl Recovery {
    /// The open page of the newest NVRAM image, if it can still be programmed at its intended address.
    pub(super) fn resumable(&self) -> Option<PageAddr> {
        let image = self.images.last().filter(|i| !i.staged.is_empty())?;
        let (block, page) = image.open.filter(|(b, _)| *b < self.ftl.geometry.blocks())?;
        let report = self.ftl.flash.report(BlockAddr(block));
        let open = report.state == BlockState::Good && report.pages_written == page;
        (open && self.is_whole_before(BlockAddr(block), page)).then_some(BlockAddr(block).page(page))
    }

    /// True if the page before `page` was programmed completely. (A padded page has fewer entries than slots.)
    fn is_whole_before(&self, block: BlockAddr, page: u32) -> bool {
        let Some(before) = page.checked_sub(1) else { return true };
        let Ok(pages) = read_entries(&*self.ftl.flash, block, before, page) else { return false };
        let mut bytes = [0; SECTOR_BYTES];
        let mut stored = (0..).zip(&pages[0]).filter(|(_, entry)| entry.is_some()).peekable();
        stored.peek().is_some()
            && stored.all(|(index, _)| {
                let slot = self.ftl.geometry.slot_of(block.page(before), index);
                read_named(&*self.ftl.flash, slot, &mut bytes).is_ok()
            })
    }

    /// Stores slots that only NVRAM holds: the open page is continued, those of torn pages are stored elsewhere, if
    /// necessary in the last free blocks.
    pub(super) fn rescue_staged(&mut self, resumed: Option<PageAddr>) -> Result<()> {
        self.ftl.durable_seq = self.ftl.seq;
        let before = self.ftl.seq;
        let images = std::mem::take(&mut self.images);
        if let (Some(at), Some(image)) = (resumed, images.last()) {
            self.go_on_with(at, image);
        }
        if self.ftl.blocks.free_total() <= ROOM_BLOCKS {
            (0..self.ftl.geometry.dies()).try_for_each(|die| self.ftl.erase_dead(die).map(drop))?;
            self.reopen_blocks(&images);
        }
        let collecting = self.ftl.set_making_room(true);
        for image in &images {
            self.rescue(image, resumed)?;
        }
        self.record_undone()?;
        self.ftl.store_sealed()?;
        self.ftl.set_making_room(collecting);
        if images.is_empty() || self.ftl.seq == before {
            return Ok(());
        }
        self.ftl.env.sleep_until(self.ftl.last_done);
        self.ftl.persist_and_sync()?;
        self.win_back_room()
    }

    /// Continues blocks with pages left, one on each die, before free ones are used. Not those in which an image had a
    /// page open: the map still refers to its slots.
    fn reopen_blocks(&mut self, images: &[NvramImage]) {
        let geometry = self.ftl.geometry;
        let closed: Vec<BlockAddr> = self.ftl.blocks.in_state(State::Full).collect();
        for block in closed {
            let report = self.ftl.flash.report(block);
            let is_open = images.iter().any(|image| image.open.is_some_and(|(b, _)| b == block.0));
            let has_pages =
                report.state == BlockState::Good && report.pages_written < geometry.pages_per_block;
            let frontier = &self.ftl.collectors[geometry.die_of(block) as usize].frontier;
            if has_pages
                && !is_open
                && frontier.next(&geometry).is_none()
                && self.is_whole_before(block, report.pages_written)
            {
                self.ftl.blocks.reopen(block);
                let at = block.page(report.pages_written);
                self.ftl.collectors[geometry.die_of(block) as usize].frontier = Frontier::resume(at);
            }
        }
    }

    /// Regains the room taken by this recovery, which the next crash needs.
    fn win_back_room(&mut self) -> Result<()> {
        if self.ftl.blocks.free_total() >= ROOM_BLOCKS {
            return Ok(());
        }
        match self.ftl.make_room() {
            // The disk is so full that only trimming helps.
            Err(e) if e.kind() == Kind::NoSpace && self.ftl.poisoned.is_none() => Ok(()),
            made => made.map(drop),
        }
    }

    fn go_on_with(&mut self, at: PageAddr, image: &NvramImage) {
        self.ftl.frontiers[self.ftl.geometry.die_of(at.block) as usize] = Frontier::resume(at);
        self.ftl.page.at = Some(at);
        for (entry, data) in &image.staged {
            self.ftl.page.oobs.push(*entry);
            self.ftl.page.data.extend_from_slice(data);
        }
    }

    fn rescue(&mut self, image: &NvramImage, resumed: Option<PageAddr>) -> Result<()> {
        let Some((block, page)) = image.open.filter(|(b, _)| *b < self.ftl.geometry.blocks()) else {
            return Ok(());
        };
        let page = BlockAddr(block).page(page);
        if resumed == Some(page) {
            return Ok(());
        }
        for (index, (entry, data)) in image.staged.iter().enumerate() {
            let from = self.ftl.geometry.slot_of(page, index as u32);
            // Otherwise the block was erased since, and holds something newer: then the staged data is elsewhere.
            let stored = is_on_flash(&*self.ftl.flash, from, entry);
            let owner = self.ftl.map.owner(from);
            if !stored && owner != Owner::Nobody {
                let id = if let Owner::Sector(first) = owner { first } else { entry.id };
                let to = self.ftl.store(entry.kind, id, data, entry.data_crc, Cause::Refresh)?;
                self.ftl.relocate(from, to, entry.data_crc, Recorded::FirstOwner)?;
            }
        }
        Ok(())
    }
}
