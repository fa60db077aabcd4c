//! Detection of duplicate writes. A policy only gives hints: [`crate::ftl`] compares bytes (except in paper mode),
//! remaps, and tells the policy the outcome of every write.

mod ecc;
mod ecc_paper;
mod journal;
mod strong;
mod woj_paper;

use crate::format::place::Place;
use crate::journals::Journals;
use crate::map::Map;
use crate::options::{DedupMode, Identity, Options};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum_base::{Avoided, Flash, FlashError, IoClass, Nanos, PageAddr, SECTOR_BYTES};
use vellum_codes::Digest;
use vellum_codes::ecc::{Code, Fold};

/// Maximum parity of a sector: rate 8/9.
const PARITY_BYTES_MAX: usize = SECTOR_BYTES / 8;
/// Maximum number of places a policy offers for one write.
pub(crate) const CANDIDATES_MAX: usize = 4;

/// Places that may hold the bytes being written, most likely first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidates {
    places: [Place; CANDIDATES_MAX],
    count: usize,
}

impl Candidates {
    pub(crate) const NONE: Candidates = Candidates { places: [Place::HOLE; CANDIDATES_MAX], count: 0 };

    pub(crate) fn one(place: Place) -> Candidates {
        let mut all = Candidates::NONE;
        all.push(place);
        all
    }
    /// Adds a place; false if there is no room.
    pub(crate) fn push(&mut self, place: Place) -> bool {
        if self.count == CANDIDATES_MAX {
            return false;
        }
        self.places[self.count] = place;
        self.count += 1;
        true
    }
    /// Adds a place that holds bytes unless it is already included; false if there is no room.
    pub(crate) fn offer(&mut self, place: Place) -> bool {
        let is_new = place.holds_bytes() && !self.as_slice().contains(&place);
        !is_new || self.push(place)
    }
    pub(crate) fn as_slice(&self) -> &[Place] {
        &self.places[..self.count]
    }
}

/// Computes fingerprints, before the engine's lock is taken.
pub(crate) struct Fingerprinter {
    mode: DedupMode,
    seed: u64,
    /// The code whose parity is the fingerprint: the flash's own, if it has one.
    code: &'static Code,
    /// False while no fingerprint would be used (no journal known).
    wanted: AtomicBool,
}

impl Fingerprinter {
    pub(crate) fn new(mode: DedupMode, seed: u64, flash: &dyn Flash) -> Fingerprinter {
        let of_flash = flash.parity().and_then(|parity| Code::by_name(parity.code()));
        let code = of_flash.filter(|_| mode == DedupMode::Ecc).unwrap_or(Code::paper());
        Fingerprinter { mode, seed, code, wanted: AtomicBool::new(wants_all(mode)) }
    }

    pub(crate) fn set_wanted(&self, wanted: bool) {
        self.wanted.store(wanted || wants_all(self.mode), Relaxed);
    }

    /// The fingerprint of a sector, if this mode currently uses one.
    pub(crate) fn digest(&self, sector: &[u8]) -> Option<Digest> {
        if !self.wanted.load(Relaxed) {
            return None;
        }
        match self.mode {
            DedupMode::None => None,
            DedupMode::Journal => Some(Digest(vellum_codes::fingerprint::seeded64(self.seed, sector).into())),
            DedupMode::Strong(hash) | DedupMode::WojPaper(hash) => Some(hash.digest(sector)),
            DedupMode::Ecc | DedupMode::EccPaper => {
                let mut parity = [0; PARITY_BYTES_MAX];
                let parity = &mut parity[..self.code.parity_bytes_of(SECTOR_BYTES)];
                self.code.encode(sector, parity);
                Some(self.of_parity(parity))
            }
        }
    }

