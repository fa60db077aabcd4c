//! Figures derived from the counts: redundancy, its skew, and what a table of limited size would catch.
//!
//! All are derived from how many fingerprints occur how often, so they do not depend on order. With sampling they are
//! estimates, but the number of chunks is exact. So sampling errs only in the number of distinct chunks, and contents
//! with millions of copies, which a sample contains or not, do no harm.

use super::census::Counted;
use serde::Serialize;
use std::collections::BTreeMap;

/// Contents with more copies than this are hot (SES-Dedup paper, section V.B).
pub const HOT_ABOVE: u32 = 2;

/// Sizes of the tables, as shares of the non-zero chunks.
const TABLE_SHARES: [f64; 5] = [0.05, 0.10, 0.15, 0.20, 1.0];

/// Standard deviations of a 95 % confidence interval.
const CONFIDENCE: f64 = 1.96;

/// Results at one chunk size. Shares are between 0 and 1; a share of nothing is 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ChunkFigures {
    /// Size of the chunks.
    pub chunk_bytes: u64,
    /// All chunks: zeros, distinct ones and duplicates.
    pub chunks: u64,
    /// Chunks of all zeros: there is nothing to deduplicate.
    pub zero_chunks: u64,
    /// Number of distinct contents.
    pub distinct_chunks: u64,
    /// Chunks that deduplication removes: copies beyond the first of each content.
    pub duplicate_chunks: u64,
    /// Share of duplicates among all chunks.
    pub duplicate_share: f64,
    /// Share of duplicates among non-zero chunks.
    pub duplicate_share_of_nonzero: f64,
    /// Share of zeros among all chunks.
    pub zero_share: f64,
    /// One content in this many was counted; 1 if all were.
    pub sampled_one_in: u64,
    /// Half-width of the 95 % confidence interval of `duplicate_share`; 0 if all were counted.
    pub duplicate_share_error: f64,
    /// Number of contents with more than one copy.
    pub duplicated: u64,
    /// Number of contents with more than [`HOT_ABOVE`].
    pub hot: u64,
    /// Share of hot ones among contents with more than one copy (Table III, first column).
    pub hot_share: f64,
    /// As `duplicate_share_error`, for `hot_share`.
    pub hot_share_error: f64,
    /// Share of hot contents' duplicates among all duplicates (Table III, second column).
    pub hot_share_of_duplicates: f64,
    /// As `duplicate_share_error`, for `hot_share_of_duplicates`.
    pub hot_share_of_duplicates_error: f64,
    /// The same with first copies included: chunks of hot contents among all chunks with a copy.
    pub hot_share_of_copies: f64,
    /// Number of contents by number of copies.
    pub copies: Vec<CopiesFigures>,
    /// What fingerprint tables of several sizes would catch.
    pub tables: Vec<TableFigures>,
}

/// Contents with a certain number of copies.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CopiesFigures {
    /// Smallest number of copies.
    pub copies_min: u64,
    /// Largest number of copies.
    pub copies_max: u64,
    /// Number of contents.
    pub contents: u64,
    /// Their copies beyond the first.
    pub duplicate_chunks: u64,
}

/// A fingerprint table of limited size, and the share of all duplicates that it catches if it holds...
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TableFigures {
    /// Its size as a share of the non-zero chunks.
    pub table_share: f64,
    /// Its size as a number of fingerprints.
    pub fingerprints: u64,
    /// ... those with the most copies: no table of this size catches more.
    pub best: f64,
    /// ... only hot ones, regardless of how hot (expected value).
    pub hot: f64,
    /// ... random ones (expected value).
    pub any: f64,
}

/// Estimates of one chunk size.
struct Estimate<'a> {
    by_copies: &'a BTreeMap<u32, u64>,
    /// Number of contents that each counted one represents.
    weight: u64,
    nonzero: u64,
    distinct: u64,
    duplicates: u64,
    duplicated: u64,
    hot: u64,
    /// Duplicates of contents that are not hot.
    cold_duplicates: u64,
}

