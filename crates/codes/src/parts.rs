//! CRC-32C of any range of a byte slice, in a time that does not depend on the length of the range. A search for a
//! checksummed record at an unknown position computes the CRC of many overlapping ranges.
//!
//! A CRC is a polynomial modulo P. Bytes that follow multiply it by a power of x, so the contribution of a prefix can
//! be removed from the CRC of a longer prefix (as in zlib's `crc32_combine`).

use crate::crc32c;
use std::ops::Range;

/// Polynomial of CRC-32C, reflected, without its highest power.
const POLYNOMIAL: u32 = 0x82F6_3B78;
/// Interval in bytes at which CRCs of prefixes are stored.
const STEP: usize = 64;

/// CRCs of the ranges of a byte slice; see the module.
///
/// ```
/// let bytes: Vec<u8> = (0..=255).cycle().take(10_000).collect();
/// let parts = vellum_codes::Crc32cParts::of(&bytes);
/// assert_eq!(parts.crc(17..9_001), vellum_codes::crc32c(&bytes[17..9_001]));
/// ```
pub struct Crc32cParts<'a> {
    bytes: &'a [u8],
    /// CRC of the bytes before each step.
    before: Vec<u32>,
    /// `powers[i]` is the factor for 2^i bytes that follow.
    powers: [u32; usize::BITS as usize],
}

impl<'a> Crc32cParts<'a> {
    /// Reads all of `bytes` once. Takes a sixteenth of their size in memory.
    pub fn of(bytes: &'a [u8]) -> Crc32cParts<'a> {
        // x squared three times is the factor for one byte; each further square doubles the number of bytes.
        let by_one_bit = 1u32 << 30;
        let mut powers = [(0..3).fold(by_one_bit, |power, _| product(power, power)); _];
        (1..powers.len()).for_each(|bit| powers[bit] = product(powers[bit - 1], powers[bit - 1]));
        let mut parts = Crc32cParts { bytes, before: vec![0], powers };
        for step in bytes.chunks_exact(STEP) {
            let before = parts.before[parts.before.len() - 1];
            parts.before.push(parts.followed(before, STEP) ^ crc32c(step));
        }
        parts
    }

    /// CRC of the bytes in `part`.
    ///
    /// # Panics
    ///
    /// If the range is out of bounds.
    pub fn crc(&self, part: Range<usize>) -> u32 {
        match part.len() <= 2 * STEP {
            true => crc32c(&self.bytes[part]),
            false => self.followed(self.crc_before(part.start), part.len()) ^ self.crc_before(part.end),
        }
    }

    fn crc_before(&self, end: usize) -> u32 {
        let rest = &self.bytes[end / STEP * STEP..end];
        self.followed(self.before[end / STEP], rest.len()) ^ crc32c(rest)
    }

    /// Contribution of a CRC to that of a longer slice, in which `bytes` more bytes follow.
    fn followed(&self, crc: u32, bytes: usize) -> u32 {
        let of_bits = self.powers.iter().enumerate().take_while(|(bit, _)| bytes >> bit > 0);
        of_bits.filter(|(bit, _)| bytes >> bit & 1 == 1).fold(crc, |crc, (_, power)| product(*power, crc))
    }
}

/// Product of two polynomials modulo P. The highest bit is the coefficient of x^0.
fn product(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    for bit in (0..u32::BITS).rev() {
        product ^= b & (a >> bit & 1).wrapping_neg();
        b = b >> 1 ^ POLYNOMIAL & (b & 1).wrapping_neg();
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn of_every_part(bytes in prop::collection::vec(any::<u8>(), 0..2000), a in 0usize..2000, b in 0usize..2000) {
            let (a, b) = (a.min(bytes.len()), b.min(bytes.len()));
            let part = a.min(b)..a.max(b);
            let parts = Crc32cParts::of(&bytes);
            prop_assert_eq!(parts.crc(part.clone()), crc32c(&bytes[part.clone()]));
        }
    }
}
