//! Loops over a whole pattern sector, compiled a second time for processors with wide vectors.
//!
//! A simulation fills or compares a sector for every write. With the baseline x86-64 vectors (SSE2) this takes a
//! considerable part of its time.
//!
//! `unsafe` because the wide forms may be called only if the processor supports them, which is checked first.
#![allow(unsafe_code)]

use crate::lines::LINE_BYTES;
use crate::pattern::{POSITIONS, STEPS, WORDS_PER_LINE, word};

/// Words compared between two checks for a difference.
const STRETCH_WORDS: usize = 126;

/// True if line 0 of the sector is as filled from `head`, and all other lines as filled from `full`.
pub(crate) fn has_all_lines(sector: &[u8], head: u64, full: u64) -> bool {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has AVX-512.
        return unsafe { has_all_lines_avx512(sector, head, full) };
    } else if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { has_all_lines_avx2(sector, head, full) };
    }
    compare(sector, head, full)
}

/// Fills line 0 from `head`, and all other lines from `full`.
pub(crate) fn fill_all_lines(out: &mut [u8], head: u64, full: u64) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { fill_all_lines_avx2(out, head, full) };
    }
    fill(out, head, full);
}

/// Each line is one vector, and its position constants are those of the previous line plus `STEPS`: reading them from
/// the table would occupy a tenth of the L1 cache.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn has_all_lines_avx512(sector: &[u8], head: u64, full: u64) -> bool {
    use std::arch::x86_64::*;
    let (lines, _) = sector.as_chunks::<LINE_BYTES>();
    // SAFETY: both are of 64 bytes.
    let [mut position, step] =
        [POSITIONS[0], STEPS].map(|words| unsafe { _mm512_loadu_si512(words.as_ptr().cast()) });
    let mut source = _mm512_set1_epi64(head as i64);
    let mut wrong = _mm512_setzero_si512();
    for line in lines {
        // SAFETY: the line is of 64 bytes.
        let bytes = unsafe { _mm512_loadu_si512(line.as_ptr().cast()) };
        let differs = _mm512_xor_si512(_mm512_xor_si512(bytes, source), position);
        wrong = _mm512_or_si512(wrong, differs);
        position = _mm512_add_epi64(position, step);
        source = _mm512_set1_epi64(full as i64);
    }
    _mm512_test_epi64_mask(wrong, wrong) == 0
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Pattern;

    #[test]
    fn the_wide_and_the_portable_form_agree() {
        let pattern = Pattern::unique(7);
        let (mut wide, mut portable) = ([0; 4096], [0; 4096]);
        fill_all_lines(&mut wide, pattern.head, pattern.full);
        fill(&mut portable, pattern.head, pattern.full);
        assert!(wide == portable);
        assert!(compare(&wide, pattern.head, pattern.full));
        for at in 0..wide.len() {
            wide[at] ^= 0x10;
            for form in [has_all_lines, compare] {
                assert!(!form(&wide, pattern.head, pattern.full), "byte {at}");
            }
            wide[at] ^= 0x10;
        }
        assert!(has_all_lines(&wide, pattern.head, pattern.full));
    }
}
