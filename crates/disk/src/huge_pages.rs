//! Tables that are read at random, on huge pages where the system has them.
//!
//! With pages of 4 KiB a table of hundreds of megabytes is beyond the reach of the processor's address cache, and
//! most reads of it look the page up in memory first. Asking for huge pages is a hint: without them all works the same.
//!
//! `unsafe` because the call takes an address; the advice changes how the range is backed, never what it holds.
#![allow(unsafe_code)]

/// Tables smaller than this stay as they are.
#[cfg(target_os = "linux")]
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// `vec![zero; len]`, on huge pages if it is large. What is never written to takes no memory: the system hands out
/// zeros. (`zero` is a number, or an array of numbers: for others `vec` would write it everywhere.)
pub(crate) fn zeros<T: Clone>(zero: T, len: usize) -> Vec<T> {
    let mut table = vec![zero; len];
    #[cfg(target_os = "linux")]
    advise(&mut table);
    table
}

/// Asks for huge pages under the part of `memory` that consists of whole ones.
#[cfg(target_os = "linux")]
fn advise<T>(memory: &mut [T]) {
    let bytes = size_of_val(memory);
    let start = memory.as_mut_ptr().cast::<u8>();
    let skipped = start.align_offset(HUGE_PAGE_BYTES);
    let whole = bytes.saturating_sub(skipped) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if whole > 0 {
        // SAFETY: the range lies in `memory`, which we hold alone; this advice does not change its content.
        // Systems without huge pages refuse it, which is as good.
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
