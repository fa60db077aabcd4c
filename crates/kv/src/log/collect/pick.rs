//! Choice of segments worth collecting. Pure.
//!
//! Only neighbours are collected together, so that the order of records by age is kept.

use std::ops::Range;

/// Collecting is behind if segments have so many times the bytes that it would leave them with, and so many segments
/// more.
const BEHIND: f64 = 2.0;
const BEHIND_SEGMENTS: u64 = 8;

/// What a segment weighs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weight {
    /// Bytes of records and bubbles.
    pub data: u64,
    /// Of these, records that the index points to.
    pub live: u64,
    /// Deletes, which are needed as long as there may be something older.
    pub deletes: u64,
    pub bubbles: u64,
    /// Most bytes of the hint behind these data in a table.
    pub hint: u64,
    /// Not to be collected.
    pub is_skipped: bool,
}

impl Weight {
    /// Bytes that collecting it would copy, with or without the deletes.
    fn kept(&self, deletes: bool) -> u64 {
        self.live.saturating_add(if deletes { self.deletes } else { 0 })
    }
    /// Bytes of a table that `kept` bytes of records take, with their share of the hint.
    fn taking(&self, kept: u64) -> u64 {
        let hint = self.hint as u128 * kept as u128 / self.data.max(1) as u128;
        kept.saturating_add(u64::try_from(hint).unwrap_or(u64::MAX))
    }
    /// True if collecting it would drop anything.
    pub(crate) fn has_garbage(&self, deletes: bool) -> bool {
        self.data > self.kept(deletes).saturating_add(self.bubbles)
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Most bytes of a segment's data and hint.
    pub table_max: u64,
    /// A segment takes the room of a full one.
    pub whole_tables: bool,
    /// Least share of the bytes collected that must be won.
    pub share: f64,
    /// Most neighbours.
    pub window: usize,
}

/// True if what can be collected has much more garbage than collecting, which is to leave the share `garbage_share`,
/// would leave.
pub(crate) fn is_behind(weights: &[Weight], garbage_share: f64, segment_bytes: u64) -> bool {
    let collectable = || weights.iter().filter(|weight| !weight.is_skipped);
    let data: u64 = collectable().map(|weight| weight.data.saturating_sub(weight.bubbles)).sum();
    let kept: u64 = collectable().map(|weight| weight.kept(true)).sum();
    let left_share = (1.0 - garbage_share).max(0.0);
    data.saturating_sub(BEHIND_SEGMENTS * segment_bytes) as f64 * left_share > BEHIND * kept as f64
}

/// True if deletes behind these segments are needed, as they may hide something in these.
pub(crate) fn needs_deletes(before: &[Weight]) -> bool {
    before.iter().any(|weight| weight.has_garbage(true))
}

/// The neighbours whose collection wins the most for each byte that it copies.
pub(crate) fn pick(weights: &[Weight], wanted: &Wanted) -> Option<Range<usize>> {
    let mut best: Option<(f64, Range<usize>)> = None;
    for start in 0..weights.len() {
        let mut sum = Sum::default();
        let deletes = needs_deletes(&weights[..start]);
        for (at, weight) in weights.iter().enumerate().skip(start).take(wanted.window.max(1)) {
            if weight.is_skipped {
                break;
            }
            sum.add(weight, deletes);
            if let Some(worth) = sum.worth(wanted)
                && best.as_ref().is_none_or(|(most, _)| worth > *most)
            {
                best = Some((worth, start..at + 1));
            }
        }
    }
    best.map(|(_, range)| range)
}

/// Neighbours, together.
#[derive(Default)]
struct Sum {
    tables: u64,
    data: u64,
    /// Bytes that are copied, and bytes of tables that they take.
    kept: u64,
    taking: u64,
    has_garbage: bool,
}

impl Sum {
    fn add(&mut self, weight: &Weight, deletes: bool) {
        let kept = weight.kept(deletes);
        self.tables += 1;
        self.data += weight.data;
        self.kept = self.kept.saturating_add(kept);
        self.taking = self.taking.saturating_add(weight.taking(kept));
        self.has_garbage |= weight.has_garbage(deletes);
    }

