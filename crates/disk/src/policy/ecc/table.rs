//! Fingerprints of a share of the sectors, in sets of the size of a cache line.
//!
//! An entry names a sector, not a place, so it stays valid when collection moves the bytes. It includes 14 bits of the
//! content's tag. The map has the full tag, so that an entry whose sector was overwritten is recognised.
//!
//! A set has two *recent* ways, used alternately, and eight *kept* ones. An entry that leaves a recent way is kept if
//! it is worth more than the least valuable kept one. Its worth depends on the power of two that divides its sector's
//! number, so that some sector of every long run stays however full the table gets (`ecc/mod.rs` finds the rest of the
//! run), and on its heat.
//!
//! States of an entry: free, cold, hot (1 to 3: it was matched). Invariants:
//! 1. The table never grows: a fingerprint maps to one set, and a set has [`WAYS`] entries.
//! 2. Of contents with the same fingerprint the newest counts: constructing equal fingerprints evicts no other entries.

use crate::huge_pages::zeros;
use crate::map::Map;
use std::ops::Range;
use vellum_codes::Digest;

/// Entries per set: ten of 6 bytes, and 4 bytes for the set.
const WAYS: usize = 10;
const RECENT: Range<usize> = 0..2;
const KEPT: Range<usize> = 2..WAYS;
const HEAT_MAX: u16 = 3;
/// One match is worth as much as an alignment four times as good.
const HEAT_WORTH: u32 = 2;
/// Better alignment is worth no more than this: one sector in 16 MiB.
const ALIGNMENT_MAX: u32 = 12;
const TAG_BITS: u32 = 14;

/// Words 0 to 9: sectors, inverted, so that a free entry is zeros. Words 10 to 14: ten times 16 bits, tag and heat.
/// Word 15: number of events of this set.
type Set = [u32; 16];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    sector: u32,
    tag: u16,
    heat: u16,
}

/// The table; see the module.
pub(super) struct Table {
    sets: Vec<Set>,
}

impl Table {
    /// A table of `entries` entries.
    pub(super) fn new(entries: u64) -> Table {
        Table { sets: zeros([0; 16], entries.div_ceil(WAYS as u64).max(1) as usize) }
    }

    /// The sector last known to hold this content.
    pub(super) fn get(&self, digest: Digest, tag: u16) -> Option<u32> {
        let set = &self.sets[self.position(digest)];
        find(set, short(tag)).and_then(|way| entry(set, way)).map(|e| e.sector)
    }

    /// Records that `sector` now holds this content. An entry of the same content becomes hotter. Otherwise the sector
    /// gets one, unless it shares its place: then it was found without an entry.
    pub(super) fn stored(&mut self, sector: u32, digest: Digest, tag: u16, map: &Map) {
        let position = self.position(digest);
        let set = &mut self.sets[position];
        let tag = short(tag);
        let new = Entry { sector, tag, heat: 0 };
        match find(set, tag) {
            Some(way) => {
                let Some(e) = entry(set, way) else { return };
                let matched = e.sector != sector && map.place(e.sector) == map.place(sector);
                let heat = (e.heat + u16::from(matched)).min(HEAT_MAX);
                let sector = if matched { e.sector } else { sector };
                put(set, way, Some(Entry { sector, heat, ..new }));
            }
            None if map.is_shared(sector) => {}
            None => insert(set, new, map),
        }
    }

