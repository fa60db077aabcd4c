//! How fast writers may go while flushes or merges are behind: each write is delayed a little before all of them would
//! have to wait for long.
//!
//! Invariants
//! 1. Writers of any number together write no faster than is allowed: each delay begins where the one before ends.
//! 2. While as many memtables wait as may, the rate is that of the last flush, or a little less, so that writers do not
//!    run into the full queue after all. Another flush is under way, so the medium is kept as busy as if they did.
//! 3. No write is delayed for longer than [`DELAY_MAX`], however slow that flush was.

use crate::lsm::core::Core;
use crate::options::Rules;
use vellum_base::Nanos;
use vellum_base::sync::atomic::AtomicU64;
use vellum_base::sync::atomic::Ordering::Relaxed;

/// Delays are accumulated until they reach this: shorter sleeps are inexact.
const DELAY_MIN: Nanos = Nanos::from_ms(1);
/// The same where flushes limit writers: longer, so that at common rates fewer than one in a thousand writes sleeps.
const DELAY_MIN_BY_FLUSHES: Nanos = Nanos::from_ms(4);
const DELAY_MAX: Nanos = Nanos::from_ms(1000);
/// Delay of a write under LevelDB's rules (`MakeRoomForWrite`).
const LEVELDB_DELAY: Nanos = Nanos::from_ms(1);
/// Bytes per second when level 0 is about to be full, and where flushes are slower.
const SLOWEST: u64 = 2 << 20;

/// What limits writers: part of the store.
#[derive(Default)]
pub(crate) struct Pace {
    /// Bytes of memtables flushed per second, most recently; 0 if none of some size was flushed yet.
    flush_rate: AtomicU64,
}

/// What writers may write.
#[derive(Clone, Copy)]
struct Limit {
    bytes_per_second: u64,
    delay_min: Nanos,
}

/// How far writers are ahead of what they may write: part of the writer.
#[derive(Default)]
pub(crate) struct Ahead {
    /// When everything that was written would have been written at the rate allowed.
    until: Nanos,
}

impl Ahead {
    /// Bytes are written now. Returns until when to delay, if it is worth a sleep.
    fn write(&mut self, bytes: u64, limit: Limit, now: Nanos) -> Option<Nanos> {
        let cost = Nanos::transfer(bytes, limit.bytes_per_second);
        self.until = (self.until.max(now) + cost).min(now + DELAY_MAX);
        (self.until.saturating_sub(now) >= limit.delay_min).then_some(self.until)
    }
}

impl Core {
    /// A memtable of so many bytes took `elapsed` to be flushed.
    pub(crate) fn flushed(&self, bytes: usize, elapsed: Nanos) {
        if bytes < self.memtable_bytes_max() / 2 {
            return; // most of it may have been what any flush takes
        }
        let rate = bytes as u128 * 1_000_000_000 / u128::from(elapsed.0.max(1));
        self.pace.flush_rate.store(u64::try_from(rate).unwrap_or(u64::MAX).max(SLOWEST), Relaxed);
    }

    /// Until when a write of so many bytes is to be delayed, once it is done.
    pub(crate) fn delay(&self, ahead: &mut Ahead, bytes: u64) -> Option<Nanos> {
        let view = self.view.load();
        let (waiting, tables) = (view.frozen.len(), view.version.levels[0].len());
        drop(view);
        let by_level0 = self.limit_by_level0(tables);
        match self.options.rules {
            Rules::Vellum => {
                let limits = by_level0.into_iter().chain(self.limit_by_flushes(waiting));
                let limit = limits.min_by_key(|limit| limit.bytes_per_second)?;
                ahead.write(bytes, limit, self.env.now())
            }
            Rules::LevelDb => by_level0.map(|_| self.env.now() + LEVELDB_DELAY),
        }
    }

    /// The limit that level 0 sets: the lower, the fuller it is.
    fn limit_by_level0(&self, tables: usize) -> Option<Limit> {
        let (slow, stop) = (self.options.level0_slow, self.options.level0_stop);
        let left = (stop.saturating_sub(tables) as u64).max(1);
        let limit = Limit { bytes_per_second: SLOWEST * left * left, delay_min: DELAY_MIN };
        (tables >= slow && stop > slow).then_some(limit)
    }

    /// The limit that the queue of memtables sets, if it is full.
    fn limit_by_flushes(&self, waiting: usize) -> Option<Limit> {
        let rate = self.pace.flush_rate.load(Relaxed) / 8 * 7;
        let limit = Limit { bytes_per_second: rate, delay_min: DELAY_MIN_BY_FLUSHES };
        (waiting >= self.options.memtables_max && rate > 0).then_some(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos::from_ms(5000);
    const FAST: Limit = Limit { bytes_per_second: 1 << 30, delay_min: DELAY_MIN };

    #[test]
    fn together_writers_write_at_the_rate_allowed() {
        let mut ahead = Ahead::default();
        let delays: Vec<_> = (0..4).map(|_| ahead.write(2 << 20, FAST, NOW)).collect();
        assert_eq!(
            delays.iter().flatten().map(|until| (*until - NOW).0 / 1_000_000).collect::<Vec<_>>(),
            [1, 3, 5, 7]
        );
    }

    #[test]
    fn short_delays_wait_for_others_and_long_ones_end() {
        let mut ahead = Ahead::default();
        assert_eq!(ahead.write(1 << 10, FAST, NOW), None);
        assert!(ahead.write(2 << 20, FAST, NOW).is_some());
        assert_eq!(
            ahead.write(1 << 40, Limit { bytes_per_second: SLOWEST, ..FAST }, NOW),
            Some(NOW + DELAY_MAX)
        );
        // Time that passed without writes is not made up for.
        assert_eq!(ahead.write(1 << 10, FAST, NOW + DELAY_MAX + DELAY_MAX), None);
    }
}
