//! Periods for which a bus is reserved in advance.
//!
//! 1. Bookings are sorted, do not overlap, and do not touch (touching ones are merged).
//! 2. There are at most [`BOOKINGS_MAX`]: beyond that the gap between the first two is closed.

use std::collections::VecDeque;
use vellum_base::Nanos;

const BOOKINGS_MAX: usize = 64;

/// Reserved periods, as (start, end).
#[derive(Default)]
pub(super) struct Bookings(VecDeque<(Nanos, Nanos)>);

impl Bookings {
    /// Books the first gap of `length` that begins at `ready` or later; returns its end. Drops bookings that end before
    /// `now`.
    #[inline]
    pub fn book(&mut self, now: Nanos, ready: Nanos, length: Nanos) -> Nanos {
        let taken = &mut self.0;
        while taken.front().is_some_and(|(_, end)| *end <= now) {
            taken.pop_front();
        }
        let mut start = ready;
        let mut at = taken.partition_point(|(_, end)| *end <= ready);
        while at < taken.len() && start + length > taken[at].0 {
            start = start.max(taken[at].1);
            at += 1;
        }
        let end = start + length;
        let touches_before = at > 0 && taken[at - 1].1 == start;
        let touches_after = at < taken.len() && taken[at].0 == end;
        match (touches_before, touches_after) {
            (true, true) => {
                taken[at - 1].1 = taken[at].1;
                taken.remove(at);
            }
            (true, false) => taken[at - 1].1 = end,
            (false, true) => taken[at].0 = start,
            (false, false) => taken.insert(at, (start, end)),
        }
        if taken.len() > BOOKINGS_MAX {
            let (start, _) = taken.pop_front().unwrap_or_default();
            taken[0].0 = start;
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_used_and_nothing_overlaps() {
        let mut bookings = Bookings::default();
        let mut book = |ready, length| bookings.book(Nanos(0), Nanos(ready), Nanos(length)).0;
        assert_eq!(book(50, 10), 60);
        assert_eq!(book(50, 10), 70);
        assert_eq!(book(100, 10), 110);
        assert_eq!(book(55, 30), 100, "fits exactly between");
        assert_eq!(book(0, 51), 161, "too long for the gap at the front");
        assert_eq!(book(0, 50), 50);
        assert_eq!(bookings.0, [(Nanos(0), Nanos(161))]);
    }

    #[test]
    fn random_bookings_agree_with_a_table_of_minutes() {
        let mut bookings = Bookings::default();
        let mut minutes = vec![false; 4000];
        let mut state = 1u32;
        for _ in 0..60 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (ready, length) = ((state >> 16) as usize % 600, (state >> 8) as usize % 9 + 1);
            let end = bookings.book(Nanos(0), Nanos(ready as u64), Nanos(length as u64)).0 as usize;
            let want = (ready..).find(|s| minutes[*s..s + length].iter().all(|taken| !taken)).unwrap();
            assert_eq!(end, want + length);
            minutes[want..end].fill(true);
        }
    }
}