    /// The fingerprints of a page's slots from the parity in its spare area, if the flash offers it.
    pub(crate) fn of_stored(
        &self,
        flash: &dyn Flash,
        page: PageAddr,
    ) -> Result<Option<(Vec<Digest>, Nanos)>, FlashError> {
        let Some(kept) = flash.parity().filter(|kept| kept.code() == self.code.name()) else {
            return Ok(None);
        };
        let mut parity = vec![0; kept.bytes() * flash.geometry().slots_per_page() as usize];
        match kept.of_page(IoClass::Background, page, &mut parity) {
            Ok(done) => {
                let slots = parity.chunks_exact(kept.bytes());
                Ok(Some((slots.map(|parity| self.of_parity(parity)).collect(), done.at)))
            }
            Err(FlashError::Uncorrectable(_)) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn of_parity(&self, parity: &[u8]) -> Digest {
        let fold = match self.mode {
            DedupMode::EccPaper => Fold::Truncate,
            _ => Fold::Mix { seed: self.seed },
        };
        fold.digest(self.code, parity)
    }
}

/// True if this mode uses the fingerprint of every sector.
fn wants_all(mode: DedupMode) -> bool {
    matches!(mode, DedupMode::Strong(_) | DedupMode::Ecc | DedupMode::EccPaper)
}

/// The policies behind one interface.
pub(crate) enum Policy {
    None,
    Strong(strong::Strong),
    Journal(journal::JournalPool),
    WojPaper(woj_paper::PaperPool),
    Ecc(ecc::EccIndex),
    EccPaper(ecc_paper::EccPaperTable),
}

impl Policy {
    pub(crate) fn new(identity: &Identity, options: &Options) -> Policy {
        let (sectors, share) = (identity.sectors, options.dedup_table_share);
        match identity.dedup {
            DedupMode::None => Policy::None,
            DedupMode::Strong(_) => Policy::Strong(strong::Strong::default()),
            DedupMode::Journal => Policy::Journal(journal::JournalPool::new(options.verify_cache_sectors)),
            DedupMode::WojPaper(_) => Policy::WojPaper(woj_paper::PaperPool::default()),
            DedupMode::Ecc => Policy::Ecc(ecc::EccIndex::new(sectors, share)),
            DedupMode::EccPaper => Policy::EccPaper(ecc_paper::EccPaperTable::new(sectors, share)),
        }
    }

    /// True if this policy needs to know the journals.
    pub(crate) fn uses_journals(&self) -> bool {
        match self {
            Policy::Journal(_) | Policy::WojPaper(_) => true,
            Policy::None | Policy::Strong(_) | Policy::Ecc(_) | Policy::EccPaper(_) => false,
        }
    }

    /// True if this policy is an index of all stored contents.
    pub(crate) fn indexes_everything(&self) -> bool {
        match self {
            Policy::Strong(_) => true,
            Policy::None
            | Policy::Journal(_)
            | Policy::WojPaper(_)
            | Policy::Ecc(_)
            | Policy::EccPaper(_) => false,
        }
    }

    /// True if bytes are not compared: with the WOJ paper's rule, or if requested and the fingerprint is one that could
    /// be trusted.
    pub(crate) fn trusts_fingerprint(&self, unverified: bool) -> bool {
        match self {
            Policy::WojPaper(_) => true,
            Policy::None | Policy::Strong(_) | Policy::Journal(_) => unverified,
            Policy::Ecc(_) | Policy::EccPaper(_) => false,
        }
    }

    /// The ledger's reason for a hit.
    pub(crate) fn reason(&self) -> Avoided {
        match self {
            Policy::None | Policy::Strong(_) | Policy::Ecc(_) | Policy::EccPaper(_) => Avoided::Duplicate,
            Policy::Journal(_) | Policy::WojPaper(_) => Avoided::JournalCopy,
        }
    }

    /// Sets new journals: everything learned of the old ones is dropped.
    pub(crate) fn set_journals(&mut self, journals: Journals) {
        match self {
            Policy::Journal(p) => p.set_journals(journals),
            Policy::WojPaper(p) => p.set_journals(journals),
            Policy::None | Policy::Strong(_) | Policy::Ecc(_) | Policy::EccPaper(_) => {}
        }
    }

    /// Where the bytes about to be written to `sector` may already be.
    pub(crate) fn candidates(&mut self, sector: u32, digest: Digest, tag: u16, map: &Map) -> Candidates {
        match self {
            Policy::None => Candidates::NONE,
            Policy::Strong(p) => p.candidates(digest),
            Policy::Journal(p) => p.candidates(sector, digest, map),
            Policy::WojPaper(p) => p.candidates(sector, digest, map),
            Policy::Ecc(p) => p.candidates(sector, digest, tag, map),
            Policy::EccPaper(p) => p.candidates(digest, map),
        }
    }

    /// Compares in memory, if the bytes at `place` are cached: `Some(equal)`.
    pub(crate) fn compare_cached(&self, place: Place, data: &[u8], map: &Map) -> Option<bool> {
        match self {
            Policy::Journal(p) => p.compare_cached(place, data, map),
            Policy::None | Policy::Strong(_) | Policy::WojPaper(_) | Policy::Ecc(_) | Policy::EccPaper(_) => {
                None
            }
        }
    }

    /// Records that `sector` now holds these bytes.
    pub(crate) fn stored(&mut self, sector: u32, digest: Digest, data: &[u8], map: &Map) {
        match self {
            Policy::None => {}
            Policy::Strong(p) => p.stored(digest, map.place(sector)),
            Policy::Journal(p) => p.stored(sector, digest, data),
            Policy::WojPaper(p) => p.stored(sector, digest),
            Policy::Ecc(p) => p.stored(sector, digest, map.tag(sector), map),
            Policy::EccPaper(p) => p.stored(sector, digest, map),
        }
    }

    /// Records the content of `sector`, which was stored earlier.
    pub(crate) fn indexed(&mut self, sector: u32, digest: Digest, map: &Map) {
        match self {
            Policy::Ecc(p) => p.stored(sector, digest, map.tag(sector), map),
            Policy::EccPaper(p) => p.stored(sector, digest, map),
            Policy::None | Policy::Strong(_) | Policy::Journal(_) | Policy::WojPaper(_) => {}
        }
    }

    /// Records that `sector`, alone or shared, has held this content since before the disk was opened.
    pub(crate) fn learned(&mut self, sector: u32, digest: Digest, map: &Map) {
        match self {
            Policy::Ecc(p) => p.learned(sector, digest, map.tag(sector), map),
            Policy::None
            | Policy::Strong(_)
            | Policy::Journal(_)
            | Policy::WojPaper(_)
            | Policy::EccPaper(_) => {}
        }
    }

    /// Records that the content of `sector` has changed.
    #[inline]
    pub(crate) fn overwritten(&mut self, sector: u32) {
        match self {
            Policy::Journal(p) => p.overwritten(sector),
            Policy::WojPaper(p) => p.overwritten(sector),
            // Its entries name places, and go with them.
            Policy::None | Policy::Strong(_) => {}
            // Their entries are hints; others may share the sector's old content.
            Policy::Ecc(_) | Policy::EccPaper(_) => {}
        }
    }

    /// Records that no sector is at `place` any more.
    #[inline]
    pub(crate) fn released(&mut self, place: Place) {
        match self {
            Policy::Strong(p) => p.released(place),
            // Their entries name sectors.
            Policy::None
            | Policy::Journal(_)
            | Policy::WojPaper(_)
            | Policy::Ecc(_)
            | Policy::EccPaper(_) => {}
        }
    }

    /// Records that the bytes at `from` are now at `to`.
    #[inline]
    pub(crate) fn moved(&mut self, from: Place, to: Place) {
        match self {
            Policy::Strong(p) => p.moved(from, to),
            Policy::None
            | Policy::Journal(_)
            | Policy::WojPaper(_)
            | Policy::Ecc(_)
            | Policy::EccPaper(_) => {}
        }
    }

    /// Bytes of the tables, and of cached data.
    pub(crate) fn memory_bytes(&self) -> (usize, usize) {
        match self {
            Policy::None => (0, 0),
            Policy::Strong(p) => (p.memory_bytes(), 0),
            Policy::Journal(p) => p.memory_bytes(),
            Policy::WojPaper(p) => (p.memory_bytes(), 0),
            Policy::Ecc(p) => (p.memory_bytes(), 0),
            Policy::EccPaper(p) => (p.memory_bytes(), 0),
        }
    }
}
