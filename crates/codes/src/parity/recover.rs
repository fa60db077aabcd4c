//! Recovery of lost blocks from the remaining ones (Anvin, sections 1 to 3).

use super::kernel::{self, Simd};
use super::{add_scaled, field, p, pq, xor_into};
use std::fmt;

/// More blocks are lost than the row has parity blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unrecoverable {
    /// Number of lost blocks.
    pub lost: usize,
    /// Number of parity blocks of the row.
    pub parities: usize,
}

impl fmt::Display for Unrecoverable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} blocks are lost, and parity makes up for {} only", self.lost, self.parities)
    }
}

impl std::error::Error for Unrecoverable {}

/// Computes the blocks of a row whose indices are in `lost` from the others. `blocks` are the data blocks, then P, then
/// Q if `parities` is 2. The previous contents of the lost blocks do not matter.
///
/// # Panics
/// If the blocks differ in length, or `lost` is not sorted or has an index out of range.
pub fn recover(blocks: &mut [Vec<u8>], parities: usize, lost: &[usize]) -> Result<(), Unrecoverable> {
    assert!(lost.is_sorted_by(|a, b| a < b) && lost.iter().all(|i| *i < blocks.len()), "{lost:?}");
    let (p_at, q_at) = (blocks.len() - parities, blocks.len() - parities + 1);
    let of_data: Vec<usize> = lost.iter().copied().filter(|i| *i < p_at).collect();
    let has_p = !lost.contains(&p_at);
    match (of_data.as_slice(), has_p) {
        _ if lost.len() > parities => return Err(Unrecoverable { lost: lost.len(), parities }),
        ([], _) => {}
        ([x], true) => from_p(blocks, p_at, *x),
        ([x], false) => from_q(blocks, q_at, *x),
        ([x, y], _) => two_from_p_and_q(blocks, p_at, *x, *y),
        _ => unreachable!("at most two are lost"),
    }
    if lost.iter().any(|i| *i >= p_at) {
        parity_anew(blocks, parities);
    }
    Ok(())
}

/// Computes all parity blocks from all data blocks.
fn parity_anew(blocks: &mut [Vec<u8>], parities: usize) {
    let (data, parity) = blocks.split_at_mut(blocks.len() - parities);
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    match parity {
        [one] => p(&data, one),
        [one, two] => pq(&data, one, two),
        _ => unreachable!("one or two parity blocks"),
    }
}

fn from_p(blocks: &mut [Vec<u8>], p_at: usize, x: usize) {
    let mut sum = blocks[p_at].clone();
    (0..p_at).filter(|i| *i != x).for_each(|i| xor_into(&mut sum, &blocks[i]));
    blocks[x] = sum;
}

/// Removing the other data blocks from Q leaves the lost one times 2^x.
fn from_q(blocks: &mut [Vec<u8>], q_at: usize, x: usize) {
    let mut sum = blocks[q_at].clone();
    (0..q_at - 1).filter(|i| *i != x).for_each(|i| add_scaled(&mut sum, &blocks[i], i));
    kernel::multiply(Simd::best(), &mut sum, field::inverse_power(x));
    blocks[x] = sum;
}

/// With x < y, and P and Q without the remaining blocks: `p = X + Y` and `q = 2^x X + 2^y Y`. Therefore `2^-x q + p =
/// (2^(y-x) + 1) Y`.
fn two_from_p_and_q(blocks: &mut [Vec<u8>], p_at: usize, x: usize, y: usize) {
    let (mut p_sum, mut q_sum) = (blocks[p_at].clone(), blocks[p_at + 1].clone());
    for i in (0..p_at).filter(|i| *i != x && *i != y) {
        xor_into(&mut p_sum, &blocks[i]);
        add_scaled(&mut q_sum, &blocks[i], i);
    }
    kernel::multiply(Simd::best(), &mut q_sum, field::inverse_power(x));
    xor_into(&mut q_sum, &p_sum);
    kernel::multiply(Simd::best(), &mut q_sum, field::inverse(field::power(y - x) ^ 1));
    xor_into(&mut p_sum, &q_sum);
    (blocks[x], blocks[y]) = (p_sum, q_sum);
}
