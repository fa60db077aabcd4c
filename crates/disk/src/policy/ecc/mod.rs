//! Duplicates of any content, found with a small table: fingerprints folded from the parity computed by the
//! error-correcting code (ses-dedup.txt, sections IV and V.B), and the neighbours of earlier duplicates
//! (docs/decisions/0010).
//!
//! Copies come in runs, such as a file or a tree. So the duplicate found for the previous sector predicts the copy of
//! this one without an entry for it, and the table need only hold one sector of a run (`table`).
//!
//! Invariants:
//! 1. Everything here is a guess. The comparison of bytes always decides.
//! 2. The cost of a write is bounded, even if somebody constructs equal fingerprints: [`super::CANDIDATES_MAX`] places.

mod table;

use super::Candidates;
use crate::map::Map;
use table::Table;
use vellum_codes::Digest;

/// How far back a shared neighbour may lie: up to this many changed sectors do not end a run.
const LOOKED_BACK: u32 = 8;
/// Maximum number of sectors at a neighbour's place that are examined.
const MEMBERS_MAX: usize = 4;

/// The index; see the module.
pub(crate) struct EccIndex {
    table: Table,
}

impl EccIndex {
    /// An index for a disk of `sectors`, with entries for this share of them.
    pub(super) fn new(sectors: u64, share: f64) -> EccIndex {
        EccIndex { table: Table::new((sectors as f64 * share).ceil() as u64) }
    }

    /// Where the content about to be written to `sector` may be: `tag` is that of the content.
    pub(super) fn candidates(&self, sector: u32, digest: Digest, tag: u16, map: &Map) -> Candidates {
        let mut found = Candidates::NONE;
        foretold(sector, tag, map, &mut found);
        if let Some(copy) = self.table.get(digest, tag) {
            found.offer(map.place(copy));
        }
        found
    }

    /// Records that `sector` now holds this content, alone or shared.
    pub(super) fn stored(&mut self, sector: u32, digest: Digest, tag: u16, map: &Map) {
        self.table.stored(sector, digest, tag, map);
    }

    /// Records that `sector` has held this content since before the disk was opened.
    pub(super) fn learned(&mut self, sector: u32, digest: Digest, tag: u16, map: &Map) {
        self.table.learned(sector, digest, tag, map);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }
}

/// Offers the sectors that follow those sharing with the previous sector, if their tags allow it.
fn foretold(sector: u32, tag: u16, map: &Map, found: &mut Candidates) {
    let shared = |back: &u32| sector.checked_sub(*back).is_some_and(|before| map.is_shared(before));
    let Some(back) = (1..=LOOKED_BACK).find(shared) else { return };
    let others = map.ring(sector - back).skip(1).take(MEMBERS_MAX);
    for copy in others.filter_map(|other| other.checked_add(back)) {
        let is_other = copy != sector && u64::from(copy) < map.sectors();
        if is_other && map.tag(copy) == tag && !found.offer(map.place(copy)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::place::Place;
    use vellum_base::SlotAddr;

    fn map_of(sectors: u32) -> Map {
        let mut map = Map::new(sectors.into(), 1 << 12);
        for sector in 0..sectors {
            map.place_alone(sector, Place::slot(SlotAddr(sector)));
            map.set_tag(sector, 1000 + sector as u16);
        }
        map
    }

    fn share(map: &mut Map, sector: u32, with: u32) {
        map.leave(sector, Place::HOLE);
        map.join(sector, with);
        map.set_tag(sector, map.tag(with));
    }

    #[test]
    fn a_run_needs_one_entry() {
        let (mut index, mut map) = (EccIndex::new(400, 0.1), map_of(400));
        index.stored(10, Digest(7), map.tag(10), &map);
        assert_eq!(index.candidates(200, Digest(7), map.tag(10), &map).as_slice(), [map.place(10)]);
        share(&mut map, 200, 10);
        let unknown = Digest(u128::MAX);
        for at in 1..20 {
            let found = index.candidates(200 + at, unknown, map.tag(10 + at), &map);
            assert_eq!(found.as_slice(), [map.place(10 + at)], "foretold");
            if at % 5 != 0 {
                share(&mut map, 200 + at, 10 + at); // every fifth was changed in between
            }
        }
        assert!(index.candidates(205, unknown, 1, &map).as_slice().is_empty(), "the tag speaks against it");
    }

    #[test]
    fn a_sector_does_not_foretell_itself_nor_what_is_beyond_the_disk() {
        let (index, mut map) = (EccIndex::new(40, 0.1), map_of(40));
        share(&mut map, 5, 39);
        let found = index.candidates(6, Digest(0), map.tag(6), &map);
        assert!(found.as_slice().is_empty(), "there is no sector 40: {found:?}");
        share(&mut map, 20, 21);
        assert!(index.candidates(22, Digest(0), map.tag(22), &map).as_slice().len() <= 1);
        assert!(index.candidates(21, Digest(0), map.tag(21), &map).as_slice().is_empty(), "itself");
    }
}
