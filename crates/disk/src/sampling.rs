//! Adaptive sampling of lookups that may pay, according to recent results.
//!
//! After a lookup that paid, the next chance is taken, too; after each that did not, about twice as many chances are
//! skipped. So lookups that never pay cost one chance in `PASSED_MAX + 1`, and a change is noticed within as many.

/// Maximum number of chances skipped between two lookups.
const PASSED_MAX: u32 = 63;

/// State of the sampling; see the module.
#[derive(Default)]
pub(crate) struct Sampling {
    /// Number of chances to skip after a lookup.
    interval: u32,
    /// Number of chances to skip now.
    left: u32,
}

impl Sampling {
    /// True if this chance is to be taken.
    pub(crate) fn looks(&mut self) -> bool {
        let now = self.left == 0;
        self.left = if now { self.interval } else { self.left - 1 };
        now
    }

    /// Records whether the lookup paid.
    pub(crate) fn learned(&mut self, paid: bool) {
        self.interval = if paid { 0 } else { (2 * self.interval + 1).min(PASSED_MAX) };
        self.left = self.interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_as_often_as_it_pays() {
        let mut sampling = Sampling::default();
        let mut looks_of = |chances: u32, pays: bool| {
            let taken = (0..chances).filter(|_| {
                let looks = sampling.looks();
                if looks {
                    sampling.learned(pays);
                }
                looks
            });
            taken.count()
        };
        assert_eq!(looks_of(100, true), 100);
        assert_eq!(looks_of(6400, false), 105);
        assert!(looks_of(164, true) >= 100);
    }
}
