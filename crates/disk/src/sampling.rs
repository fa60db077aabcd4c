//! Looks at what may pay, as often as it did lately.
//!
//! After a look that paid the next chance is taken, too; after each that did not, twice as many are let pass. So what
//! never pays costs one chance in [`PASSED_MAX`], and what begins to pay is noticed within as many.

/// Chances let pass between two looks, at most.
const PASSED_MAX: u32 = 63;

/// See the module.
#[derive(Default)]
pub(crate) struct Sampling {
    /// Chances to let pass after a look.
    interval: u32,
    /// Chances to let pass now.
    left: u32,
}

impl Sampling {
    /// True if this chance is to be taken.
    pub(crate) fn looks(&mut self) -> bool {
        let now = self.left == 0;
        self.left = if now { self.interval } else { self.left - 1 };
        now
    }

    /// What came of the look.
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
