//! The index: the place of the newest record of each key, in seven bytes per key. It is in memory only.
//!
//! A key's hash has [`HASH_BITS`] bits. Its first bits choose a *stripe* (a lock) and a *bucket*; twenty bits more, the
//! *fragment*, are kept with a pointer of 36 bits: FAWN's index (15 and 32 bits), with room for larger stores. A result
//! is only a candidate: the caller reads the record and compares the whole key.
//!
//! Invariants
//! 1. A bucket's entries are in the order of their fragments.
//! 2. The bits above the fragment follow from the bucket, so entries move but do not change when a stripe doubles its
//!    buckets.
//! 3. Pointers are unique: two keys never have the same record.

use super::hint::HASH_BITS;
use vellum_base::sync::RwLock;
use vellum_base::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bits of a pointer.
pub(crate) const POINTER_BITS: u32 = 36;
const FRAGMENT_BITS: u32 = 20;
const ENTRY_BYTES: usize = 7;
const STRIPE_BITS: u32 = 6;
/// Fewest and most bits before the fragment.
const ANCHOR_MIN: u32 = 12;
const ANCHOR_MAX: u32 = HASH_BITS - FRAGMENT_BITS;
/// Entries of a bucket, on average, at which a stripe doubles its buckets.
const BUCKET_ENTRIES: usize = 512;
/// A bucket that is full grows by this share.
const GROWTH: usize = 8;

/// Where a record is: which segment's slot, and where in it, in units of eight bytes.
pub(crate) type Pointer = u64;

/// One change: the entry that points to `old` points to `new`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub hash: u64,
    pub old: Option<Pointer>,
    pub new: Option<Pointer>,
}

/// See the module.
pub(crate) struct Index {
    /// Bits before the fragment.
    anchor: u32,
    stripes: Vec<RwLock<Stripe>>,
    entries: AtomicU64,
}

struct Stripe {
    /// Bits before the bucket's entries; the first are the stripe's.
    depth: u32,
    buckets: Vec<Bucket>,
    entries: usize,
}

#[derive(Default)]
struct Bucket {
    bytes: Vec<u8>,
}

impl Index {
    /// For `keys` and some more.
    pub(crate) fn new(keys: u64) -> Index {
        let wanted = (keys / (BUCKET_ENTRIES as u64 * 3 / 4)).checked_ilog2().map_or(0, |bits| bits + 1);
        let anchor = wanted.clamp(ANCHOR_MIN, ANCHOR_MAX);
        let stripe = || RwLock::new(Stripe::new(anchor));
        let stripes = (0..1 << STRIPE_BITS).map(|_| stripe()).collect();
        Index { anchor, stripes, entries: AtomicU64::new(0) }
    }

    /// Appends the pointers of all keys whose hash may be this one.
    pub(crate) fn candidates(&self, hash: u64, found: &mut Vec<Pointer>) {
        let stripe = self.stripe(hash).read();
        found.extend(stripe.bucket(hash).with(self.fragment(hash)));
    }

    /// True if a key with this hash has its record there.
    pub(crate) fn points(&self, hash: u64, pointer: Pointer) -> bool {
        let stripe = self.stripe(hash).read();
        stripe.bucket(hash).with(self.fragment(hash)).any(|found| found == pointer)
    }

    /// Makes a change; false if the entry to be changed is not there.
    pub(crate) fn change(&self, change: Change) -> bool {
        self.apply(&mut self.stripe(change.hash).write(), change)
    }

