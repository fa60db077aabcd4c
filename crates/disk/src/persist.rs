//! What a flush keeps without programming: the open page and the open log slot, in NVRAM.
//!
//! Two areas are written in turn, so that a cut while one is written leaves the other whole.

use crate::format::nvram::{NvramImage, area_bytes};
use crate::format::oob::Oob;
use crate::ftl::Ftl;
use vellum_base::{FlashError, Nvram, Result, SECTOR_BYTES};

impl Ftl {
    /// True if the device has power-loss-protected memory for the open page and log slot.
    pub(crate) fn nvram_fits(&self) -> bool {
        self.flash.nvram().is_some_and(|n| n.bytes() >= 2 * area_bytes(self.geometry.slots_per_page()))
    }

    /// Writes the NVRAM image, unless the last one still says it all.
    pub(crate) fn write_nvram(&mut self) -> Result<()> {
        if self.seq == self.durable_seq {
            return Ok(());
        }
        self.nvram_generation += 1;
        let image = NvramImage {
            uuid: self.identity.uuid,
            generation: self.nvram_generation,
            durable_seq: self.seq,
            open: self.page.at.map(|at| (at.block.0, at.page)),
            staged: self.staged(),
            log: self.log.open.as_mut().filter(|w| !w.is_empty()).map_or(Vec::new(), |w| w.seal().to_vec()),
            ledger: self.ledger.snapshot(),
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

/// The newest NVRAM image of the disk `uuid` that checks out.
pub(crate) fn read_nvram(
    nvram: &dyn Nvram,
    slots_per_page: u32,
    uuid: [u8; 16],
) -> Result<Option<NvramImage>, FlashError> {
    let mut newest: Option<NvramImage> = None;
    let bytes = area_bytes(slots_per_page);
    if nvram.bytes() < 2 * bytes {
        return Ok(None);
    }
    let mut area = vec![0; bytes];
    for offset in [0, bytes] {
        nvram.read(offset, &mut area)?;
        if let Some(image) = NvramImage::decode(&area).filter(|i| i.uuid == uuid)
            && newest.as_ref().is_none_or(|n| n.generation < image.generation)
        {
            newest = Some(image);
        }
    }
    Ok(newest)
}
