//! Reads in what a policy has to know of contents stored before the disk was opened.
//!
//! * `journal` reads the journals: a replay after a crash then needs no programs (trap T15).
//! * `strong` reads every place once: it promises an index of all contents, and stores none on flash. This is the price
//!   of the mode at each opening; [`crate::DiskStat::learned_sectors`] is the number of sectors read.
//!
//! Unreadable sectors are skipped.

use crate::ftl::{Ftl, tag_of};
use crate::journals::Journals;
use crate::policy::Fingerprinter;
use vellum_base::{IoClass, SECTOR_BYTES};

/// Maximum number of journal sectors read in: 1 GiB, the largest journal that mke2fs makes by default. A larger one is
/// learned as it is written.
const JOURNAL_SECTORS_MAX: usize = 1 << 18;
/// Sectors between two progress reports.
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
            // Once for each place: at its first owner.
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

    /// Sets the tag of the content of `sector` and of all sectors that share its place.
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
