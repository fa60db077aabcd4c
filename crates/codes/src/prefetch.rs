//! Telling the processor which memory is wanted soon.
//!
//! Tables of millions of entries are read at random, and each such read waits for memory longer than everything
//! around it takes to compute. Whoever knows the place a little earlier says so here, and goes on meanwhile.
//!
//! `unsafe` because the instruction takes an address; it is a hint, reads nothing and cannot fault.
#![allow(unsafe_code)]

/// Begins to bring `slice[index]` into the cache, if there is such an element. Does nothing where the processor's
/// instruction is not known here.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(element) = slice.get(index) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the address is that of an element; SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(element).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, index);
}