    /// Makes changes so that nobody sees some of them alone. Panics if an entry to be changed is not there.
    pub(crate) fn change_all(&self, changes: &[Change]) {
        if let [change] = changes {
            assert!(self.change(*change), "the index lost an entry");
            return;
        }
        let mut wanted: Vec<usize> = changes.iter().map(|change| stripe_of(change.hash)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut guards: Vec<_> = wanted.iter().map(|at| self.stripes[*at].write()).collect();
        for change in changes {
            let at = wanted.binary_search(&stripe_of(change.hash)).expect("it was locked");
            assert!(self.apply(&mut guards[at], *change), "the index lost an entry");
        }
    }

    /// Appends an entry whose hash is not below the ones before: fills an index that nobody reads yet.
    pub(crate) fn push(&self, hash: u64, pointer: Pointer) {
        let mut stripe = self.stripe(hash).write();
        let entry = entry_of(self.fragment(hash), pointer);
        let bucket = stripe.bucket_mut(hash);
        let at = bucket.first_not_below(entry);
        bucket.insert(at, entry);
        stripe.entries += 1;
        self.entries.fetch_add(1, Relaxed);
    }

    /// Pointers of a bucket, from the one that holds `hash` on; and the first hash behind it.
    pub(crate) fn bucket_from(&self, hash: u64, found: &mut Vec<Pointer>) -> u64 {
        let stripe = self.stripe(hash).read();
        found.extend(stripe.bucket(hash).entries().map(pointer_of));
        let width = HASH_BITS - stripe.depth;
        ((hash >> width) + 1) << width
    }

    /// How many keys there are.
    pub(crate) fn len(&self) -> u64 {
        self.entries.load(Relaxed)
    }

    /// Memory that it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let buckets = |stripe: &Stripe| {
            let heads = stripe.buckets.capacity() * size_of::<Bucket>();
            heads + stripe.buckets.iter().map(|bucket| bucket.bytes.capacity()).sum::<usize>()
        };
        self.stripes.iter().map(|stripe| buckets(&stripe.read())).sum()
    }

    fn apply(&self, stripe: &mut Stripe, Change { hash, old, new }: Change) -> bool {
        let fragment = self.fragment(hash);
        let bucket = stripe.bucket_mut(hash);
        if let Some(old) = old {
            let Some(at) = bucket.find(entry_of(fragment, old)) else { return false };
            bucket.remove(at);
        }
        if let Some(new) = new {
            let entry = entry_of(fragment, new);
            let at = bucket.first_not_below(entry);
            bucket.insert(at, entry);
        }
        match (old, new) {
            (None, Some(_)) => {
                stripe.entries += 1;
                self.entries.fetch_add(1, Relaxed);
                if stripe.entries > stripe.buckets.len() * BUCKET_ENTRIES && stripe.depth < ANCHOR_MAX {
                    stripe.double(self.anchor);
                }
            }
            (Some(_), None) => {
                stripe.entries -= 1;
                self.entries.fetch_sub(1, Relaxed);
            }
            _ => {}
        }
        true
    }

    fn stripe(&self, hash: u64) -> &RwLock<Stripe> {
        &self.stripes[stripe_of(hash)]
    }

    fn fragment(&self, hash: u64) -> u64 {
        hash >> (HASH_BITS - self.anchor - FRAGMENT_BITS) & ((1 << FRAGMENT_BITS) - 1)
    }
}

fn stripe_of(hash: u64) -> usize {
    (hash >> (HASH_BITS - STRIPE_BITS)) as usize
}

fn entry_of(fragment: u64, pointer: Pointer) -> u64 {
    debug_assert!(pointer < 1 << POINTER_BITS);
    fragment << POINTER_BITS | pointer
}

fn pointer_of(entry: u64) -> Pointer {
    entry & ((1 << POINTER_BITS) - 1)
}

impl Stripe {
    fn new(depth: u32) -> Stripe {
        let buckets = (0..1usize << (depth - STRIPE_BITS)).map(|_| Bucket::default()).collect();
        Stripe { depth, buckets, entries: 0 }
    }

    fn at(&self, hash: u64) -> usize {
        (hash >> (HASH_BITS - self.depth)) as usize & (self.buckets.len() - 1)
    }
    fn bucket(&self, hash: u64) -> &Bucket {
        &self.buckets[self.at(hash)]
    }
    fn bucket_mut(&mut self, hash: u64) -> &mut Bucket {
        let at = self.at(hash);
        &mut self.buckets[at]
    }

    /// Splits each bucket by the next bit of its fragments.
    fn double(&mut self, anchor: u32) {
        let used = self.depth - anchor;
        if used == FRAGMENT_BITS {
            return;
        }
        let bit = 1 << (POINTER_BITS + FRAGMENT_BITS - 1 - used);
        let halves = std::mem::take(&mut self.buckets).into_iter().flat_map(|bucket| bucket.split(bit));
        self.buckets = halves.collect();
        self.depth += 1;
    }
}

impl Bucket {
    fn len(&self) -> usize {
        self.bytes.len() / ENTRY_BYTES
    }

    fn entry(&self, at: usize) -> u64 {
        let mut entry = [0; 8];
        entry[..ENTRY_BYTES].copy_from_slice(&self.bytes[at * ENTRY_BYTES..(at + 1) * ENTRY_BYTES]);
        u64::from_le_bytes(entry)
    }

    fn entries(&self) -> impl Iterator<Item = u64> {
        (0..self.len()).map(|at| self.entry(at))
    }

    /// Pointers of the entries with this fragment.
    fn with(&self, fragment: u64) -> impl Iterator<Item = Pointer> {
        let from = self.first_not_below(entry_of(fragment, 0));
        let entries = (from..self.len()).map(|at| self.entry(at));
        entries.take_while(move |entry| entry >> POINTER_BITS == fragment).map(pointer_of)
    }

    fn find(&self, entry: u64) -> Option<usize> {
        let at = self.first_not_below(entry);
        (at < self.len() && self.entry(at) == entry).then_some(at)
    }

