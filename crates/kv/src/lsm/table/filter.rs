//! Blocked Bloom filter: every key sets its bits within one line of the processor's cache.

use super::object::{self, Head, OBJECT_HEAD_BYTES, ObjectKind};
use crate::lsm::striped::Striped;
use vellum_base::{Error, Result};

const BLOCK_BYTES: usize = 64;

/// The hash that filters use.
#[inline]
pub(crate) fn hash(key: &[u8]) -> u64 {
    vellum_codes::fingerprint::seeded64(0, key)
}

/// Appends a filter object over `hashes`; returns its units, of so many bytes.
pub(crate) fn build(out: &mut Vec<u8>, hashes: &[u64], bits_per_key: u32, unit_bytes: usize) -> usize {
    let bits = hashes.len() * bits_per_key as usize;
    let blocks = bits.div_ceil(8 * BLOCK_BYTES).max(1);
    // ln 2 times the bits per key, a little less because keys crowd in blocks.
    let probes = (bits_per_key * 2 / 3).clamp(1, 12) as u16;
    let start = object::begin(out);
    let base = out.len();
    out.resize(base + blocks * BLOCK_BYTES, 0);
    for hash in hashes {
        let block = base + block_of(*hash, blocks) * BLOCK_BYTES;
        for bit in bits_of(*hash, probes) {
            out[block + bit / 8] |= 1 << (bit % 8);
        }
    }
    object::end(out, start, ObjectKind::Filter, probes, unit_bytes)
}

/// A filter that checked out.
pub(crate) struct Filter {
    probes: u16,
    blocks: usize,
}

impl Filter {
    /// Checks the object at the start of `bytes`.
    pub(crate) fn check(bytes: &[u8]) -> Result<Filter> {
        let head = Head::parse(bytes)?;
        head.check(bytes, ObjectKind::Filter)?;
        let blocks = head.plain / BLOCK_BYTES;
        if blocks == 0 || !head.plain.is_multiple_of(BLOCK_BYTES) || !(1..=32).contains(&head.restarts) {
            return Err(Error::corrupt("filter: impossible shape"));
        }
        Ok(Filter { probes: head.restarts, blocks })
    }

    /// False if no key with this hash was put in. `bytes` is what was checked.
    #[inline]
    pub(crate) fn may_hold(&self, bytes: &[u8], hash: u64) -> bool {
        let block = OBJECT_HEAD_BYTES + block_of(hash, self.blocks) * BLOCK_BYTES;
        let block = &bytes[block..block + BLOCK_BYTES];
        bits_of(hash, self.probes).all(|bit| block[bit / 8] & (1 << (bit % 8)) != 0)
    }
}

/// How filters did.
#[derive(Default)]
pub(crate) struct FilterCounts {
    stopped: Striped,
    wrong: Striped,
}

impl FilterCounts {
    /// A filter saved a look into its leaves.
    #[inline]
    pub(crate) fn stopped(&self) {
        self.stopped.add(1);
    }
    /// A filter let a key pass that was not there.
    pub(crate) fn wrong(&self) {
        self.wrong.add(1);
    }
    /// Looks saved, and keys that passed and were not there.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.stopped.total(), self.wrong.total())
    }
}

#[inline]
fn block_of(hash: u64, blocks: usize) -> usize {
    (((hash >> 32) * blocks as u64) >> 32) as usize
}

#[inline]
fn bits_of(hash: u64, probes: u16) -> impl Iterator<Item = usize> {
    let (start, step) = (hash as u16 as u32, (hash >> 16) as u16 as u32 | 1);
    (0..probes as u32).map(move |i| (start.wrapping_add(i * step) % 512) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_false_negative_and_few_false_positives() {
        for (bits, most) in [(8, 0.04), (12, 0.01), (16, 0.004)] {
            let hashes: Vec<u64> = (0..5000u64).map(|i| hash(&i.to_be_bytes())).collect();
            let mut out = Vec::new();
            build(&mut out, &hashes, bits, 4096);
            let filter = Filter::check(&out).unwrap();
            assert!(hashes.iter().all(|h| filter.may_hold(&out, *h)));
            let wrong = (5000..105_000u64).filter(|i| filter.may_hold(&out, hash(&i.to_be_bytes()))).count();
            assert!((wrong as f64) < most * 100_000.0, "{bits} bits a key: {wrong} of 100000 wrong");
        }
    }
}
