//! Parity of RAID-5 and RAID-6: P is the sum of the data blocks, Q the sum of the data blocks each times a power of
//! 2, in the field of 256 elements with the polynomial 0x11d (H. P. Anvin, The mathematics of RAID-6; the same as
//! Linux md).
//!
//! A block's *index* is its place in the row of data blocks: block `i` counts in Q times 2 to the power `i`. Sums are
//! XOR. All slices of one call have the same length; any length will do.
//!
//! 1. There are at most [`BLOCKS_MAX`] data blocks: powers of 2 repeat after 255.
//! 2. What is linear needs no other block: if data block `i` changes by a delta, P changes by the delta and Q by the
//!    delta times 2 to the power `i` ([`xor_into`], [`add_scaled`]).

mod field;
mod kernel;
mod recover;

pub use kernel::Simd;
pub use recover::{Unrecoverable, recover};

/// Most data blocks in a row.
pub const BLOCKS_MAX: usize = 255;

/// Adds `from` to `to`.
///
/// # Panics
/// If the lengths differ.
pub fn xor_into(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "blocks of one row are equally long");
    kernel::xor_into(Simd::best(), to, from);
}

/// P of the data blocks, into `p`.
///
/// # Panics
/// If the lengths differ.
pub fn p(data: &[&[u8]], p: &mut [u8]) {
    p.fill(0);
    data.iter().for_each(|block| xor_into(p, block));
}

/// P and Q of the data blocks, in the order of their indices.
///
/// # Panics
/// If the lengths differ, or if there are more than [`BLOCKS_MAX`] blocks.
pub fn pq(data: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
    pq_with(Simd::best(), data, p, q);
}

/// [`pq`] with chosen instructions, for tests and benches.
///
/// # Panics
/// As [`pq`], and if this processor does not have them.
pub fn pq_with(simd: Simd, data: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
    assert!(data.len() <= BLOCKS_MAX, "{} data blocks are more than {BLOCKS_MAX}", data.len());
    assert!(data.iter().all(|block| block.len() == p.len()), "blocks of one row are equally long");
    assert_eq!(p.len(), q.len(), "blocks of one row are equally long");
    kernel::pq(simd, data, p, q);
}

/// Adds `from`, times 2 to the power `index`, to `to`: what Q changes by when data block `index` changes by `from`.
///
/// # Panics
/// If the lengths differ.
pub fn add_scaled(to: &mut [u8], from: &[u8], index: usize) {
    assert_eq!(to.len(), from.len(), "blocks of one row are equally long");
    kernel::add_multiple(Simd::best(), to, from, field::power(index));
}

/// [`add_scaled`] with chosen instructions, for tests and benches.
///
/// # Panics
/// As [`add_scaled`], and if this processor does not have them.
pub fn add_scaled_with(simd: Simd, to: &mut [u8], from: &[u8], index: usize) {
    assert_eq!(to.len(), from.len(), "blocks of one row are equally long");
    kernel::add_multiple(simd, to, from, field::power(index));
}

/// Which of `blocks` data blocks is wrong, if it is only one: `p_sum` and `q_sum` are what the stored P and Q differ
/// by from those of the stored data. `None` if no single block explains every byte, or if there is no difference at
/// all.
///
/// # Panics
/// If the lengths differ.
pub fn locate(p_sum: &[u8], q_sum: &[u8], blocks: usize) -> Option<Wrong> {
    assert_eq!(p_sum.len(), q_sum.len(), "blocks of one row are equally long");
    let mut found = None;
    for (p, q) in p_sum.iter().zip(q_sum) {
        let here = match (*p, *q) {
            (0, 0) => continue,
            (_, 0) => Wrong::P,
            (0, _) => Wrong::Q,
            (p, q) => Wrong::Data(field::quotient_log(q, p)),
        };
        if found.is_some_and(|before| before != here) {
            return None;
        }
        found = Some(here);
    }
    found.filter(|wrong| !matches!(wrong, Wrong::Data(index) if *index >= blocks))
}

/// The one wrong block of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The data block with this index: the stored P differs by what it differs by.
    Data(usize),
    /// P.
    P,
    /// Q.
    Q,
}
