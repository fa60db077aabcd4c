//! Computes keystreams from states. Compiled once for every x86-64 processor, and again for those with wide vectors.
//!
//! `unsafe` because the wide forms may be called only if the processor supports them, which is checked first.
#![allow(unsafe_code)]

use super::{BitOrder, DEGREE_MAX, Scrambler};
use crate::ecc::Simd;

/// Words of keystream computed at a time: one sector.
const CHUNK_WORDS: usize = 512;

/// XORs the keystream that begins with `state` into `data`.
pub(super) fn xor(scrambler: &Scrambler, state: u64, data: &mut [u8]) {
    match Simd::best() {
        // SAFETY: the processor has AVX-512.
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512 => unsafe { with_avx512(scrambler, state, data) },
        // SAFETY: the processor has AVX2.
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 => unsafe { with_avx2(scrambler, state, data) },
        _ => keystream(scrambler, state, data),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl")]
fn with_avx512(scrambler: &Scrambler, state: u64, data: &mut [u8]) {
    keystream(scrambler, state, data);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2(scrambler: &Scrambler, state: u64, data: &mut [u8]) {
    keystream(scrambler, state, data);
}

#[inline(always)]
fn keystream(scrambler: &Scrambler, state: u64, data: &mut [u8]) {
    let degree = scrambler.lfsr.degree as usize;
    let mut words = [0; CHUNK_WORDS + DEGREE_MAX];
    begin(&scrambler.starts, state, &mut words[..degree]);
    for chunk in data.chunks_mut(8 * CHUNK_WORDS) {
        // The words after a whole chunk begin the next one. Of the last word only a part may be needed.
        let used = chunk.len().div_ceil(8);
        extend(&scrambler.distances, degree, &mut words[..used + degree]);
        match scrambler.order {
            BitOrder::LsbFirst => xor_words(chunk, &words, |word| word),
            BitOrder::MsbFirst => xor_words(chunk, &words, |word| word.reverse_bits().swap_bytes()),
        }
        words.copy_within(CHUNK_WORDS..CHUNK_WORDS + degree, 0);
    }
}

/// Computes the first `degree` words of the keystream: the sum of the starts of all bits set in the state.
#[inline(always)]
fn begin(starts: &[u64], mut state: u64, words: &mut [u64]) {
    while state != 0 {
        let bit = state.trailing_zeros() as usize;
        let start = &starts[bit * words.len()..][..words.len()];
        words.iter_mut().zip(start).for_each(|(to, from)| *to ^= from);
        state &= state - 1;
    }
}

/// Computes the words after the first `degree`.
#[inline(always)]
fn extend(distances: &[usize], degree: usize, words: &mut [u64]) {
    let (mut have, mut apart) = (degree, 1);
    while have < words.len() {
        while 2 * apart * degree <= have {
            apart *= 2;
        }
        let (past, new) = words.split_at_mut(have);
        let count = new.len().min(distances[0] * apart);
        let new = &mut new[..count];
        let from = |distance: usize| &past[have - distance * apart..][..count];
        match *distances {
            // Nearly every register in use has four terms.
            [a, b, c, d] => {
                let (a, b, c, d) = (from(a), from(b), from(c), from(d));
                for (i, to) in new.iter_mut().enumerate() {
                    *to = a[i] ^ b[i] ^ c[i] ^ d[i];
                }
            }
            _ => {
                new.copy_from_slice(from(distances[0]));
                for distance in &distances[1..] {
                    new.iter_mut().zip(from(*distance)).for_each(|(to, from)| *to ^= from);
                }
            }
        }
        have += count;
    }
}

#[inline(always)]
fn xor_words(data: &mut [u8], words: &[u64], order: impl Fn(u64) -> u64) {
    let (whole, rest) = data.as_chunks_mut::<8>();
    for (to, word) in whole.iter_mut().zip(words) {
        *to = (u64::from_le_bytes(*to) ^ order(*word)).to_le_bytes();
    }
    let last = order(words[whole.len()]).to_le_bytes();
    rest.iter_mut().zip(last).for_each(|(to, from)| *to ^= from);
}

#[cfg(test)]
mod tests {
    use super::super::{Lfsr, SeedMap};
    use super::*;

    /// `tests/scrambler` compares the best form of this processor with a register that shifts bit by bit.
    #[test]
    fn every_form_gives_the_same_keystream() {
        for (lfsr, order) in [(Lfsr::X32, BitOrder::LsbFirst), (Lfsr::X64, BitOrder::MsbFirst)] {
            let scrambler = Scrambler::new(lfsr, order, SeedMap::mixed(1, 64));
            for length in [0, 1, 63, 64, 4096, 5000, 9001] {
                let state = 0x1234_5678 + length as u64;
                let stream = |form: &dyn Fn(&mut [u8])| {
                    let mut data = vec![0; length];
                    form(&mut data);
                    data
                };
                let best = stream(&|data| xor(&scrambler, state, data));
                assert!(best == stream(&|data| keystream(&scrambler, state, data)));
                #[cfg(target_arch = "x86_64")]
                if Simd::Avx2.is_available() {
                    // SAFETY: the processor has AVX2.
                    assert!(best == stream(&|data| unsafe { with_avx2(&scrambler, state, data) }));
                }
            }
        }
    }
}
