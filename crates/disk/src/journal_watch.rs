//! Tells the policy where the journals are. They are discovered at opening, and again when a write changes what the
//! result depends on (mkfs, tune2fs, resize, a new partition table). Also updates the redundant metadata to be kept.

use crate::discover::{self, Discovery, Sectors};
use crate::ftl::Ftl;
use crate::journals::Journals;
use vellum_base::hash::FixedSet;
use vellum_base::{IoClass, Lba, Result, SECTOR_BYTES};

/// Number of writes after which a stale result is renewed even without a flush.
const WRITES_WHILE_STALE: u32 = 256;

/// The last discovery, and whether it is still valid.
#[derive(Default)]
pub(crate) struct JournalWatch {
    found: Option<Discovery>,
    /// The journals that the policy was told of.
    journals: Journals,
    sectors: FixedSet<u32>,
    stale: bool,
    writes: u32,
}

impl JournalWatch {
    /// To be called when `sector` is overwritten with `data`.
    #[inline]
    pub(crate) fn note_write(&mut self, sector: u32, data: &[u8]) {
        self.writes += u32::from(self.stale);
        if self.sectors.contains(&sector)
            && let (Some(found), Ok(data)) = (&self.found, data.try_into())
        {
            self.stale |= found.outdated_by(Lba(sector.into()), data);
        }
    }

    /// To be called when `sector` is trimmed or zeroed.
    #[inline]
    pub(crate) fn note_cleared(&mut self, sector: u32) {
        self.stale |= self.sectors.contains(&sector);
    }

    pub(crate) fn found(&self) -> Option<&Discovery> {
        self.found.as_ref()
    }
}

impl Ftl {
    /// True if the journals should be discovered again now; always cheap.
    pub(crate) fn journals_due(&self, at_flush: bool) -> bool {
        self.watch.stale && (at_flush || self.watch.writes >= WRITES_WHILE_STALE)
    }

    /// Finds the journals, unless the host named them, and reads in their contents. Nothing is read for journals that
    /// have not moved.
    pub(crate) fn find_journals(&mut self, fingerprinter: &crate::policy::Fingerprinter) -> Result<()> {
        if !self.policy.uses_journals() && !self.identity.keep_copies {
            return Ok(());
        }
        let sectors = self.map.sectors();
        let ranges = match self.options.journals.clone() {
            Some(named) if !self.identity.keep_copies => named,
            named => {
                let found = discover::discover(&mut Reading(self));
                self.keep_copies(&found)?;
                let journals = found.journals().flat_map(|(_, j)| j.log_extents());
                let ranges = named.unwrap_or_else(|| journals.collect());
                self.watch.sectors = found.watch().map(|lba| lba.0 as u32).collect();
                self.watch.found = Some(found);
                (self.watch.stale, self.watch.writes) = (false, 0);
                ranges
            }
        };
        let journals = Journals::new(ranges, sectors);
        if journals == self.watch.journals {
            return Ok(());
        }
        self.watch.journals = journals.clone();
        fingerprinter.set_wanted(journals.sectors() > 0);
        self.policy.set_journals(journals.clone());
        // The paper's pool knows only the writes that it has seen.
        if self.policy.uses_journals() && !self.policy.trusts_fingerprint(false) {
            self.learn_journals(&journals, fingerprinter);
        }
        Ok(())
    }
}

struct Reading<'a>(&'a mut Ftl);

impl Sectors for Reading<'_> {
    fn read(&mut self, lba: Lba, out: &mut [u8; SECTOR_BYTES]) -> Result<()> {
        let place = self.0.map.place(lba.0 as u32);
        self.0.read_place(place, IoClass::Background, out)
    }
    fn sectors(&self) -> u64 {
        self.0.map.sectors()
    }
}
