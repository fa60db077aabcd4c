//! A set of units of a table, or of places in a log, that many threads add to.

use vellum_base::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A bit per unit.
pub(crate) struct Units(Box<[AtomicU64]>);

impl Units {
    /// An empty set of `units` units.
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

    /// The units in the set, in order.
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

/// Bytes that have a bit, or a unit where that has more. A bit for each unit of 64 bytes would be a 512th of a table.
const BLOCK_BYTES: usize = 1024;

/// A set of units of a table, as exact as its blocks.
pub(crate) struct Blocks {
    marked: Units,
    /// Units of a block.
    units: usize,
}

impl Blocks {
    /// An empty set of `units` units.
    pub(crate) fn of(units: usize, unit_bytes: usize) -> Blocks {
        let of_block = (BLOCK_BYTES / unit_bytes).max(1);
        Blocks { marked: Units::of(units.div_ceil(of_block)), units: of_block }
    }

    /// Adds a unit, and those that begin in its block.
    pub(crate) fn mark(&self, unit: usize) {
        self.marked.mark(unit / self.units);
    }

    /// Units that were added, in order.
    pub(crate) fn units(&self) -> impl Iterator<Item = usize> {
        self.marked.iter().flat_map(|block| block * self.units..(block + 1) * self.units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_was_marked_is_there_whatever_the_size_of_units() {
        for unit_bytes in [64, 512, 4096, 16 << 10] {
            let units = |marked: &[usize]| {
                let blocks = Blocks::of(1000, unit_bytes);
                marked.iter().for_each(|unit| blocks.mark(*unit));
                blocks.units().collect::<Vec<_>>()
            };
            for unit in [0, 1, 7, 8, 63, 64, 65, 999] {
                let found = units(&[unit]);
                assert!(
                    found.contains(&unit) && found.len() <= BLOCK_BYTES.div_ceil(unit_bytes),
                    "{found:?}"
                );
            }
            let all: Vec<usize> = (0..1000).collect();
            assert_eq!(units(&all)[..1000], all, "each once");
        }
        let bytes = Blocks::of(1 << 20, 64).marked.0.len() * 8;
        assert_eq!(bytes, (64 << 20) / 8192, "an 8,192nd of the table");
    }

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
