//! Slots that only NVRAM holds.

use super::Recovery;
use super::scan::is_on_flash;
use crate::format::nvram::NvramImage;
use crate::frontier::Frontier;
use crate::map::Owner;
use crate::store::Recorded;
use vellum_base::{BlockAddr, BlockState, Cause, PageAddr, Result};

impl Recovery {
    /// The open page of the newest NVRAM image, if it can still be programmed where it was to go.
    pub(super) fn resumable(&self) -> Option<PageAddr> {
        let image = self.images.last().filter(|i| !i.staged.is_empty())?;
        let (block, page) = image.open.filter(|(b, _)| *b < self.ftl.geometry.blocks())?;
        let report = self.ftl.flash.report(BlockAddr(block));
        let open = report.state == BlockState::Good && report.pages_written == page;
        open.then_some(BlockAddr(block).page(page))
    }

    /// Slots that only NVRAM holds: the open page is gone on with, those of torn pages are stored anew.
    pub(super) fn rescue_staged(&mut self) -> Result<()> {
        self.ftl.durable_seq = self.ftl.seq;
        let before = self.ftl.seq;
        let resumed = self.resumable();
        if let (Some(at), Some(image)) = (resumed, self.images.last()) {
            self.ftl.frontiers[self.ftl.geometry.die_of(at.block) as usize] = Frontier::resume(at);
            self.ftl.page.at = Some(at);
            for (entry, data) in &image.staged {
                self.ftl.page.oobs.push(*entry);
                self.ftl.page.data.extend_from_slice(data);
            }
        }
        for image in std::mem::take(&mut self.images) {
            self.rescue(&image, resumed)?;
        }
        self.ftl.store_sealed()?;
        if self.ftl.seq == before {
            return Ok(());
        }
        // Until what was rescued is finished, the images must stay as they are.
        self.ftl.env.sleep_until(self.ftl.last_done);
        self.ftl.persist_and_sync()
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
            // Or the block was erased since, and holds something younger: then what was staged is elsewhere.
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
