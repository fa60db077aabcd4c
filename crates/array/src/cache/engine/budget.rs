//! A budget of flash bytes per day: the policy is granted what time brings, minus writes that it does not account for.
//! Only time during which the array is open counts.

use super::options::CacheFormat;
use crate::cache::policy::Scheme;
use vellum_base::{Error, Nanos, Result, SECTOR_BYTES};

const DAY: u128 = 24 * 3600 * 1_000_000_000;

/// See the module.
pub(super) struct Budget {
    bytes_a_day: u64,
    /// The time up to which the budget was granted.
    given_until: Nanos,
    /// Bytes of metadata already charged.
    metadata: u64,
}

impl Budget {
    /// A budget that starts at `now`. `bytes_a_day` must not be 0.
    pub fn new(bytes_a_day: u64, now: Nanos) -> Budget {
        Budget { bytes_a_day, given_until: now, metadata: 0 }
    }

    /// The bytes that time has brought since the last call and, of `metadata` bytes written so far, those not yet
    /// charged. Fractions of a byte are carried over.
    pub fn due(&mut self, now: Nanos, metadata: u64) -> (i64, i64) {
        let (since, rate) =
            (u128::from(now.saturating_sub(self.given_until).0), u128::from(self.bytes_a_day));
        let bytes = since * rate / DAY;
        self.given_until = Nanos(self.given_until.0 + (bytes * DAY).div_ceil(rate) as u64);
        let written = metadata - std::mem::replace(&mut self.metadata, metadata);
        (i64::try_from(bytes).unwrap_or(i64::MAX), written as i64)
    }
}

/// Fails for a budget that the policy does not support, or that is too small for a single page.
pub(super) fn check_budget(format: &CacheFormat) -> Result<()> {
    match format.budget {
        Some(_) if format.scheme != Scheme::Kdd => {
            let name = format.scheme.name();
            Err(Error::invalid(format!("policy {name} keeps no budget of flash writes: kdd does")))
        }
        Some(bytes) if bytes < SECTOR_BYTES as u64 => Err(Error::invalid(format!(
            "a budget of {bytes} bytes a day leaves the SSD a cache that is never written"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_gives_a_days_budget_however_often_it_is_asked() {
        for (rate, steps) in [(1, 7), (4096, 1000), (1 << 40, 100_000), (u64::MAX / 2, 3)] {
            let mut budget = Budget::new(rate, Nanos(5));
            let given: u128 =
                (1..=steps).map(|i| budget.due(Nanos(5 + DAY as u64 * i / steps), 0).0 as u128).sum();
            let short = u128::from(rate) - given;
            // Each time it gives no more than is due, and less by what a nanosecond brings.
            assert_eq!(budget.due(Nanos(5 + DAY as u64), 8192), (0, 8192));
            assert!(
                short <= u128::from(steps) * (u128::from(rate) / DAY + 1),
                "{rate} {steps}: {short} short"
            );
        }
    }
}