impl ChunkFigures {
    pub(crate) fn of(counted: &Counted) -> ChunkFigures {
        let estimate = Estimate::of(counted);
        let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let hot_duplicates = estimate.duplicates - estimate.cold_duplicates;
        ChunkFigures {
            chunk_bytes: counted.chunk_bytes,
            chunks: counted.chunks,
            zero_chunks: counted.zero_chunks,
            distinct_chunks: estimate.distinct,
            duplicate_chunks: estimate.duplicates,
            duplicate_share: share(estimate.duplicates, counted.chunks),
            duplicate_share_of_nonzero: share(estimate.duplicates, estimate.nonzero),
            zero_share: share(counted.zero_chunks, counted.chunks),
            sampled_one_in: estimate.weight,
            duplicate_share_error: CONFIDENCE * estimate.distinct_deviation() / counted.chunks.max(1) as f64,
            duplicated: estimate.duplicated,
            hot: estimate.hot,
            hot_share: share(estimate.hot, estimate.duplicated),
            hot_share_error: CONFIDENCE * estimate.hot_share_deviation(),
            hot_share_of_duplicates: share(hot_duplicates, estimate.duplicates),
            hot_share_of_duplicates_error: CONFIDENCE * estimate.hot_duplicates_share_deviation(),
            hot_share_of_copies: share(
                hot_duplicates + estimate.hot,
                estimate.duplicates + estimate.duplicated,
            ),
            copies: estimate.copies(),
            tables: TABLE_SHARES.iter().map(|share| estimate.table(*share)).collect(),
        }
    }
}

