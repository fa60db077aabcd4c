//! Random numbers that are the same everywhere.

use rand::{Rng, RngCore};
use rand_distr::Distribution;
use vellum_base::{Error, Result};

/// SplitMix64: small, good enough for workloads, and never changed (`rand`'s own generators may change).
#[derive(Clone, Debug)]
pub struct Seeded {
    state: u64,
}

impl Seeded {
    /// The sequence for `seed`.
    pub const fn new(seed: u64) -> Seeded {
        Seeded { state: seed }
    }

    /// The next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let n = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        n ^ (n >> 31)
    }

    /// A number below `bound` (0 for bound 0).
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }

    /// True with this probability.
    pub fn chance(&mut self, share: f64) -> bool {
        self.share() < share
    }

    /// A number that is at least 0 and less than 1.
    pub fn share(&mut self) -> f64 {
        self.random()
    }
}

impl RngCore for Seeded {
    fn next_u32(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }
    fn next_u64(&mut self) -> u64 {
        self.next()
    }
    fn fill_bytes(&mut self, out: &mut [u8]) {
        for part in out.chunks_mut(8) {
            part.copy_from_slice(&self.next().to_le_bytes()[..part.len()]);
        }
    }
}

/// Zipf distribution over `0..n`, where 0 is the most frequent, in constant memory.
#[derive(Clone, Debug)]
pub struct Zipf(rand_distr::Zipf<f64>);

impl Zipf {
    /// Rank k has a frequency in proportion to `1 / (k + 1)^skew`.
    pub fn new(n: u64, skew: f64) -> Result<Zipf> {
        rand_distr::Zipf::new(n as f64, skew)
            .map(Zipf)
            .map_err(|_| Error::invalid(format!("no Zipf distribution over {n} with exponent {skew}")))
    }

    /// Draws a rank.
    pub fn sample(&self, rng: &mut Seeded) -> u64 {
        self.0.sample(rng) as u64 - 1
    }
}
