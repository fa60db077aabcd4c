//! Which chunks of real files are equal, without their bytes: the contents of experiments on deduplication.
//!
//! [`Contents`] has a number for each chunk of 2 KiB of each file, in reading order; equal chunks have equal numbers.
//! Those of chunks of 4 to 32 KiB are derived, with the same meaning as in [`crate::dedup_scan`]. Contents are surveyed
//! from directory trees ([`tree`]), read from the stored form of a survey ([`packed`]), or generated ([`synthetic`]).

pub mod packed;
pub mod synthetic;
pub mod tree;

use crate::dedup_scan::{CHUNK_BYTES, ChunkFigures, Counted, SIZES};
use std::collections::BTreeMap;
use vellum_base::hash::FixedMap;

/// The number of a chunk of zeros. Others are numbered from 1 in order of first appearance.
pub const ZERO: u32 = 0;

/// See the module.
///
/// Invariant: the counts in `files` add up to the length of `chunks`; numbers are assigned in order, without gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Description of what was surveyed.
    pub about: String,
    /// Number of chunks of 2 KiB of each file; the last chunk is padded with zeros.
    pub files: Vec<u32>,
    /// Number of each chunk's content.
    pub chunks: Vec<u32>,
}

impl Contents {
    /// Size in bytes, with padded tails.
    pub fn bytes(&self) -> u64 {
        self.chunks.len() as u64 * CHUNK_BYTES[0]
    }

    /// Numbers of the chunks of `CHUNK_BYTES[size]`. Each file begins a chunk, and its last one is padded with zeros.
    /// Numbers are assigned as in [`Contents::chunks`].
    ///
    /// # Panics
    /// If there is no such size.
    pub fn numbers(&self, size: usize) -> Vec<u32> {
        assert!(size < SIZES);
        let mut numbers = self.chunks.clone();
        let mut files = self.files.clone();
        for _ in 0..size {
            numbers = joined(&numbers, &mut files);
        }
        numbers
    }

    /// Result of a scan of these files: redundancy and skew at every chunk size.
    pub fn figures(&self) -> Vec<ChunkFigures> {
        let of = |size: usize| figures(CHUNK_BYTES[size], &self.numbers(size));
        (0..SIZES).map(of).collect()
    }
}

/// Result of a scan of chunks with these numbers.
pub fn figures(chunk_bytes: u64, numbers: &[u32]) -> ChunkFigures {
    let mut copies = vec![0u32; numbers.iter().max().map_or(0, |most| *most as usize + 1)];
    numbers.iter().for_each(|number| copies[*number as usize] += 1);
    let zero_chunks = copies.first().copied().unwrap_or(0).into();
    let mut by_copies = BTreeMap::new();
    for seen in copies.iter().skip(1).filter(|seen| **seen > 0) {
        *by_copies.entry(*seen).or_default() += 1;
    }
    let chunks = numbers.len() as u64;
    ChunkFigures::of(&Counted { chunk_bytes, chunks, zero_chunks, level: 0, by_copies })
}

/// Numbers for pairs of neighbouring chunks of a file. Sets `files` to the number of pairs in each file.
fn joined(numbers: &[u32], files: &mut [u32]) -> Vec<u32> {
    let mut seen: FixedMap<(u32, u32), u32> = FixedMap::default();
    let mut pairs = Vec::with_capacity(numbers.len() / 2 + files.len());
    let mut left = numbers;
    for file in files {
        let (mine, rest) = left.split_at(*file as usize);
        left = rest;
        *file = file.div_ceil(2);
        pairs.extend(mine.chunks(2).map(|pair| {
            let pair = (pair[0], pair.get(1).copied().unwrap_or(ZERO));
            if pair == (ZERO, ZERO) {
                return ZERO;
            }
            let next = seen.len() as u32 + 1;
            *seen.entry(pair).or_insert(next)
        }));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_chunks_are_pairs_within_a_file() {
        let contents =
            Contents { about: String::new(), files: vec![3, 2, 1, 2], chunks: vec![1, 2, 3, 1, 2, 3, 0, 0] };
        assert_eq!(contents.numbers(1), [1, 2, 1, 2, 0], "a tail is the same as one filled with zeros");
        assert_eq!(contents.numbers(2), [1, 2, 3, 0]);
        let all = contents.figures();
        assert_eq!((all[0].chunks, all[0].zero_chunks, all[0].duplicate_chunks), (8, 2, 3));
        assert_eq!((all[1].chunks, all[1].zero_chunks, all[1].duplicate_chunks), (5, 1, 2));
        assert_eq!((all[4].chunk_bytes, all[4].chunks, all[4].duplicate_chunks), (32 << 10, 4, 0));
        assert_eq!(Contents::default().figures()[0].chunks, 0);
    }
}
