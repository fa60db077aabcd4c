//! The scrambler of a flash controller: XORs data with the keystream of a linear feedback shift register.
//!
//! Cells fail sooner if neighbours hold similar patterns, so controllers store noise (ses-dedup.txt, sections I and
//! III.A). The keystream restarts for every sector or page, from a state that is an affine function of its address
//! ([`SeedMap`]): of the LBA in the paper; of the physical page number modulo 64, 128 or 256 in reverse-engineered
//! drives. This is not encryption: [`learn()`] finds the register and the map from the keystreams of a few dozen
//! addresses.
//!
//! Bit `t` of the keystream is bit `t mod 8` of byte `t / 8` (with [`BitOrder::MsbFirst`], bit `7 - t mod 8`). The
//! first bits are the state; each later bit is the sum of the earlier ones that the register's feedback selects.
//!
//! Computing single bits would be slow. But over GF(2) a sequence with the characteristic polynomial `f(x)` also
//! satisfies its square, `f(x²)`: the same sums, of bits twice as far apart. After six squarings the sums are of whole
//! 64-bit words. Each further doubling of the keystream computed so far allows another squaring, which doubles the
//! number of words that can be added at once.

mod denoise;
mod kernel;
mod learn;
mod seed_map;
mod survey;

pub use learn::{Learned, NotLearned, learn};
pub use seed_map::{SeedMap, UnknownAddress};
pub use survey::{Limits, NotSurveyed, PIECE_BYTES_MIN, Survey, survey};

use std::fmt;

/// Maximum number of bits of a register.
const DEGREE_MAX: usize = 64;

/// Which bit of a byte comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitOrder {
    /// The least significant.
    LsbFirst,
    /// The most significant.
    MsbFirst,
}

/// A linear feedback shift register (in Fibonacci form; a register in Galois form has the same keystreams).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lfsr {
    degree: u32,
    feedback: u64,
}

impl Lfsr {
    /// `x³² + x²² + x² + x + 1`, primitive: period 2³² - 1.
    pub const X32: Lfsr = Lfsr { degree: 32, feedback: 1 << 22 | 0b111 };
    /// `x⁶⁴ + x⁴ + x³ + x + 1`, primitive: period 2⁶⁴ - 1.
    pub const X64: Lfsr = Lfsr { degree: 64, feedback: 0b11011 };

    /// The register of `degree` bits (1 to 64) whose next bit, after bits `t` to `t + degree - 1`, is the sum of those
    /// bits `t + i` for which bit `i` of `feedback` is set: characteristic polynomial `x^degree + Σ x^i`. Bit 0 must be
    /// set (else the first bit has no effect), and no bit from `degree` up.
    pub fn new(degree: u32, feedback: u64) -> Option<Lfsr> {
        let is_wide_enough = degree == 64 || (1..64).contains(&degree) && feedback >> degree == 0;
        (is_wide_enough && feedback & 1 == 1).then_some(Lfsr { degree, feedback })
    }

    /// Number of bits of the state.
    pub const fn degree(&self) -> u32 {
        self.degree
    }

    /// The bits that are added up; see [`Lfsr::new`].
    pub const fn feedback(&self) -> u64 {
        self.feedback
    }

    /// Drops the first bit of a state and appends the next one.
    const fn step(&self, state: u64) -> u64 {
        let next = (state & self.feedback).count_ones() as u64 & 1;
        state >> 1 | next << (self.degree - 1)
    }

    /// The state before this one.
    const fn step_back(&self, state: u64) -> u64 {
        // The dropped bit makes the sum equal to the appended bit.
        let appended = state >> (self.degree - 1);
        let rest = state << 1 & u64::MAX >> (64 - self.degree);
        rest | ((rest & self.feedback).count_ones() as u64 & 1) ^ appended
    }
}

impl fmt::Display for Lfsr {
    /// Writes the polynomial: `x^32 + x^22 + x^2 + x + 1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "x^{}", self.degree)?;
        let mut others = (0..self.degree).rev().filter(|i| self.feedback >> i & 1 == 1);
        others.try_for_each(|i| match i {
            0 => f.write_str(" + 1"),
            1 => f.write_str(" + x"),
            _ => write!(f, " + x^{i}"),
        })
    }
}

/// A register with its seed map, and tables that make its keystreams fast.
#[derive(Clone, Debug)]
pub struct Scrambler {
    lfsr: Lfsr,
    order: BitOrder,
    map: SeedMap,
    /// How far back the terms of a sum are, in ascending order.
    distances: Vec<usize>,
    /// For each bit of the state, the first `degree` words of the keystream of that bit alone.
    starts: Vec<u64>,
}

impl Scrambler {
    /// A scrambler with the states of `map`, of which it uses as many low bits as the register has.
    pub fn new(lfsr: Lfsr, order: BitOrder, map: SeedMap) -> Scrambler {
        let degree = lfsr.degree as usize;
        let distances =
            (0..degree).rev().filter(|i| lfsr.feedback >> i & 1 == 1).map(|i| degree - i).collect();
        let starts = (0..degree).flat_map(|bit| start(lfsr, 1 << bit)).collect();
        Scrambler { lfsr, order, map, distances, starts }
    }

    /// The register.
    pub fn lfsr(&self) -> Lfsr {
        self.lfsr
    }

    /// The order in which keystream bits fill bytes.
    pub fn order(&self) -> BitOrder {
        self.order
    }

    /// The map from addresses to states.
    pub fn map(&self) -> &SeedMap {
        &self.map
    }

    /// The same scrambler with another map.
    fn with_map(self, map: SeedMap) -> Scrambler {
        Scrambler { map, ..self }
    }

    /// Scrambles or descrambles data of this address, which is the same operation.
    pub fn xor_into(&self, address: u64, data: &mut [u8]) -> Result<(), UnknownAddress> {
        let state = self.map.state(address)? & u64::MAX >> (64 - self.lfsr.degree);
        kernel::xor(self, state, data);
        Ok(())
    }
}

/// The first `degree` words of the keystream that begins with `state`.
fn start(lfsr: Lfsr, mut state: u64) -> impl Iterator<Item = u64> {
    let word = move |_| {
        (0..64).fold(0, |word, bit| {
            let first = state & 1;
            state = lfsr.step(state);
            word | first << bit
        })
    };
    (0..lfsr.degree).map(word)
}
