//! Which objects of a table, or values of a log, went to the cache, so that they can be evicted at once when it is
//! replaced.

use crate::lsm::cache::{Cache, Place};
use vellum_base::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A bit per unit: something that begins there went to the cache.
pub(crate) struct CachedUnits(Box<[AtomicU64]>);

impl CachedUnits {
    /// None yet, of so many.
    pub(crate) fn of(units: usize) -> CachedUnits {
        CachedUnits((0..units.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn mark(&self, unit: u32) {
        if let Some(word) = self.0.get(unit as usize / 64) {
            word.fetch_or(1 << (unit % 64), Relaxed);
        }
    }

    /// Evicts all of them.
    pub(crate) fn leave(&mut self, cache: &Cache, table: u64) {
        for (word, bits) in self.0.iter_mut().enumerate() {
            let mut bits = std::mem::take(bits.get_mut());
            while bits != 0 {
                let unit = word as u32 * 64 + bits.trailing_zeros();
                cache.remove(Place { table, unit });
                bits &= bits - 1;
            }
        }
    }
}
