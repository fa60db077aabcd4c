//! The default policy: home writes of a file system's journal, found by a seeded hash of the whole sector.
//!
//! There is one entry for each journal sector whose content could be written again, exactly as long as that sector
//! holds that content (traps T10, T16). Equal content in many journal sectors is normal: these form a circle, and each
//! lookup advances by one, so that homes spread over all copies. The pool refers to journal sectors, not to flash, so
//! garbage collection need not update it.
//!
//! Invariants:
//! 1. `tags[i] != 0` ⟺ journal sector `i` is in the circle of its tag, and in no other.
//! 2. The table has one entry for each circle: a member of it, the next to be offered. It is in the probe run that
//!    starts at its tag's home, and a probe run has no gap before an entry that belongs to it.
//! 3. The cost of an operation does not depend on how many journal sectors hold equal content.
//!
//! Memory: 4 bytes of tag, 8 of circle and, at load two thirds, 6 of table for each journal sector: 1.18 MB for a
//! journal of 256 MiB, below the paper's 1.28 MB of metadata (woj.txt, section 3.6).

use super::{CANDIDATES_MAX, Candidates};
use crate::discover::is_control_block;
use crate::format::place::Place;
use crate::journals::Journals;
use crate::map::Map;
use vellum_base::{SECTOR_BYTES, hash::FixedMap};
use vellum_codes::Digest;

const EMPTY: u32 = u32::MAX;
/// Members of a circle examined for one write: a few of them may share a place.
const LOOKED_AT_MAX: usize = 2 * CANDIDATES_MAX;

pub(crate) struct JournalPool {
    journals: Journals,
    tags: Vec<u32>,
    circles: Vec<Links>,
    table: Vec<u32>,
    recent: Recent,
}

/// Neighbours in a circle of journal sectors with equal tags.
#[derive(Clone, Copy)]
struct Links {
    next: u32,
    before: u32,
}

/// The bytes of the latest journaled sectors, so that comparisons rarely read flash (the copy is p50 4 sectors back).
struct Recent {
    capacity: u32,
    at: u32,
    ring: Vec<u32>,
    data: FixedMap<u32, Box<[u8]>>,
}

impl JournalPool {
    pub(super) fn new(cache_sectors: u32) -> JournalPool {
        let recent = Recent { capacity: cache_sectors, at: 0, ring: Vec::new(), data: FixedMap::default() };
        JournalPool {
            journals: Journals::default(),
            tags: Vec::new(),
            circles: Vec::new(),
            table: Vec::new(),
            recent,
        }
    }

    pub(super) fn set_journals(&mut self, journals: Journals) {
        let sectors = journals.sectors() as usize;
        self.tags = vec![0; sectors];
        self.circles = vec![Links { next: EMPTY, before: EMPTY }; sectors];
        self.table = vec![EMPTY; sectors + sectors / 2 + 1];
        self.journals = journals;
        self.recent.clear();
    }

    pub(super) fn candidates(&mut self, sector: u32, digest: Digest, map: &Map) -> Candidates {
        let mut found = Candidates::NONE;
        if self.tags.is_empty() || self.journals.index_of(sector).is_some() {
            return found;
        }
        let at = self.position(tag_of(digest));
        let first = self.table[at];
        if first == EMPTY {
            return found;
        }
        let mut index = first;
        for _ in 0..LOOKED_AT_MAX {
            let place = map.place(self.journals.sector_at(index));
            let is_new = place.holds_bytes() && !found.as_slice().contains(&place);
            index = self.circles[index as usize].next;
            if is_new && !found.push(place) || index == first {
                break;
            }
        }
        self.table[at] = self.circles[first as usize].next;
        found
    }

    pub(super) fn compare_cached(&self, place: Place, data: &[u8], map: &Map) -> Option<bool> {
        let digest_sector = self.recent.ring_sector_at(place, map)?;
        self.recent.data.get(&digest_sector).map(|bytes| bytes[..] == *data)
    }

    pub(super) fn stored(&mut self, sector: u32, digest: Digest, data: &[u8]) {
        let Some(index) = self.journals.index_of(sector) else { return };
        self.leave(index);
        if !is_control_block(data) {
            self.join(index, tag_of(digest));
            self.recent.insert(sector, data);
        }
    }

