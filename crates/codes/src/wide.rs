//! Loops over the whole of a pattern sector, compiled a second time for processors with wide vectors.
//!
//! A simulation fills or compares a sector for every write, and with the vectors that every x86-64 processor has this
//! is a good part of its time.
//!
//! `unsafe` because the wide form may only be called where the processor knows it, which we ask first.
#![allow(unsafe_code)]

use crate::lines::LINE_BYTES;
use crate::pattern::{POSITIONS, WORDS_PER_LINE, word};

/// Words compared before it is asked whether any differed.
const STRETCH_WORDS: usize = 126;

/// True if line 0 of the sector is the one that `head` fills and every other the one that `full` fills.
pub(crate) fn has_all_lines(sector: &[u8], head: u64, full: u64) -> bool {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { has_all_lines_avx2(sector, head, full) };
    }
    compare(sector, head, full)
}

/// Fills line 0 from `head` and every other from `full`.
pub(crate) fn fill_all_lines(out: &mut [u8], head: u64, full: u64) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { fill_all_lines_avx2(out, head, full) };
    }
    fill(out, head, full);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn has_all_lines_avx2(sector: &[u8], head: u64, full: u64) -> bool {
    compare(sector, head, full)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn fill_all_lines_avx2(out: &mut [u8], head: u64, full: u64) {
    fill(out, head, full);
}

#[inline(always)]
fn compare(sector: &[u8], head: u64, full: u64) -> bool {
    let positions = POSITIONS.as_flattened();
    let stretch = |words: std::ops::Range<usize>, source: u64| {
        let bytes = sector[8 * words.start..8 * words.end].chunks_exact(8);
        bytes
            .zip(&positions[words])
            .fold(0, |wrong, (bytes, position)| wrong | word(bytes, 0) ^ position ^ source)
    };
    let starts = (WORDS_PER_LINE..positions.len()).step_by(STRETCH_WORDS);
    stretch(0..WORDS_PER_LINE, head) == 0
        && starts.into_iter().all(|at| stretch(at..positions.len().min(at + STRETCH_WORDS), full) == 0)
}

#[inline(always)]
fn fill(out: &mut [u8], head: u64, full: u64) {
    let (first, others) = out.split_at_mut(LINE_BYTES);
    let (first_positions, positions) = POSITIONS.as_flattened().split_at(WORDS_PER_LINE);
    fill_words(first, head, first_positions);
    fill_words(others, full, positions);
}

#[inline(always)]
fn fill_words(out: &mut [u8], source: u64, positions: &[u64]) {
    for (to, position) in out.chunks_exact_mut(8).zip(positions) {
        to.copy_from_slice(&(source ^ position).to_le_bytes());
    }
}
