//! Exactly the WOJ paper's rule (woj.txt, section 2.2): one entry for each fingerprint of a journal write, invalid once
//! two journal writes share it, removed when used or when its journal sector is reused. Any write outside the journal
//! that matches a valid entry is taken as its copy without comparing bytes. That maps garbage into sectors that never
//! passed through the journal (trap T2): for the lab only.

use super::Candidates;
use crate::journals::Journals;
use crate::map::Map;
use vellum_base::hash::FixedMap;
use vellum_codes::Digest;

#[derive(Default)]
pub(crate) struct PaperPool {
    journals: Journals,
    entries: FixedMap<Digest, Entry>,
    /// Fingerprint of each journal sector that has or shares an entry.
    digest_of: FixedMap<u32, Digest>,
}

struct Entry {
    /// Journal sector; meaningless once invalid.
    sector: u32,
    valid: bool,
    /// Number of journal sectors with the fingerprint: an invalid entry stays until the last is gone.
    sharers: u32,
}

impl PaperPool {
    pub(super) fn set_journals(&mut self, journals: Journals) {
        *self = PaperPool { journals, ..PaperPool::default() };
    }

    pub(super) fn candidates(&mut self, sector: u32, digest: Digest, map: &Map) -> Candidates {
        if self.journals.index_of(sector).is_some() || !self.entries.get(&digest).is_some_and(|e| e.valid) {
            return Candidates::NONE;
        }
        let Some(used) = self.entries.remove(&digest) else { return Candidates::NONE };
        self.digest_of.remove(&used.sector);
        Candidates::one(map.place(used.sector))
    }

    pub(super) fn stored(&mut self, sector: u32, digest: Digest) {
        if self.journals.index_of(sector).is_none() {
            return;
        }
        self.digest_of.insert(sector, digest);
        let entry = self.entries.entry(digest).or_insert(Entry { sector, valid: true, sharers: 0 });
        entry.sharers += 1;
        entry.valid &= entry.sharers == 1;
    }

    pub(super) fn overwritten(&mut self, sector: u32) {
        let Some(digest) = self.digest_of.remove(&sector) else { return };
        if let Some(entry) = self.entries.get_mut(&digest) {
            entry.sharers -= 1;
            if entry.sharers == 0 {
                self.entries.remove(&digest);
            }
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * (size_of::<(Digest, Entry)>() + 1)
            + self.digest_of.capacity() * (size_of::<(u32, Digest)>() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::place::Place;
    use vellum_base::Lba;

    fn pool() -> (PaperPool, Map) {
        let mut map = Map::new(100, 100);
        (10..20).for_each(|s| map.place_alone(s, Place(s)));
        let mut pool = PaperPool::default();
        pool.set_journals(Journals::new([Lba(10)..Lba(20)], 100));
        (pool, map)
    }

    #[test]
    fn an_entry_is_used_once() {
        let (mut pool, map) = pool();
        pool.stored(10, Digest(1));
        assert_eq!(pool.candidates(50, Digest(1), &map).as_slice(), [Place(10)]);
        assert!(pool.candidates(51, Digest(1), &map).as_slice().is_empty());
    }

    #[test]
    fn a_collision_invalidates_until_all_sharers_are_gone() {
        let (mut pool, map) = pool();
        pool.stored(10, Digest(1));
        pool.stored(11, Digest(1));
        assert!(pool.candidates(50, Digest(1), &map).as_slice().is_empty());
        pool.overwritten(10);
        assert!(pool.candidates(50, Digest(1), &map).as_slice().is_empty(), "invalid entries stay");
        pool.overwritten(11);
        pool.stored(12, Digest(1));
        assert_eq!(pool.candidates(50, Digest(1), &map).as_slice(), [Place(12)]);
    }
}
