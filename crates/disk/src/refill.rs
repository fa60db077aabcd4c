//! Fingerprints of contents stored before the disk was opened: the table of `ecc` is only in memory, and empty then.
//!
//! In idle time all pages are visited once, in the order on flash. If the flash offers its parity only spare areas are
//! read: the fingerprint is folded from the parity, and the tag is that of the checksum in the out-of-band entry.
//! Otherwise the data are read. A sector with a known tag was written or read since, and is skipped. A sector with a
//! likely copy is marked, and checked later like those skipped at their write, whose marks are lost when a disk is
//! closed.
//!
//! Invariants:
//! 1. Entries are hints, like everything in the table: bytes are compared before anything is shared.
//! 2. A step is bounded by the pages it is given, and the pass by those that the flash had when it began.
//! 3. Nothing is programmed.

use crate::disk::Disk;
use crate::format::oob::SlotKind;
use crate::format::place::Place;
use crate::ftl::{Ftl, tag_of};
use crate::map::Owner;
use crate::policy::Fingerprinter;
use crate::read::read_spare;
use vellum_base::{BlockAddr, Geometry, IoClass, Nanos, PageAddr, Result, SlotAddr};
use vellum_codes::Digest;

/// Progress of the pass over the pages of the flash.
#[derive(Default)]
pub(crate) struct Refill {
    at: PageAddr,
    blocks: u32,
}

/// A sector that owns a slot, and the tag and fingerprint of its content.
type Known = (u32, u16, Digest);

impl Refill {
    /// A pass over a whole flash, if there is a table to fill.
    pub(crate) fn of(geometry: &Geometry, is_wanted: bool) -> Refill {
        Refill { at: PageAddr::default(), blocks: if is_wanted { geometry.blocks() } else { 0 } }
    }

    /// Number of pages left, including those of empty blocks.
    fn left(&self, geometry: &Geometry) -> u64 {
        let blocks = u64::from(self.blocks.saturating_sub(self.at.block.0));
        (blocks * u64::from(geometry.pages_per_block)).saturating_sub(self.at.page.into())
    }
}

impl Disk {
    /// Enters contents of up to `pages` pages of flash into the table of fingerprints, if they were stored before the
    /// disk was opened. Returns how many pages are left; 0 if there is no table to fill.
    pub fn refill_some(&self, pages: u32) -> Result<u64> {
        let (left, learned, done) = {
            let mut ftl = self.lock_for_write()?;
            ftl.wait_until = Nanos::ZERO;
            let before = ftl.learned_sectors;
            for _ in 0..pages {
                ftl.refill_next(&self.fingerprinter)?;
            }
            (ftl.refill.left(&ftl.geometry), ftl.learned_sectors - before, ftl.wait_until)
        };
        self.charge_fingerprints(learned);
        self.sleep_until(done);
        Ok(left)
    }
}

impl Ftl {
    /// Processes the next page, or a block without valid slots.
    fn refill_next(&mut self, fingerprinter: &Fingerprinter) -> Result<()> {
        let page = self.refill.at;
        if page.block.0 >= self.refill.blocks {
            return Ok(());
        }
        let is_last = page.page + 1 >= self.geometry.pages_per_block || self.blocks.valid(page.block) == 0;
        self.refill.at = match is_last {
            true => BlockAddr(page.block.0 + 1).page(0),
            false => page.block.page(page.page + 1),
        };
        let unknown = self.unknown_in(page);
        let known = match unknown.is_empty() {
            true => return Ok(()),
            false => self.contents_of(page, &unknown, fingerprinter)?,
        };
        for (sector, tag, digest) in known {
            self.tag_ring(sector, tag);
            self.mark_if_stored_twice(sector, tag, digest);
            self.policy.learned(sector, digest, &self.map);
            self.learned_sectors += 1;
        }
        Ok(())
    }

    /// Marks a sector that seems to have a copy: it may have been marked when the disk was closed.
    fn mark_if_stored_twice(&mut self, sector: u32, tag: u16, digest: Digest) {
        if self.budget.marks() {
            let own = self.map.place(sector);
            let copies = self.policy.candidates(sector, digest, tag, &self.map);
            if copies.as_slice().iter().any(|place| place.holds_bytes() && *place != own) {
                self.marks.set(sector);
            }
        }
    }

    /// The slots of a page on flash whose contents are unknown, and the sectors that own them.
    fn unknown_in(&self, page: PageAddr) -> Vec<(u32, u32)> {
        let slots =
            (0..self.geometry.slots_per_page()).filter(|index| self.page.slot(page, *index).is_none());
        let unknown = |index| match self.map.owner(self.geometry.slot_of(page, index)) {
            Owner::Sector(first) if self.map.tag(first) == 0 && !self.keeping.keeps(first) => {
                Some((index, first))
            }
            _ => None,
        };
        slots.filter_map(unknown).collect()
    }

    fn contents_of(
        &mut self,
        page: PageAddr,
        unknown: &[(u32, u32)],
        fingerprinter: &Fingerprinter,
    ) -> Result<Vec<Known>> {
        let Some((digests, read)) = fingerprinter.of_stored(&*self.flash, page)? else {
            return self.contents_read(page, unknown, fingerprinter);
        };
        let (entries, done) =
            read_spare(&*self.flash, IoClass::Background, page.block, page.page, page.page + 1)?;
        self.wait_until = self.wait_until.max(read).max(done);
        let entry_of = |index: u32| entries.first()?.get(index as usize).copied()?;
        let known = unknown.iter().filter_map(|(index, sector)| {
            let entry = entry_of(*index).filter(|entry| entry.kind == SlotKind::Data)?;
            Some((*sector, tag_of(entry.data_crc), digests[*index as usize]))
        });
        Ok(known.collect())
    }

    /// The same from the data, if the flash does not offer its parity. Unreadable slots are skipped.
    fn contents_read(
        &mut self,
        page: PageAddr,
        unknown: &[(u32, u32)],
        fingerprinter: &Fingerprinter,
    ) -> Result<Vec<Known>> {
        let mut known = Vec::with_capacity(unknown.len());
        for (index, sector) in unknown {
            let slot: SlotAddr = self.geometry.slot_of(page, *index);
            let Some(data) = self.read_or_none(Place::slot(slot))? else { continue };
            let digest = fingerprinter.digest(&*data);
            known.extend(digest.map(|digest| (*sector, tag_of(vellum_codes::crc32c(&*data)), digest)));
        }
        Ok(known)
    }
}
