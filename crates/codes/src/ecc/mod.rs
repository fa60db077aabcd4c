//! The error-correcting code of a flash page: parity for codewords of 1, 2 or 4 KiB, and correction of bit errors.
//!
//! A codeword is `k` data words and one parity word of the same size (so the rate is `k / (k + 1)`). A word is `P`
//! lanes of 64 bits, little endian. Each data word enters the parity seven times, each time moved by a *shift* `(r,
//! s)`: each lane is rotated left by `r` bits, then lane `i` is moved to lane `i + s` (modulo `P`):
//!
//! ```text
//! parity[(i + s) mod P]  ⊕=  rotate_left(word[w][i], r)        for each word w and each of its seven shifts
//! ```
//!
//! The shifts define the code. Stored parity depends on them, so they must never change ([`Code::shifts`],
//! `docs/decisions/0007-ecc-code.md`).
//!
//! Invariants, each with tests in `tests/ecc`:
//!
//! 1. The code is linear: the parity of `a ⊕ b` is the parity of `a` ⊕ the parity of `b` (ses-dedup.txt, equation 2).
//! 2. Two codewords differ in at least [`DISTANCE`] bits. So up to [`CORRECTED_SURELY`] wrong bits, in data or parity,
//!    are always corrected, and one more is at least detected.
//! 3. If [`Code::correct`] reports success, the result is a codeword; if not, the bytes are unchanged.
//! 4. Every [`Simd`] gives the same parity.

mod decode;
mod flip;
mod fold;
mod kernel;
mod nearest;
mod tables;

pub use fold::Fold;
pub use kernel::Simd;

use std::fmt;

/// Number of parity bits that a data bit enters. Odd, so that the number of wrong bits is odd if and only if the number
/// of ones in the syndrome is.
pub const COLUMN_WEIGHT: usize = 7;
/// Minimum number of bits in which two codewords of any [`Code`] differ.
pub const DISTANCE: usize = 8;
/// Number of wrong bits in a codeword that are always corrected. Most patterns of several times as many are corrected
/// too.
pub const CORRECTED_SURELY: usize = (DISTANCE - 1) / 2;

/// Maximum number of data words in a codeword: rate 32/33.
const WORDS_MAX: usize = 32;
/// Maximum number of lanes in a word: 4 KiB at rate 8/9.
const LANES_MAX: usize = 64;

/// The seven shifts of a data word, each `64 · s + r`.
type Shifts = [u16; COLUMN_WEIGHT];

/// Data bits per stored bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// 0.970: 32 parity bytes for 1 KiB, the paper's code rate.
    R32_33,
    /// 0.941: 64 parity bytes for 1 KiB.
    R16_17,
    /// 0.889: 128 parity bytes for 1 KiB.
    R8_9,
}

impl Rate {
    /// Number of data words per parity word.
    const fn words(self) -> usize {
        match self {
            Rate::R32_33 => 32,
            Rate::R16_17 => 16,
            Rate::R8_9 => 8,
        }
    }
}

/// One of the codes; see the module. [`Code::all`] lists them.
pub struct Code {
    name: &'static str,
    lanes: usize,
    shifts: &'static [Shifts],
    plan: kernel::Plan,
}

static CODES: [Code; 9] = [
    Code::define("1KiB-32/33", 4, &tables::L4_W32),
    Code::define("1KiB-16/17", 8, &tables::L8_W16),
    Code::define("1KiB-8/9", 16, &tables::L16_W8),
    Code::define("2KiB-32/33", 8, &tables::L8_W32),
    Code::define("2KiB-16/17", 16, &tables::L16_W16),
    Code::define("2KiB-8/9", 32, &tables::L32_W8),
    Code::define("4KiB-32/33", 16, &tables::L16_W32),
    Code::define("4KiB-16/17", 32, &tables::L32_W16),
    Code::define("4KiB-8/9", 64, &tables::L64_W8),
];

impl Code {
    const fn define(name: &'static str, lanes: usize, shifts: &'static [Shifts]) -> Code {
        assert!(lanes <= LANES_MAX && shifts.len() <= WORDS_MAX);
        Code { name, lanes, shifts, plan: kernel::Plan::new(shifts) }
    }