    /// Records that `sector` has held this content since before there was a table: it gets an entry if no other sector
    /// has one. Here a sector that shares its place gets one, too, since it was never looked up.
    pub(super) fn learned(&mut self, sector: u32, digest: Digest, tag: u16, map: &Map) {
        let position = self.position(digest);
        let set = &mut self.sets[position];
        if find(set, short(tag)).is_none() {
            insert(set, Entry { sector, tag: short(tag), heat: 0 }, map);
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.sets.capacity() * size_of::<Set>()
    }

    fn position(&self, digest: Digest) -> usize {
        ((u128::from(digest.0 as u64) * self.sets.len() as u128) >> 64) as usize
    }
}

/// Puts a new entry into a free way, or a recent one, whose former entry may be kept.
fn insert(set: &mut Set, new: Entry, map: &Map) {
    set[15] = set[15].wrapping_add(1);
    tend(set, map);
    if let Some(free) = (0..WAYS).find(|way| entry(set, *way).is_none()) {
        return put(set, free, Some(new));
    }
    let recent = RECENT.start + set[15] as usize % RECENT.len();
    let least = KEPT.min_by_key(|way| worth(set, *way)).unwrap_or(KEPT.start);
    if worth(set, recent) > worth(set, least) {
        let keep = entry(set, recent);
        put(set, least, keep);
    }
    put(set, recent, Some(new));
}

/// Checks one kept entry: it is removed if its sector has changed, and cools down every other time, so that no entry
/// stays hot for ever.
fn tend(set: &mut Set, map: &Map) {
    let way = KEPT.start + (set[15] / 2) as usize % KEPT.len();
    let Some(e) = entry(set, way) else { return };
    if short(map.tag(e.sector)) != e.tag || !map.place(e.sector).holds_bytes() {
        put(set, way, None);
    } else if set[15].is_multiple_of(2) {
        put(set, way, Some(Entry { heat: e.heat.saturating_sub(1), ..e }));
    }
}

/// The worth of an entry, ties being decided in favour of the higher sector: (worth, sector).
fn worth(set: &Set, way: usize) -> (u32, u32) {
    entry(set, way).map_or((0, 0), |e| {
        (e.sector.trailing_zeros().min(ALIGNMENT_MAX) + HEAT_WORTH * u32::from(e.heat), e.sector)
    })
}

fn short(tag: u16) -> u16 {
    tag & ((1 << TAG_BITS) - 1)
}

fn find(set: &Set, tag: u16) -> Option<usize> {
    (0..WAYS).find(|way| mark(set, *way) & ((1 << TAG_BITS) - 1) == tag && set[*way] != 0)
}

fn mark(set: &Set, way: usize) -> u16 {
    (set[WAYS + way / 2] >> (16 * (way % 2))) as u16
}

fn entry(set: &Set, way: usize) -> Option<Entry> {
    let mark = mark(set, way);
    (set[way] != 0).then(|| Entry { sector: !set[way], tag: short(mark), heat: mark >> TAG_BITS })
}

fn put(set: &mut Set, way: usize, entry: Option<Entry>) {
    set[way] = entry.map_or(0, |e| !e.sector);
    let mark = entry.map_or(0, |e| e.tag | e.heat << TAG_BITS);
    let shift = 16 * (way % 2);
    let word = &mut set[WAYS + way / 2];
    *word = *word & !(0xFFFF << shift) | u32::from(mark) << shift;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::place::Place;
    use proptest::prelude::*;
    use vellum_base::SlotAddr;

    /// Every sector alone at a place of its own, with its number as the tag.
    fn map_of(sectors: u32) -> Map {
        let mut map = Map::new(sectors.into(), 1 << 16);
        for sector in 0..sectors {
            map.place_alone(sector, Place::slot(SlotAddr(sector)));
            map.set_tag(sector, sector as u16);
        }
        map
    }

    fn known(table: &Table, tag: u16) -> bool {
        table.get(Digest(0), tag) == Some(tag.into())
    }

    proptest! {
        #[test]
        fn entries_are_packed_and_found_again(
            entries in proptest::collection::vec((0u32..u32::MAX - 1, 0u16..1 << TAG_BITS, 0..=HEAT_MAX), WAYS)
        ) {
            let mut set = [0; 16];
            for (way, (sector, tag, heat)) in entries.iter().enumerate() {
                put(&mut set, way, Some(Entry { sector: *sector, tag: *tag, heat: *heat }));
            }
            for (way, (sector, tag, heat)) in entries.iter().enumerate() {
                prop_assert_eq!(entry(&set, way), Some(Entry { sector: *sector, tag: *tag, heat: *heat }));
                prop_assert!(find(&set, *tag).is_some_and(|w| entries[w].1 == *tag));
            }
            put(&mut set, 3, None);
            prop_assert_eq!(entry(&set, 3), None);
        }

        #[test]
        fn whatever_is_stored_is_known_at_once(stored in proptest::collection::vec(0u32..4000, 1..300)) {
            let (mut table, map) = (Table::new(10), map_of(4000));
            for sector in stored {
                table.stored(sector, Digest(0), sector as u16, &map);
                prop_assert!(known(&table, sector as u16));
            }
        }
    }

    #[test]
    fn sectors_of_great_alignment_stay_and_the_rest_takes_turns() {
        let (mut table, map) = (Table::new(10), map_of(4096));
        for sector in 1..4096 {
            table.stored(sector, Digest(0), sector as u16, &map);
        }
        for sector in (0..4096).step_by(512).skip(1) {
            assert!(known(&table, sector), "{sector}");
        }
        assert!(known(&table, 4094) && known(&table, 4095), "the most recent");
        assert!(!known(&table, 4093) && !known(&table, 5));
        assert_eq!(table.memory_bytes(), 64);
    }

    #[test]
    fn what_is_matched_stays_longer_but_not_for_ever() {
        let (mut table, mut map) = (Table::new(10), map_of(10_000));
        table.stored(1, Digest(0), 1, &map);
        for other in [9001, 9003, 9005] {
            map.leave(other, Place::HOLE);
            map.join(other, 1);
            table.stored(other, Digest(0), 1, &map);
        }
        let mut lived = 0;
        for sector in (3..9000).step_by(2) {
            table.stored(sector, Digest(0), sector as u16, &map);
            lived += u32::from(known(&table, 1));
        }
        assert!((20..1000).contains(&lived), "{lived} others came and went meanwhile");
    }

    #[test]
    fn entries_of_overwritten_sectors_make_room() {
        let (mut table, mut map) = (Table::new(10), map_of(1 << 14));
        for sector in (0..1 << 14).step_by(1 << 11).skip(1) {
            table.stored(sector, Digest(0), sector as u16, &map);
            map.set_tag(sector, 1); // something else is there now
        }
        for sector in (16..3200).step_by(16) {
            table.stored(sector, Digest(0), sector as u16, &map);
        }
        let gone = (0..1u32 << 14).step_by(1 << 11).skip(1).filter(|s| !known(&table, *s as u16)).count();
        assert_eq!(gone, 7);
    }

    #[test]
    fn forged_fingerprints_offer_one_sector_and_push_nobody_out() {
        let (mut table, mut map) = (Table::new(10), map_of(400));
        table.stored(1, Digest(0), 1, &map);
        for sector in 2..300 {
            map.set_tag(sector, 66);
            table.stored(sector, Digest(0), 66, &map);
        }
        assert_eq!(table.get(Digest(0), 66), Some(299));
        assert!(known(&table, 1));
    }
}