impl Estimate<'_> {
    fn of(counted: &Counted) -> Estimate<'_> {
        let weight = 1 << counted.level;
        let contents = |copies: std::ops::RangeInclusive<u32>| {
            weight * counted.by_copies.range(copies).map(|(_, contents)| contents).sum::<u64>()
        };
        let nonzero = counted.chunks - counted.zero_chunks;
        let distinct = contents(0..=u32::MAX).min(nonzero);
        let duplicates = nonzero - distinct;
        Estimate {
            by_copies: &counted.by_copies,
            weight,
            nonzero,
            distinct,
            duplicates,
            duplicated: contents(2..=u32::MAX),
            hot: contents(HOT_ABOVE + 1..=u32::MAX),
            cold_duplicates: contents(HOT_ABOVE..=HOT_ABOVE).min(duplicates),
        }
    }

    /// Share of contents that were not counted: without any, there is no sampling error.
    fn missed(&self) -> f64 {
        1.0 - 1.0 / self.weight as f64
    }

    /// Each content is sampled independently with probability 1/`weight`: the variance of an estimated number of
    /// contents is that number times the weight, times the share that was not counted.
    fn variance(&self, contents: u64) -> f64 {
        self.missed() * self.weight as f64 * contents as f64
    }

    fn distinct_deviation(&self) -> f64 {
        self.variance(self.distinct).sqrt()
    }

    fn hot_share_deviation(&self) -> f64 {
        if self.duplicated == 0 {
            return 0.0;
        }
        let share = self.hot as f64 / self.duplicated as f64;
        (share * (1.0 - share) * self.variance(self.duplicated)).sqrt() / self.duplicated as f64
    }

    /// The share is 1 - c/d, with c cold contents (each has one duplicate) and d = nonzero - c - o duplicates, where o
    /// is the number of other contents. Uses the derivatives by c and o, which are counted independently.
    fn hot_duplicates_share_deviation(&self) -> f64 {
        if self.duplicates == 0 {
            return 0.0;
        }
        let (cold, duplicates) = (self.cold_duplicates as f64, self.duplicates as f64);
        let along_cold = (duplicates + cold) / duplicates.powi(2);
        let along_others = cold / duplicates.powi(2);
        let others = self.distinct.saturating_sub(self.cold_duplicates);
        let variance = along_cold.powi(2) * self.variance(self.cold_duplicates)
            + along_others.powi(2) * self.variance(others);
        variance.sqrt()
    }

    /// Groups contents by powers of two: 1, 2, 3-4, 5-8, ...
    fn copies(&self) -> Vec<CopiesFigures> {
        let mut rows: Vec<CopiesFigures> = Vec::new();
        for (&copies, &counted) in self.by_copies {
            let copies = u64::from(copies);
            let (copies_max, contents) = (copies.next_power_of_two(), counted * self.weight);
            if rows.last().is_none_or(|row| row.copies_max != copies_max) {
                let copies_min = copies_max / 2 + 1;
                rows.push(CopiesFigures { copies_min, copies_max, ..CopiesFigures::default() });
            }
            let row = rows.last_mut().expect("one was just put there");
            row.contents += contents;
            row.duplicate_chunks += contents * (copies - 1);
        }
        rows
    }

    fn table(&self, table_share: f64) -> TableFigures {
        let fingerprints = (table_share * self.nonzero as f64).round() as u64;
        let up_to_one =
            |part: u64, whole: u64| if whole == 0 { 1.0 } else { (part as f64 / whole as f64).min(1.0) };
        let hot_duplicates = self.duplicates - self.cold_duplicates;
        let (best, hot, any) = match self.duplicates {
            0 => (0.0, 0.0, 0.0),
            all => (
                1.0 - up_to_one(self.not_in_best(fingerprints), all),
                up_to_one(fingerprints, self.hot) * hot_duplicates as f64 / all as f64,
                up_to_one(fingerprints, self.distinct),
            ),
        };
        TableFigures { table_share, fingerprints, best, hot, any }
    }

    /// Duplicates of all contents except the `fingerprints` ones with the most copies.
    fn not_in_best(&self, fingerprints: u64) -> u64 {
        let mut room = fingerprints;
        let mut missed = 0;
        for (&copies, &counted) in self.by_copies.iter().rev() {
            let contents = counted * self.weight;
            let held = contents.min(room);
            room -= held;
            missed += (contents - held) * u64::from(copies - 1);
        }
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(by_copies: &[(u32, u64)], zero_chunks: u64, level: u32, chunks: u64) -> ChunkFigures {
        let by_copies = by_copies.iter().copied().collect();
        ChunkFigures::of(&Counted { chunk_bytes: 8192, chunks, zero_chunks, level, by_copies })
    }

    #[test]
    fn figures_by_hand() {
        // 50 contents once, 20 twice, 10 three times, 1 eleven times; 29 zeros.
        let f = figures(&[(1, 50), (2, 20), (3, 10), (11, 1)], 29, 0, 160);
        assert_eq!((f.distinct_chunks, f.duplicate_chunks), (81, 20 + 20 + 10));
        assert_eq!((f.duplicate_share, f.duplicate_share_of_nonzero), (50.0 / 160.0, 50.0 / 131.0));
        assert_eq!((f.duplicated, f.hot, f.hot_share), (31, 11, 11.0 / 31.0));
        assert_eq!((f.hot_share_of_duplicates, f.hot_share_of_copies), (30.0 / 50.0, 41.0 / 81.0));
        assert_eq!(
            (f.duplicate_share_error, f.hot_share_error, f.hot_share_of_duplicates_error),
            (0.0, 0.0, 0.0)
        );
        // 5 % of 131 is 7 fingerprints: the best are the one with eleven copies and six with three.
        let table = &f.tables[0];
        assert_eq!((table.fingerprints, table.best), (7, 1.0 - 28.0 / 50.0));
        assert_eq!((table.hot, table.any), (7.0 / 11.0 * 30.0 / 50.0, 7.0 / 81.0));
        let whole = f.tables.last().unwrap();
        assert_eq!((whole.best, whole.hot, whole.any), (1.0, 0.6, 1.0));
        let rows: Vec<_> =
            f.copies.iter().map(|r| (r.copies_min, r.copies_max, r.contents, r.duplicate_chunks)).collect();
        assert_eq!(rows, [(1, 1, 50, 0), (2, 2, 20, 20), (3, 4, 10, 20), (9, 16, 1, 10)]);
    }

    #[test]
    fn nothing_is_no_trouble() {
        for f in [figures(&[], 0, 0, 0), figures(&[], 5, 3, 5), figures(&[(1, 4)], 0, 0, 4)] {
            assert_eq!((f.duplicate_share, f.hot_share, f.hot_share_of_duplicates), (0.0, 0.0, 0.0));
            assert!(f.tables.iter().all(|t| t.best == 0.0 && t.hot == 0.0));
        }
    }

    #[test]
    fn the_error_of_a_sample_is_as_promised() {
        // Contents 0..n, a third each with one, two and five copies; random samples of 1 in 64.
        const CONTENTS: u64 = 300_000;
        let copies = |i: u64| [1, 2, 5][(i % 3) as usize];
        let chunks = CONTENTS / 3 * 8;
        let (mut far, mut hot_far, mut redundant_far) = (0, 0, 0);
        const SAMPLES: u64 = 200;
        for seed in 0..SAMPLES {
            let mut by_copies = BTreeMap::new();
            let hash = |i: u64| xxhash_rust::xxh3::xxh3_64_with_seed(&i.to_le_bytes(), seed);
            (0..CONTENTS).filter(|i| hash(*i).trailing_zeros() >= 6).for_each(|i| {
                *by_copies.entry(copies(i)).or_default() += 1;
            });
            let f =
                ChunkFigures::of(&Counted { chunk_bytes: 8192, chunks, zero_chunks: 0, level: 6, by_copies });
            let off = |found: f64, truth: f64, error: f64| u64::from((found - truth).abs() > error);
            far += off(f.duplicate_share, 5.0 / 8.0, f.duplicate_share_error);
            hot_far += off(f.hot_share, 0.5, f.hot_share_error);
            redundant_far += off(f.hot_share_of_duplicates, 0.8, f.hot_share_of_duplicates_error);
        }
        // 1 in 20 may be outside: 10 of 200, with a standard deviation of 3.
        for far in [far, hot_far, redundant_far] {
            assert!((1..=22).contains(&far), "{far} of {SAMPLES}");
        }
    }
}