    fn first_not_below(&self, entry: u64) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            match self.entry(middle) < entry {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    fn insert(&mut self, at: usize, entry: u64) {
        if self.bytes.capacity() < self.bytes.len() + ENTRY_BYTES {
            // Doubling would leave a third of it empty.
            self.bytes.reserve_exact(ENTRY_BYTES * (self.len() / GROWTH).max(2));
        }
        let at = at * ENTRY_BYTES;
        let end = self.bytes.len();
        self.bytes.extend_from_slice(&[0; ENTRY_BYTES]);
        self.bytes.copy_within(at..end, at + ENTRY_BYTES);
        self.bytes[at..at + ENTRY_BYTES].copy_from_slice(&entry.to_le_bytes()[..ENTRY_BYTES]);
    }

    fn remove(&mut self, at: usize) {
        self.bytes.drain(at * ENTRY_BYTES..(at + 1) * ENTRY_BYTES);
        if self.bytes.len() < self.bytes.capacity() / 2 {
            self.bytes.shrink_to(self.bytes.len() + self.bytes.len() / GROWTH);
        }
    }

    /// Entries without a bit, and entries with it.
    fn split(self, bit: u64) -> [Bucket; 2] {
        // The bits above are the same for all entries, so those with it come last.
        let at = (0..self.len()).position(|at| self.entry(at) & bit != 0).unwrap_or(self.len()) * ENTRY_BYTES;
        let half = |bytes: &[u8]| Bucket { bytes: bytes.to_vec() };
        [half(&self.bytes[..at]), half(&self.bytes[at..])]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use std::collections::BTreeMap;

    fn candidates(index: &Index, hash: u64) -> Vec<Pointer> {
        let mut found = Vec::new();
        index.candidates(hash, &mut found);
        found
    }

    fn all(index: &Index) -> Vec<Pointer> {
        let (mut hash, mut found) = (0, Vec::new());
        while hash < 1 << HASH_BITS {
            hash = index.bucket_from(hash, &mut found);
        }
        found.sort_unstable();
        found
    }

    #[test]
    fn it_is_a_map_from_hashes_to_pointers() {
        vellum_sim::check(0..6, |seed| {
            let mut rng = SmallRng::seed_from_u64(seed);
            let index = Index::new(0);
            let mut model: BTreeMap<u64, Vec<Pointer>> = BTreeMap::new();
            // Some seeds give keys whose hashes collide, and fill buckets with them.
            let mask = [u64::MAX, 0xFF_F000_0FFF, 0x3FF][seed as usize % 3] & ((1 << HASH_BITS) - 1);
            for pointer in 0..60_000 {
                let hash = rng.random::<u64>() & mask;
                match model.get_mut(&hash).filter(|_| rng.random_range(0..3) > 0) {
                    Some(there) => {
                        let at = rng.random_range(0..there.len());
                        let new = rng.random::<bool>().then_some(pointer);
                        index.change_all(&[Change { hash, old: Some(there[at]), new }]);
                        there.swap_remove(at);
                        there.extend(new);
                        if there.is_empty() {
                            model.remove(&hash);
                        }
                    }
                    None => {
                        index.change_all(&[Change { hash, old: None, new: Some(pointer) }]);
                        model.entry(hash).or_default().push(pointer);
                    }
                }
                assert!(!index.change(Change { hash, old: Some(1 << 35), new: None }));
            }
            for (hash, pointers) in &model {
                let found = candidates(&index, *hash);
                assert!(
                    pointers.iter().all(|pointer| found.contains(pointer) && index.points(*hash, *pointer))
                );
            }
            let mut expected: Vec<Pointer> = model.values().flatten().copied().collect();
            expected.sort_unstable();
            assert_eq!(all(&index), expected);
            assert_eq!(index.len(), expected.len() as u64);
        });
    }

    #[test]
    fn a_key_takes_eight_bytes() {
        let mut rng = SmallRng::seed_from_u64(1);
        let (grown, filled) = (Index::new(0), Index::new(1_000_000));
        let mut hashes: Vec<u64> = (0..1_000_000).map(|_| rng.random_range(0..1 << HASH_BITS)).collect();
        for (pointer, hash) in hashes.iter().enumerate() {
            grown.change(Change { hash: *hash, old: None, new: Some(pointer as u64) });
        }
        hashes.sort_unstable();
        hashes.iter().enumerate().for_each(|(pointer, hash)| filled.push(*hash, pointer as u64));
        for index in [&grown, &filled] {
            let each = index.memory_bytes() as f64 / 1e6;
            assert!(each < 8.0, "{each} bytes a key");
        }
        // One key in two thousand at most has a look into a record in vain.
        let wrong =
            (0..100_000).filter(|_| !candidates(&grown, rng.random_range(0..1 << HASH_BITS)).is_empty());
        assert!(wrong.count() < 100);
    }
}
