//! Choice of the record for a request.
//!
//! The Zipf distribution is exact (rank k has a frequency in proportion to `1 / (k + 1)^skew`) and drawn by rejection.
//! YCSB draws it by the method of Gray et al. ("Quickly Generating Billion-Record Synthetic Databases", SIGMOD 1994),
//! which is exact for the first two ranks and an approximation beyond.

use super::population::Population;
use crate::generate::{Seeded, Zipf};
use std::sync::Arc;
use vellum_base::{Error, Result};

/// YCSB draws from this many ranks, however many records there are, and hashes them: so the hottest records stay the
/// hottest while others are inserted. (Its later releases have 10^16 here, but still divide by the sum for 10^10.)
const YCSB_RANKS: u64 = 10_000_000_000;

/// A rule for choosing records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// All records equally likely.
    Uniform,
    /// Some records far more likely than others, scattered over all numbers: YCSB's `zipfian`.
    Zipf {
        /// Exponent.
        skew: f64,
    },
    /// Newer records more likely: YCSB's `latest`.
    Latest {
        /// Exponent.
        skew: f64,
    },
    /// A share of the requests goes to a share of the records, the first ones: YCSB's `hotspot`.
    Hotspot {
        /// Share of records.
        records: f64,
        /// Share of requests.
        requests: f64,
    },
}

/// Draws records of a population.
#[derive(Clone, Debug)]
pub struct Chooser {
    choice: Choice,
    population: Arc<Population>,
    zipf: Zipf,
    /// Range of numbers that ranks are scattered over; for `Latest`, the number of records that `zipf` was made for.
    spread: u64,
}

impl Chooser {
    /// A chooser for a `population` that is not empty, and in which about `expected` records will be inserted
    /// meanwhile.
    pub fn new(choice: Choice, population: &Arc<Population>, expected: u64) -> Result<Chooser> {
        let len = population.len();
        if len == 0 {
            return Err(Error::invalid("a workload that asks for records needs some"));
        }
        let (zipf, spread) = match choice {
            Choice::Zipf { skew } => (Zipf::new(YCSB_RANKS, skew)?, len + 2 * expected),
            Choice::Latest { skew } => (Zipf::new(len, skew)?, len),
            Choice::Uniform | Choice::Hotspot { .. } => (Zipf::new(1, 1.0)?, len),
        };
        Ok(Chooser { choice, population: population.clone(), zipf, spread })
    }

    /// Draws the number of an existing record.
    pub fn choose(&mut self, rng: &mut Seeded) -> u64 {
        let len = self.population.len();
        match self.choice {
            Choice::Uniform => rng.below(len),
            Choice::Zipf { .. } => loop {
                let record = scatter(self.zipf.sample(rng)) % self.spread;
                if record < len {
                    return record;
                }
            },
            Choice::Latest { skew } => {
                if len != self.spread {
                    self.zipf = Zipf::new(len, skew).expect("the same skew, and records");
                    self.spread = len;
                }
                len - 1 - self.zipf.sample(rng)
            }
            Choice::Hotspot { records, requests } => {
                let hot = ((len as f64 * records) as u64).clamp(1, len);
                match hot == len || rng.chance(requests) {
                    true => rng.below(hot),
                    false => hot + rng.below(len - hot),
                }
            }
        }
    }
}

/// YCSB's hash of a number: FNV-1a over its bytes, lowest first, as an absolute value.
pub const fn scatter(number: u64) -> u64 {
    let (mut hash, mut left, mut byte) = (0xCBF2_9CE4_8422_2325_u64, number, 0);
    while byte < 8 {
        hash = (hash ^ (left & 0xFF)).wrapping_mul(1_099_511_628_211);
        left >>= 8;
        byte += 1;
    }
    (hash as i64).unsigned_abs()
}
