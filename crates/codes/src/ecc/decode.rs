//! From wrong bits to right ones: the syndrome, and which decoder is asked when.
//!
//! The *syndrome* is the stored parity ⊕ that of the stored data: zero for a codeword, else the sum of the *columns* of
//! the wrong bits (a data bit's column are its seven parity bits, a parity bit's is itself). A decoder looks for few
//! columns with that sum. First [`nearest`] proves that there is no lighter one than it found, as far as it gets in a
//! bounded time, always for up to [`super::CORRECTED_SURELY`] bits; then [`flip`] goes by likelihood.

use super::kernel::{self, Simd};
use super::nearest::{Nearest, nearest};
use super::{COLUMN_WEIGHT, Code, LANES_MAX, Shifts, flip};

/// A codeword's syndrome. Bits of the codeword are numbered: data bits first (bit `n % 8` of byte `n / 8`), then those
/// of the parity.
#[derive(Clone)]
pub(super) struct Syndrome<'a> {
    code: &'a Code,
    lanes: [u64; LANES_MAX],
    weight: u32,
}

/// The syndrome of one codeword as it was read.
pub(super) fn syndrome<'a>(code: &'a Code, data: &[u8], parity: &[u8]) -> Syndrome<'a> {
    let mut computed = [0; 8 * LANES_MAX];
    let computed = &mut computed[..parity.len()];
    kernel::encode(Simd::best(), code, data, computed);
    let mut lanes = [0; LANES_MAX];
    let stored = parity.as_chunks::<8>().0;
    for ((lane, stored), computed) in lanes.iter_mut().zip(stored).zip(computed.as_chunks::<8>().0) {
        *lane = u64::from_le_bytes(*stored) ^ u64::from_le_bytes(*computed);
    }
    let weight = lanes.iter().map(|lane| lane.count_ones()).sum();
    Syndrome { code, lanes, weight }
}

/// Puts one codeword right: how many bits were wrong, or `None` (and nothing is changed).
pub(super) fn correct(code: &Code, data: &mut [u8], parity: &mut [u8]) -> Option<u32> {
    let mut syndrome = syndrome(code, data, parity);
    if syndrome.is_zero() {
        return Some(0);
    }
    let wrong = match nearest(&mut syndrome) {
        Nearest::Is(wrong) => wrong,
        Nearest::Several => return None,
        Nearest::NotFound => flip::likely(&syndrome)?,
    };
    for bit in &wrong {
        let byte = *bit as usize / 8;
        let byte = if byte < data.len() { &mut data[byte] } else { &mut parity[byte - data.len()] };
        *byte ^= 1 << (bit % 8);
    }
    Some(wrong.len() as u32)
}

impl Syndrome<'_> {
    pub(super) fn code(&self) -> &Code {
        self.code
    }

    pub(super) fn is_zero(&self) -> bool {
        self.weight == 0
    }

    /// Ones in it.
    pub(super) fn weight(&self) -> u32 {
        self.weight
    }

    pub(super) fn lanes(&self) -> &[u64] {
        &self.lanes[..self.code.lanes]
    }

    /// The parity bits that are one.
    pub(super) fn ones(&self) -> impl Iterator<Item = u32> {
        let lane_ones = |(i, lane): (usize, &u64)| {
            let (base, mut rest) = (64 * i as u32, *lane);
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| base + rest.trailing_zeros());
                rest &= rest.wrapping_sub(1);
                bit
            })
        };
        self.lanes().iter().enumerate().flat_map(lane_ones)
    }

    /// Data bits of the codeword: where the numbers of its parity bits begin.
    pub(super) fn data_bits(&self) -> u32 {
        8 * self.code.data_bytes() as u32
    }

    /// Bits of a data word.
    pub(super) fn word_bits(&self) -> u32 {
        64 * self.code.lanes as u32
    }

    /// The parity bits of a data bit.
    pub(super) fn column(&self, bit: u32) -> [u32; COLUMN_WEIGHT] {
        let (word, place) = (bit / self.word_bits(), bit % self.word_bits());
        self.code.shifts[word as usize].map(|shift| self.add(place, u32::from(shift)))
    }

    /// How many of these parity bits are one in the syndrome.
    pub(super) fn ones_in(&self, column: [u32; COLUMN_WEIGHT]) -> u32 {
        column.iter().map(|row| (self.lanes[*row as usize / 64] >> (row % 64) & 1) as u32).sum()
    }

    /// How many parity bits of this place of a word with these shifts are zero in the syndrome, if at most `most`.
    #[inline]
    pub(super) fn zeros_up_to(&self, most: u32, shifts: &Shifts, place: u32) -> Option<u32> {
        let mut zeros = 0;
        for shift in shifts {
            let row = self.add(place, u32::from(*shift));
            zeros += (!self.lanes[row as usize / 64] >> (row % 64) & 1) as u32;
            if zeros > most {
                return None;
            }
        }
        Some(zeros)
    }

    /// Adds the column of a bit of the codeword: as if that were flipped.
    pub(super) fn flip(&mut self, bit: u32) {
        match bit.checked_sub(self.data_bits()) {
            Some(row) => self.flip_row(row),
            None => self.column(bit).into_iter().for_each(|row| self.flip_row(row)),
        }
    }

    fn flip_row(&mut self, row: u32) {
        let (lane, bit) = (&mut self.lanes[row as usize / 64], 1 << (row % 64));
        *lane ^= bit;
        if *lane & bit == 0 { self.weight -= 1 } else { self.weight += 1 }
    }

    /// The place that a shift moves `place` to.
    fn add(&self, place: u32, shift: u32) -> u32 {
        let lane = place / 64 + shift / 64;
        let lanes = self.code.lanes as u32;
        (if lane >= lanes { lane - lanes } else { lane }) * 64 + (place + shift) % 64
    }

    /// The place that a shift moves to `row`.
    pub(super) fn subtract(&self, row: u32, shift: u32) -> u32 {
        let (lane, from) = (row / 64, shift / 64);
        let lanes = self.code.lanes as u32;
        (if lane < from { lane + lanes - from } else { lane - from }) * 64 + (row + 64 - shift % 64) % 64
    }
}
