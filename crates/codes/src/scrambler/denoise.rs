//! Keystreams with bit errors: finds the register that produced them, and removes the errors.
//!
//! Raw dumps come without the ECC that would correct them. A register of `L` bits can be found wherever somewhat more
//! than `2 L` consecutive bits are correct. Once the register is known, any `L` consecutive correct bits give a state,
//! which is stepped back to the beginning of the keystream. At an error rate of 1 %, one in seven windows of 192 bits
//! is correct.

use super::learn::{bits, characteristic, degree, least_common_multiple, shortest};
use super::{BitOrder, Lfsr, Scrambler, SeedMap};

/// Bits that must match in addition to those that determine a register: 64 match by chance once in 10¹⁹ windows.
const PROOF_BITS: usize = 64;
/// Bytes of each keystream that are returned without errors.
pub(super) const CLEAN_BYTES: usize = 64;
/// A keystream is checked in parts of this many bytes, to find where another one begins.
const PART_BYTES: usize = 256;
/// A part fits if at most this share of its bits is wrong: of unrelated bits, half are.
const WRONG_MAX: f64 = 0.25;

/// A register that was found, with its keystreams.
pub(super) struct Register {
    lfsr: Lfsr,
    order: BitOrder,
    /// Keystreams with the identity as the map: the address is the state.
    streams: Scrambler,
}

/// Why a stream is not a keystream of the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// Another keystream begins at about this byte.
    From(usize),
    /// No matching part could be found.
    Nowhere,
}

/// The polynomial of the first register found whose output any part of `stream` is.
pub(super) fn find_register(stream: &[u8], order: BitOrder) -> Option<u128> {
    (0..stream.len()).find_map(|from| {
        let window = &stream[from..stream.len().min(from + 3 * PROOF_BITS / 8)];
        let whole = 8 * window.len() == 3 * PROOF_BITS;
        shortest(bits(window, order), PROOF_BITS).filter(|_| whole)
    })
}

/// The polynomial of the shortest register that outputs a keystream without errors.
pub(super) fn polynomial(clean: &[u8], order: BitOrder) -> Option<u128> {
    characteristic(bits(clean, order))
}

impl Register {
    /// The register with this characteristic polynomial; `None` for the polynomial 1.
    pub fn new(polynomial: u128, order: BitOrder) -> Option<Register> {
        let degree = degree(polynomial);
        let lfsr = Lfsr::new(degree, (polynomial ^ 1 << degree) as u64)?;
        let identity = SeedMap::new(0, &std::array::from_fn(|bit| 1 << bit));
        Some(Register { lfsr, order, streams: Scrambler::new(lfsr, order, identity) })
    }

    /// The shortest register that outputs the keystreams of both this one and `polynomial`; `None` if it has more than
    /// 64 bits.
    pub fn with(&self, polynomial: u128) -> Option<Register> {
        let own = u128::from(self.lfsr.feedback) | 1 << self.lfsr.degree;
        Register::new(least_common_multiple(own, polynomial)?, self.order)
    }

    /// The first [`CLEAN_BYTES`] of `stream`, with bit errors removed.
    pub fn clean(&self, stream: &[u8]) -> Result<Vec<u8>, Unfit> {
        let state = self.state_before(stream).ok_or(Unfit::Nowhere)?;
        let mut noise = stream.to_vec();
        self.streams.xor_into(state, &mut noise).expect("the identity knows every state");
        let fits: Vec<bool> = noise.chunks(PART_BYTES).map(fits).collect();
        let Some(bad) = fits.iter().position(|fits| !fits) else {
            let mut clean = vec![0; CLEAN_BYTES];
            self.streams.xor_into(state, &mut clean).expect("the identity knows every state");
            return Ok(clean);
        };
        // A state that was found after the beginning of another keystream does not apply to the bytes before.
        let from = if bad > 0 { Some(bad) } else { fits.iter().position(|fits| *fits) };
        Err(from.map_or(Unfit::Nowhere, |part| Unfit::From(part * PART_BYTES)))
    }

    /// The state at the beginning of `stream`, derived from the longest run of consecutive bits that the register
    /// predicts.
    fn state_before(&self, stream: &[u8]) -> Option<u64> {
        let degree = self.lfsr.degree as usize;
        let (mut state, mut run, mut best) = (0, 0, (0, 0, 0));
        for (t, bit) in bits(stream, self.order).enumerate() {
            let foretold = (state & self.lfsr.feedback).count_ones() & 1 == 1;
            run = if t >= degree && bit == foretold { run + 1 } else { 0 };
            state = state >> 1 | u64::from(bit) << (degree - 1);
            if run > best.0 {
                best = (run, t + 1 - degree, state);
            }
        }
        let (run, steps, state) = best;
        (run > 0).then(|| (0..steps).fold(state, |state, _| self.lfsr.step_back(state)))
    }
}

/// True if every part of a piece, after its keystream was removed, is nearly zero.
pub(super) fn all_fit(noise: &[u8]) -> bool {
    noise.chunks(PART_BYTES).all(fits)
}

fn fits(noise: &[u8]) -> bool {
    wrong_bits(noise) as f64 <= WRONG_MAX * 8.0 * noise.len() as f64
}

/// Number of bits set, which are the wrong ones after a keystream was removed.
pub(super) fn wrong_bits(noise: &[u8]) -> u64 {
    noise.iter().map(|byte| u64::from(byte.count_ones())).sum()
}
