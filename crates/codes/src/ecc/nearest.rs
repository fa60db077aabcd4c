//! Finds the lightest error with a given syndrome, and whether there is another of the same weight.
//!
//! The column of some wrong bit contains the first one of the syndrome. There are `7 k + 1` such columns; the search
//! removes each in turn and continues with the remaining syndrome. A data column removes at most seven ones, so with
//! `n` bits left the syndrome may have at most `7 n` ones, which leaves very few columns to try. The limit on bits
//! grows in steps of two, because every column has an odd number of ones.

use super::decode::Syndrome;
use super::{COLUMN_WEIGHT, CORRECTED_SURELY, DISTANCE};

/// Largest number of wrong bits that is searched for.
const BITS_MAX: u32 = 8;
/// Maximum number of steps of a search for errors of more than half the distance, at one or two microseconds each. The
/// search for fewer bits is not limited: it takes about ten steps, but 50,000 for four wrong bits that are all in the
/// parity.
const STEPS_MAX: u32 = 400;
const ONES: u32 = COLUMN_WEIGHT as u32;

pub(super) enum Nearest {
    /// The lightest error: the bits that are wrong.
    Is(Vec<u32>),
    /// There are two errors of the same weight and none lighter.
    Several,
    /// No error was found up to the weight that was searched in the available steps.
    NotFound,
}

/// Searches for the lightest error. Leaves the syndrome unchanged.
pub(super) fn nearest(syndrome: &mut Syndrome<'_>) -> Nearest {
    let lowest = syndrome.weight().div_ceil(ONES);
    let lowest = lowest + (lowest ^ syndrome.weight()) % 2;
    let mut search = Search::new(syndrome);
    for bits in (lowest..=BITS_MAX).step_by(2) {
        // The distance allows at most one error of so few bits: once it is found, no other is searched for.
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
    /// Bits removed so far, in that order.
    path: Vec<u32>,
    /// Columns to try at all steps of the path: the weight that remains, and the bit.
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

    /// Finds errors of at most `bits` bits.
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

    /// Adds the columns that contain this row and leave at most `weight_max` ones.
    fn push_columns(&mut self, row: u32, weight_max: u32) {
        let (syndrome, weight) = (&*self.syndrome, self.syndrome.weight());
        // Most columns have too few ones: counting stops as soon as that is certain.
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

    /// The path is an error: records it, unless it was found before with its bits in another order.
    fn note(&mut self) {
        let mut bits = self.path.clone();
        bits.sort_unstable();
        if !self.found.contains(&bits) {
            self.found.push(bits);
        }
    }
}
