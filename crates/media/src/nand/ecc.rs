//! Bit errors and the error-correcting code, both modelled.
//!
//! The raw bit error rate grows exponentially with erases, from `rate_fresh` on a new block to `rate_rated` at the
//! rated endurance, and continues at the same pace (such curves were measured by Grupp, Davis, Swanson, "The Bleak
//! Future of NAND Flash Memory", FAST 2012). Every codeword of 1 KiB draws its number of wrong bits from a Poisson
//! distribution. The draw depends on the page and its erase count: reading again gives the same.
//!
//! Bits flip more often where neighbouring cells hold equal patterns ([`super::alike`]; Cai et al., Proceedings of the
//! IEEE 2017, on program interference, [9] of ses-dedup.txt). As to how much more: Cha and Kang (ETRI Journal 35(1),
//! 2013, [11] there) measured up to 86 % fewer errors with randomised data, so 7 times as many without. Between the two
//! the model is linear in the share of equal words, which is our assumption.

use super::dice::{fraction, roll};
use serde::{Deserialize, Serialize};
use vellum_base::{BlockAddr, PageAddr};

/// Data bytes a codeword protects (ses-dedup.txt, section V.A).
pub const CODEWORD_BYTES: usize = 1024;
/// Data bits and the 32 parity bytes of the paper's 32/33 code.
const CODEWORD_BITS: f64 = 8.0 * (CODEWORD_BYTES + 32) as f64;

/// The bit error rate, and how many errors the code corrects.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BitErrors {
    /// Share of wrong bits in a block never erased.
    pub rate_fresh: f64,
    /// Share of wrong bits in a block at its rated number of erases.
    pub rate_rated: f64,
    /// Number of wrong bits that the code corrects in a codeword; with one more the page is uncorrectable.
    pub correctable: u32,
    /// Factor of the error rate where all neighbours are alike; 1 if the stored data do not matter.
    pub alike_factor: f64,
}

impl Default for BitErrors {
    /// 1e-6 when new, 3e-4 at the rating; 18 bits, which a BCH code of 32 parity bytes corrects in 1 KiB; 7 times as
    /// many errors where all is alike.
    fn default() -> BitErrors {
        BitErrors { rate_fresh: 1e-6, rate_rated: 3e-4, correctable: 18, alike_factor: 7.0 }
    }
}

/// The result of decoding a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Corrected {
    /// The most wrong bits in one codeword.
    pub worst: u32,
    /// All wrong bits.
    pub total: u64,
}

impl BitErrors {
    /// Share of wrong bits after `erase_count` of `endurance` rated erases, where nothing is alike.
    pub fn rate(&self, erase_count: u32, endurance: u32) -> f64 {
        let age = erase_count as f64 / endurance.max(1) as f64;
        self.rate_fresh * (self.rate_rated / self.rate_fresh).powf(age)
    }

    /// The same where a share `alike` of the stored words is alike ([`super::Nand::alikeness`]).
    pub fn rate_alike(&self, erase_count: u32, endurance: u32, alike: f64) -> f64 {
        self.rate(erase_count, endurance) * (1.0 + (self.alike_factor - 1.0) * alike)
    }

    /// True if the stored data make a difference.
    pub(crate) fn looks_at_data(&self) -> bool {
        self.alike_factor != 1.0
    }

    /// Decodes codewords of a page, with `alike` giving the similarity of each; `None` if one has too many errors.
    pub(crate) fn decode(
        &self,
        seed: u64,
        page: PageAddr,
        erase_count: u32,
        endurance: u32,
        codewords: std::ops::Range<usize>,
        alike: impl Fn(usize) -> f64,
    ) -> Option<Corrected> {
        let BlockAddr(block) = page.block;
        let where_ = (block as u64) << 32 | erase_count as u64;
        let mut corrected = Corrected::default();
        for codeword in codewords {
            let rate = self.rate_alike(erase_count, endurance, alike(codeword));
            let mean = (rate * CODEWORD_BITS).min(CODEWORD_BITS / 2.0);
            let draw = roll(seed, [0xECC, where_, page.page as u64, codeword as u64]);
            let bits = poisson(mean, fraction(draw), self.correctable + 1);
            if bits > self.correctable {
                return None;
            }
            corrected.worst = corrected.worst.max(bits);
            corrected.total += bits as u64;
        }
        Some(corrected)
    }
}

/// The Poisson-distributed number of this mean for a uniform `draw`, at most `max`.
fn poisson(mean: f64, draw: f64, max: u32) -> u32 {
    let mut probability = (-mean).exp();
    let mut below = probability;
    let mut count = 0;
    while draw >= below && count < max {
        count += 1;
        probability *= mean / count as f64;
        below += probability;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poisson_has_its_mean() {
        for mean in [0.01, 0.7, 5.0] {
            let n = 20_000u64;
            let sum: u64 = (0..n).map(|i| poisson(mean, fraction(roll(1, [i, 0, 0, 0])), 1000) as u64).sum();
            let found = sum as f64 / n as f64;
            assert!((found - mean).abs() < 0.05 * mean + 0.01, "{mean}: {found}");
        }
        assert_eq!(poisson(1e6, 0.5, 19), 19, "a hopeless codeword stays cheap and hopeless");
    }

    #[test]
    fn wear_turns_corrected_into_uncorrectable() {
        let model = BitErrors::default();
        let read = |erases| model.decode(3, BlockAddr(9).page(4), erases, 3000, 0..16, |_| 0.0);
        assert_eq!(read(100), read(100), "the same page reads the same again");
        assert!(read(0).unwrap().worst <= 2);
        let worn = read(3000).unwrap();
        assert!(worn.worst > 0 && worn.total >= worn.worst as u64);
        assert_eq!(read(6000), None);
        let alike = |share| model.decode(3, BlockAddr(9).page(4), 3000, 3000, 0..16, |_| share);
        let (some, none) = (alike(0.3).unwrap().total, worn.total);
        assert!(some > 2 * none && some < 4 * none, "{some} against {none}: 2.8 times are expected");
        assert_eq!(alike(1.0), None);
    }
}
