//! Number of occurrences of each fingerprint at each chunk size, counted by all threads, within a memory limit.
//!
//! If a chunk size has more fingerprints than fit, only those whose lowest `level` bits are zero are kept: one in
//! 2^level, each with its exact count. As the lowest bits are practically random, this is a fair sample of contents.
//!
//! Invariant: the final level is the least at which no shard exceeds its limit, whatever the order of fingerprints. (A
//! level rises only if a shard exceeds its limit with a part of its final contents; whatever a higher level keeps was
//! kept, and counted, at all lower ones.)

use super::counts::{Counts, ENTRY_BYTES};
use super::{CHUNK_BYTES, SIZES, Tails};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use vellum_base::sync::Mutex;

/// Tables of a chunk size, each with its own lock. The shard is chosen by the bits from `SHARD_SHIFT`: the lowest bits
/// select the sample, and the highest the slot in the table.
const SHARDS: usize = 16;
const SHARD_SHIFT: u32 = 40;
const LEVEL_MAX: u32 = 36;
/// Fingerprints that a thread batches for a shard, to avoid locking for each.
const BATCH: usize = 256;

/// Counts of a chunk size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Size of the chunks.
    pub chunk_bytes: u64,
    /// Number of all chunks.
    pub chunks: u64,
    /// Of these, all zeros.
    pub zero_chunks: u64,
    /// One fingerprint in 2^level was counted.
    pub level: u32,
    /// Number of fingerprints by number of occurrences.
    pub by_copies: BTreeMap<u32, u64>,
}

/// See the module.
pub struct Census {
    sizes: [SizeCensus; SIZES],
}

struct SizeCensus {
    limit: usize,
    level: AtomicU32,
    shards: [Mutex<Shard>; SHARDS],
    totals: Mutex<Totals>,
}

#[derive(Default)]
struct Shard {
    level: u32,
    counts: Counts,
}

#[derive(Clone, Copy, Default)]
struct Totals {
    chunks: u64,
    zero_chunks: u64,
}

/// Collects the counts of one thread. Must be ended with [`Tally::finish`].
pub struct Tally<'a> {
    census: &'a Census,
    tails: Tails,
    batches: Vec<Vec<u64>>,
    totals: [Totals; SIZES],
}

impl Census {
    /// Creates tables that take at most `memory_bytes` when full. Each chunk size gets twice as much as the next larger
    /// one, since it has twice as many chunks.
    pub fn new(memory_bytes: u64) -> Census {
        let parts = (1u64 << SIZES) - 1;
        let limit = |size: usize| {
            let bytes = memory_bytes * (1 << (SIZES - 1 - size)) / parts;
            (bytes / ENTRY_BYTES) as usize / SHARDS
        };
        Census { sizes: std::array::from_fn(|size| SizeCensus::new(limit(size))) }
    }

    /// A tally for one thread.
    pub fn tally(&self, tails: Tails) -> Tally<'_> {
        let batches = (0..SIZES * SHARDS).map(|_| Vec::with_capacity(BATCH)).collect();
        Tally { census: self, tails, batches, totals: [Totals::default(); SIZES] }
    }

    /// The counts by chunk size, once all tallies are finished.
    pub fn counted(&self) -> [Counted; SIZES] {
        std::array::from_fn(|size| self.sizes[size].counted(CHUNK_BYTES[size]))
    }
}

impl Tally<'_> {
    /// Adds a chunk of the size with this index; `None` if it is all zeros.
    pub fn add(&mut self, size: usize, fingerprint: Option<u64>) {
        self.totals[size].chunks += 1;
        let Some(fingerprint) = fingerprint else {
            self.totals[size].zero_chunks += 1;
            return;
        };
        if !sampled(fingerprint, self.census.sizes[size].level.load(Ordering::Relaxed)) {
            return;
        }
        let shard = (fingerprint >> SHARD_SHIFT) as usize % SHARDS;
        let batch = &mut self.batches[size * SHARDS + shard];
        batch.push(fingerprint);
        if batch.len() == BATCH {
            self.census.sizes[size].add(shard, batch);
        }
    }

    /// Adds zeros that begin at a chunk boundary of every size.
    pub fn add_zeros(&mut self, bytes: u64) {
        for (totals, chunk_bytes) in self.totals.iter_mut().zip(CHUNK_BYTES) {
            let chunks = self.tails.chunks(bytes, chunk_bytes);
            totals.chunks += chunks;
            totals.zero_chunks += chunks;
        }
    }

    /// Adds the batched fingerprints and the totals to the census.
    pub fn finish(mut self) {
        for (i, batch) in self.batches.iter_mut().enumerate() {
            self.census.sizes[i / SHARDS].add(i % SHARDS, batch);
        }
        for (size, mine) in self.census.sizes.iter().zip(self.totals) {
            let mut totals = size.totals.lock();
            totals.chunks += mine.chunks;
            totals.zero_chunks += mine.zero_chunks;
        }
    }
}

