//! Logs what a power cut undid.
//!
//! A record whose target was torn by the cut did not take effect, and its sector keeps its old content. That is known
//! now, from what had completed at the cut. A later opening knows of newer completed writes, and would take the torn
//! page for a rotten one and the sector for damaged. So the first NVRAM image written, or without NVRAM the first
//! flush, records the real content of the sector under a new number.
//!
//! A sector is logged only if it has no later events, since these come later at every opening. So old records whose
//! slots have long been reused need no correction.

use super::Recovery;
use crate::format::place::At;
use crate::read::read_entries;
use vellum_base::{Result, SlotAddr};

impl Recovery {
    /// Logs the places of the sectors with records that did not take effect.
    pub(super) fn record_undone(&mut self) -> Result<()> {
        for sector in std::mem::take(&mut self.undone) {
            let place = self.ftl.map.place(sector);
            let crc = match place.at() {
                At::Slot(slot) => self.crc_at(slot),
                At::Packed { .. } | At::Hole | At::Zero => Some(0),
            };
            // An unreadable sector is damaged, whatever replaced it.
            let Some(crc) = crc else { continue };
            self.ftl.seq += 1;
            match place.holds_bytes() {
                true => self.ftl.record_map(sector, place, crc)?,
                false => self.ftl.record_run(sector, place, 1)?,
            }
        }
        Ok(())
    }

    /// The checksum that a slot was stored with.
    fn crc_at(&self, slot: SlotAddr) -> Option<u32> {
        let (page, index) = self.ftl.geometry.page_of_slot(slot);
        if self.ftl.page.at == Some(page) {
            return self.ftl.page.oobs.get(index as usize).map(|entry| entry.data_crc);
        }
        let pages = read_entries(&*self.ftl.flash, page.block, page.page, page.page + 1).ok()?;
        pages.first()?.get(index as usize)?.map(|entry| entry.data_crc)
    }
}
