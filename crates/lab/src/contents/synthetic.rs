//! Contents with a given redundancy and skew, in random order.

use vellum_trace::generate::Seeded;

/// Properties of a set of pages, in the terms of the SES-Dedup paper's Tables III and IV.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Skew {
    /// Share of duplicates among all pages.
    pub duplicate_share: f64,
    /// Share of contents with more than two copies among those with more than one.
    pub hot_share: f64,
    /// Share of their duplicates among all duplicates.
    pub hot_share_of_duplicates: f64,
}

/// Generates this many pages. A cold content has one duplicate. A hot one has two; the remaining duplicates are divided
/// among the hot ones in proportion to 1/rank: the paper says how many hot ones there are, not how hot they are.
pub fn pages(skew: &Skew, pages: u32, seed: u64) -> Vec<u32> {
    let duplicates = (f64::from(pages) * skew.duplicate_share).round();
    let cold = (duplicates * (1.0 - skew.hot_share_of_duplicates)).round();
    let hot = (cold * skew.hot_share / (1.0 - skew.hot_share)).round();
    let spare = (duplicates - cold - 2.0 * hot).max(0.0);
    let all_parts: f64 = (1..=hot as u64).map(|rank| 1.0 / rank as f64).sum();
    let mut copies: Vec<u32> =
        (1..=hot as u64).map(|rank| 3 + (spare / rank as f64 / all_parts) as u32).collect();
    copies.extend(std::iter::repeat_n(2, cold as usize));
    let mut numbers: Vec<u32> =
        (1..).zip(copies).flat_map(|(number, copies)| std::iter::repeat_n(number, copies as usize)).collect();
    numbers.truncate(pages as usize);
    let first_unique = numbers.last().map_or(1, |last| last + 1);
    numbers.extend((first_unique..).take(pages as usize - numbers.len()));
    shuffle(&mut numbers, &mut Seeded::new(seed));
    renumber(&mut numbers);
    numbers
}

/// Shuffles the items.
pub(crate) fn shuffle<T>(items: &mut [T], rng: &mut Seeded) {
    for i in (1..items.len()).rev() {
        items.swap(i, rng.below(i as u64 + 1) as usize);
    }
}

/// Renumbers contents in order of first appearance, as [`super::Contents`] does.
fn renumber(numbers: &mut [u32]) {
    let most = numbers.iter().max().map_or(0, |most| *most as usize);
    let mut new = vec![0; most + 1];
    let mut next = 1;
    for number in numbers {
        let entry = &mut new[*number as usize];
        if *entry == 0 {
            *entry = next;
            next += 1;
        }
        *number = *entry;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contents::figures;

    #[test]
    fn sets_are_as_skewed_as_asked_for() {
        let skew = Skew { duplicate_share: 0.299, hot_share: 0.138, hot_share_of_duplicates: 0.863 };
        let numbers = pages(&skew, 100_000, 7);
        assert_eq!((numbers.len(), numbers == pages(&skew, 100_000, 7)), (100_000, true));
        assert_ne!(numbers, pages(&skew, 100_000, 8));
        let found = figures(8192, &numbers);
        assert!((found.duplicate_share - 0.299).abs() < 0.005, "{}", found.duplicate_share);
        assert!((found.hot_share - 0.138).abs() < 0.005, "{}", found.hot_share);
        assert!((found.hot_share_of_duplicates - 0.863).abs() < 0.005, "{}", found.hot_share_of_duplicates);
        let empty = Skew { duplicate_share: 0.0, ..skew };
        assert_eq!(figures(8192, &pages(&empty, 100, 7)).duplicate_chunks, 0);
    }
}
