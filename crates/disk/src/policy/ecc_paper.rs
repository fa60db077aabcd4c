//! The SES-Dedup paper's table (ses-dedup.txt, section V.B): the fingerprint is four bytes of each codeword's parity,
//! of which a quarter is kept, for 15 % of the pages; contents seen more than twice stay.
//!
//! Our interpretation where the paper leaves things open: a quarter of the fingerprint is one byte of each codeword's
//! four (table sizes of 19.2 and 4.8 MB are for the same number of entries); cold entries are replaced in turn; if all
//! of a set are hot, new contents get no entry. Pages are sectors here. Matches are compared, as in the paper.

use super::Candidates;
use crate::map::Map;
use vellum_codes::Digest;

/// Entries per set.
const WAYS: usize = 8;
/// Contents seen more often than this are hot.
const COLD_MAX: u8 = 2;
/// Not a valid sector: disks end before it.
const FREE: u32 = u32::MAX;

/// Nine bytes per entry, and one per set.
#[derive(Clone, Copy)]
struct Set {
    fingerprints: [u32; WAYS],
    sectors: [u32; WAYS],
    seen: [u8; WAYS],
    hand: u8,
}

/// The table; see the module.
pub(crate) struct EccPaperTable {
    sets: Vec<Set>,
}

impl EccPaperTable {
    /// A table for a disk of `sectors`, with entries for this share of them.
    pub(super) fn new(sectors: u64, share: f64) -> EccPaperTable {
        let sets = (sectors as f64 * share / WAYS as f64).ceil().max(1.0) as usize;
        let empty = Set { fingerprints: [0; WAYS], sectors: [FREE; WAYS], seen: [0; WAYS], hand: 0 };
        EccPaperTable { sets: vec![empty; sets] }
    }

    pub(super) fn candidates(&self, digest: Digest, map: &Map) -> Candidates {
        let (set, fingerprint) = self.position(digest);
        let set = &self.sets[set];
        set.find(fingerprint).map_or(Candidates::NONE, |way| Candidates::one(map.place(set.sectors[way])))
    }

    /// Records that `sector` now holds this content: increments the count of its entry, or creates one.
    pub(super) fn stored(&mut self, sector: u32, digest: Digest, map: &Map) {
        let (set, fingerprint) = self.position(digest);
        let set = &mut self.sets[set];
        match set.find(fingerprint) {
            Some(way) if map.place(set.sectors[way]) == map.place(sector) => {
                set.seen[way] = set.seen[way].saturating_add(u8::from(set.sectors[way] != sector));
            }
            Some(stale) => (set.sectors[stale], set.seen[stale]) = (sector, 1),
            None => {
                if let Some(way) = set.room() {
                    (set.fingerprints[way], set.sectors[way], set.seen[way]) = (fingerprint, sector, 1);
                }
            }
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.sets.capacity() * size_of::<Set>()
    }

    /// The set, and the fingerprint: a byte of each codeword's parity.
    fn position(&self, digest: Digest) -> (usize, u32) {
        let codewords = [0, 32, 64, 96].map(|at| (digest.0 >> at) as u8);
        let fingerprint = u32::from_le_bytes(codewords);
        let hash = vellum_codes::fingerprint::seeded64(0, &codewords);
        let set = (u128::from(hash) * self.sets.len() as u128) >> 64;
        (set as usize, fingerprint)
    }
}

impl Set {
    fn find(&self, fingerprint: u32) -> Option<usize> {
        (0..WAYS).find(|way| self.sectors[*way] != FREE && self.fingerprints[*way] == fingerprint)
    }

    /// A free entry, or the next cold one.
    fn room(&mut self) -> Option<usize> {
        if let Some(free) = (0..WAYS).find(|way| self.sectors[*way] == FREE) {
            return Some(free);
        }
        let first = self.hand as usize;
        let cold = (first..first + WAYS).map(|way| way % WAYS).find(|way| self.seen[*way] <= COLD_MAX)?;
        self.hand = ((cold + 1) % WAYS) as u8;
        Some(cold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::place::Place;
    use vellum_base::SlotAddr;

    fn map_of(sectors: u32) -> Map {
        let mut map = Map::new(sectors.into(), 1 << 12);
        (0..sectors).for_each(|s| map.place_alone(s, Place::slot(SlotAddr(s))));
        map
    }

    #[test]
    fn hot_contents_stay_and_others_take_turns() {
        let (mut table, mut map) = (EccPaperTable::new(40, 0.15), map_of(400));
        assert_eq!(table.sets.len(), 1);
        for copy in [0, 1, 2] {
            if copy > 0 {
                map.leave(copy, Place::HOLE);
                map.join(copy, 0);
            }
            table.stored(copy, Digest(9), &map);
        }
        for sector in 10..300 {
            table.stored(sector, Digest(10 + u128::from(sector % 200)), &map);
        }
        assert_eq!(table.candidates(Digest(9), &map).as_slice(), [map.place(0)]);
        let known = |tag| !table.candidates(Digest(tag), &map).as_slice().is_empty();
        assert_eq!((10..210).filter(|tag| known(*tag)).count(), WAYS - 1);
        assert!(table.memory_bytes() <= 9 * WAYS + 4);
    }

    #[test]
    fn three_quarters_of_the_fingerprint_are_not_looked_at() {
        let (mut table, map) = (EccPaperTable::new(40, 0.15), map_of(40));
        table.stored(3, Digest(9), &map);
        assert_eq!(
            table.candidates(Digest(9 | 7 << 8), &map).as_slice(),
            [map.place(3)],
            "a false candidate"
        );
        assert!(table.candidates(Digest(9 | 7 << 64), &map).as_slice().is_empty());
    }
}
