//! Deduplication of sectors already stored: those that were marked while there was no time to look for copies.
//!
//! For a marked sector the fingerprint is looked up as at its write. Both places are read and compared. If they are
//! equal, the sectors of one are remapped to the other. Each remap is an event in the log, as in-line, and like it
//! durable with the next flush. The slot no longer needed is collected with its erase block, which is erased only when
//! that is durable.
//!
//! Invariants:
//! 1. A sector is remapped only if both places were read and compared while holding the lock.
//! 2. Unreadable sectors are left alone.

use crate::disk::Disk;
use crate::format::place::{At, Place};
use crate::ftl::{Ftl, tag_of};
use crate::map::OWNERS_MAX;
use crate::policy::Fingerprinter;
use vellum_base::{Avoided, IoClass, Kind, Nanos, Result, SECTOR_BYTES, SlotAddr};
use vellum_codes::Digest;

impl Disk {
    /// Requests served since the disk was created: shows background work whether there are other users.
    pub fn requests_served(&self) -> u64 {
        self.ftl.lock().life.host_commands
    }

    /// Looks for copies of up to `sectors` marked sectors. Returns how many remain marked.
    pub fn dedup_some(&self, sectors: u32) -> Result<u64> {
        let (left, looked, done) = {
            let mut ftl = self.lock_for_write()?;
            ftl.wait_until = Nanos::ZERO;
            let mut looked = 0;
            while looked < u64::from(sectors)
                && let Some(sector) = ftl.marks.take()
            {
                looked += 1;
                ftl.dedup_sector(sector, &self.fingerprinter)?;
                ftl.settle()?;
            }
            (ftl.marks.count(), looked, ftl.wait_until)
        };
        self.charge_fingerprints(looked);
        self.sleep_until(done);
        Ok(left)
    }
}

impl Ftl {
    /// Looks for a copy of a stored sector. If the flash offers its parity, the bytes are read only if there may be
    /// one.
    fn dedup_sector(&mut self, sector: u32, fingerprinter: &Fingerprinter) -> Result<()> {
        let place = self.map.place(sector);
        let At::Slot(slot) = place.at() else { return Ok(()) };
        let mut data = None;
        let digest = match self.digest_of_stored(sector, slot, fingerprinter)? {
            Some(digest) => digest,
            None => {
                let Some(read) = self.read_or_none(place)? else { return Ok(()) };
                self.map.set_tag(sector, tag_of(vellum_codes::crc32c(&*read)));
                let Some(digest) = fingerprinter.digest(&*read) else { return Ok(()) };
                data = Some(read);
                digest
            }
        };
        let candidates = self.policy.candidates(sector, digest, self.map.tag(sector), &self.map);
        for copy in candidates.as_slice().iter().copied().filter(|copy| *copy != place) {
            if data.is_none() {
                data = self.read_or_none(place)?;
            }
            let Some(own) = &data else { return Ok(()) };
            let crc = vellum_codes::crc32c(&**own);
            if self.read_or_none(copy)?.as_ref() == data.as_ref() && self.merge(place, copy, crc)? > 0 {
                break;
            }
        }
        self.policy.indexed(sector, digest, &self.map);
        Ok(())
    }

    /// The fingerprint of a stored sector, from the spare area alone.
    fn digest_of_stored(
        &mut self,
        sector: u32,
        slot: SlotAddr,
        fingerprinter: &Fingerprinter,
    ) -> Result<Option<Digest>> {
        let (page, index) = self.geometry.page_of_slot(slot);
        if self.map.tag(sector) == 0 || self.page.slot(page, index).is_some() {
            return Ok(None);
        }
        let found = fingerprinter.of_stored(&*self.flash, page)?;
        Ok(found.map(|(digests, done)| {
            self.wait_until = self.wait_until.max(done);
            digests[index as usize]
        }))
    }

    /// The bytes at a place, or `None` if they cannot be read.
    pub(crate) fn read_or_none(&mut self, place: Place) -> Result<Option<Box<[u8; SECTOR_BYTES]>>> {
        let mut data = Box::new([0; SECTOR_BYTES]);
        match self.read_place(place, IoClass::Background, &mut *data) {
            Ok(()) => Ok(Some(data)),
            Err(e) if e.kind() == Kind::Corrupt => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Remaps the sectors at slot `from` to `to`, which holds the same bytes, up to the limit of owners. Returns how
    /// many were remapped.
    pub(crate) fn merge(&mut self, from: Place, to: Place, crc: u32) -> Result<u64> {
        let (Some(first), Some(member)) = (self.first_owner(from), self.first_owner(to)) else {
            return Ok(0);
        };
        if self.keeping.keeps(first) || self.keeping.keeps(member) {
            return Ok(0);
        }
        let room = OWNERS_MAX.saturating_sub(self.map.ring(member).count());
        let sectors: Vec<u32> = self.map.ring(first).take(room).collect();
        for sector in &sectors {
            self.remap(*sector, to, crc)?;
        }
        if self.first_owner(from).is_none() {
            self.ledger.avoided(Avoided::DuplicateOffline, SECTOR_BYTES as u64);
        }
        Ok(sectors.len() as u64)
    }
}
