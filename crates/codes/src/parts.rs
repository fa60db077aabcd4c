//! CRC-32C of any part of some bytes, in a time that does not depend on its length: whoever looks for something with a
//! checksum where it may be anywhere asks for many parts that overlap.
//!
//! A checksum is a polynomial modulo P. Bytes that follow multiply it by a power of x, which is how checksums of what
//! comes before can be taken out of those of the whole (as in zlib's `crc32_combine`).

use crate::crc32c;
use std::ops::Range;

/// CRC-32C's polynomial, reflected, without its highest power.
const POLYNOMIAL: u32 = 0x82F6_3B78;
/// Checksums of what comes before are kept every so many bytes.
const STEP: usize = 64;

/// See the module.
///
/// ```
/// let bytes: Vec<u8> = (0..=255).cycle().take(10_000).collect();
/// let parts = vellum_codes::Crc32cParts::of(&bytes);
/// assert_eq!(parts.crc(17..9_001), vellum_codes::crc32c(&bytes[17..9_001]));
/// ```
pub struct Crc32cParts<'a> {
    bytes: &'a [u8],
    /// Of all before every step.
    before: Vec<u32>,
    /// What so many bytes that follow multiply by: powers of two.
    powers: [u32; usize::BITS as usize],
}

impl<'a> Crc32cParts<'a> {
    /// Reads all of `bytes` once. Takes a sixteenth of their memory.
    pub fn of(bytes: &'a [u8]) -> Crc32cParts<'a> {
        // x, and then its squares: of a byte, of two bytes, and so on.
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

    /// Of these bytes.
    ///
    /// # Panics
    ///
    /// If there are none there.
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

    /// What a checksum counts as in that of bytes of which so many follow.
    fn followed(&self, crc: u32, bytes: usize) -> u32 {
        let of_bits = self.powers.iter().enumerate().take_while(|(bit, _)| bytes >> bit > 0);
        of_bits.filter(|(bit, _)| bytes >> bit & 1 == 1).fold(crc, |crc, (_, power)| product(*power, crc))
    }
}

/// Modulo P; the highest bit is that of x to the 0.
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
