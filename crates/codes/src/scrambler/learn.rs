//! Learns a scrambler from its keystreams: what a drive stores where zeros were written (ses-dedup.txt, section III.A).
//!
//! 1. The Berlekamp–Massey algorithm (Massey, "Shift-Register Synthesis and BCH Decoding", 1969) gives the shortest
//!    register for each keystream. The polynomial of the scrambler is the least common multiple of theirs.
//! 2. The first bits of a keystream are its state. Samples are added to a [`SeedMap`] one after the other.
//! 3. A sample whose address is a sum of earlier ones must have the state that the map predicts, so it is a check. At
//!    least two such checks are required. Samples that do not fit are rejected, with the reason.

use super::seed_map::Told;
use super::{BitOrder, DEGREE_MAX, Lfsr, Scrambler, SeedMap};
use std::fmt;

/// Minimum length of a keystream in bytes: twice the bits of the longest register, and as many again to verify it.
const KEYSTREAM_BYTES_MIN: usize = 32;
/// Minimum number of samples that only confirm others.
const CHECKS_MIN: usize = 2;

/// A learned scrambler.
#[derive(Clone, Debug)]
pub struct Learned {
    /// The scrambler, valid for all addresses that the samples span.
    pub scrambler: Scrambler,
    /// Samples that the others predicted.
    pub checks: usize,
}

/// Why no scrambler was learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotLearned {
    /// Fewer than two samples confirm the others.
    TooFewSamples {
        /// Minimum number of further samples that are needed.
        more: usize,
    },
    /// The keystream of this address has fewer than 32 bytes.
    TooShort {
        /// Address of the sample.
        address: u64,
    },
    /// No register of at most 64 bits outputs all keystreams: either not the one of this address, or not that one
    /// together with those before it.
    NoRegister {
        /// Address of the sample.
        address: u64,
    },
    /// The state of this address is not the sum that an affine map from addresses to states would give.
    SeedNotAffine {
        /// Address of the sample.
        address: u64,
    },
    /// All keystreams are zero: nothing is scrambled.
    NotScrambled,
}

/// Learns from keystreams and their addresses (LBAs or page numbers). Address 0, the powers of two and a few others as
/// checks are sufficient; so are all pages of two periods.
pub fn learn(samples: &[(u64, &[u8])]) -> Result<Learned, NotLearned> {
    if let Some((address, _)) = samples.iter().find(|(_, keystream)| keystream.len() < KEYSTREAM_BYTES_MIN) {
        return Err(NotLearned::TooShort { address: *address });
    }
    let (order, lfsr) = best_order(samples)?;
    let mut states = samples.iter().map(|(address, keystream)| {
        let state = bits(keystream, order).take(lfsr.degree as usize).enumerate();
        (*address, state.fold(0, |state, (i, bit)| state | u64::from(bit) << i))
    });
    let (base, base_state) = states.next().ok_or(NotLearned::TooFewSamples { more: CHECKS_MIN + 1 })?;
    let (mut map, mut checks) = (SeedMap::of_one(base, base_state), 0);
    for (address, state) in states {
        match map.tell(address, state) {
            Told::New => {}
            Told::Known => checks += 1,
            Told::Contradiction => return Err(NotLearned::SeedNotAffine { address }),
        }
    }
    if checks < CHECKS_MIN {
        return Err(NotLearned::TooFewSamples { more: CHECKS_MIN - checks });
    }
    Ok(Learned { scrambler: Scrambler::new(lfsr, order, map), checks })
}

/// Chooses the bit order with the shorter register: the wrong order needs one eight times as long. If neither order has
/// a register, returns the reason of the order in which more samples had one.
fn best_order(samples: &[(u64, &[u8])]) -> Result<(BitOrder, Lfsr), NotLearned> {
    let [lsb, msb] = [BitOrder::LsbFirst, BitOrder::MsbFirst].map(|order| (order, register(samples, order)));
    match (lsb, msb) {
        ((_, Ok(a)), (order, Ok(b))) if b.degree < a.degree => Ok((order, b)),
        ((order, Ok(lfsr)), _) | (_, (order, Ok(lfsr))) => Ok((order, lfsr)),
        ((_, Err((a, why))), (_, Err((b, _)))) if a >= b => Err(why),
        (_, (_, Err((_, why)))) => Err(why),
    }
}

