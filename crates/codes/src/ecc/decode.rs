//! Correction of codewords: computes the syndrome and chooses the decoder.
//!
//! The *syndrome* is the stored parity ⊕ the parity of the stored data. It is zero for a codeword, else the sum of the
//! *columns* of the wrong bits (the column of a data bit is its seven parity bits, that of a parity bit is itself). A
//! decoder searches for few columns with that sum. First, [`nearest`] searches for the lightest error and proves that
//! there is no lighter one, as far as it gets in a bounded time, and always for up to [`super::CORRECTED_SURELY`] bits.
//! Then [`flip`] searches for a likely error.

use super::kernel::{self, Simd};
use super::nearest::{Nearest, nearest};
use super::{COLUMN_WEIGHT, Code, LANES_MAX, Shifts, flip};

/// The syndrome of a codeword. Bits of the codeword are numbered: first the data bits (bit `n % 8` of byte `n / 8`),
/// then the parity bits.
#[derive(Clone)]
pub(super) struct Syndrome<'a> {
    code: &'a Code,
    lanes: [u64; LANES_MAX],
    weight: u32,
}

/// Computes the syndrome of a codeword as it was read.
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

/// Corrects one codeword. Returns the number of wrong bits, or `None` without changing anything.
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

    /// Number of ones in the syndrome.
    pub(super) fn weight(&self) -> u32 {
        self.weight
    }

    pub(super) fn lanes(&self) -> &[u64] {
        &self.lanes[..self.code.lanes]
    }

    /// The parity bits that are one in the syndrome.
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

    /// Number of data bits of the codeword, which is also the number of its first parity bit.
    pub(super) fn data_bits(&self) -> u32 {
        8 * self.code.data_bytes() as u32
    }

    /// Number of bits of a data word.
    pub(super) fn word_bits(&self) -> u32 {
        64 * self.code.lanes as u32
    }

    /// The parity bits of a data bit.
    pub(super) fn column(&self, bit: u32) -> [u32; COLUMN_WEIGHT] {
        let (word, place) = (bit / self.word_bits(), bit % self.word_bits());
        self.code.shifts[word as usize].map(|shift| self.add(place, u32::from(shift)))
    }

    /// Number of these parity bits that are one in the syndrome.
    pub(super) fn ones_in(&self, column: [u32; COLUMN_WEIGHT]) -> u32 {
        column.iter().map(|row| (self.lanes[*row as usize / 64] >> (row % 64) & 1) as u32).sum()
    }

    /// Number of parity bits, of the data bit at `place` of a word with these shifts, that are zero in the syndrome;
    /// `None` if there are more than `most`.
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

    /// Adds the column of a bit of the codeword, as if the bit were flipped.
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

    /// The place to which a shift moves `place`.
    fn add(&self, place: u32, shift: u32) -> u32 {
        let lane = place / 64 + shift / 64;
        let lanes = self.code.lanes as u32;
        (if lane >= lanes { lane - lanes } else { lane }) * 64 + (place + shift) % 64
    }

    /// The place which a shift moves to `row`.
    pub(super) fn subtract(&self, row: u32, shift: u32) -> u32 {
        let (lane, from) = (row / 64, shift / 64);
        let lanes = self.code.lanes as u32;
        (if lane < from { lane + lanes - from } else { lane - from }) * 64 + (row + 64 - shift % 64) % 64
    }
}
