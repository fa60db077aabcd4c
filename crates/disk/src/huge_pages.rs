//! Tables with random access, on huge pages if the system has them.
//!
//! With pages of 4 KiB the processor's TLB cannot cover a table of hundreds of megabytes, and most accesses need a page
//! walk in memory. Requesting huge pages is only a hint: without them everything works the same.
//!
//! `unsafe` because the call takes an address; the advice changes how the range is backed, never its contents.
#![allow(unsafe_code)]

/// Size of a huge page; smaller tables use ordinary pages.
#[cfg(target_os = "linux")]
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// `vec![zero; len]`, on huge pages if it is large. Parts never written take no memory: the system provides zeros.
/// (`zero` is a number, or an array of numbers: for other types `vec` would write to all elements.)
pub(crate) fn zeros<T: Clone>(zero: T, len: usize) -> Vec<T> {
    let mut table = vec![zero; len];
    #[cfg(target_os = "linux")]
    advise(&mut table);
    table
}

/// Requests huge pages for the part of `memory` that consists of whole ones.
#[cfg(target_os = "linux")]
fn advise<T>(memory: &mut [T]) {
    let bytes = size_of_val(memory);
    let start = memory.as_mut_ptr().cast::<u8>();
    let skipped = start.align_offset(HUGE_PAGE_BYTES);
    let whole = bytes.saturating_sub(skipped) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if whole > 0 {
        // SAFETY: the range lies in `memory`, which is borrowed exclusively; this advice does not change its content.
        // Systems without huge pages refuse it, which is harmless.
        let _ = unsafe {
            rustix::mm::madvise(start.add(skipped).cast(), whole, rustix::mm::Advice::LinuxHugepage)
        };
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_table_is_zeros() {
        for len in [0, 1, 3 << 20] {
            assert!(super::zeros([0u32; 2], len) == vec![[0; 2]; len]);
        }
    }
}
