//! The map: from sectors to places, and from a place back to all of its sectors.
//!
//! The reverse direction is a ring through the sectors that share a place: `owner[slot]` names one of them, `next`
//! leads from each to the following. A sector alone points to itself.
//!
//! Invariants:
//! 1. `entries[s].place == p` and `p` holds bytes ⟺ `s` is in the ring of `p`.
//! 2. A ring has at most [`OWNERS_MAX`] members.
//! 3. `owner[slot]` is a member of the slot's ring, a metadata tag, or `NOBODY`.
//! 4. `tag[s]` is that of the bytes at the place of `s`, or 0; for places without bytes it is meaningless.
//!
//! Memory: 10 bytes per sector and 4 per slot, below 16 per sector up to 50 % over-provisioning. Places and owners are
//! stored inverted, and next sectors as differences, so that an unshared hole and `NOBODY` are zeros: parts of a disk
//! that were never written take no memory.

use crate::format::place::Place;
use crate::huge_pages::zeros;
use vellum_base::SlotAddr;
use vellum_codes::prefetch;

/// Maximum number of sectors that share one place: bounds the work of releasing it (dm-vdo stops at 254, too).
pub(crate) const OWNERS_MAX: usize = 254;

/// The decoded owner of a slot, for matching.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    Nobody,
    /// First member of the ring.
    Sector(u32),
    /// Log slot with this number.
    Log(u32),
    /// Map or log node with this number.
    Node(u32),
    /// Directory with this number.
    Directory(u32),
}

const NOBODY: u32 = u32::MAX;
const TAG_SHIFT: u32 = 28;
const TAG_LOG: u32 = 0x8;
const TAG_NODE: u32 = 0xC;
const TAG_DIRECTORY: u32 = 0xE;

impl Owner {
    fn encode(self) -> u32 {
        !match self {
            Owner::Nobody => NOBODY,
            Owner::Sector(s) => s,
            Owner::Log(n) => TAG_LOG << TAG_SHIFT | n,
            Owner::Node(n) => TAG_NODE << TAG_SHIFT | n,
            Owner::Directory(n) => TAG_DIRECTORY << TAG_SHIFT | n,
        }
    }

    fn decode(stored: u32) -> Owner {
        const LOW: u32 = (1 << TAG_SHIFT) - 1;
        let code = !stored;
        match code >> TAG_SHIFT {
            _ if code == NOBODY => Owner::Nobody,
            TAG_LOG => Owner::Log(code & LOW),
            TAG_NODE => Owner::Node(code & LOW),
            TAG_DIRECTORY => Owner::Directory(code & LOW),
            _ => Owner::Sector(code),
        }
    }
}

/// The place of a sector, inverted, and the XOR of the sector with the next in its ring.
type Entry = [u32; 2];

#[inline]
fn alone(place: Place) -> Entry {
    [!place.0, 0]
}

/// The map; see the module.
pub(crate) struct Map {
    entries: Vec<Entry>,
    owner: Vec<u32>,
    tag: Vec<u16>,
}

impl Map {
    pub(crate) fn new(sectors: u64, slots: u64) -> Map {
        Map {
            entries: zeros(alone(Place::HOLE), sectors as usize),
            owner: zeros(Owner::Nobody.encode(), slots as usize),
            tag: zeros(0, sectors as usize),
        }
    }

    pub(crate) fn sectors(&self) -> u64 {
        self.entries.len() as u64
    }

    #[inline]
    pub(crate) fn place(&self, sector: u32) -> Place {
        Place(!self.entries[sector as usize][0])
    }

    /// Sets a place without ring or owner: during loading, as rings are built at the end.
    pub(crate) fn load(&mut self, sector: u32, place: Place) {
        self.entries[sector as usize][0] = !place.0;
    }

    #[inline]
    pub(crate) fn owner(&self, slot: SlotAddr) -> Owner {
        Owner::decode(self.owner[slot.index()])
    }

    /// Prefetches the entries of `sector`.
    #[inline]
    pub(crate) fn prefetch(&self, sector: u32) {
        self.prefetch_place(sector);
        prefetch(&self.tag, sector as usize);
    }

    /// Prefetches the place of `sector`.
    #[inline]
    pub(crate) fn prefetch_place(&self, sector: u32) {
        prefetch(&self.entries, sector as usize);
    }

    /// Prefetches the owner of `slot`.
    #[inline]
    pub(crate) fn prefetch_owner(&self, slot: SlotAddr) {
        prefetch(&self.owner, slot.index());
    }

    #[inline]
    pub(crate) fn set_owner(&mut self, slot: SlotAddr, owner: Owner) {
        self.owner[slot.index()] = owner.encode();
    }

    /// 16 bits of the checksum of the sector's content; 0 if unknown.
    #[inline]
    pub(crate) fn tag(&self, sector: u32) -> u16 {
        self.tag[sector as usize]
    }
    #[inline]
    pub(crate) fn set_tag(&mut self, sector: u32, tag: u16) {
        self.tag[sector as usize] = tag;
    }

    /// Puts `sector`, which must be in no ring, at `place` alone. The caller records it as owner.
    #[inline]
    pub(crate) fn place_alone(&mut self, sector: u32, place: Place) {
        self.entries[sector as usize] = alone(place);
    }

    /// Puts `sector`, which must be in no ring, into the ring of `member`.
    pub(crate) fn join(&mut self, sector: u32, member: u32) {
        let next = self.next_in_ring(member);
        self.entries[sector as usize] = [self.entries[member as usize][0], next ^ sector];
        self.entries[member as usize][1] = sector ^ member;
    }

