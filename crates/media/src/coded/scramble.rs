//! The scrambler of a coded page, and its effect on parity.
//!
//! All keystreams come from one register, [`Lfsr::X64`], with its initial states derived from seeds by an unstructured
//! map. Both are part of the format (`docs/formats/coded-page.md`) and must never change. All of it is linear over
//! GF(2): the parity of a keystream is linear in the register's state, so that of any state is the sum of the parities
//! of its bits.

use super::spare::PLAIN;
use vellum_base::SECTOR_BYTES;
use vellum_codes::ecc::Code;
use vellum_codes::scrambler::{BitOrder, Lfsr, Scrambler, SeedMap};

/// The seed of the map from seeds to states.
pub(super) const MAP_SEED: u64 = 0x5EED_0F5C_4A3B_1E25;
/// Significant bits of a seed.
const SEED_BITS: usize = 64;

/// Keystreams of slots; see the module.
pub(super) struct Keystreams {
    scrambler: Scrambler,
    /// For each bit of the state, the parity of a sector of its keystream.
    parities: Vec<u8>,
    parity_bytes: usize,
}

impl Keystreams {
    /// Keystreams for sectors with parity of `code`.
    pub fn new(code: &Code) -> Keystreams {
        let (lfsr, order) = (Lfsr::X64, BitOrder::LsbFirst);
        let of_state = Scrambler::new(lfsr, order, SeedMap::new(0, &std::array::from_fn(|bit| 1 << bit)));
        let parity_bytes = code.parity_bytes_of(SECTOR_BYTES);
        let mut parities = vec![0; lfsr.degree() as usize * parity_bytes];
        for (bit, parity) in parities.chunks_exact_mut(parity_bytes).enumerate() {
            let mut stream = [0; SECTOR_BYTES];
            of_state.xor_into(1 << bit, &mut stream).expect("the map knows every address");
            code.encode(&stream, parity);
        }
        let scrambler = Scrambler::new(lfsr, order, SeedMap::mixed(MAP_SEED, SEED_BITS));
        Keystreams { scrambler, parities, parity_bytes }
    }

    /// Scrambles or descrambles bytes of a slot from `offset` on.
    pub fn xor(&self, seed: u64, offset: usize, data: &mut [u8]) {
        if seed == PLAIN {
            return;
        }
        if offset == 0 {
            return self.scrambler.xor_into(seed, data).expect("the map knows every address");
        }
        let mut stream = [0; SECTOR_BYTES];
        self.xor(seed, 0, &mut stream);
        data.iter_mut().zip(&stream[offset..]).for_each(|(to, from)| *to ^= from);
    }

    /// Turns the parity of a scrambled slot into that of its unscrambled data (ses-dedup.txt, equation 2).
    pub fn unmask(&self, seed: u64, parity: &mut [u8]) {
        if seed == PLAIN {
            return;
        }
        let mut state = self.scrambler.map().state(seed).expect("the map knows every address");
        while state != 0 {
            let bit = state.trailing_zeros() as usize;
            let of_bit = &self.parities[bit * self.parity_bytes..][..self.parity_bytes];
            parity.iter_mut().zip(of_bit).for_each(|(to, from)| *to ^= from);
            state &= state - 1;
        }
    }
}
