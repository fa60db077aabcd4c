//! Deltas: the differences between two versions of a page.
//!
//! A delta is the XOR of two versions of equal length, encoded as pairs of a run of zeros and a run of *literals*
//! (`runs.rs`). All bytes after the last pair are zero. Equal versions have the empty delta. The XOR of an in-place
//! overwrite of a database page is mostly zeros, and encoding it costs a check of each word (timings:
//! `benches/parity.rs`). A delta of more than an eighth of its page gets a second try: its pairs are compressed, if
//! that makes them shorter (`packed.rs`).
//!
//! 1. A delta of a page of n bytes takes at most n + [`OVERHEAD_MAX`] bytes.
//! 2. A malformed or hostile delta is rejected, and never writes outside the page. The content of the page is then
//!    undefined. Decoding allocates memory for about one page.

mod packed;
mod runs;

use std::fmt;

/// Largest size of a delta in excess of its page.
pub const OVERHEAD_MAX: usize = 12;
/// A delta gets a second try if it takes more than one part in this many of its page: shorter ones gain little, and are
/// frequent.
const LONG_PART: usize = 8;

/// The delta is malformed or does not fit the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the delta is cut off, reaches beyond its page, or is packed in a way unknown")
    }
}

impl std::error::Error for Malformed {}

/// Appends the delta of two versions to `out`. If it takes more than `limit` bytes, leaves `out` unchanged and returns
/// false.
///
/// # Panics
/// If the versions differ in length.
pub fn encode(old: &[u8], new: &[u8], limit: usize, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    encode_once(old, new, out);
    if out.len() - start > old.len() / LONG_PART {
        packed::shorten(out, start);
    }
    let fits = out.len() - start <= limit;
    if !fits {
        out.truncate(start);
    }
    fits
}

/// Appends the delta without the second try, to measure the gain of that.
///
/// # Panics
/// If the versions differ in length.
pub fn encode_once(old: &[u8], new: &[u8], out: &mut Vec<u8>) {
    assert_eq!(old.len(), new.len(), "two versions of one page are equally long");
    runs::encode(old, new, out);
}

/// Applies a delta to a page: turns the old version into the new, or the new into the old.
pub fn apply(delta: &[u8], page: &mut [u8]) -> Result<(), Malformed> {
    for_each_run(delta, page.len(), |at, literals| {
        page[at..at + literals.len()].iter_mut().zip(literals).for_each(|(byte, delta)| *byte ^= delta);
    })
}

/// Calls `run` with the position and the bytes of each run of literals, for a page of `bytes` bytes.
pub fn for_each_run(delta: &[u8], bytes: usize, run: impl FnMut(usize, &[u8])) -> Result<(), Malformed> {
    match packed::unpack(delta, bytes)? {
        Some(pairs) => runs::for_each(&pairs, bytes, run),
        None => runs::for_each(delta, bytes, run),
    }
}