    /// True if the ring of `member` is full.
    pub(crate) fn is_full(&self, member: u32) -> bool {
        self.ring(member).count() >= OWNERS_MAX
    }

    /// Removes `sector` from its ring and gives it `place`, which holds no bytes. Returns a remaining member, if any.
    #[inline]
    pub(crate) fn leave(&mut self, sector: u32, place: Place) -> Option<u32> {
        let next = self.next_in_ring(sector);
        self.entries[sector as usize] = alone(place);
        if next == sector {
            return None;
        }
        let mut before = next;
        while self.next_in_ring(before) != sector {
            before = self.next_in_ring(before);
        }
        self.entries[before as usize][1] = next ^ before;
        Some(before)
    }

    /// Gives every member of the ring of `first` the place `to`.
    #[inline]
    pub(crate) fn move_ring(&mut self, first: u32, to: Place) {
        let mut sector = first;
        loop {
            self.entries[sector as usize][0] = !to.0;
            sector = self.next_in_ring(sector);
            if sector == first {
                return;
            }
        }
    }

    /// The sectors that share a place with `first`, starting with it.
    pub(crate) fn ring(&self, first: u32) -> impl Iterator<Item = u32> + '_ {
        let mut at = Some(first);
        std::iter::from_fn(move || {
            let now = at?;
            let next = self.next_in_ring(now);
            at = (next != first).then_some(next);
            Some(now)
        })
    }

    /// The sector after `sector` in its ring.
    #[inline]
    pub(crate) fn next_in_ring(&self, sector: u32) -> u32 {
        self.entries[sector as usize][1] ^ sector
    }

    /// True if `sector` shares its place with another.
    pub(crate) fn is_shared(&self, sector: u32) -> bool {
        self.entries[sector as usize][1] != 0
    }

    /// Bytes of memory of a map of this size.
    pub(crate) fn memory_bytes_of(sectors: u64, slots: u64) -> u64 {
        sectors * (size_of::<Entry>() as u64 + 2) + slots * 4
    }

    /// Bytes of memory used.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.owner.capacity() * 4 + self.tag.capacity() * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// The slow, obvious version.
    #[derive(Default)]
    struct Oracle {
        place_of: BTreeMap<u32, u32>,
    }

    impl Oracle {
        fn at(&self, place: u32) -> BTreeSet<u32> {
            self.place_of.iter().filter(|(_, p)| **p == place).map(|(s, _)| *s).collect()
        }
    }

    proptest! {
        #[test]
        fn rings_agree_with_the_oracle(ops in proptest::collection::vec((0u32..20, 0u32..8, 0u8..3), 1..200)) {
            let mut map = Map::new(20, 16);
            let mut oracle = Oracle::default();
            for (sector, slot, op) in ops {
                match op {
                    0 => { // write or share: move the sector to the slot
                        detach(&mut map, &mut oracle, sector);
                        match map.owner(SlotAddr(slot)) {
                            Owner::Sector(member) => map.join(sector, member),
                            _ => {
                                map.place_alone(sector, Place(slot));
                                map.set_owner(SlotAddr(slot), Owner::Sector(sector));
                            }
                        }
                        oracle.place_of.insert(sector, slot);
                    }
                    1 => detach(&mut map, &mut oracle, sector),
                    _ => { // GC: move everything of the slot to a free one
                        let to = SlotAddr(slot + 8);
                        if let (Owner::Sector(first), Owner::Nobody) = (map.owner(SlotAddr(slot)), map.owner(to)) {
                            map.move_ring(first, Place(to.0));
                            map.set_owner(SlotAddr(slot), Owner::Nobody);
                            map.set_owner(to, Owner::Sector(first));
                            for s in oracle.at(slot) { oracle.place_of.insert(s, to.0); }
                        }
                    }
                }
                for slot in 0..16 {
                    let ours: BTreeSet<u32> = match map.owner(SlotAddr(slot)) {
                        Owner::Sector(first) => map.ring(first).collect(),
                        _ => BTreeSet::new(),
                    };
                    prop_assert_eq!(ours, oracle.at(slot));
                }
            }
        }
    }

    fn detach(map: &mut Map, oracle: &mut Oracle, sector: u32) {
        if let Some(slot) = oracle.place_of.remove(&sector) {
            let left = map.leave(sector, Place::HOLE);
            map.set_owner(SlotAddr(slot), left.map_or(Owner::Nobody, Owner::Sector));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_not_written_to_takes_no_memory() {
        let resident = || {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        let before = resident();
        let mut map = Map::new(400 << 20, 450 << 20);
        map.place_alone(300 << 20, Place(400 << 20));
        map.set_owner(SlotAddr(400 << 20), Owner::Sector(300 << 20));
        assert_eq!((map.place(1), map.owner(SlotAddr(1))), (Place::HOLE, Owner::Nobody));
        assert!(!map.is_shared(1) && map.next_in_ring(1) == 1);
        let taken = resident().saturating_sub(before);
        assert!(taken < 1 << 30, "{taken} bytes of {}", map.memory_bytes());
    }

    #[test]
    fn owners_round_trip() {
        for owner in [
            Owner::Nobody,
            Owner::Sector(0),
            Owner::Sector((1 << 31) - 1),
            Owner::Log((1 << 25) - 2),
            Owner::Node(123),
            Owner::Directory(9),
        ] {
            assert_eq!(Owner::decode(owner.encode()), owner);
        }
    }
}