impl SizeCensus {
    fn new(limit: usize) -> SizeCensus {
        SizeCensus {
            limit,
            level: AtomicU32::new(0),
            shards: std::array::from_fn(|_| Mutex::default()),
            totals: Mutex::default(),
        }
    }

    fn add(&self, shard: usize, batch: &mut Vec<u64>) {
        let mut shard = self.shards[shard].lock();
        shard.rise(self.level.load(Ordering::Relaxed));
        for fingerprint in batch.drain(..) {
            if !sampled(fingerprint, shard.level) {
                continue;
            }
            shard.counts.add(fingerprint, self.limit);
            while shard.counts.len() > self.limit && shard.level < LEVEL_MAX {
                let higher = shard.level + 1;
                self.level.fetch_max(higher, Ordering::Relaxed);
                shard.rise(higher);
            }
        }
    }

    fn counted(&self, chunk_bytes: u64) -> Counted {
        let level = self.level.load(Ordering::Relaxed);
        let totals = *self.totals.lock();
        let mut by_copies = BTreeMap::new();
        for shard in &self.shards {
            let shard = shard.lock();
            for (_, seen) in shard.counts.iter().filter(|(fingerprint, _)| sampled(*fingerprint, level)) {
                *by_copies.entry(seen).or_default() += 1;
            }
        }
        Counted { chunk_bytes, chunks: totals.chunks, zero_chunks: totals.zero_chunks, level, by_copies }
    }
}

impl Shard {
    fn rise(&mut self, level: u32) {
        if level > self.level {
            self.level = level;
            self.counts.retain(|fingerprint| sampled(fingerprint, level));
        }
    }
}

fn sampled(fingerprint: u64, level: u32) -> bool {
    fingerprint.trailing_zeros() >= level
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_base::sync::Mutex;
    use xxhash_rust::xxh3::xxh3_64;

    const CONTENTS: u64 = 60_000;

    /// Content `i` occurs `i % 5 + 1` times.
    fn fingerprints() -> Vec<u64> {
        (0..CONTENTS)
            .flat_map(|i| std::iter::repeat_n(xxh3_64(&i.to_le_bytes()), i as usize % 5 + 1))
            .collect()
    }

    fn count(all: &[u64], threads: usize, memory_bytes: u64) -> Counted {
        let census = Census::new(memory_bytes);
        let parts = Mutex::new(all.chunks(997));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut tally = census.tally(Tails::Padded);
                    loop {
                        let Some(part) = parts.lock().next() else { break };
                        part.iter().for_each(|f| tally.add(0, Some(*f)));
                    }
                    tally.finish();
                });
            }
        });
        census.counted()[0].clone()
    }

    #[test]
    fn everything_is_counted_where_it_fits() {
        let counted = count(&fingerprints(), 3, 64 << 20);
        assert_eq!((counted.level, counted.chunks), (0, CONTENTS / 5 * 15));
        assert_eq!(counted.by_copies, (1..=5).map(|copies| (copies, CONTENTS / 5)).collect());
    }

    #[test]
    fn a_sample_is_the_same_in_any_order_and_fair() {
        let all = fingerprints();
        let backwards: Vec<u64> = all.iter().rev().copied().collect();
        let first = count(&all, 1, 1 << 20);
        assert!((1..=2).contains(&first.level), "{}", first.level);
        assert_eq!(first, count(&backwards, 1, 1 << 20));
        for _ in 0..5 {
            assert_eq!(first, count(&all, 4, 1 << 20));
        }
        let kept = all.iter().filter(|f| f.trailing_zeros() >= first.level).count() as u64;
        assert_eq!(first.by_copies.iter().map(|(copies, n)| u64::from(*copies) * n).sum::<u64>(), kept);
    }
}
