//! The second try of a long delta: its pairs, compressed.
//!
//! Two zeros, with which no pair begins, say so; then how, then that. LZ4 instead of zstd, or before it, made nothing
//! shorter than zstd alone does (`benches/parity.rs`).
//!
//! 1. What is unpacked is pairs, never packed again, and takes memory for a page's at most.

use super::{Malformed, OVERHEAD_MAX};
use std::cell::RefCell;
use zstd::bulk::{Compressor, Decompressor};

/// Begins a packed delta: no zeros, no literals.
const MARK: [u8; 2] = [0, 0];
/// A zstd frame follows.
const ZSTD: u8 = 1;
/// Higher levels take longer for a hundredth less.
const LEVEL: i32 = 1;

thread_local! {
    // To make one takes twice as long as what it is made for.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Packs what `out` has from `start` on, if that makes it shorter.
pub(super) fn shorten(out: &mut Vec<u8>, start: usize) {
    let pairs = &out[start..];
    // Room for what is shorter with its mark; the compressor fails where that is not enough.
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

/// The pairs of a packed delta of a page of `bytes` bytes; None if it is not packed.
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
