//! Telling the processor which memory is wanted soon.
//!
//! Tables of millions of entries are read at random, and each such read waits for memory longer than everything
//! around it takes to compute. Whoever knows the place a little earlier says so here, and goes on meanwhile.
//!
//! `unsafe` because the instruction takes an address; it is a hint, reads nothing and cannot fault.
#![allow(unsafe_code)]

/// Of the processors that we know.
pub const CACHE_LINE_BYTES: usize = 64;

/// Begins to bring `slice[index]` into the cache, if there is such an element. Does nothing where the processor's
/// instruction is not known here.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    prefetch_before(slice.get(index..).unwrap_or_default(), 0);
}

/// Begins to bring all of `bytes` into the cache, line by line.
#[inline]
pub fn prefetch_all(bytes: &[u8]) {
    (0..bytes.len()).step_by(CACHE_LINE_BYTES).for_each(|at| prefetch(bytes, at));
}

/// The same for what lies `bytes` before a slice that is not empty: the header of an allocation.
#[inline(always)]
pub fn prefetch_before<T>(slice: &[T], bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if !slice.is_empty() {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads no memory as far as the program can tell, and faults at no address; SSE is part of
        // x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(slice.as_ptr().cast::<i8>().wrapping_sub(bytes)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, bytes);
}
