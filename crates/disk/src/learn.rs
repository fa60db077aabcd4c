//! Reads in what a policy has to know of contents that were stored before the disk was opened.
//!
//! * `journal` reads the journals: a replay after a crash then costs no program (trap T15).
//! * `strong` reads every place once: an index of all contents is what it promises, and it keeps none on flash. That
//!   is the price of this mode at each opening; [`crate::DiskStat::learned_sectors`] says how much it was.
//!
//! What cannot be read is not learned.

use crate::ftl::{Ftl, tag_of};
use crate::journals::Journals;
use crate::policy::Fingerprinter;
use vellum_base::{IoClass, SECTOR_BYTES};

/// Sectors of journals read in, at most: 1 GiB, the biggest journal that mke2fs makes unasked. A bigger one is learned
/// as it is written.
const JOURNAL_SECTORS_MAX: usize = 1 << 18;
/// Progress is told so often.
const PROGRESS_SECTORS: u32 = 1 << 12;

impl Ftl {
    /// Reads in the whole disk, if the policy is an index of it.
    pub(crate) fn learn_index(&mut self, fingerprinter: &Fingerprinter, progress: &mut dyn FnMut(u64, u64)) {
        if !self.policy.indexes_everything() || self.options.read_only {
            return;
        }
        let sectors = self.map.sectors() as u32;
        for sector in 0..sectors {
            if sector % PROGRESS_SECTORS == 0 {
                progress(sector.into(), sectors.into());
            }
            // Once for each place: its first owner's turn.
            if self.first_owner(self.map.place(sector)) == Some(sector) {
                self.learn(sector, fingerprinter);
            }
        }
    }

    /// Reads in the journals.
    pub(crate) fn learn_journals(&mut self, journals: &Journals, fingerprinter: &Fingerprinter) {
        if self.options.read_only {
            return;
        }
        for sector in journals.all().take(JOURNAL_SECTORS_MAX) {
            self.learn(sector, fingerprinter);
        }
    }

    fn learn(&mut self, sector: u32, fingerprinter: &Fingerprinter) {
        let place = self.map.place(sector);
        let mut data = [0; SECTOR_BYTES];
        if !place.holds_bytes() || self.read_place(place, IoClass::Background, &mut data).is_err() {
            return;
        }
        let Some(digest) = fingerprinter.digest(&data) else { return };
        self.env.charge(self.options.cpu.hash);
        self.policy.stored(sector, digest, &data, &self.map);
        self.learned_sectors += 1;
        self.tag_ring(sector, tag_of(vellum_codes::crc32c(&data)));
    }

    /// The content of `sector`, and of all that share its place, has this tag.
    pub(crate) fn tag_ring(&mut self, sector: u32, tag: u16) {
        let (mut member, map) = (sector, &mut self.map);
        loop {
            map.set_tag(member, tag);
            member = map.next_in_ring(member);
            if member == sector {
                break;
            }
        }
    }
}
