//! The lightest error with a syndrome, and whether there is another of that weight.
//!
//! Some wrong bit's column has the first one of the syndrome. There are `7 k + 1` such columns; the search takes away
//! one after the other and goes on with what is left. A data column takes away seven ones at most, so with `n` bits
//! to go the syndrome may have `7 n` ones: that leaves very few columns to try. Bits are added to the limit two by two,
//! as every column has an odd number of ones.

use super::decode::Syndrome;
use super::{COLUMN_WEIGHT, CORRECTED_SURELY, DISTANCE};

/// Errors of more bits are not searched for.
const BITS_MAX: u32 = 8;
/// Steps of a search for errors of more than half the distance, one or two microseconds each. For those up to that, a
/// search takes the steps it needs: about ten, but 50,000 for four wrong bits that are all in the parity.
const STEPS_MAX: u32 = 400;
const ONES: u32 = COLUMN_WEIGHT as u32;

pub(super) enum Nearest {
    /// This and no other: the bits that are wrong.
    Is(Vec<u32>),
    /// Two errors of the same weight, none lighter.
    Several,
    /// None as light as the search went in its time.
    NotFound,
}

/// Leaves the syndrome as it was.
pub(super) fn nearest(syndrome: &mut Syndrome<'_>) -> Nearest {
    let lowest = syndrome.weight().div_ceil(ONES);
    let lowest = lowest + (lowest ^ syndrome.weight()) % 2;
    let mut search = Search::new(syndrome);
    for bits in (lowest..=BITS_MAX).step_by(2) {
        // Of errors up to there the distance leaves one at most: when it is found, no other is looked for.
        search.wanted = if bits <= CORRECTED_SURELY as u32 { 1 } else { 2 };
        search.steps_max = if bits <= DISTANCE as u32 / 2 { u32::MAX } else { STEPS_MAX };
        search.steps = 0;
        search.descend(bits);
        match std::mem::take(&mut search.found).as_mut_slice() {
            [only] => return Nearest::Is(std::mem::take(only)),
            [] if search.steps < search.steps_max => {}
            [] => break,
            _ => return Nearest::Several,
        }
    }
    Nearest::NotFound
}

struct Search<'a, 'b> {
    syndrome: &'a mut Syndrome<'b>,
    /// Bits taken away, in that order.
    path: Vec<u32>,
    /// Columns to try, of all steps of the path; each is the weight it leaves, and the bit.
    columns: Vec<(u32, u32)>,
    found: Vec<Vec<u32>>,
    wanted: usize,
    steps: u32,
    steps_max: u32,
}

impl<'a, 'b> Search<'a, 'b> {
    fn new(syndrome: &'a mut Syndrome<'b>) -> Search<'a, 'b> {
        let (path, columns, found) = (Vec::new(), Vec::new(), Vec::new());
        Search { syndrome, path, columns, found, wanted: 1, steps: 0, steps_max: 0 }
    }

    fn is_over(&self) -> bool {
        self.found.len() >= self.wanted || self.steps >= self.steps_max
    }

    /// Finds the errors of at most `bits` bits.
    fn descend(&mut self, bits: u32) {
        let Some(row) = self.syndrome.ones().next() else {
            return self.note();
        };
        self.steps += 1;
        let begin = self.columns.len();
        self.push_columns(row, ONES * (bits - 1));
        self.columns[begin..].sort_unstable();
        for i in begin..self.columns.len() {
            if self.is_over() {
                break;
            }
            let (_, bit) = self.columns[i];
            self.syndrome.flip(bit);
            self.path.push(bit);
            self.descend(bits - 1);
            self.path.pop();
            self.syndrome.flip(bit);
        }
        self.columns.truncate(begin);
    }

    /// The columns with this row that leave at most `weight_max` ones.
    fn push_columns(&mut self, row: u32, weight_max: u32) {
        let (syndrome, weight) = (&*self.syndrome, self.syndrome.weight());
        // Most columns have too few ones: stop counting as soon as that is certain.
        let zeros_max = (weight_max + ONES).saturating_sub(weight) / 2;
        for (word, shifts) in syndrome.code().shifts().iter().enumerate() {
            for shift in shifts {
                let place = syndrome.subtract(row, u32::from(*shift));
                if let Some(zeros) = syndrome.zeros_up_to(zeros_max, shifts, place) {
                    let bit = word as u32 * syndrome.word_bits() + place;
                    self.columns.push((weight + 2 * zeros - ONES, bit));
                }
            }
        }
        if weight - 1 <= weight_max {
            self.columns.push((weight - 1, syndrome.data_bits() + row));
        }
    }

    /// The path leads to an error: notes it, if it is not one found before by another order of its bits.
    fn note(&mut self) {
        let mut bits = self.path.clone();
        bits.sort_unstable();
        if !self.found.contains(&bits) {
            self.found.push(bits);
        }
    }
}
