//! How much two versions of a sector differ.
//!
//! 1. A model draws a length for every write, whether its sector is cached or not, so every policy sees the same.
//! 2. Deltas of recorded contents depend on what the policy has cached ([`Recorded`]); only these follow its steps.

use super::asked::Touched;
use super::recorded::{Made, Recorded};
use super::workload::{PageKind, Workload};
use crate::reason;
use vellum_array::cache::{PageNo, Steps};
use vellum_base::{Error, Lba, Result};
use vellum_trace::generate::Seeded;

/// A content model for overwrites.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DeltaModel {
    /// The paper's: the share of a sector that a delta takes, normally distributed around a mean. The paper does not
    /// state the standard deviation; here it is a quarter of the mean.
    Gaussian {
        /// The mean share.
        mean: f64,
    },
    /// Every delta is this share of a sector. The engine can be given such contents.
    Same {
        /// The share.
        share: f64,
    },
    /// Regions of three classes, as measured on real page images: records (70 %: 2 %, rarely more), shifted tails (15
    /// %: 3 to 30 %), and pages with new contents (15 %).
    Measured,
    /// From the contents in the trace: the length that the codec achieves.
    Recorded,
}

impl DeltaModel {
    /// Its name on the command line.
    pub fn name(self) -> String {
        match self {
            DeltaModel::Gaussian { mean } => format!("gaussian:{:.0}%", mean * 100.0),
            DeltaModel::Same { share } => format!("same:{:.0}%", share * 100.0),
            DeltaModel::Measured => "measured".into(),
            DeltaModel::Recorded => "recorded".into(),
        }
    }
}

/// Source of the lengths of deltas.
#[derive(Clone, Debug)]
pub struct Deltas {
    model: DeltaModel,
    rng: Seeded,
    recorded: Option<Box<Recorded>>,
}

/// All sectors in a run of this many are of one class.
const REGION_SECTORS: u64 = 64;

impl Deltas {
    /// For one run of a workload; random values are drawn from the sequence of `seed`.
    ///
    /// # Errors
    /// [`vellum_base::Kind::Invalid`] for recorded contents if the workload has none.
    pub fn new(model: DeltaModel, seed: u64, workload: &Workload) -> Result<Deltas> {
        let recorded = match (model, &workload.written) {
            (DeltaModel::Recorded, Some(written)) if written.kept().says_something() => {
                Some(Box::new(Recorded::new(written.clone())))
            }
            (DeltaModel::Recorded, _) => {
                let what = "the trace does not say what was written: deltas cannot be made of it";
                return Err(Error::invalid(what).because(reason::CONTENTS_UNKNOWN));
            }
            _ => None,
        };
        Ok(Deltas { model, rng: Seeded::new(seed), recorded })
    }

    /// Length of the delta of a write; None if there is none. `base` returns the page that the delta applies to; it is
    /// called only if that matters.
    #[inline]
    pub(super) fn next(&mut self, write: Touched, base: impl FnOnce() -> Option<PageNo>) -> Option<usize> {
        let Touched { lba, bytes, request, nth } = write;
        let share = match self.model {
            DeltaModel::Gaussian { mean } => {
                (mean * (1.0 + normal(self.rng.next()) / 4.0)).clamp(0.005, 0.98)
            }
            DeltaModel::Same { share } => share,
            DeltaModel::Measured => self.measured(lba),
            DeltaModel::Recorded => return self.recorded.as_mut()?.write(lba, request, nth, base()),
        };
        Some((share * bytes as f64) as usize)
    }

    /// Follows the policy's steps for a sector.
    #[inline]
    pub(super) fn follow(&mut self, kind: PageKind, lba: Lba, steps: &Steps) {
        if let Some(recorded) = &mut self.recorded {
            recorded.follow(steps);
            if kind == PageKind::Forget {
                recorded.forget(lba);
            }
        }
    }

    /// Statistics on recorded contents; None for other models.
    pub fn made(&self) -> Option<Made> {
        self.recorded.as_ref().map(|recorded| recorded.made())
    }

    fn measured(&mut self, lba: Lba) -> f64 {
        let class = Seeded::new(lba.0 / REGION_SECTORS).below(100);
        let bits = self.rng.next();
        match class {
            0..70 => (0.02 * normal(bits).exp()).clamp(0.002, 0.5),
            70..85 => 0.03 + 0.27 * (bits >> 11) as f64 / (1u64 << 53) as f64,
            _ => 1.0,
        }
    }
}

/// Approximately a standard normal variate: the sum of four uniform ones.
fn normal(bits: u64) -> f64 {
    let sum: u64 = (0..4).map(|i| (bits >> (16 * i)) & 0xFFFF).sum();
    (sum as f64 / 65536.0 - 2.0) * 3f64.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(model: DeltaModel, bytes: usize) -> f64 {
        let mut deltas = Deltas::new(model, 3, &Workload::default()).unwrap();
        let write = |i| Touched { lba: Lba(i), bytes, request: 0, nth: 0 };
        let mut next = |i| deltas.next(write(i), || panic!("no base is asked for")).unwrap();
        let all: Vec<usize> = (0..100_000).map(&mut next).collect();
        assert!(all.iter().all(|delta| *delta <= bytes));
        all.iter().sum::<usize>() as f64 / all.len() as f64 / bytes as f64
    }

    #[test]
    fn means_are_what_they_are_called() {
        for share in [0.12, 0.25, 0.5] {
            let mean = mean(DeltaModel::Gaussian { mean: share }, 4096);
            assert!((mean / share - 1.0).abs() < 0.01, "{mean} {share}");
        }
        let half = mean(DeltaModel::Gaussian { mean: 0.25 }, 2048);
        assert!((half - 0.25).abs() < 0.01);
        // 70 % of 0.03 (a lognormal's mean is above its median), 15 % of 0.165, 15 % of 1.
        assert!((0.17..0.22).contains(&mean(DeltaModel::Measured, 4096)));
    }
}
