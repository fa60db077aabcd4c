//! How fast writers may go while flushes or merges are behind: each write is delayed a little before all of them would
//! have to wait for long.
//!
//! Invariants
//! 1. Writers of any number together write no faster than is allowed, as each delay begins where the one before ends;
//!    unless a delay would be longer than [`DELAY_MAX`].
//! 2. While as many memtables wait as may, the rate is that of the last flush, or a little less, so that writers do not
//!    run into the full queue after all. The next memtable is being flushed meanwhile, so the medium is kept as busy as
//!    if they did. Where only one may wait it would not be, and nobody is delayed.
//! 3. Once there is no limit any more, what was written under it does not count.

use crate::lsm::core::Core;
use vellum_base::Nanos;
use vellum_base::sync::atomic::Ordering::Relaxed;

/// Delays are accumulated until they reach this: shorter sleeps are inexact.
const DELAY_MIN: Nanos = Nanos::from_ms(1);
/// A longer sleep might outlast what it is for, as the last flush may have been uncommonly slow.
const DELAY_MAX: Nanos = Nanos::from_ms(100);
/// Bytes per second when level 0 is about to be full, and where flushes are slower.
const SLOWEST: u64 = 2 << 20;

/// How far writers are ahead of what they may write: when all of it would have been written at the rate allowed.
#[derive(Default)]
pub(crate) struct Ahead(Nanos);

impl Ahead {
    /// Adds bytes that are written now. Returns until when to delay, if it is worth a sleep.
    fn add(&mut self, bytes: u64, bytes_per_second: u64, now: Nanos) -> Option<Nanos> {
        let until = self.0.max(now) + Nanos::transfer(bytes, bytes_per_second);
        self.0 = until.min(now + DELAY_MAX);
        (self.0.saturating_sub(now) >= DELAY_MIN).then_some(self.0)
    }
}

impl Core {
    /// Until when to delay a writer that wrote `bytes`, and found `tables` in level 0 and memtables `waiting`.
    pub(crate) fn delay_until(
        &self,
        ahead: &mut Ahead,
        bytes: u64,
        (tables, waiting): (usize, usize),
    ) -> Option<Nanos> {
        let options = &self.options;
        let by_level0 = rate_by_level0(tables, options.level0_slow, options.level0_stop);
        if let Some(delay) = self.rules.write_delay() {
            return by_level0.map(|_| self.env.now() + delay);
        }
        let by_flushes = rate_by_flushes(waiting, options.memtables_max, self.flush_rate.load(Relaxed));
        match by_level0.into_iter().chain(by_flushes).min() {
            Some(rate) => ahead.add(bytes, rate, self.env.now()),
            None => {
                *ahead = Ahead::default();
                None
            }
        }
    }

    /// Notes that a memtable of `bytes` took `elapsed` to be flushed.
    pub(crate) fn note_flush(&self, bytes: usize, elapsed: Nanos) {
        if bytes < self.memtable_bytes_max() / 2 {
            return; // what any flush takes would count for too much
        }
        let rate = bytes as u128 * 1_000_000_000 / u128::from(elapsed.0.max(1));
        self.flush_rate.store(u64::try_from(rate).unwrap_or(u64::MAX).max(SLOWEST), Relaxed);
    }
}

/// Bytes per second that level 0 allows: the fewer, the fuller it is.
fn rate_by_level0(tables: usize, slow: usize, stop: usize) -> Option<u64> {
    if tables < slow || stop <= slow {
        return None;
    }
    let left = (stop.saturating_sub(tables) as u64).max(1);
    Some(SLOWEST.saturating_mul(left.saturating_mul(left)))
}

/// Bytes per second that a full queue of memtables allows, once one of some size was flushed.
fn rate_by_flushes(waiting: usize, waiting_max: usize, flush_rate: u64) -> Option<u64> {
    let is_full = waiting >= waiting_max && waiting > 1;
    (is_full && flush_rate > 0).then_some(flush_rate / 8 * 7)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos::from_ms(5000);
    const RATE: u64 = 1 << 30;
    const COST: Nanos = Nanos::transfer(2 << 20, RATE);

    #[test]
    fn together_writers_write_at_the_rate_allowed() {
        let mut ahead = Ahead::default();
        let mut expected = NOW;
        for _ in 0..4 {
            expected += COST;
            assert_eq!(ahead.add(2 << 20, RATE, NOW), Some(expected));
        }
    }

    #[test]
    fn short_delays_wait_for_others_and_long_ones_end() {
        let mut ahead = Ahead::default();
        assert_eq!(ahead.add(1 << 10, RATE, NOW), None);
        assert!(ahead.add(1 << 21, RATE, NOW).is_some());
        assert_eq!(ahead.add(1 << 40, SLOWEST, NOW), Some(NOW + DELAY_MAX));
        // Time that passed without writes is not made up for.
        let later = NOW + DELAY_MAX + DELAY_MAX;
        assert_eq!(ahead.add(2 << 20, RATE, later), Some(later + COST));
    }

    #[test]
    fn level_0_allows_less_the_fuller_it_is() {
        assert_eq!(rate_by_level0(39, 40, 56), None);
        let rates: Vec<_> = (40..58).map(|tables| rate_by_level0(tables, 40, 56).unwrap()).collect();
        assert!(rates.is_sorted_by(|a, b| a >= b));
        assert_eq!((rates[0], rates[15], rates[17]), (256 * SLOWEST, SLOWEST, SLOWEST));
        assert!(rate_by_level0(usize::MAX / 2, 1, usize::MAX).is_some());
        assert_eq!(rate_by_level0(60, 56, 56), None, "nothing is left between slow and stop");
    }

    #[test]
    fn a_full_queue_allows_a_little_less_than_the_last_flush_achieved() {
        assert_eq!(rate_by_flushes(2, 2, 800), Some(700));
        assert_eq!(rate_by_flushes(1, 2, 800), None);
        assert_eq!(rate_by_flushes(2, 2, 0), None, "nothing was flushed yet");
        assert_eq!(rate_by_flushes(1, 1, 800), None, "nothing else is there to flush");
    }
}
