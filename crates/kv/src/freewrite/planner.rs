//! Decides what is worth a bubble. Pure: it knows lengths and offsets of bytes, not what they mean.
//!
//! Unmodified bytes from offset `from` keep their place within their unit if they are written at an offset `tail` that
//! is congruent to `from` modulo the unit. The padding that this takes is a *bubble*; the unmodified run after it is an
//! *island*. A bubble of *f* units before an island of *k* units is worth it if `f / k` is at most the bubble cap and
//! all bubbles together are at most the global cap times what was written (Freewrite, section 2).
//!
//! Invariants
//! 1. At any time, all bubbles together are at most the global cap times what was written, if only pieces judged
//!    [`Verdict::Keep`] are kept.
//! 2. A verdict is put off ([`Verdict::Wait`]) at most until `1 / bubble cap` units of the island are known, or as much
//!    as is worth keeping.

use vellum_base::{Error, Result};

/// How much padding is acceptable, as fractions from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Caps {
    /// Most bytes of a bubble, relative to the island after it.
    pub bubble: f64,
    /// Most bytes of all bubbles of a table or segment, relative to all its bytes.
    pub global: f64,
}

impl Caps {
    /// An error if one of them is not from 0 to 1.
    pub(crate) fn check(self) -> Result<()> {
        let is_share = |cap: f64| (0.0..=1.0).contains(&cap);
        match is_share(self.bubble) && is_share(self.global) {
            true => Ok(()),
            false => Err(Error::invalid(format!("{self:?}: a cap is a share, from 0 to 1"))),
        }
    }
}

impl Default for Caps {
    /// The paper's: 12.5 % and 5 %.
    fn default() -> Caps {
        Caps { bubble: 0.125, global: 0.05 }
    }
}

/// What to do with an island.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Write the bubble and keep the island unchanged.
    Keep,
    /// Undecided: more of the island has to be known.
    Wait,
    /// Rewrite it.
    Pack,
}

/// The next piece of an island.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IslandPart {
    /// Bytes of the bubble it needs.
    pub bubble: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Of these, bubbles of earlier merges within it.
    pub inherited: u64,
}

/// Plans one table or log.
#[derive(Clone, Debug)]
pub(crate) struct Planner {
    unit: u64,
    caps: Caps,
    /// Shorter islands are never kept.
    island_min: u64,
    totals: Totals,
    /// Where the last kept piece ended.
    end: Option<u64>,
}

/// Sums over everything that was kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Islands kept.
    pub islands: u64,
    /// Bubbles written before them.
    pub bubbles: u64,
    /// Bytes of these.
    pub bubble_bytes: u64,
    /// Bytes of bubbles of earlier merges within islands.
    pub inherited: u64,
    /// Bytes of islands kept.
    pub kept: u64,
}

impl Planner {
    pub(crate) fn new(unit: u64, caps: Caps, island_min: u64) -> Planner {
        Planner { unit, caps, island_min, totals: Totals::default(), end: None }
    }

