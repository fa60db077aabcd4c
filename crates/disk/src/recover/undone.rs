//! What a power cut undid is said in the log.
//!
//! A record whose target the cut tore did not happen, and its sector keeps what it held. That is known now, from what
//! was finished when the power went. A later opening knows of newer finished writes, and would take the torn page for
//! a rotten one and the sector for damaged. So the first NVRAM image to be written, or without NVRAM the first flush,
//! says what the sector really holds, under a new number.
//!
//! A sector is answered for only if nothing later happened to it: what did, comes later at every opening. So old
//! records whose slots are long used for something else need no answer.

use super::Recovery;
use crate::format::place::At;
use crate::read::read_entries;
use vellum_base::{Result, SlotAddr};

impl Recovery {
    /// Records where the sectors are of which a record was found not to have happened.
    pub(super) fn record_undone(&mut self) -> Result<()> {
        for sector in std::mem::take(&mut self.undone) {
            let place = self.ftl.map.place(sector);
            let crc = match place.at() {
                At::Slot(slot) => self.crc_at(slot),
                At::Packed { .. } | At::Hole | At::Zero => Some(0),
            };
            // What cannot be read is damaged, whatever replaced it.
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