    /// Bytes won for each byte copied; `None` if it is not to be done.
    fn worth(&self, wanted: &Wanted) -> Option<f64> {
        let table = wanted.table_max.max(1);
        let after = self.taking.div_ceil(table);
        let (before, won) = match wanted.whole_tables {
            true => (self.tables * table, self.tables.saturating_sub(after) * table),
            false => (self.data.max(1), self.data.saturating_sub(self.kept)),
        };
        if !self.has_garbage {
            // Without garbage, segments are only joined, and only if they are so small that this wins something
            // whatever bubbles take; else it might be done again and again.
            return (after * 4 <= self.tables).then_some(0.0);
        }
        let share = won as f64 / before as f64;
        (won > 0 && share >= wanted.share).then(|| won as f64 / (self.kept as f64 + 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: u64 = 1000;

    fn of(data: u64, live: u64) -> Weight {
        Weight { data, live, ..Weight::default() }
    }

    fn wanted(whole_tables: bool, share: f64) -> Wanted {
        Wanted { table_max: CAP, whole_tables, share, window: 4 }
    }

    #[test]
    fn most_garbage_goes_first() {
        let weights = [of(1000, 900), of(1000, 300), of(1000, 800), of(1000, 0), of(1000, 700)];
        assert_eq!(pick(&weights, &wanted(false, 0.4)), Some(3..4));
        assert_eq!(pick(&weights[..3], &wanted(false, 0.4)), Some(1..2));
        assert_eq!(pick(&weights[..1], &wanted(false, 0.4)), None);
        // Where tables are whole, one is won only if what is kept fits into fewer.
        assert_eq!(pick(&weights[..3], &wanted(true, 0.4)), None);
        assert_eq!(pick(&weights[..3], &wanted(true, 0.3)), Some(0..3));
        assert_eq!(pick(&[of(1000, 700), of(1000, 300)], &wanted(true, 0.4)), Some(0..2));
    }

    #[test]
    fn deletes_are_garbage_where_they_hide_nothing() {
        let weights = [Weight { data: 1000, live: 0, deletes: 1000, ..Weight::default() }, of(1000, 1000)];
        assert_eq!(pick(&weights, &wanted(false, 0.4)), Some(0..1));
        let weights = [weights[1], weights[0]];
        assert_eq!(pick(&weights, &wanted(false, 0.6)), Some(1..2));
        // Something may be hidden before them.
        let weights = [of(1000, 992), weights[1]];
        assert_eq!(pick(&weights, &Wanted { window: 1, ..wanted(false, 0.4) }), None);
    }

    #[test]
    fn what_cannot_be_collected_is_nothing_to_be_behind_with() {
        let is_behind = |weights: &[Weight]| is_behind(weights, 0.4, 100);
        assert!(is_behind(&[of(5000, 1000)]) && !is_behind(&[of(4000, 1000)]));
        let full = of(1000, 1000);
        let skipped = Weight { is_skipped: true, ..of(1_000_000, 0) };
        let bubbles = Weight { data: 1_000_000, live: 1000, bubbles: 999_000, ..Weight::default() };
        assert!(!is_behind(&[full, skipped]) && !is_behind(&[full, bubbles]));
        assert!(!is_behind(&[Weight { deletes: 1_000_000, data: 1_000_000, ..Weight::default() }]));
    }

    #[test]
    fn nothing_is_done_for_nothing() {
        let bubbles = Weight { data: 1000, live: 950, bubbles: 50, ..Weight::default() };
        assert_eq!(pick(&[bubbles; 8], &wanted(false, 0.01)), None);
        let skipped = Weight { is_skipped: true, ..of(1000, 0) };
        assert_eq!(pick(&[skipped; 3], &wanted(false, 0.1)), None);
        assert_eq!(pick(&[], &wanted(false, 0.0)), None);
    }

    /// Of small records hints take much: what is kept may need as many tables as there were.
    #[test]
    fn hints_take_their_part_of_whole_tables() {
        let small = |data, live| Weight { hint: data * 2 / 5, ..of(data, live) };
        assert_eq!(pick(&[small(700, 650); 4], &wanted(true, 0.1)), None);
        assert_eq!(pick(&[of(700, 650); 4], &wanted(true, 0.1)), Some(0..3));
        assert_eq!(pick(&[small(700, 520); 4], &wanted(true, 0.1)), Some(0..4));
    }

    #[test]
    fn small_neighbours_are_put_together() {
        assert_eq!(pick(&[of(100, 100); 9], &wanted(false, 0.4)), Some(0..4));
        assert_eq!(pick(&[of(100, 100); 9], &wanted(true, 0.4)).map(|range| range.len()), Some(4));
    }
}
