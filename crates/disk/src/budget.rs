//! Limits of in-line deduplication: a share of a core, and the maximum delay of a write.
//!
//! Work is accounted as if it were done sequentially at that share. While it is more than [`BURST`] behind, writes are
//! programmed without looking for copies, and marked. The core is the modelled controller's, or in production the time
//! that fingerprinting and comparing really take.

use crate::options::{DedupMode, DedupWhen, Options};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_base::Nanos;

/// How far work may be behind before writes skip the lookup: the allowance for a burst of writes.
const BURST: Nanos = Nanos::from_ms(10);
/// Maximum time accounted for a lookup: a longer one was suspended, or waited for a disk below, which took no time of a
/// core. (Otherwise a machine suspended for an hour would skip in-line lookups for the next two.)
const LOOK_MAX: Nanos = Nanos::from_ms(1);

/// The budget; see the module.
pub(crate) struct Budget {
    when: DedupWhen,
    core_share: f64,
    wait_max: Nanos,
    /// When the work done so far would be finished at that share.
    paid_until: AtomicU64,
}

impl Budget {
    /// The configured budget, if parity is the fingerprint. Other modes do everything in-line.
    pub(crate) fn new(mode: DedupMode, options: &Options) -> Budget {
        let when = if mode.uses_parity() { options.dedup_when } else { DedupWhen::Inline };
        Budget {
            when,
            core_share: options.dedup_core_share,
            wait_max: options.dedup_wait_max,
            paid_until: AtomicU64::new(0),
        }
    }

    /// True if there are limits: then callers have to take the time.
    #[inline]
    pub(crate) fn limits(&self) -> bool {
        self.when != DedupWhen::Inline
    }

    /// True if skipped writes are marked, to be deduplicated later.
    pub(crate) fn marks(&self) -> bool {
        self.limits()
    }

    /// True if a write that arrives now may be looked up in-line.
    pub(crate) fn allows(&self, now: Nanos) -> bool {
        match self.when {
            DedupWhen::Inline => true,
            DedupWhen::Offline => false,
            DedupWhen::Both => self.paid_until.load(Relaxed) <= (now + BURST).0,
        }
    }

    /// Accounts for a lookup since `begun`, and for the time charged to the modelled core.
    pub(crate) fn spend(&self, begun: Nanos, now: Nanos, charged: Nanos) {
        let work = now.saturating_sub(begun).min(LOOK_MAX) + charged;
        let takes = (work.0 as f64 / self.core_share) as u64;
        if self.when == DedupWhen::Both && takes > 0 {
            let later = |until: u64| Some(until.max(now.0).saturating_add(takes));
            let _ = self.paid_until.fetch_update(Relaxed, Relaxed, later); // never fails: always Some
        }
    }

    /// True if data for a comparison, requested at `begun`, arrives only at `done`: too late to wait for.
    pub(crate) fn is_late(&self, begun: Nanos, done: Nanos) -> bool {
        self.when == DedupWhen::Both && done > begun + self.wait_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(when: DedupWhen) -> Budget {
        let options = Options { dedup_when: when, dedup_core_share: 0.25, ..Options::default() };
        Budget::new(DedupMode::Ecc, &options)
    }

    #[test]
    fn a_quarter_of_a_core_is_a_quarter_of_the_work() {
        let budget = budget(DedupWhen::Both);
        let (mut now, mut looked) = (Nanos::ZERO, 0);
        for _ in 0..100_000 {
            now += Nanos::from_us(1);
            if budget.allows(now) {
                looked += 1;
                budget.spend(now, now, Nanos::from_us(1));
            }
        }
        assert!((25_000..30_000).contains(&looked), "{looked} of 100,000 and a burst");
    }

    #[test]
    fn who_slept_for_an_hour_did_not_work_for_an_hour() {
        let budget = budget(DedupWhen::Both);
        let hour = Nanos::from_ms(3_600_000);
        budget.spend(Nanos::ZERO, hour, Nanos::ZERO);
        assert!(budget.allows(hour), "a burst");
        (0..20).for_each(|_| budget.spend(hour, hour + Nanos::from_us(800), Nanos::ZERO));
        assert!(!budget.allows(hour + Nanos::from_us(800)), "but work is work");
    }

    #[test]
    fn everything_or_nothing_where_that_was_asked_for() {
        for (when, allowed) in [(DedupWhen::Inline, true), (DedupWhen::Offline, false)] {
            let budget = budget(when);
            budget.spend(Nanos::ZERO, Nanos::ZERO, Nanos::from_ms(1000));
            assert_eq!(budget.allows(Nanos::ZERO), allowed);
            assert!(!budget.is_late(Nanos::ZERO, Nanos::from_ms(1000)));
        }
        let other = Budget::new(DedupMode::Journal, &Options::default());
        assert!(other.allows(Nanos::ZERO) && !other.limits() && !other.marks());
    }

    #[test]
    fn a_comparison_that_takes_too_long_is_not_waited_for() {
        let budget = budget(DedupWhen::Both);
        let begun = Nanos::from_ms(5);
        let limit = Options::default().dedup_wait_max;
        assert!(!budget.is_late(begun, begun + limit) && budget.is_late(begun, begun + limit + Nanos(1)));
    }
}
