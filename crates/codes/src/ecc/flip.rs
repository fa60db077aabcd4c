//! Bit flipping (Gallager, "Low-Density Parity-Check Codes", 1962, section 4.1): a likely error, for more wrong bits
//! than a search can prove.
//!
//! Flips the data bit with most ones of the syndrome in its column, as long as they are more than half; every flip
//! leaves fewer ones. What is left then are wrong parity bits. That alone would explain every syndrome, so an error
//! counts only if it is credible:
//!
//! 1. it has at most a sixteenth as many bits as the parity: so few errors do not reach one random syndrome in 2^80;
//! 2. parity bits are hardly more of it than they are of a codeword: where flipping went astray, there are many;
//! 3. flipping one data bit back, for parity bits, does not give another error of the same weight;
//! 4. of bits with equally many ones one could have begun with the first or the last: the lighter of both errors it is,
//!    and neither if they are different and as heavy.

use super::decode::Syndrome;
use super::{COLUMN_WEIGHT, LANES_MAX};

const ONES: u32 = COLUMN_WEIGHT as u32;
/// Ones a column must have to be flipped: more than half.
const ONES_MIN: u32 = ONES / 2 + 1;
/// Bits of the parity for each wrong bit of a credible error.
const PARITY_BITS_PER_ERROR: usize = 16;
/// Wrong parity bits that are credible by themselves.
const PARITY_ERRORS_FREE: usize = 4;

/// The bits of a credible error with this syndrome.
pub(super) fn likely(syndrome: &Syndrome<'_>) -> Option<Vec<u32>> {
    let errors = [Tie::First, Tie::Last].map(|tie| error(&mut syndrome.clone(), tie));
    match errors {
        [Some(a), Some(b)] if a.len() == b.len() => (a == b).then_some(a),
        [a, b] => a.into_iter().chain(b).min_by_key(Vec::len),
    }
}

/// Which of several bits with equally many ones is flipped.
#[derive(Clone, Copy, PartialEq)]
enum Tie {
    First,
    Last,
}

/// The bits of an error, in ascending order, if it is credible by itself.
fn error(syndrome: &mut Syndrome<'_>, tie: Tie) -> Option<Vec<u32>> {
    let (words, lanes) = (syndrome.code().shifts().len(), syndrome.code().lanes());
    let errors_max = 64 * lanes / PARITY_BITS_PER_ERROR;
    let mut wrong: Vec<u32> = Vec::new();
    while let Some(bit) = most_ones(syndrome, tie) {
        if wrong.len() > errors_max {
            return None;
        }
        syndrome.flip(bit);
        match wrong.iter().position(|b| *b == bit) {
            Some(again) => drop(wrong.swap_remove(again)),
            None => wrong.push(bit),
        }
    }
    let parity_errors = syndrome.weight() as usize;
    let errors = wrong.len() + parity_errors;
    let is_few = errors <= errors_max && parity_errors <= PARITY_ERRORS_FREE + 2 * errors / words;
    if !is_few || wrong.iter().any(|bit| syndrome.ones_in(syndrome.column(*bit)) >= ONES_MIN - 1) {
        return None;
    }
    let data_bits = syndrome.data_bits();
    wrong.extend(syndrome.ones().map(|row| data_bits + row));
    wrong.sort_unstable();
    Some(wrong)
}

/// A data bit with the most ones in its column, if those are more than half.
fn most_ones(syndrome: &Syndrome<'_>, tie: Tie) -> Option<u32> {
    let (code, mut best, mut least) = (syndrome.code(), None, ONES_MIN);
    for word in 0..code.shifts().len() {
        for (lane, counts) in counts(syndrome, word).iter().enumerate().take(code.lanes()) {
            let found =
                (least..=ONES).rev().map(|ones| (ones, counts.equal_to(ones))).find(|(_, have)| *have != 0);
            let Some((ones, have)) = found else { continue };
            let (place, next) = match tie {
                Tie::First => (have.trailing_zeros(), ones + 1),
                Tie::Last => (63 - have.leading_zeros(), ones),
            };
            best = Some(64 * (word * code.lanes() + lane) as u32 + place);
            least = next;
        }
    }
    best
}

/// 64 counts from 0 to 7: the bits worth 1, worth 2 and worth 4.
#[derive(Clone, Copy, Default)]
struct Counts([u64; 3]);

impl Counts {
    fn add(&mut self, bits: u64) {
        let mut carry = bits;
        for worth in &mut self.0 {
            (*worth, carry) = (*worth ^ carry, *worth & carry);
        }
    }

    /// Where the count is at least 4 and equal to `ones`.
    fn equal_to(&self, ones: u32) -> u64 {
        let [one, two, four] = self.0;
        let same = |bits: u64, wanted: u32| if wanted & 1 == 1 { bits } else { !bits };
        four & same(two, ones >> 1) & same(one, ones)
    }
}

/// For every bit of a data word, in its lanes, how many ones its column has.
fn counts(syndrome: &Syndrome<'_>, word: usize) -> [Counts; LANES_MAX] {
    let (rows, mut counts) = (syndrome.lanes(), [Counts::default(); LANES_MAX]);
    for shift in syndrome.code().shifts()[word] {
        let (moved, rotation) = (usize::from(shift) / 64, u32::from(shift) % 64);
        for (lane, counts) in counts.iter_mut().enumerate().take(rows.len()) {
            counts.add(rows[(lane + moved) % rows.len()].rotate_right(rotation));
        }
    }
    counts
}
