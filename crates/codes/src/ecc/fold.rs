//! Parity as a fingerprint: computing it has read all of the data anyway (ses-dedup.txt, section V.B).
//!
//! The parity of a good code is not a good hash. Here a data bit enters seven of 256 parity bits, so the first four
//! bytes miss 39 % of changes of one bit and 34 % of changes of one byte. [`Fold::Mix`] hashes all parity bits. Then,
//! apart from hash collisions, it misses only changes that the code itself cannot detect: never of fewer than eight
//! bits ([`super::DISTANCE`]).
//!
//! The code is linear and public, so anyone can construct two contents with the same parity. A seed cannot prevent
//! this: a match is only a hint until the bytes have been compared.

use super::Code;
use crate::Digest;

/// How to turn parity into a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// The first four bytes of every codeword's parity, as in the paper.
    Truncate,
    /// A seeded hash (xxh3) of the whole parity.
    Mix {
        /// Secret of the device.
        seed: u64,
    },
}

impl Fold {
    /// Four bytes from the parity of one codeword, or of several taken together.
    #[inline]
    pub fn fingerprint(self, parity: &[u8]) -> u32 {
        match self {
            Fold::Truncate => first_four(parity),
            Fold::Mix { seed } => crate::fingerprint::seeded64(seed, parity) as u32,
        }
    }

    /// The fingerprint of a sector from the parity of its codewords: four bytes of each one after the other, or a hash
    /// of 128 bits.
    ///
    /// # Panics
    /// If `parity` is not that of whole codewords, or of more than four.
    #[inline]
    pub fn digest(self, code: &Code, parity: &[u8]) -> Digest {
        let codewords = parity.chunks_exact(code.parity_bytes());
        assert!(codewords.remainder().is_empty() && codewords.len() <= 4, "{} parity bytes", parity.len());
        Digest(match self {
            Fold::Truncate => {
                codewords.rev().fold(0, |sum, parity| sum << 32 | u128::from(first_four(parity)))
            }
            Fold::Mix { seed } => xxhash_rust::xxh3::xxh3_128_with_seed(parity, seed),
        })
    }
}

fn first_four(parity: &[u8]) -> u32 {
    let (first, _) = parity.split_first_chunk().expect("every code has more than four parity bytes");
    u32::from_le_bytes(*first)
}
