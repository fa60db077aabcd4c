//! The loops over bytes, in a portable form and in one for processors with 256-bit vectors.
//!
//! Doubling a vector of elements is an addition, and an XOR for elements whose top bit was set. So Q is computed by
//! Horner's rule, from the last block to the first: double, then add. A product with a constant takes two look-ups in
//! tables of 16, one for each half of a byte (Anvin, section 4).
//!
//! `unsafe` because the wide forms may be called only if the processor supports them, which [`Simd::is_available`]
//! checks, and because they access vectors through pointers, within slices whose lengths were compared.
#![allow(unsafe_code)]

use super::field;

/// The instructions that compute parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simd {
    /// Instructions that every processor has.
    Portable,
    /// AVX2, 256 bits wide.
    Avx2,
}

impl Simd {
    /// All variants, the best last.
    pub const ALL: [Simd; 2] = [Simd::Portable, Simd::Avx2];

    /// The best variant that this processor supports.
    #[inline]
    pub fn best() -> Simd {
        if Simd::Avx2.is_available() { Simd::Avx2 } else { Simd::Portable }
    }

    /// True if this processor supports these instructions.
    #[inline]
    pub fn is_available(self) -> bool {
        match self {
            Simd::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(not(target_arch = "x86_64"))]
            Simd::Avx2 => false,
        }
    }

    fn assert_available(self) {
        assert!(self.is_available(), "this processor does not have {self:?}");
    }
}

/// `to += from`. The lengths must be equal.
pub(super) fn xor_into(simd: Simd, to: &mut [u8], from: &[u8]) {
    simd.assert_available();
    match simd {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor has AVX2, as asserted.
        Simd::Avx2 => unsafe { wide::xor_into(to, from) },
        _ => portable::xor_into(to, from),
    }
}

/// Computes P and Q. All lengths must be equal.
pub(super) fn pq(simd: Simd, data: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
    simd.assert_available();
    match simd {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor has AVX2, as asserted, and the caller compared the lengths.
        Simd::Avx2 => unsafe { wide::pq(data, p, q) },
        _ => portable::pq(data, 0, p, q),
    }
}

/// `to += factor * from`. The lengths must be equal.
pub(super) fn add_multiple(simd: Simd, to: &mut [u8], from: &[u8], factor: u8) {
    simd.assert_available();
    match simd {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor has AVX2, as asserted, and the caller compared the lengths.
        Simd::Avx2 => unsafe { wide::add_multiple(to, from, factor) },
        _ => portable::add_multiple(to, from, factor),
    }
}

/// `bytes *= factor`.
pub(super) fn multiply(simd: Simd, bytes: &mut [u8], factor: u8) {
    let from = bytes.to_vec();
    bytes.fill(0);
    add_multiple(simd, bytes, &from, factor);
}

/// Products of a factor with each value of the low and of the high half of a byte.
fn halves(factor: u8) -> [[u8; 16]; 2] {
    let low = std::array::from_fn(|i| field::multiply(i as u8, factor));
    let high = std::array::from_fn(|i| field::multiply((i as u8) << 4, factor));
    [low, high]
}

mod portable {
    use super::{field, halves};

    #[inline(always)]
    pub fn xor_into(to: &mut [u8], from: &[u8]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to ^= from);
    }

    /// Computes P and Q for the bytes from `start` on, as many as `p` and `q` have.
    pub fn pq(data: &[&[u8]], start: usize, p: &mut [u8], q: &mut [u8]) {
        p.fill(0);
        q.fill(0);
        for block in data.iter().rev() {
            for ((p, q), byte) in p.iter_mut().zip(q.iter_mut()).zip(&block[start..]) {
                *p ^= byte;
                *q = field::double(*q) ^ byte;
            }
        }
    }

    pub fn add_multiple(to: &mut [u8], from: &[u8], factor: u8) {
        let [low, high] = halves(factor);
        for (to, byte) in to.iter_mut().zip(from) {
            *to ^= low[usize::from(byte & 15)] ^ high[usize::from(byte >> 4)];
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use super::{halves, portable};
    use std::arch::x86_64::*;

    const VECTOR: usize = 32;
    /// Vectors of P and Q that are computed at once: enough to hide the latency of a doubling.
    const SIDE: usize = 4;

    #[target_feature(enable = "avx2")]
    pub fn xor_into(to: &mut [u8], from: &[u8]) {
        portable::xor_into(to, from);
    }

    #[target_feature(enable = "avx2")]
    pub fn pq(data: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
        let whole = p.len() / (VECTOR * SIDE) * (VECTOR * SIDE);
        for at in (0..whole).step_by(VECTOR * SIDE) {
            // SAFETY: the vectors from `at` on lie within `whole`, and every block is as long as `p`.
            unsafe { pq_side_by_side(data, at, p, q) };
        }
        portable::pq(data, whole, &mut p[whole..], &mut q[whole..]);
    }

    /// # Safety
    /// Every slice must hold `SIDE` vectors from `at` on.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn pq_side_by_side(data: &[&[u8]], at: usize, p: &mut [u8], q: &mut [u8]) {
        let (mut ps, mut qs) = ([_mm256_setzero_si256(); SIDE], [_mm256_setzero_si256(); SIDE]);
        for block in data.iter().rev() {
            for i in 0..SIDE {
                // SAFETY: by this function's contract.
                let bytes = unsafe { _mm256_loadu_si256(block.as_ptr().add(at + i * VECTOR).cast()) };
                ps[i] = _mm256_xor_si256(ps[i], bytes);
                qs[i] = _mm256_xor_si256(double(qs[i]), bytes);
            }
        }
        for i in 0..SIDE {
            // SAFETY: by this function's contract.
            unsafe {
                _mm256_storeu_si256(p.as_mut_ptr().add(at + i * VECTOR).cast(), ps[i]);
                _mm256_storeu_si256(q.as_mut_ptr().add(at + i * VECTOR).cast(), qs[i]);
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn double(elements: __m256i) -> __m256i {
        let top = _mm256_cmpgt_epi8(_mm256_setzero_si256(), elements);
        let reduced = _mm256_and_si256(top, _mm256_set1_epi8(0x1d));
        _mm256_xor_si256(_mm256_add_epi8(elements, elements), reduced)
    }

    #[target_feature(enable = "avx2")]
    pub fn add_multiple(to: &mut [u8], from: &[u8], factor: u8) {
        let [low, high] = halves(factor).map(|table| {
            // SAFETY: the table has 16 bytes.
            let table = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
            _mm256_broadcastsi128_si256(table)
        });
        let nibble = _mm256_set1_epi8(15);
        let (to_vectors, to_rest) = to.as_chunks_mut::<VECTOR>();
        let (from_vectors, from_rest) = from.as_chunks::<VECTOR>();
        for (to, from) in to_vectors.iter_mut().zip(from_vectors) {
            // SAFETY: both have 32 bytes.
            unsafe {
                let bytes = _mm256_loadu_si256(from.as_ptr().cast());
                let lows = _mm256_shuffle_epi8(low, _mm256_and_si256(bytes, nibble));
                let highs = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi64(bytes, 4), nibble));
                let sum = _mm256_loadu_si256(to.as_ptr().cast());
                let sum = _mm256_xor_si256(sum, _mm256_xor_si256(lows, highs));
                _mm256_storeu_si256(to.as_mut_ptr().cast(), sum);
            }
        }
        portable::add_multiple(to_rest, from_rest, factor);
    }
}
