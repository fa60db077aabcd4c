//! A set of units of a table, or of places in a log, that many threads add to.

use vellum_base::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A bit per unit.
pub(crate) struct Units(Box<[AtomicU64]>);

impl Units {
    /// None of so many.
    pub(crate) fn of(units: usize) -> Units {
        Units((0..units.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Adds a unit.
    pub(crate) fn mark(&self, unit: usize) {
        if let Some(word) = self.0.get(unit / 64) {
            word.fetch_or(1 << (unit % 64), Relaxed);
        }
    }

    /// True if it has the unit.
    #[inline]
    pub(crate) fn has(&self, unit: usize) -> bool {
        self.0.get(unit / 64).is_some_and(|word| word.load(Relaxed) & 1 << (unit % 64) != 0)
    }

    /// Takes out all of them.
    pub(crate) fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Relaxed));
    }

    /// Those that it has, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut bits = word.load(Relaxed);
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                Some(at * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_what_was_marked() {
        let units = Units::of(130);
        [0, 63, 64, 129, 5000].into_iter().for_each(|unit| units.mark(unit));
        assert_eq!(units.iter().collect::<Vec<_>>(), [0, 63, 64, 129], "there are no more than 130");
        assert!(units.has(129) && !units.has(128) && !units.has(5000));
        units.clear();
        assert_eq!(units.iter().next(), None);
    }
}
