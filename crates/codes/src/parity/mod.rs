//! Parity of RAID-5 and RAID-6: P is the sum of the data blocks; Q is the sum of the data blocks, each multiplied by a
//! power of 2, in the field of 256 elements with the polynomial 0x11d (H. P. Anvin, The mathematics of RAID-6; the same
//! as Linux md).
//!
//! The *index* of a block is its position in the row of data blocks: in Q, block `i` is multiplied by 2 to the power
//! `i`. Addition is XOR. All slices of one call must have the same length, which may be any.
//!
//! 1. There are at most [`BLOCKS_MAX`] data blocks: the powers of 2 repeat after 255.
//! 2. Parity is linear, so an update needs no other block: if data block `i` changes by a delta, P changes by the
//!    delta, and Q by the delta times 2 to the power `i` ([`xor_into`], [`add_scaled`]).

mod field;
mod kernel;
mod recover;

pub use kernel::Simd;
pub use recover::{Unrecoverable, recover};

/// Maximum number of data blocks in a row.
pub const BLOCKS_MAX: usize = 255;

/// Adds `from` to `to`.
///
/// # Panics
/// If the lengths differ.
pub fn xor_into(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "blocks of one row are equally long");
    kernel::xor_into(Simd::best(), to, from);
}

/// Computes P of the data blocks into `p`.
///
/// # Panics
/// If the lengths differ.
pub fn p(data: &[&[u8]], p: &mut [u8]) {
    p.fill(0);
    data.iter().for_each(|block| xor_into(p, block));
}

/// Computes P and Q of the data blocks, which are in the order of their indices.
///
/// # Panics
/// If the lengths differ, or if there are more than [`BLOCKS_MAX`] blocks.
pub fn pq(data: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
    pq_with(Simd::best(), data, p, q);
}

/// As [`pq`], with the given instructions, for tests and benchmarks.
///
/// # Panics
/// As [`pq`], and if this processor does not support the instructions.
pub fn pq_with(simd: Simd, data: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
    assert!(data.len() <= BLOCKS_MAX, "{} data blocks are more than {BLOCKS_MAX}", data.len());
    assert!(data.iter().all(|block| block.len() == p.len()), "blocks of one row are equally long");
    assert_eq!(p.len(), q.len(), "blocks of one row are equally long");
    kernel::pq(simd, data, p, q);
}

/// Adds `from`, times 2 to the power `index`, to `to`: the change of Q when data block `index` changes by `from`.
///
/// # Panics
/// If the lengths differ.
pub fn add_scaled(to: &mut [u8], from: &[u8], index: usize) {
    assert_eq!(to.len(), from.len(), "blocks of one row are equally long");
    kernel::add_multiple(Simd::best(), to, from, field::power(index));
}

/// As [`add_scaled`], with the given instructions, for tests and benchmarks.
///
/// # Panics
/// As [`add_scaled`], and if this processor does not support the instructions.
pub fn add_scaled_with(simd: Simd, to: &mut [u8], from: &[u8], index: usize) {
    assert_eq!(to.len(), from.len(), "blocks of one row are equally long");
    kernel::add_multiple(simd, to, from, field::power(index));
}

/// Locates a single wrong block in a row of `blocks` data blocks. `p_sum` and `q_sum` are the differences between the
/// stored P and Q and those computed from the stored data. `None` if no single block explains every byte, or if there
/// is no difference at all.
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

/// The single wrong block of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The data block with this index: its error is the difference of P.
    Data(usize),
    /// P.
    P,
    /// Q.
    Q,
}
