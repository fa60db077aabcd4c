//! What a flush saves without programming: the open page and the open log slot, in NVRAM.
//!
//! Two areas are written alternately, so that a power cut during a write leaves the other intact. An image omits what
//! has been programmed since the previous one; if that is still in flight at a power cut, the previous image has it. So
//! an area is overwritten only when everything programmed before the other one has completed, and recovery reads both.

use crate::format::nvram::{NvramImage, area_bytes};
use crate::format::oob::Oob;
use crate::ftl::Ftl;
use vellum_base::{Error, FlashError, Kind, Nvram, Result, SECTOR_BYTES};

impl Ftl {
    /// Saves everything volatile: in NVRAM if there is one, otherwise by programming partly filled pages. After a
    /// `sync` of the flash, everything up to the returned number is durable. (Events recorded by collection while the
    /// log is being stored are later, and are not.)
    pub(crate) fn persist(&mut self) -> Result<u64> {
        self.store_sealed()?;
        if self.nvram_fits() {
            self.write_nvram()?;
            return Ok(self.seq);
        }
        let seq = self.seq;
        loop {
            self.moved_from_bad = false;
            self.log.seal();
            self.store_sealed()?;
            self.program_open_page()?;
            // The contents of a failed page are found only by the records of their move, which belong to this flush.
            if !self.moved_from_bad {
                return Ok(seq);
            }
        }
    }

    /// Makes everything durable while holding the lock, for garbage collection.
    pub(crate) fn persist_and_sync(&mut self) -> Result<()> {
        let seq = self.persist()?;
        self.flash.sync().map_err(|e| self.poison(e.into()))?;
        self.durable_seq = self.durable_seq.max(seq);
        Ok(())
    }

    /// Stops all writes after a failed durability call.
    pub(crate) fn poison(&mut self, cause: Error) -> Error {
        if cause.kind() != Kind::PowerLost {
            self.poisoned.get_or_insert_with(|| cause.to_string());
        } else {
            self.poisoned.get_or_insert_with(|| "the power is off".into());
        }
        cause
    }

    /// True if the device has power-loss-protected memory for the open page and log slot.
    pub(crate) fn nvram_fits(&self) -> bool {
        self.flash.nvram().is_some_and(|n| n.bytes() >= 2 * area_bytes(self.geometry.slots_per_page()))
    }

    /// Writes the NVRAM image, unless the last one is still current.
    pub(crate) fn write_nvram(&mut self) -> Result<()> {
        if self.seq == self.durable_seq {
            return Ok(());
        }
        self.env.sleep_until(self.nvram_ready_at);
        self.nvram_ready_at = self.last_done;
        self.nvram_generation += 1;
        let image = NvramImage {
            uuid: self.identity.uuid,
            generation: self.nvram_generation,
            durable_seq: self.seq,
            open: self.page.at.map(|at| (at.block.0, at.page)),
            staged: self.staged(),
            log: self.log.open.as_mut().filter(|w| !w.is_empty()).map_or(Vec::new(), |w| w.seal().to_vec()),
            ledger: self.ledger.snapshot(),
            life: self.life,
        };
        let offset = (self.nvram_generation % 2) as usize * area_bytes(self.geometry.slots_per_page());
        let written = match self.flash.nvram() {
            Some(nvram) => nvram.write(offset, &image.encode()),
            None => Ok(()),
        };
        written.map_err(|e| self.poison(e.into()))
    }

    fn staged(&self) -> Vec<(Oob, Vec<u8>)> {
        let slots = self.page.data.chunks_exact(SECTOR_BYTES);
        self.page.oobs.iter().zip(slots).map(|(oob, data)| (*oob, data.to_vec())).collect()
    }
}

/// The valid NVRAM images of the disk `uuid`, older first.
pub(crate) fn read_nvram(
    nvram: &dyn Nvram,
    slots_per_page: u32,
    uuid: [u8; 16],
) -> Result<Vec<NvramImage>, FlashError> {
    let bytes = area_bytes(slots_per_page);
    if nvram.bytes() < 2 * bytes {
        return Ok(Vec::new());
    }
    let mut images = Vec::new();
    let mut area = vec![0; bytes];
    for offset in [0, bytes] {
        nvram.read(offset, &mut area)?;
        images.extend(NvramImage::decode(&area).filter(|i| i.uuid == uuid));
    }
    images.sort_by_key(|i| i.generation);
    Ok(images)
}
