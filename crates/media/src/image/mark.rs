//! The mark of a page in an image. It tells a page programmed after the given number of erases of its block from one of
//! before the last erase, from a torn page, and from an empty one.
//!
//! In version 1 a mark is four bytes, compared exactly. In version 2 it is eight bytes of noise derived from the erase
//! count and tolerates a few wrong bits: the marks of two counts differ in about half of all bits.

/// Number of bits that may be wrong in a mark of version 2.
const WRONG_BITS_MAX: u32 = 8;

/// The encoding of marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marks {
    /// Version 1.
    Exact,
    /// Version 2.
    Tolerant,
}

impl Marks {
    /// Bytes of a mark.
    pub fn bytes(self) -> usize {
        match self {
            Marks::Exact => 4,
            Marks::Tolerant => 8,
        }
    }

    /// The mark of a page programmed after the block's `erase_count`-th erase; the first [`Marks::bytes`] of it.
    pub fn programmed(self, erase_count: u32) -> [u8; 8] {
        match self {
            Marks::Exact => {
                let [low, middle, high, _] = erase_count.to_le_bytes();
                [b'P', low, middle, high, 0, 0, 0, 0]
            }
            Marks::Tolerant => noise(u64::from(erase_count)).to_le_bytes(),
        }
    }

    /// The mark of an unreadable page; the first [`Marks::bytes`] of it.
    pub fn torn(self) -> [u8; 8] {
        match self {
            Marks::Exact => *b"TORN\0\0\0\0",
            Marks::Tolerant => *b"TORNTORN",
        }
    }

    /// True if `mark` is that of a page programmed after that many erases.
    pub fn is_programmed(self, mark: &[u8], erase_count: u32) -> bool {
        let expected = self.programmed(erase_count);
        let wrong: u32 = mark.iter().zip(&expected).map(|(is, should)| (is ^ should).count_ones()).sum();
        wrong <= if self == Marks::Exact { 0 } else { WRONG_BITS_MAX }
    }
}

/// The finaliser of splitmix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
fn noise(count: u64) -> u64 {
    let z = (count + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_wrong_bits_make_no_difference_and_another_life_does() {
        let marks = Marks::Tolerant;
        for count in 0..20_000u32 {
            let mark = marks.programmed(count);
            let rotten = (u64::from_le_bytes(mark) ^ 0x8100_0420_0010_0281).to_le_bytes();
            assert!(marks.is_programmed(&rotten, count));
            for other in (count + 1..count + 64).map(|other| marks.programmed(other)) {
                let apart = (u64::from_le_bytes(mark) ^ u64::from_le_bytes(other)).count_ones();
                assert!(apart > WRONG_BITS_MAX, "{count}: {apart} bits");
            }
            assert!(!marks.is_programmed(&marks.torn(), count) && !marks.is_programmed(&[0; 8], count));
        }
        assert!(!Marks::Exact.is_programmed(&[b'P', 1, 0, 1], 1));
        assert!(Marks::Exact.is_programmed(&[b'P', 1, 0, 0], 1));
    }
}
