//! Computes the parity of codewords. Compiled once for every x86-64 processor, and again for those with wide vectors.
//!
//! All forms run the same few lines (rotate the lanes of a word, XOR), with vectors of different width. Shifts that
//! move lanes by the same distance are added up first and moved together, so the inner loop has one load, one rotation
//! and one XOR per lane.
//!
//! `unsafe` because the wide forms may be called only if the processor supports them, which [`Simd::is_available`]
//! checks.
#![allow(unsafe_code)]

use super::{COLUMN_WEIGHT, Code, LANES_MAX, Shifts, WORDS_MAX};

/// The instructions that compute the parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simd {
    /// Instructions that every processor has.
    Portable,
    /// AVX2, 256 bits wide.
    Avx2,
    /// AVX-512, which can also rotate lanes.
    Avx512,
}

impl Simd {
    /// All variants, the best last.
    pub const ALL: [Simd; 3] = [Simd::Portable, Simd::Avx2, Simd::Avx512];

    /// The best variant that this processor supports.
    #[inline]
    pub fn best() -> Simd {
        if Simd::Avx512.is_available() {
            Simd::Avx512
        } else if Simd::Avx2.is_available() {
            Simd::Avx2
        } else {
            Simd::Portable
        }
    }

    /// True if this processor supports these instructions.
    #[inline]
    pub fn is_available(self) -> bool {
        match self {
            Simd::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512 => is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl"),
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }
}

/// The shifts of a code in the order in which they are processed: by the distance that they move lanes.
pub(super) struct Plan {
    terms: [Term; WORDS_MAX * COLUMN_WEIGHT],
    /// The terms that move lanes by `s` are `starts[s]..starts[s + 1]`.
    starts: [u16; LANES_MAX + 1],
}

#[derive(Clone, Copy)]
struct Term {
    word: u8,
    rotation: u8,
}

impl Plan {
    /// Evaluated at compile time.
    pub(super) const fn new(shifts: &[Shifts]) -> Plan {
        let mut plan = Plan {
            terms: [Term { word: 0, rotation: 0 }; WORDS_MAX * COLUMN_WEIGHT],
            starts: [0; LANES_MAX + 1],
        };
        let (mut distance, mut count) = (0, 0);
        while distance < LANES_MAX {
            let mut i = 0;
            while i < shifts.len() * COLUMN_WEIGHT {
                let shift = shifts[i / COLUMN_WEIGHT][i % COLUMN_WEIGHT];
                if shift as usize / 64 == distance {
                    let word = (i / COLUMN_WEIGHT) as u8;
                    plan.terms[count] = Term { word, rotation: (shift % 64) as u8 };
                    count += 1;
                }
                i += 1;
            }
            distance += 1;
            plan.starts[distance] = count as u16;
        }
        plan
    }
}

/// Computes the parity of whole codewords; the caller has checked the lengths.
pub(super) fn encode(simd: Simd, code: &Code, data: &[u8], parity: &mut [u8]) {
    assert!(simd.is_available(), "this processor does not have {simd:?}");
    match simd {
        Simd::Portable => portable(code, data, parity),
        // SAFETY: the processor supports these instructions, as asserted above.
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 => unsafe { wide::avx2(code, data, parity) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512 => unsafe { wide::avx512(code, data, parity) },
        #[cfg(not(target_arch = "x86_64"))]
        _ => unreachable!("asserted above"),
    }
}

fn portable(code: &Code, data: &[u8], parity: &mut [u8]) {
    match code.lanes {
        4 => codewords::<u64, 1, 4, 1>(code, data, parity),
        8 => codewords::<u64, 1, 8, 1>(code, data, parity),
        16 => codewords::<u64, 1, 16, 1>(code, data, parity),
        32 => codewords::<u64, 1, 32, 1>(code, data, parity),
        64 => codewords::<u64, 1, 64, 1>(code, data, parity),
        lanes => unreachable!("no code has {lanes} lanes"),
    }
}

/// A register of `LANES` lanes. The methods are inlined into functions that are compiled for processors with that
/// register.
trait Vector<const LANES: usize>: Copy {
    fn zero() -> Self;
    fn load(lanes: &[[u8; 8]; LANES]) -> Self;
    fn store(self, lanes: &mut [[u8; 8]; LANES]);
    fn xor(self, other: Self) -> Self;
    fn rotate_left(self, bits: u8) -> Self;
}

impl Vector<1> for u64 {
    #[inline(always)]
    fn zero() -> u64 {
        0
    }

    #[inline(always)]
    fn load(lanes: &[[u8; 8]; 1]) -> u64 {
        u64::from_le_bytes(lanes[0])
    }

    #[inline(always)]
    fn store(self, lanes: &mut [[u8; 8]; 1]) {
        lanes[0] = self.to_le_bytes();
    }

    #[inline(always)]
    fn xor(self, other: u64) -> u64 {
        self ^ other
    }

    #[inline(always)]
    fn rotate_left(self, bits: u8) -> u64 {
        u64::rotate_left(self, u32::from(bits))
    }
}

/// A word: `N` registers of `LANES` lanes.
type Word<const LANES: usize, const N: usize> = [[[u8; 8]; LANES]; N];

/// Processes all codewords, `SIDE` of them interleaved (and the rest one by one): the rotations of one fill the time in
/// which those of another wait.
#[inline(always)]
fn codewords<V: Vector<LANES>, const LANES: usize, const N: usize, const SIDE: usize>(
    code: &Code,
    data: &[u8],
    parity: &mut [u8],
) {
    let words = data.as_chunks::<8>().0.as_chunks::<LANES>().0.as_chunks::<N>().0;
    let parities = parity.as_chunks_mut::<8>().0.as_chunks_mut::<LANES>().0.as_chunks_mut::<N>().0;
    let k = code.shifts.len();
    let (groups, rest) = parities.as_chunks_mut::<SIDE>();
    let (words_of_groups, words_of_rest) = words.split_at(groups.len() * SIDE * k);
    for (words, parities) in words_of_groups.chunks_exact(SIDE * k).zip(groups) {
        side_by_side::<V, LANES, N, SIDE>(&code.plan, words, parities);
    }
    for (words, parity) in words_of_rest.chunks_exact(k).zip(rest) {
        side_by_side::<V, LANES, N, 1>(&code.plan, words, std::array::from_mut(parity));
    }
}

#[inline(always)]
fn side_by_side<V: Vector<LANES>, const LANES: usize, const N: usize, const SIDE: usize>(
    plan: &Plan,
    words: &[Word<LANES, N>],
    parities: &mut [Word<LANES, N>; SIDE],
) {
    let k = words.len() / SIDE;
    // Twice as long as a word, so that lanes moved beyond its end stay contiguous; both halves are added at the end.
    let mut long = [[[[[0; 8]; LANES]; N]; 2]; SIDE];
    for distance in 0..LANES * N {
        let terms = usize::from(plan.starts[distance])..usize::from(plan.starts[distance + 1]);
        if terms.is_empty() {
            continue;
        }
        let mut sums = [[V::zero(); N]; SIDE];
        for term in &plan.terms[terms] {
            for (i, sums) in sums.iter_mut().enumerate() {
                let word = &words[i * k + usize::from(term.word)];
                for (sum, lanes) in sums.iter_mut().zip(word) {
                    *sum = sum.xor(V::load(lanes).rotate_left(term.rotation));
                }
            }
        }
        for (long, sums) in long.iter_mut().zip(sums) {
            let moved = &mut long.as_flattened_mut().as_flattened_mut()[distance..distance + LANES * N];
            for (to, sum) in moved.as_chunks_mut().0.iter_mut().zip(sums) {
                V::load(to).xor(sum).store(to);
            }
        }
    }
    for (to, [low, high]) in parities.iter_mut().zip(long) {
        let lanes = low.as_flattened().iter().zip(high.as_flattened());
        to.as_flattened_mut()
            .iter_mut()
            .zip(lanes)
            .for_each(|(to, (low, high))| *to = std::array::from_fn(|i| low[i] ^ high[i]));
    }
}

#[cfg(target_arch = "x86_64")]
mod wide {
    //! The vector registers of x86-64.

    use super::{Code, Vector, codewords};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx2")]
    pub(super) fn avx2(code: &Code, data: &[u8], parity: &mut [u8]) {
        match code.lanes {
            4 => codewords::<Ymm, 4, 1, 4>(code, data, parity),
            8 => codewords::<Ymm, 4, 2, 2>(code, data, parity),
            16 => codewords::<Ymm, 4, 4, 1>(code, data, parity),
            32 => codewords::<Ymm, 4, 8, 1>(code, data, parity),
            64 => codewords::<Ymm, 4, 16, 1>(code, data, parity),
            lanes => unreachable!("no code has {lanes} lanes"),
        }
    }

    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) fn avx512(code: &Code, data: &[u8], parity: &mut [u8]) {
        match code.lanes {
            4 => codewords::<YmmRotating, 4, 1, 4>(code, data, parity),
            8 => codewords::<Zmm, 8, 1, 2>(code, data, parity),
            16 => codewords::<Zmm, 8, 2, 2>(code, data, parity),
            32 => codewords::<Zmm, 8, 4, 1>(code, data, parity),
            64 => codewords::<Zmm, 8, 8, 1>(code, data, parity),
            lanes => unreachable!("no code has {lanes} lanes"),
        }
    }

    /// 256 bits, of AVX2.
    #[derive(Clone, Copy)]
    struct Ymm(__m256i);

    /// 256 bits, of AVX-512.
    #[derive(Clone, Copy)]
    struct YmmRotating(__m256i);

    /// 512 bits, of AVX-512.
    #[derive(Clone, Copy)]
    struct Zmm(__m512i);

    macro_rules! vector {
        ($name:ident, $lanes:literal, $zero:ident, $load:ident, $store:ident, $xor:ident, $rotate:expr) => {
            impl Vector<$lanes> for $name {
                #[inline(always)]
                fn zero() -> $name {
                    // SAFETY: only the functions above use this type, and they are called only if the processor has it.
                    $name(unsafe { $zero() })
                }

                #[inline(always)]
                fn load(lanes: &[[u8; 8]; $lanes]) -> $name {
                    // SAFETY: as above; the array is as large as the register, and the load may be unaligned.
                    $name(unsafe { $load(lanes.as_ptr().cast()) })
                }

                #[inline(always)]
                fn store(self, lanes: &mut [[u8; 8]; $lanes]) {
                    // SAFETY: as above; the array is as large as the register, and the store may be unaligned.
                    unsafe { $store(lanes.as_mut_ptr().cast(), self.0) }
                }

                #[inline(always)]
                fn xor(self, other: $name) -> $name {
                    // SAFETY: as above.
                    $name(unsafe { $xor(self.0, other.0) })
                }

                #[inline(always)]
                fn rotate_left(self, bits: u8) -> $name {
                    let rotate: unsafe fn(_, i64) -> _ = $rotate;
                    // SAFETY: as above.
                    $name(unsafe { rotate(self.0, i64::from(bits)) })
                }
            }
        };
    }
    vector!(
        Ymm,
        4,
        _mm256_setzero_si256,
        _mm256_loadu_si256,
        _mm256_storeu_si256,
        _mm256_xor_si256,
        shift_256
    );
    vector!(
        YmmRotating,
        4,
        _mm256_setzero_si256,
        _mm256_loadu_si256,
        _mm256_storeu_si256,
        _mm256_xor_si256,
        rotate_256
    );
    vector!(
        Zmm,
        8,
        _mm512_setzero_si512,
        _mm512_loadu_si512,
        _mm512_storeu_si512,
        _mm512_xor_si512,
        rotate_512
    );

    #[inline]
    #[target_feature(enable = "avx2")]
    fn shift_256(lanes: __m256i, bits: i64) -> __m256i {
        let left = _mm256_sll_epi64(lanes, _mm_cvtsi64_si128(bits));
        _mm256_or_si256(left, _mm256_srl_epi64(lanes, _mm_cvtsi64_si128(64 - bits)))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    fn rotate_256(lanes: __m256i, bits: i64) -> __m256i {
        _mm256_rolv_epi64(lanes, _mm256_set1_epi64x(bits))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn rotate_512(lanes: __m512i, bits: i64) -> __m512i {
        _mm512_rolv_epi64(lanes, _mm512_set1_epi64(bits))
    }
}
