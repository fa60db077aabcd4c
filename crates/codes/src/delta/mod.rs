//! Deltas: what two versions of a page differ by.
//!
//! A delta is the XOR of two versions of equal length: pairs of a run of zeros and a run of *literals* (`runs.rs`);
//! what follows the last pair is zero. Equal versions have the empty delta. In-place overwrites of database pages are
//! mostly zeros; it costs a look at every word (how long: `benches/parity.rs`). A delta of more than an eighth of its
//! page gets a second try: its pairs are compressed, if that makes them shorter (`packed.rs`).
//!
//! 1. A delta of a page of n bytes takes no more than n + [`OVERHEAD_MAX`] bytes.
//! 2. A hostile delta is refused before it changes a byte outside the page; the page is then of no use. It takes memory
//!    for about a page.

mod packed;
mod runs;

use std::fmt;

/// Bytes that a delta may take besides the page's.
pub const OVERHEAD_MAX: usize = 12;
/// A delta gets a second try where it takes more than this part of its page: shorter ones hardly gain, and are many.
const LONG_PART: usize = 8;

/// A delta that does not fit the page it was to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the delta is cut off, reaches beyond its page, or is packed in a way unknown")
    }
}

impl std::error::Error for Malformed {}

/// Appends the delta of two versions to `out`. False, and `out` is as before, if it takes more than `limit` bytes.
///
/// # Panics
/// If the versions are not equally long.
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

/// Appends the delta without a second try: to see what that gains.
///
/// # Panics
/// If the versions are not equally long.
pub fn encode_once(old: &[u8], new: &[u8], out: &mut Vec<u8>) {
    assert_eq!(old.len(), new.len(), "two versions of one page are equally long");
    runs::encode(old, new, out);
}

/// Changes a page by a delta: its old version to the new, or the new to the old.
pub fn apply(delta: &[u8], page: &mut [u8]) -> Result<(), Malformed> {
    for_each_run(delta, page.len(), |at, literals| {
        page[at..at + literals.len()].iter_mut().zip(literals).for_each(|(byte, delta)| *byte ^= delta);
    })
}

/// Calls `run` with the place and the bytes of every run of literals of a page of `bytes` bytes.
pub fn for_each_run(delta: &[u8], bytes: usize, run: impl FnMut(usize, &[u8])) -> Result<(), Malformed> {
    match packed::unpack(delta, bytes)? {
        Some(pairs) => runs::for_each(&pairs, bytes, run),
        None => runs::for_each(delta, bytes, run),
    }
}
