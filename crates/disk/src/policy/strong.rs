//! A full index of strong hashes, like dmdedup's: every stored content once, 20-odd bytes each way. If a content is in
//! several places the newest counts: an older one is full, or could not be read.

use super::Candidates;
use crate::format::place::Place;
use vellum_base::hash::FixedMap;
use vellum_codes::Digest;

/// Invariant: `place_of[d] == p` ⟺ `digest_of[p] == d`.
#[derive(Default)]
pub(crate) struct Strong {
    place_of: FixedMap<Digest, Place>,
    digest_of: FixedMap<Place, Digest>,
}

impl Strong {
    pub(super) fn candidates(&self, digest: Digest) -> Candidates {
        self.place_of.get(&digest).map_or(Candidates::NONE, |p| Candidates::one(*p))
    }

    pub(super) fn stored(&mut self, digest: Digest, place: Place) {
        if let Some(older) = self.place_of.insert(digest, place).filter(|older| *older != place) {
            self.digest_of.remove(&older);
        }
        self.digest_of.insert(place, digest);
    }

    pub(super) fn released(&mut self, place: Place) {
        if let Some(digest) = self.digest_of.remove(&place) {
            self.place_of.remove(&digest);
        }
    }

    pub(super) fn moved(&mut self, from: Place, to: Place) {
        if let Some(digest) = self.digest_of.remove(&from) {
            self.digest_of.insert(to, digest);
            self.place_of.insert(digest, to);
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.place_of.capacity() * (size_of::<(Digest, Place)>() + 1)
            + self.digest_of.capacity() * (size_of::<(Place, Digest)>() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_follows_moves_and_forgets_releases() {
        let mut s = Strong::default();
        let (d, e) = (Digest(1), Digest(2));
        s.stored(d, Place(11));
        s.stored(d, Place(10));
        assert_eq!(s.candidates(d).as_slice(), [Place(10)], "the newest copy is the one with room");
        s.moved(Place(10), Place(20));
        s.moved(Place(11), Place(21));
        assert_eq!(s.candidates(d).as_slice(), [Place(20)]);
        s.released(Place(21));
        assert_eq!(s.candidates(d).as_slice(), [Place(20)], "the older copy is not the entry's");
        s.released(Place(20));
        assert!(s.candidates(d).as_slice().is_empty() && s.candidates(e).as_slice().is_empty());
        assert!(s.place_of.is_empty() && s.digest_of.is_empty());
    }
}
