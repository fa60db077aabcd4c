//! The second try for a long delta: its pairs, compressed.
//!
//! A packed delta begins with two zeros, which no pair begins with. The compression method follows, then the compressed
//! pairs. Using LZ4 instead of zstd, or before it, made no delta shorter than zstd alone does (`benches/parity.rs`).
//!
//! 1. Unpacking yields pairs, which are never packed again, and allocates at most the memory for the pairs of one page.

use super::{Malformed, OVERHEAD_MAX};
use std::cell::RefCell;
use zstd::bulk::{Compressor, Decompressor};

/// Start of a packed delta: it would be a pair of no zeros and no literals.
const MARK: [u8; 2] = [0, 0];
/// A zstd frame follows.
const ZSTD: u8 = 1;
/// Higher levels take longer and reduce the size by only a hundredth.
const LEVEL: i32 = 1;

thread_local! {
    // Creating a context takes twice as long as using it.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Packs the bytes of `out` from `start` on, if that makes them shorter.
pub(super) fn shorten(out: &mut Vec<u8>, start: usize) {
    let pairs = &out[start..];
    // Room for a frame that with its header is shorter than the pairs; the compressor fails if that is not enough.
    let mut frame = vec![0; pairs.len().saturating_sub(MARK.len() + 2)];
    let packed = COMPRESSOR.with_borrow_mut(|compressor| {
        if compressor.is_none() {
            *compressor = Compressor::new(LEVEL).ok();
        }
        compressor.as_mut()?.compress_to_buffer(pairs, &mut frame[..]).ok()
    });
    if let Some(bytes) = packed {
        out.truncate(start);
        out.extend(MARK);
        out.push(ZSTD);
        out.extend_from_slice(&frame[..bytes]);
    }
}

/// The pairs of a packed delta of a page of `bytes` bytes; `None` if the delta is not packed.
pub(super) fn unpack(delta: &[u8], bytes: usize) -> Result<Option<Vec<u8>>, Malformed> {
    let Some(packed) = delta.strip_prefix(&MARK) else { return Ok(None) };
    let frame = packed.strip_prefix(&[ZSTD]).filter(|frame| !frame.is_empty()).ok_or(Malformed)?;
    let mut pairs = vec![0; bytes + OVERHEAD_MAX];
    let length = DECOMPRESSOR.with_borrow_mut(|decompressor| {
        if decompressor.is_none() {
            *decompressor = Decompressor::new().ok();
        }
        decompressor.as_mut()?.decompress_to_buffer(frame, &mut pairs[..]).ok()
    });
    pairs.truncate(length.ok_or(Malformed)?);
    Ok(Some(pairs))
}
