//! Pure functions on bytes: checksums, fingerprints, the error-correcting code, the scrambler, the zero-line codec,
//! pattern sectors, RAID parity, deltas of pages.
//!
//! No I/O, no time, no addresses: everything here can be tested, benchmarked and fuzzed in isolation.

mod crc;
pub mod delta;
pub mod ecc;
pub mod fingerprint;
pub mod lines;
pub mod parity;
mod parts;
pub mod pattern;
mod prefetch;
pub mod scrambler;
mod wide;

pub use crc::{Crc32c, crc32c};
pub use fingerprint::{Digest, HashKind};
pub use parts::Crc32cParts;
pub use prefetch::{CACHE_LINE_BYTES, prefetch, prefetch_all, prefetch_before};

/// True if every byte is zero. The first bytes are checked first, so non-zero data usually costs a few cycles.
#[inline]
pub fn is_zero(bytes: &[u8]) -> bool {
    let (head, rest) = bytes.split_at(bytes.len().min(16));
    head.iter().all(|b| *b == 0) && rest.chunks(64).all(|line| line.iter().fold(0, |acc, b| acc | b) == 0)
}