    pub(super) fn overwritten(&mut self, sector: u32) {
        let Some(index) = self.journals.index_of(sector) else { return };
        if self.leave(index) {
            self.recent.data.remove(&sector);
        }
    }

    pub(super) fn memory_bytes(&self) -> (usize, usize) {
        let cached = self.recent.data.len() * (SECTOR_BYTES + 16) + self.recent.ring.capacity() * 4;
        let circles = self.circles.capacity() * size_of::<Links>();
        (self.tags.capacity() * 4 + circles + self.table.capacity() * 4, cached)
    }

    /// Puts journal sector `index` into the circle of `tag`, as the next to be offered: the content journaled last is
    /// most likely still in memory.
    fn join(&mut self, index: u32, tag: u32) {
        self.tags[index as usize] = tag;
        let at = self.position(tag);
        let next = self.table[at];
        self.circles[index as usize] = if next == EMPTY {
            Links { next: index, before: index }
        } else {
            let before = std::mem::replace(&mut self.circles[next as usize].before, index);
            self.circles[before as usize].next = index;
            Links { next, before }
        };
        self.table[at] = index;
    }

    /// Removes journal sector `index` from its circle; false if it was in none.
    fn leave(&mut self, index: u32) -> bool {
        let tag = self.tags[index as usize];
        if tag == 0 {
            return false;
        }
        let Links { next, before } = self.circles[index as usize];
        if next == index {
            self.remove_at(self.position(tag));
        } else {
            self.circles[before as usize].next = next;
            self.circles[next as usize].before = before;
            let at = self.position(tag);
            if self.table[at] == index {
                self.table[at] = next;
            }
        }
        self.tags[index as usize] = 0;
        true
    }

    fn home(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.table.len() as u64) >> 32) as usize
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.table.len() { 0 } else { at + 1 }
    }

    /// The position of the circle's entry, or where it would be inserted: the table always has a gap.
    fn position(&self, tag: u32) -> usize {
        let mut at = self.home(tag);
        while self.table[at] != EMPTY && self.tags[self.table[at] as usize] != tag {
            at = self.after(at);
        }
        at
    }

    /// Steps forward from one table position to another.
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.table.len() - from }
    }

    /// Closes the gap by moving back later entries of the run (linear probing without tombstones).
    fn remove_at(&mut self, mut gap: usize) {
        let mut at = gap;
        loop {
            at = self.after(at);
            let index = self.table[at];
            if index == EMPTY {
                break;
            }
            let home = self.home(self.tags[index as usize]);
            // Move it if its home does not lie cyclically in (gap, at].
            if self.distance(home, at) >= self.distance(gap, at) {
                self.table[gap] = index;
                gap = at;
            }
        }
        self.table[gap] = EMPTY;
    }
}

impl Recent {
    fn clear(&mut self) {
        self.ring.clear();
        self.data.clear();
        self.at = 0;
    }

    fn insert(&mut self, sector: u32, data: &[u8]) {
        if self.capacity == 0 {
            return;
        }
        if (self.ring.len() as u32) < self.capacity {
            self.ring.push(sector);
        } else {
            let old = std::mem::replace(&mut self.ring[self.at as usize], sector);
            if old != sector {
                self.data.remove(&old);
            }
            self.at = (self.at + 1) % self.capacity;
        }
        self.data.insert(sector, data.into());
    }

    /// A cached sector at `place`.
    fn ring_sector_at(&self, place: Place, map: &Map) -> Option<u32> {
        let first = match place.at() {
            crate::format::place::At::Slot(slot) => match map.owner(slot) {
                crate::map::Owner::Sector(first) => first,
                _ => return None,
            },
            _ => return None,
        };
        map.ring(first).find(|s| self.data.contains_key(s))
    }
}