    pub(crate) fn unit_bytes(&self) -> u64 {
        self.unit
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    /// Bytes from `tail` to the next offset congruent to `from` modulo the unit.
    pub(crate) fn bubble(&self, from: u64, tail: u64) -> u64 {
        (from % self.unit + self.unit - tail % self.unit) % self.unit
    }

    /// What to do with `piece`, the first of an island, when `tail` bytes are written. `known` bytes of the island have
    /// been seen; they are all of it if it has `ended`.
    pub(crate) fn judge(&self, tail: u64, piece: IslandPart, known: u64, ended: bool) -> Verdict {
        let Totals { bubble_bytes, inherited, .. } = self.totals;
        let padded = bubble_bytes + inherited + piece.bubble + piece.inherited;
        let emitted = tail + piece.bubble + piece.bytes;
        if padded as f64 > self.caps.global * emitted as f64 {
            return Verdict::Pack;
        }
        let goes_on = self.end == Some(tail) && piece.bubble == 0;
        if known < self.island_min && !goes_on {
            return if ended { Verdict::Pack } else { Verdict::Wait };
        }
        match piece.bubble as f64 <= self.caps.bubble * known as f64 {
            true => Verdict::Keep,
            false if ended || self.caps.bubble <= 0.0 => Verdict::Pack,
            false => Verdict::Wait,
        }
    }

    /// Notes that a piece is kept at `tail`.
    pub(crate) fn keep(&mut self, tail: u64, piece: IslandPart) {
        let totals = &mut self.totals;
        totals.islands += (self.end != Some(tail)) as u64;
        totals.bubbles += (piece.bubble > 0) as u64;
        totals.bubble_bytes += piece.bubble;
        totals.inherited += piece.inherited;
        totals.kept += piece.bytes;
        self.end = Some(tail + piece.bubble + piece.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Something in order: modified bytes, or an unmodified run of units.
    #[derive(Clone, Copy, Debug)]
    enum Next {
        Loose(u64),
        Units(u64),
    }

    fn all() -> impl Strategy<Value = Vec<Next>> {
        let next = prop_oneof![(1u64..9000).prop_map(Next::Loose), (1u64..9).prop_map(Next::Units)];
        prop::collection::vec(next, 1..200)
    }

    proptest! {
        #[test]
        fn caps_are_never_passed(all in all(), bubble in 0.0f64..1.2, global in 0.0f64..1.2, island_min in 0u64..20_000) {
            let mut planner = Planner::new(4096, Caps { bubble, global }, island_min);
            let (mut tail, mut from, mut kept) = (0, 0, 0);
            for next in all {
                let units = match next {
                    Next::Loose(bytes) => {
                        tail += bytes;
                        continue;
                    }
                    Next::Units(units) => units,
                };
                let piece = IslandPart { bubble: planner.bubble(from, tail), bytes: units * 4096, inherited: 0 };
                from += piece.bytes;
                match planner.judge(tail, piece, piece.bytes, true) {
                    Verdict::Keep => {
                        prop_assert!(piece.bytes >= island_min || planner.end == Some(tail));
                        prop_assert!(piece.bubble as f64 <= bubble * piece.bytes as f64);
                        planner.keep(tail, piece);
                        kept += piece.bytes;
                        tail += piece.bubble + piece.bytes;
                    }
                    Verdict::Pack => tail += piece.bytes,
                    Verdict::Wait => prop_assert!(false, "waits for what has ended"),
                }
                prop_assert!(planner.totals().bubble_bytes as f64 <= global * tail as f64);
                prop_assert_eq!(planner.totals().kept, kept);
            }
        }

        #[test]
        fn nothing_is_waited_for_in_vain(need in 1u64..4096, bubble in 0.01f64..1.0, island_min in 0u64..20_000) {
            let planner = Planner::new(4096, Caps { bubble, global: 1.0 }, island_min);
            let piece = IslandPart { bubble: need, bytes: 4096, inherited: 0 };
            let enough = (1u64..).find(|units| planner.judge(0, piece, units * 4096, false) != Verdict::Wait);
            prop_assert!(enough.unwrap() as f64 <= (1.0 / bubble).ceil().max((island_min as f64 / 4096.0).ceil()));
        }
    }

    #[test]
    fn caps_of_nothing_and_of_everything() {
        let piece = IslandPart { bubble: 1, bytes: 4096, inherited: 0 };
        let judge = |bubble, global, piece| {
            Planner::new(4096, Caps { bubble, global }, 0).judge(0, piece, piece.bytes, false)
        };
        for (bubble, global) in [(0.0, 1.0), (1.0, 0.0), (0.0, 0.0)] {
            assert_eq!(judge(bubble, global, piece), Verdict::Pack);
            assert_eq!(judge(bubble, global, IslandPart { bubble: 0, ..piece }), Verdict::Keep);
        }
        assert_eq!(judge(1.0, 1.0, IslandPart { bubble: 4095, ..piece }), Verdict::Keep);
    }

    #[test]
    fn what_an_island_brings_along_counts() {
        let planner = Planner::new(4096, Caps::default(), 0);
        let piece = IslandPart { bubble: 0, bytes: 40960, inherited: 2049 };
        assert_eq!(planner.judge(0, piece, 40960, true), Verdict::Pack);
        assert_eq!(planner.judge(0, IslandPart { inherited: 2048, ..piece }, 40960, true), Verdict::Keep);
    }

    #[test]
    fn islands_are_counted_once() {
        let mut planner = Planner::new(4096, Caps::default(), 0);
        let piece = IslandPart { bubble: 0, bytes: 4096, inherited: 0 };
        planner.keep(0, piece);
        planner.keep(4096, piece);
        planner.keep(8300, IslandPart { bubble: 3988, ..piece });
        let Totals { islands, bubbles, kept, .. } = planner.totals();
        assert_eq!((islands, bubbles, kept), (2, 1, 3 * 4096));
    }

    #[test]
    fn a_bubble_brings_the_tail_to_where_it_was() {
        let planner = Planner::new(4096, Caps::default(), 0);
        for (from, tail, bubble) in [(0, 0, 0), (8192, 4096, 0), (100, 4000, 196), (4000, 100, 3900)] {
            assert_eq!(planner.bubble(from, tail), bubble);
        }
    }
}
