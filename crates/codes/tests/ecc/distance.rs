//! No two codewords differ in fewer than eight bits: proven by an exhaustive search.
//!
//! The code is linear, so it is enough that no codeword except zero has fewer than eight ones. As every column has an
//! odd number of ones, the number of ones in a codeword is even. So the search must exclude six or fewer columns that
//! add up to zero.
//!
//! * Not all of them are parity columns. Moving every word of a codeword by the same shift gives a codeword. So the
//!   first column may be taken as bit 0 of a data word, and no other data column need be of an earlier word.
//! * While the sum has a one, some remaining column has it too: each such column is tried.
//! * `n` remaining columns remove at most `7 n` ones.

use super::oracle::column;
use vellum_codes::ecc::{COLUMN_WEIGHT, Code, DISTANCE, Rate};

struct Proof {
    code: &'static Code,
    first_word: usize,
    sum: Vec<u64>,
    ones: usize,
    chosen: Vec<(usize, usize)>,
}

/// The word number of parity columns.
const PARITY: usize = usize::MAX;

impl Proof {
    /// Whether up to `count` further columns can make the sum zero. If so, leaves them in `chosen`.
    fn can_vanish(&mut self, count: usize) -> bool {
        let Some(lane) = self.sum.iter().position(|lane| *lane != 0) else {
            return true;
        };
        let row = 64 * lane + self.sum[lane].trailing_zeros() as usize;
        self.vanishes_with((PARITY, row), count)
            || (self.first_word..self.code.shifts().len()).any(|word| {
                (0..COLUMN_WEIGHT).any(|i| {
                    let shift = usize::from(self.code.shifts()[word][i]);
                    let lanes = self.code.lanes();
                    let place =
                        (row / 64 + lanes - shift / 64) % lanes * 64 + (row % 64 + 64 - shift % 64) % 64;
                    self.vanishes_with((word, place), count)
                })
            })
    }

    fn vanishes_with(&mut self, column: (usize, usize), count: usize) -> bool {
        if self.ones_with(column) > COLUMN_WEIGHT * (count - 1) || self.chosen.contains(&column) {
            return false;
        }
        self.add(column);
        self.chosen.push(column);
        let vanishes = self.can_vanish(count - 1);
        if !vanishes {
            self.chosen.pop();
            self.add(column);
        }
        vanishes
    }

    fn add(&mut self, column: (usize, usize)) {
        self.ones = self.ones_with(column);
        for row in self.rows(column) {
            self.sum[row / 64] ^= 1 << (row % 64);
        }
    }

    /// Number of ones in the sum after adding this column.
    fn ones_with(&self, column: (usize, usize)) -> usize {
        let rows = self.rows(column);
        let ones: u64 = rows.clone().map(|row| self.sum[row / 64] >> (row % 64) & 1).sum();
        self.ones + rows.count() - 2 * ones as usize
    }

    fn rows(&self, (word, place): (usize, usize)) -> impl Iterator<Item = usize> + Clone + use<> {
        let (code, lanes) = (self.code, self.code.lanes());
        let (shifts, parity) =
            if word == PARITY { (&[][..], Some(place)) } else { (&code.shifts()[word][..], None) };
        let moved = move |shift: &u16| {
            let lane = place / 64 + usize::from(*shift) / 64;
            (if lane >= lanes { lane - lanes } else { lane }) * 64 + (place + usize::from(*shift)) % 64
        };
        shifts.iter().map(moved).chain(parity)
    }
}

/// Finds a codeword with at most `ones` ones.
fn codeword(code: &'static Code, ones: usize) -> Option<Vec<(usize, usize)>> {
    (0..code.shifts().len()).find_map(|first_word| {
        let sum = vec![0; code.lanes()];
        let mut proof = Proof { code, first_word, sum, ones: 0, chosen: Vec::new() };
        proof.vanishes_with((first_word, 0), ones).then_some(proof.chosen)
    })
}

fn two_codewords_differ_in_eight_bits(data_bytes: usize, rate: Rate) {
    assert_eq!(DISTANCE % 2, 0);
    let code = Code::new(data_bytes, rate).unwrap();
    assert_eq!(codeword(code, DISTANCE - 2), None, "{code:?}");
    // The search can succeed: a data bit and its parity bits are a codeword.
    assert_eq!(codeword(code, DISTANCE).expect("one with eight ones").len(), DISTANCE);
}

// The slowest proofs are separate tests, to run in parallel.

#[test]
fn two_codewords_of_1_kib_differ_in_eight_bits() {
    two_codewords_differ_in_eight_bits(1024, Rate::R32_33);
}

#[test]
fn two_codewords_of_2_kib_differ_in_eight_bits() {
    two_codewords_differ_in_eight_bits(2048, Rate::R32_33);
}

#[test]
fn two_codewords_of_4_kib_differ_in_eight_bits() {
    two_codewords_differ_in_eight_bits(4096, Rate::R32_33);
}

#[test]
fn two_codewords_of_lower_rate_differ_in_eight_bits() {
    for rate in [Rate::R16_17, Rate::R8_9] {
        for data_bytes in [1024, 2048, 4096] {
            two_codewords_differ_in_eight_bits(data_bytes, rate);
        }
    }
}

#[test]
fn every_data_bit_enters_seven_parity_bits() {
    for code in Code::all() {
        for bit in 0..8 * code.data_bytes() {
            let mut rows = column(code, bit);
            rows.sort_unstable();
            rows.dedup();
            assert_eq!(rows.len(), COLUMN_WEIGHT, "{} bit {bit}", code.name());
        }
    }
}