/// The shortest register that outputs all keystreams; otherwise the number of samples that have one, and the reason.
fn register(samples: &[(u64, &[u8])], order: BitOrder) -> Result<Lfsr, (usize, NotLearned)> {
    let mut all: u128 = 1;
    for (i, (address, keystream)) in samples.iter().enumerate() {
        let no_register = (i, NotLearned::NoRegister { address: *address });
        let one = characteristic(bits(keystream, order)).ok_or(no_register)?;
        all = least_common_multiple(all, one).ok_or(no_register)?;
    }
    let no_bits = if samples.is_empty() {
        NotLearned::TooFewSamples { more: CHECKS_MIN + 1 }
    } else {
        NotLearned::NotScrambled
    };
    // The least common multiple of polynomials with a constant term has one too; only the polynomial 1 is not a
    // register.
    let degree = degree(all);
    Lfsr::new(degree, (all ^ 1 << degree) as u64).ok_or((samples.len(), no_bits))
}

pub(super) fn bits(keystream: &[u8], order: BitOrder) -> impl Iterator<Item = bool> {
    let shift = move |i: u32| if order == BitOrder::LsbFirst { i } else { 7 - i };
    keystream.iter().flat_map(move |byte| (0..8).map(move |i| byte >> shift(i) & 1 == 1))
}

/// The characteristic polynomial (bit `i` stands for `x^i`) of the shortest register with this output. `None` if that
/// has more than 64 bits, or a first bit without effect.
pub(super) fn characteristic(bits: impl Iterator<Item = bool>) -> Option<u128> {
    shortest(bits, usize::MAX)
}

/// As [`characteristic`], but stops once `proof` bits beyond those that determine the register have matched.
pub(super) fn shortest(bits: impl Iterator<Item = bool>, proof: usize) -> Option<u128> {
    // Massey's names, except `past`: the bits so far, with the newest lowest.
    let (mut c, mut b, mut l, mut m, mut past): (u128, u128, usize, usize, u128) = (1, 1, 0, 1, 0);
    for (n, bit) in bits.enumerate() {
        if n.saturating_sub(2 * l) >= proof {
            break;
        }
        past = past << 1 | u128::from(bit);
        if (c & past).count_ones() % 2 == 0 {
            m += 1;
        } else if 2 * l > n {
            c ^= b << m;
            m += 1;
        } else {
            l = n + 1 - l;
            if l > DEGREE_MAX {
                return None;
            }
            (c, b) = (c ^ b << m, c);
            m = 1;
        }
    }
    // `c` has the coefficients in reverse. A first bit without effect makes its degree lower than `l`.
    (degree(c) as usize == l).then(|| c.reverse_bits() >> (127 - l))
}

/// Degree of a non-zero polynomial.
pub(super) fn degree(polynomial: u128) -> u32 {
    127 - polynomial.leading_zeros()
}

/// Least common multiple of two non-zero polynomials; `None` if its degree is more than 64.
pub(super) fn least_common_multiple(a: u128, b: u128) -> Option<u128> {
    let (mut common, mut rest) = (a, b);
    while rest != 0 {
        (common, rest) = (rest, divide(common, rest).1);
    }
    let (factor, _) = divide(a, common);
    (degree(factor) + degree(b) <= DEGREE_MAX as u32)
        .then(|| (0..=degree(factor)).filter(|i| factor >> i & 1 == 1).fold(0, |product, i| product ^ b << i))
}

/// Quotient and remainder.
fn divide(mut a: u128, b: u128) -> (u128, u128) {
    let mut quotient = 0;
    while a != 0 && degree(a) >= degree(b) {
        let shift = degree(a) - degree(b);
        quotient |= 1 << shift;
        a ^= b << shift;
    }
    (quotient, a)
}

impl fmt::Display for NotLearned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotLearned::TooFewSamples { more } => {
                write!(f, "too few samples to be sure: at least {more} more addresses are needed")
            }
            NotLearned::TooShort { address } => {
                write!(f, "the keystream of address {address} has fewer than {KEYSTREAM_BYTES_MIN} bytes")
            }
            NotLearned::NoRegister { address } => write!(
                f,
                "no shift register of at most {DEGREE_MAX} bits makes the keystream of address {address} and those before it"
            ),
            NotLearned::SeedNotAffine { address } => {
                write!(f, "the seed of address {address} is not an affine function of the address")
            }
            NotLearned::NotScrambled => f.write_str("all keystreams are zero: nothing is scrambled"),
        }
    }
}

impl std::error::Error for NotLearned {}