    /// Every code.
    pub fn all() -> &'static [Code] {
        &CODES
    }

    /// The paper's parameters (ses-dedup.txt, section V.A): 1 KiB of data, rate 32/33.
    pub fn paper() -> &'static Code {
        &CODES[0]
    }

    /// The code with `data_bytes` (1024, 2048 or 4096) per codeword at this rate.
    pub fn new(data_bytes: usize, rate: Rate) -> Option<&'static Code> {
        CODES.iter().find(|c| c.data_bytes() == data_bytes && c.shifts.len() == rate.words())
    }

    /// The code with this name.
    pub fn by_name(name: &str) -> Option<&'static Code> {
        CODES.iter().find(|c| c.name == name)
    }

    /// Stable name, such as `1KiB-32/33`.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Data bytes in a codeword.
    pub const fn data_bytes(&self) -> usize {
        self.parity_bytes() * self.shifts.len()
    }

    /// Parity bytes in a codeword.
    pub const fn parity_bytes(&self) -> usize {
        8 * self.lanes
    }

    /// Parity bytes for `data_bytes`, which must be whole codewords: 128 for a 4 KiB sector in the paper's code.
    pub const fn parity_bytes_of(&self, data_bytes: usize) -> usize {
        data_bytes / self.data_bytes() * self.parity_bytes()
    }

    /// Lanes of 64 bits in a word: `P` in the module's formula.
    pub const fn lanes(&self) -> usize {
        self.lanes
    }

    /// Definition of the code: for each data word, its seven shifts `64 · s + r`.
    pub const fn shifts(&self) -> &'static [[u16; COLUMN_WEIGHT]] {
        self.shifts
    }

    /// Computes the parity of one or more codewords, which are contiguous in `data` and in `parity`.
    ///
    /// ```
    /// let code = vellum_codes::ecc::Code::paper();
    /// let (mut data, mut parity) = ([7; 4096], [0; 128]);
    /// code.encode(&data, &mut parity);
    /// data[100] ^= 0x10;
    /// assert!(!code.check(&data, &parity));
    /// assert_eq!(code.correct(&mut data, &mut parity).unwrap().bits, 1);
    /// assert_eq!(data[100], 7);
    /// ```
    ///
    /// # Panics
    /// If `data` is not whole codewords, or if the length of `parity` is not [`Code::parity_bytes_of`] that of `data`.
    pub fn encode(&self, data: &[u8], parity: &mut [u8]) {
        self.encode_with(Simd::best(), data, parity);
    }

    /// As [`Code::encode`], with the given instructions, for comparisons.
    ///
    /// # Panics
    /// As [`Code::encode`], and if this processor does not support the instructions.
    pub fn encode_with(&self, simd: Simd, data: &[u8], parity: &mut [u8]) {
        self.assert_lengths(data, parity);
        kernel::encode(simd, self, data, parity);
    }

    /// True if the parity of every codeword is the one that [`Code::encode`] computes.
    ///
    /// # Panics
    /// As [`Code::encode`].
    pub fn check(&self, data: &[u8], parity: &[u8]) -> bool {
        self.assert_lengths(data, parity);
        let mut computed = [0; 8 * LANES_MAX];
        let at_once = computed.len() / self.parity_bytes();
        let data = data.chunks(at_once * self.data_bytes());
        data.zip(parity.chunks(at_once * self.parity_bytes())).all(|(data, parity)| {
            let computed = &mut computed[..parity.len()];
            self.encode(data, computed);
            computed == parity
        })
    }

    /// Corrects bit errors in `data` and in `parity` of one or more codewords; see the module for how many.
    ///
    /// If there are more, the result may be a codeword that was never written, so a checksum is needed in addition.
    /// Codewords that cannot be corrected stay unchanged, and the others are corrected nevertheless.
    ///
    /// # Panics
    /// As [`Code::encode`].
    pub fn correct(&self, data: &mut [u8], parity: &mut [u8]) -> Result<Corrected, Uncorrectable> {
        if self.check(data, parity) {
            return Ok(Corrected::default());
        }
        let (mut corrected, mut failed) = (Corrected::default(), None);
        let parities = parity.chunks_exact_mut(self.parity_bytes());
        for (i, (data, parity)) in data.chunks_exact_mut(self.data_bytes()).zip(parities).enumerate() {
            match decode::correct(self, data, parity) {
                Some(bits) => {
                    corrected.bits += bits;
                    corrected.worst = corrected.worst.max(bits);
                }
                None => failed.get_or_insert(Uncorrectable { first: i, codewords: 0 }).codewords += 1,
            }
        }
        failed.map_or(Ok(corrected), Err)
    }

    /// Turns the parity of scrambled data into that of the unscrambled data, or the reverse. `mask` holds the bytes
    /// that were XORed (ses-dedup.txt, equation 2).
    ///
    /// # Panics
    /// As [`Code::encode`], with `mask` as the data.
    pub fn unmask(&self, mask: &[u8], parity: &mut [u8]) {
        self.assert_lengths(mask, parity);
        let mut of_mask = [0; 8 * LANES_MAX];
        let of_mask = &mut of_mask[..self.parity_bytes()];
        let masks = mask.chunks_exact(self.data_bytes());
        for (mask, parity) in masks.zip(parity.chunks_exact_mut(self.parity_bytes())) {
            self.encode(mask, of_mask);
            parity.iter_mut().zip(&*of_mask).for_each(|(to, from)| *to ^= from);
        }
    }

    fn assert_lengths(&self, data: &[u8], parity: &[u8]) {
        assert!(data.len().is_multiple_of(self.data_bytes()), "{}: {} data bytes", self.name, data.len());
        assert_eq!(parity.len(), self.parity_bytes_of(data.len()), "{}: parity bytes", self.name);
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Code({})", self.name)
    }
}

/// Corrections made by [`Code::correct`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Corrected {
    /// Number of wrong bits in all codewords.
    pub bits: u32,
    /// Number of wrong bits in the codeword that had the most.
    pub worst: u32,
}

/// Some codewords have too many wrong bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uncorrectable {
    /// Index of the first of them, counted from 0.
    pub first: usize,
    /// Number of them.
    pub codewords: usize,
}

impl fmt::Display for Uncorrectable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} codewords have more wrong bits than the code corrects, first number {}",
            self.codewords, self.first
        )
    }
}

impl std::error::Error for Uncorrectable {}