/// 32 bits of the digest, never 0.
fn tag_of(digest: Digest) -> u32 {
    (digest.0 as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};
    use vellum_base::Lba;

    proptest! {
        #[test]
        fn the_pool_agrees_with_the_oracle(
            ops in proptest::collection::vec((0u32..12, 1u128..9, any::<bool>()), 1..200)
        ) {
            let mut map = Map::new(100, 100);
            let mut pool = JournalPool::new(3);
            pool.set_journals(Journals::new([Lba(10)..Lba(16), Lba(30)..Lba(36)], 100));
            let sector = |i: u32| if i < 6 { 10 + i } else { 24 + i };
            for i in 0..12 { map.place_alone(sector(i), Place(i)); }
            let mut oracle: BTreeMap<u32, u128> = BTreeMap::new();
            for (i, digest, write) in ops {
                pool.overwritten(sector(i));
                oracle.remove(&i);
                if write {
                    let digest = colliding(digest);
                    pool.stored(sector(i), Digest(digest), &[1; 4096]);
                    oracle.insert(i, digest);
                }
                for d in 1u128..9 {
                    let d = colliding(d);
                    let expected: Vec<u32> = oracle.iter().filter(|(_, v)| **v == d).map(|(k, _)| *k).collect();
                    // Each lookup advances by one, so as many lookups as there are copies offer all of them.
                    let mut offered = BTreeSet::new();
                    for _ in 0..expected.len().max(1) {
                        let found = pool.candidates(0, Digest(d), &map);
                        prop_assert_eq!(found.as_slice().len(), expected.len().min(4));
                        offered.extend(found.as_slice().iter().map(|place| place.0));
                    }
                    prop_assert_eq!(offered.into_iter().collect::<Vec<u32>>(), expected);
                }
            }
        }
    }

    /// Digests whose probe runs begin close to each other, and at the end of the table.
    fn colliding(digest: u128) -> u128 {
        if digest < 5 { digest << 2 } else { 0xFFFF_FF00 | (digest << 2) }
    }

    /// A file of equal sectors on a file system with `data=journal`.
    #[test]
    fn equal_content_takes_no_more_steps_than_other() {
        const SECTORS: u32 = 65536;
        let mut map = Map::new(1 << 20, 1 << 20);
        (0..SECTORS).for_each(|s| map.place_alone(s, Place(s)));
        let mut pool = JournalPool::new(0);
        pool.set_journals(Journals::new([Lba(0)..Lba(SECTORS.into())], 1 << 20));
        for sector in 0..SECTORS {
            pool.stored(sector, Digest(7), &[1]);
        }
        assert_eq!(pool.table.iter().filter(|index| **index != EMPTY).count(), 1, "one step finds it");
        let offered = (0..SECTORS).map(|_| pool.candidates(1 << 19, Digest(7), &map).as_slice()[0].0);
        assert_eq!(
            offered.collect::<BTreeSet<u32>>().len(),
            SECTORS as usize,
            "homes spread over all copies"
        );
        for sector in 0..SECTORS {
            pool.overwritten(sector);
            pool.stored(sector, Digest(u128::from(sector.wrapping_mul(0x9E37_79B9))), &[1]);
        }
        let (mut run, mut longest) = (0, 0);
        for index in &pool.table {
            run = if *index == EMPTY { 0 } else { run + 1 };
            longest = longest.max(run);
        }
        assert!(longest < 500, "{longest} entries without a gap");
    }

    #[test]
    fn a_256_mib_journal_costs_less_than_the_papers_metadata() {
        let mut pool = JournalPool::new(1024);
        pool.set_journals(Journals::new([Lba(0)..Lba(65536)], 1 << 20));
        assert!(pool.memory_bytes().0 <= 1_280_000, "{}", pool.memory_bytes().0);
    }

    #[test]
    fn control_blocks_and_journal_writes_are_never_matched() {
        let mut map = Map::new(100, 100);
        map.place_alone(10, Place(1));
        let mut pool = JournalPool::new(0);
        pool.set_journals(Journals::new([Lba(10)..Lba(20)], 100));
        pool.stored(10, Digest(5), &[0xC0, 0x3B, 0x39, 0x98]);
        assert!(pool.candidates(50, Digest(5), &map).as_slice().is_empty());
        pool.stored(10, Digest(5), &[1]);
        assert_eq!(pool.candidates(50, Digest(5), &map).as_slice(), [Place(1)]);
        assert!(pool.candidates(11, Digest(5), &map).as_slice().is_empty(), "commits are not deduplicated");
    }
}
