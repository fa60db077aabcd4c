//! Remaps requested by the host, which knows that it is about to write data that is already stored
//! (docs/decisions/0021).
//!
//! Nothing is looked up or compared. The record of a remap includes the checksum of the bytes: if their program is lost
//! in a power cut that the record survives, replay will notice. The bytes are read for the checksum, unless that was
//! done recently.

use crate::disk::Disk;
use crate::format::place::{At, Place};
use crate::ftl::{Ftl, Incoming};
use vellum_base::{Avoided, IoClass, Lba, Nanos, Result, SECTOR_BYTES};

/// Sectors processed per acquisition of the lock.
const CHUNK_SECTORS: u64 = 32;

impl Disk {
    /// See [`vellum_base::BlockDevice::remap`].
    pub(crate) fn remap_all(&self, from: Lba, to: Lba, sectors: u64) -> Result<u64> {
        let (mut at, mut shared) = (0, 0);
        while at < sectors {
            let count = (sectors - at).min(CHUNK_SECTORS);
            let (remapped, wait) = self.remap_chunk(from.offset(at), to.offset(at), count)?;
            self.sleep_until(wait);
            shared += remapped;
            at += count;
        }
        Ok(shared)
    }

    fn remap_chunk(&self, from: Lba, to: Lba, sectors: u64) -> Result<(u64, Nanos)> {
        let mut ftl = self.lock_for_write()?;
        ftl.wait_until = Nanos::ZERO;
        ftl.life.host_commands += 1;
        let mut shared = 0;
        for i in 0..sectors as u32 {
            ftl.ledger.host_written(SECTOR_BYTES as u64);
            shared += ftl.remap_sector(from.0 as u32 + i, to.0 as u32 + i)? as u64;
            ftl.settle()?;
        }
        Ok((shared, ftl.wait_until))
    }
}

impl Ftl {
    /// Gives `to` the content of `from`. False if it had to be stored again.
    fn remap_sector(&mut self, from: u32, to: u32) -> Result<bool> {
        let place = self.map.place(from);
        let shared = match place.at() {
            At::Hole | At::Zero => {
                self.set_run(to, 1, place)?;
                true
            }
            _ if place == self.map.place(to) => true,
            At::Slot(_) | At::Packed { .. } => {
                let alone = self.map.is_full(from) || self.keeping.keeps(from) || self.keeping.keeps(to);
                match self.known_crc(place).filter(|_| !alone) {
                    Some(crc) => {
                        self.watch.note_cleared(to); // its new content is not examined
                        self.remap(to, place, crc)?;
                    }
                    None => self.remap_read(to, place, alone)?,
                }
                !alone
            }
        };
        if shared {
            self.ledger.avoided(Avoided::Remap, SECTOR_BYTES as u64);
        }
        Ok(shared)
    }

    /// The checksum of a place that was read recently.
    fn known_crc(&self, place: Place) -> Option<u32> {
        let At::Slot(slot) = place.at() else { return None };
        let (page, _) = self.geometry.page_of_slot(slot);
        self.checked.crc(slot, self.blocks.erase_count(page.block))
    }

    /// The same by reading the bytes; with `alone` they are stored again.
    fn remap_read(&mut self, to: u32, place: Place, alone: bool) -> Result<()> {
        let mut bytes = [0; SECTOR_BYTES];
        self.read_place(place, IoClass::Foreground, &mut bytes)?;
        let crc = vellum_codes::crc32c(&bytes);
        self.watch.note_write(to, &bytes);
        match alone {
            true => self.write_slot(to, &Incoming::plain(&bytes, crc)),
            false => self.remap(to, place, crc),
        }
    }
}
