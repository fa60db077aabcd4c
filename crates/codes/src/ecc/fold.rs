//! Parity as a fingerprint: the code has looked at all of the data anyway (ses-dedup.txt, section V.B).
//!
//! The parity of a good code is not a good hash. Here a data bit enters seven of 256 parity bits, so the first four
//! bytes do not see 39 % of changes of one bit and 34 % of changes of one byte. [`Fold::Mix`] takes all parity bits,
//! hashed. Then only what the code itself cannot see goes unseen: never fewer than eight bits ([`super::DISTANCE`]).
//!
//! The code is linear and known, so anyone can make two contents with the same parity. Seeds cannot help there: a match
//! is a hint until the bytes are compared.

use super::Code;
use crate::Digest;

/// How parity becomes a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// The first four bytes of every codeword's parity, as in the paper.
    Truncate,
    /// A seeded hash (xxh3) of all of the parity.
    Mix {
        /// Secret of the device.
        seed: u64,
    },
}

impl Fold {
    /// Four bytes for the parity of one codeword, or of several as one.
    #[inline]
    pub fn fingerprint(self, parity: &[u8]) -> u32 {
        match self {
            Fold::Truncate => first_four(parity),
            Fold::Mix { seed } => crate::fingerprint::seeded64(seed, parity) as u32,
        }
    }

    /// The fingerprint of a sector from the parity of its codewords: their four bytes one after the other, or a
    /// hash of 128 bits.
    ///
    /// # Panics
    /// If `parity` is not that of whole codewords, and of four at most.
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
