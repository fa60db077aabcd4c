//! How duplicate writes are found. A policy only hints; [`crate::ftl`] compares bytes (outside paper mode),
//! remaps, and tells the policy what became of every write.

mod journal;
mod strong;
mod woj_paper;

use crate::format::place::Place;
use crate::journals::Journals;
use crate::map::Map;
use crate::options::DedupMode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum_base::Avoided;
use vellum_codes::Digest;

/// Most places a policy offers for one write.
pub(crate) const CANDIDATES_MAX: usize = 4;

/// Places that may hold the bytes being written, likeliest first.
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
    /// Adds a place; false once there is no more room.
    pub(crate) fn push(&mut self, place: Place) -> bool {
        if self.count == CANDIDATES_MAX {
            return false;
        }
        self.places[self.count] = place;
        self.count += 1;
        true
    }
    pub(crate) fn as_slice(&self) -> &[Place] {
        &self.places[..self.count]
    }
}

/// Computes fingerprints, before the engine's lock is taken.
pub(crate) struct Fingerprinter {
    mode: DedupMode,
    seed: u64,
    /// False while no fingerprint would be used (no journal known).
    wanted: AtomicBool,
}

impl Fingerprinter {
    pub(crate) fn new(mode: DedupMode, seed: u64) -> Fingerprinter {
        Fingerprinter { mode, seed, wanted: AtomicBool::new(matches!(mode, DedupMode::Strong(_))) }
    }

    pub(crate) fn set_wanted(&self, wanted: bool) {
        self.wanted.store(wanted || matches!(self.mode, DedupMode::Strong(_)), Relaxed);
    }

    /// The fingerprint of a sector, if this mode has a use for it now.
    pub(crate) fn digest(&self, sector: &[u8]) -> Option<Digest> {
        if !self.wanted.load(Relaxed) {
            return None;
        }
        match self.mode {
            DedupMode::None => None,
            DedupMode::Journal => Some(Digest(vellum_codes::fingerprint::seeded64(self.seed, sector).into())),
            DedupMode::Strong(hash) | DedupMode::WojPaper(hash) => Some(hash.digest(sector)),
        }
    }
}

/// The policies behind one interface.
pub(crate) enum Policy {
    None,
    Strong(strong::Strong),
    Journal(journal::JournalPool),
    WojPaper(woj_paper::PaperPool),
}

impl Policy {
    pub(crate) fn new(mode: DedupMode, verify_cache_sectors: u32) -> Policy {
        match mode {
            DedupMode::None => Policy::None,
            DedupMode::Strong(_) => Policy::Strong(strong::Strong::default()),
            DedupMode::Journal => Policy::Journal(journal::JournalPool::new(verify_cache_sectors)),
            DedupMode::WojPaper(_) => Policy::WojPaper(woj_paper::PaperPool::default()),
        }
    }

    /// True if this policy needs to know the journals.
    pub(crate) fn uses_journals(&self) -> bool {
        match self {
            Policy::Journal(_) | Policy::WojPaper(_) => true,
            Policy::None | Policy::Strong(_) => false,
        }
    }

    /// True if this policy is an index of every content stored.
    pub(crate) fn indexes_everything(&self) -> bool {
        match self {
            Policy::Strong(_) => true,
            Policy::None | Policy::Journal(_) | Policy::WojPaper(_) => false,
        }
    }

    /// The paper's rule trusts its fingerprint.
    pub(crate) fn trusts_fingerprint(&self) -> bool {
        match self {
            Policy::WojPaper(_) => true,
            Policy::None | Policy::Strong(_) | Policy::Journal(_) => false,
        }
    }

    /// What a hit is booked as.
    pub(crate) fn reason(&self) -> Avoided {
        match self {
            Policy::None | Policy::Strong(_) => Avoided::Duplicate,
            Policy::Journal(_) | Policy::WojPaper(_) => Avoided::JournalCopy,
        }
    }

    /// Other journals from now on: everything learned of the old ones is dropped.
    pub(crate) fn set_journals(&mut self, journals: Journals) {
        match self {
            Policy::Journal(p) => p.set_journals(journals),
            Policy::WojPaper(p) => p.set_journals(journals),
            Policy::None | Policy::Strong(_) => {}
        }
    }

    /// Where the bytes about to be written to `sector` may already be.
    pub(crate) fn candidates(&mut self, sector: u32, digest: Digest, map: &Map) -> Candidates {
        match self {
            Policy::None => Candidates::NONE,
            Policy::Strong(p) => p.candidates(digest),
            Policy::Journal(p) => p.candidates(sector, digest, map),
            Policy::WojPaper(p) => p.candidates(sector, digest, map),
        }
    }

    /// Compares from memory, if the bytes at `place` are there: `Some(equal)`.
    pub(crate) fn compare_cached(&self, place: Place, data: &[u8], map: &Map) -> Option<bool> {
        match self {
            Policy::Journal(p) => p.compare_cached(place, data, map),
            Policy::None | Policy::Strong(_) | Policy::WojPaper(_) => None,
        }
    }

    /// `sector` now holds these bytes, at `place`.
    pub(crate) fn stored(&mut self, sector: u32, digest: Digest, place: Place, data: &[u8]) {
        match self {
            Policy::None => {}
            Policy::Strong(p) => p.stored(digest, place),
            Policy::Journal(p) => p.stored(sector, digest, data),
            Policy::WojPaper(p) => p.stored(sector, digest),
        }
    }

    /// `sector` no longer holds what it held.
    #[inline]
    pub(crate) fn overwritten(&mut self, sector: u32) {
        match self {
            Policy::Journal(p) => p.overwritten(sector),
            Policy::WojPaper(p) => p.overwritten(sector),
            // Its entries name places: they go with the place.
            Policy::None | Policy::Strong(_) => {}
        }
    }

    /// No sector is at `place` any more.
    #[inline]
    pub(crate) fn released(&mut self, place: Place) {
        match self {
            Policy::Strong(p) => p.released(place),
            // Their entries name journal sectors: they go when those are overwritten.
            Policy::None | Policy::Journal(_) | Policy::WojPaper(_) => {}
        }
    }

    /// The bytes at `from` are now at `to`.
    #[inline]
    pub(crate) fn moved(&mut self, from: Place, to: Place) {
        match self {
            Policy::Strong(p) => p.moved(from, to),
            Policy::None | Policy::Journal(_) | Policy::WojPaper(_) => {}
        }
    }

    /// Bytes of the tables, and of cached data.
    pub(crate) fn memory_bytes(&self) -> (usize, usize) {
        match self {
            Policy::None => (0, 0),
            Policy::Strong(p) => (p.memory_bytes(), 0),
            Policy::Journal(p) => p.memory_bytes(),
            Policy::WojPaper(p) => (p.memory_bytes(), 0),
        }
    }
}
