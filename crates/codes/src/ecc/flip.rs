//! Bit flipping (Gallager, "Low-Density Parity-Check Codes", 1962, section 4.1): finds a likely error, for more wrong
//! bits than a search can prove.
//!
//! Repeatedly flips the data bit whose column has the most ones in the syndrome, as long as these are more than half of
//! the column; each flip reduces the number of ones. The remaining ones are then taken as wrong parity bits. Since
//! wrong parity bits alone would explain any syndrome, an error is accepted only if it is credible:
//!
//! 1. it has at most a sixteenth as many bits as the parity: so few errors cover less than one in 2^80 random
//!    syndromes;
//! 2. the share of parity bits in it is hardly larger than in a codeword: where flipping went wrong, it is large;
//! 3. flipping one data bit back, in exchange for parity bits, does not give another error of the same weight;
//! 4. if several bits have equally many ones, flipping may choose the first or the last of them: the lighter of the two
//!    resulting errors is taken, and neither if they differ and have the same weight.

use super::decode::Syndrome;
use super::{COLUMN_WEIGHT, LANES_MAX};

const ONES: u32 = COLUMN_WEIGHT as u32;
/// Minimum number of ones in the column of a bit to be flipped: more than half.
const ONES_MIN: u32 = ONES / 2 + 1;
/// Parity bits per wrong bit of a credible error.
const PARITY_BITS_PER_ERROR: usize = 16;
/// Number of wrong parity bits that is always credible.
const PARITY_ERRORS_FREE: usize = 4;

/// Finds the bits of a credible error with this syndrome.
pub(super) fn likely(syndrome: &Syndrome<'_>) -> Option<Vec<u32>> {
    let errors = [Tie::First, Tie::Last].map(|tie| error(&mut syndrome.clone(), tie));
    match errors {
        [Some(a), Some(b)] if a.len() == b.len() => (a == b).then_some(a),
        [a, b] => a.into_iter().chain(b).min_by_key(Vec::len),
    }
}

/// Which of several bits with equally many ones to flip.
#[derive(Clone, Copy, PartialEq)]
enum Tie {
    First,
    Last,
}

/// Finds the bits of an error, in ascending order, if it meets the first three conditions.
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

/// A data bit with the most ones in its column, if these are more than half.
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

/// 64 counts from 0 to 7, in three bit planes: of value 1, 2 and 4.
#[derive(Clone, Copy, Default)]
struct Counts([u64; 3]);

impl Counts {
    fn add(&mut self, bits: u64) {
        let mut carry = bits;
        for worth in &mut self.0 {
            (*worth, carry) = (*worth ^ carry, *worth & carry);
        }
    }

    /// Positions whose count is equal to `ones`, which must be at least 4.
    fn equal_to(&self, ones: u32) -> u64 {
        let [one, two, four] = self.0;
        let same = |bits: u64, wanted: u32| if wanted & 1 == 1 { bits } else { !bits };
        four & same(two, ones >> 1) & same(one, ones)
    }
}

/// For each bit of a data word, by lane, the number of ones in its column.
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
