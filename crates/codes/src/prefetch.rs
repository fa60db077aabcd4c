//! Prefetching: tells the processor which memory will be needed soon.
//!
//! Tables of millions of entries are read at random, and each such read waits for memory longer than the surrounding
//! computation takes. Code that knows the position earlier can prefetch it here, and continue in the meantime.
//!
//! `unsafe` because the instruction takes a raw address; it is a hint, reads nothing and cannot fault.
#![allow(unsafe_code)]

/// Cache line size of common processors.
pub const CACHE_LINE_BYTES: usize = 64;

/// Starts to load `slice[index]` into the cache, if that element exists. Does nothing on processors other than x86-64.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    prefetch_before(slice.get(index..).unwrap_or_default(), 0);
}

/// Starts to load all of `bytes` into the cache, line by line.
#[inline]
pub fn prefetch_all(bytes: &[u8]) {
    (0..bytes.len()).step_by(CACHE_LINE_BYTES).for_each(|at| prefetch(bytes, at));
}

/// Starts to load the memory `bytes` before the start of a non-empty slice, such as the header of an allocation.
#[inline(always)]
pub fn prefetch_before<T>(slice: &[T], bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if !slice.is_empty() {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no visible effect on memory and cannot fault at any address; SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(slice.as_ptr().cast::<i8>().wrapping_sub(bytes)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, bytes);
}
