//! The default policy: home writes of a file system's journal, found by a seeded hash of the whole sector.
//!
//! One entry for each journal sector whose content could come again, living exactly as long as that sector
//! holds that content (traps T10, T16). Equal content in many journal sectors is normal: any will do. The
//! table points at journal sectors, not at flash, so garbage collection need not touch it.
//!
//! Invariants:
//! 1. `tags[i] != 0` ⟺ journal sector `i` has an entry; the entry is in the probe run that starts at its tag.
//! 2. A probe run has no gap before an entry that belongs to it.
//!
//! Memory: 4 bytes of tag and, at load one half, 8 of table for each journal sector: 768 KiB for a journal of
//! 256 MiB, as much as the paper's pool alone and less than its 1.28 MB (woj.txt, section 3.6).

use super::{Candidates, is_journal_control};
use crate::format::place::Place;
use crate::journals::Journals;
use crate::map::Map;
use vellum_base::{SECTOR_BYTES, hash::FixedMap};
use vellum_codes::Digest;

const EMPTY: u32 = u32::MAX;

pub(crate) struct JournalPool {
    journals: Journals,
    tags: Vec<u32>,
    table: Vec<u32>,
    recent: Recent,
}

/// The last journaled sectors' bytes, so that the compare rarely reads flash (the copy is p50 4 sectors back).
struct Recent {
    capacity: u32,
    at: u32,
    ring: Vec<u32>,
    data: FixedMap<u32, Box<[u8]>>,
}

impl JournalPool {
    pub(super) fn new(cache_sectors: u32) -> JournalPool {
        let recent = Recent { capacity: cache_sectors, at: 0, ring: Vec::new(), data: FixedMap::default() };
        JournalPool { journals: Journals::default(), tags: Vec::new(), table: Vec::new(), recent }
    }

    pub(super) fn set_journals(&mut self, journals: Journals) {
        let sectors = journals.sectors() as usize;
        self.tags = vec![0; sectors];
        self.table = vec![EMPTY; (sectors * 2).next_power_of_two().max(2)];
        self.journals = journals;
        self.recent.clear();
    }

    pub(super) fn candidates(&self, sector: u32, digest: Digest, map: &Map) -> Candidates {
        let mut found = Candidates::NONE;
        if self.tags.is_empty() || self.journals.index_of(sector).is_some() {
            return found;
        }
        let tag = tag_of(digest);
        for at in self.run(tag) {
            let index = self.table[at];
            if self.tags[index as usize] == tag {
                let place = map.place(self.journals.sector_at(index));
                if place.holds_bytes() && !found.as_slice().contains(&place) && !found.push(place) {
                    break;
                }
            }
        }
        found
    }

    pub(super) fn compare_cached(&self, place: Place, data: &[u8], map: &Map) -> Option<bool> {
        let digest_sector = self.recent.ring_sector_at(place, map)?;
        self.recent.data.get(&digest_sector).map(|bytes| bytes[..] == *data)
    }

    pub(super) fn stored(&mut self, sector: u32, digest: Digest, data: &[u8]) {
        let Some(index) = self.journals.index_of(sector) else { return };
        if is_journal_control(data) {
            return;
        }
        let tag = tag_of(digest);
        self.tags[index as usize] = tag;
        let mut at = self.home(tag);
        while self.table[at] != EMPTY {
            at = (at + 1) & (self.table.len() - 1);
        }
        self.table[at] = index;
        self.recent.insert(sector, data);
    }

    pub(super) fn overwritten(&mut self, sector: u32) {
        let Some(index) = self.journals.index_of(sector) else { return };
        let tag = std::mem::take(&mut self.tags[index as usize]);
        if tag != 0 {
            let at = self.run(tag).find(|at| self.table[*at] == index);
            if let Some(at) = at {
                self.remove_at(at);
            }
            self.recent.data.remove(&sector);
        }
    }

    pub(super) fn memory_bytes(&self) -> (usize, usize) {
        let cached = self.recent.data.len() * (SECTOR_BYTES + 16) + self.recent.ring.capacity() * 4;
        (self.tags.capacity() * 4 + self.table.capacity() * 4, cached)
    }

    fn home(&self, tag: u32) -> usize {
        tag as usize & (self.table.len() - 1)
    }

    /// Table positions from the tag's home to the first gap.
    fn run(&self, tag: u32) -> impl Iterator<Item = usize> + '_ {
        let mask = self.table.len() - 1;
        let home = self.home(tag);
        (0..self.table.len()).map(move |i| (home + i) & mask).take_while(|at| self.table[*at] != EMPTY)
    }

    /// Closes the gap by moving later entries of the run back (linear probing without tombstones).
    fn remove_at(&mut self, mut gap: usize) {
        let mask = self.table.len() - 1;
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let index = self.table[at];
            if index == EMPTY {
                break;
            }
            let home = self.home(self.tags[index as usize]);
            // Move it if its home does not lie cyclically in (gap, at].
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(gap) & mask) {
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

    /// A cached sector that is at `place`.
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
    use std::collections::BTreeMap;
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
                    // Tags that share their low bits collide in the table.
                    let digest = digest << 8 | 1;
                    pool.stored(sector(i), Digest(digest), &[1; 4096]);
                    oracle.insert(i, digest);
                }
                for d in 1u128..9 {
                    let d = d << 8 | 1;
                    let expected: Vec<u32> = oracle.iter().filter(|(_, v)| **v == d).map(|(k, _)| *k).collect();
                    let found = pool.candidates(0, Digest(d), &map);
                    prop_assert_eq!(found.as_slice().len(), expected.len().min(4));
                    for place in found.as_slice() { prop_assert!(expected.contains(&place.0)); }
                }
            }
        }
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
