//! What came last, so that it can come again soon.
//!
//! 1. Each item is there once, the newest first; no more than `depth` of them.

use super::Seeded;

/// The last `depth` different items.
#[derive(Clone, Debug)]
pub struct Recent<T> {
    depth: usize,
    items: Vec<T>,
}

impl<T: Copy + PartialEq> Recent<T> {
    /// None yet.
    pub fn new(depth: usize) -> Recent<T> {
        Recent { depth, items: Vec::with_capacity(depth) }
    }

    /// Items that are there.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// True before the first item.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// An item comes: it is the newest from now on. How many others came since it last did; None if it is not among
    /// them.
    pub fn touch(&mut self, item: T) -> Option<usize> {
        let found = self.items.iter().position(|other| *other == item);
        if found.is_none() {
            self.items.truncate(self.depth.saturating_sub(1));
            self.items.push(item);
        }
        let at = found.unwrap_or(self.items.len() - 1);
        self.items[..=at].rotate_right(1);
        found
    }

    /// One of them, by a distribution in which each doubling of the distance is as likely as the one before: the first
    /// is in as many draws as the second and third together. None if there are none.
    pub fn draw(&self, rng: &mut Seeded) -> Option<T> {
        let spread = ((self.len() + 1) as f64).powf(rng.share());
        self.items.get((spread as usize).saturating_sub(1)).or(self.items.last()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_first_each_once() {
        let (mut recent, mut rng) = (Recent::new(20), Seeded::new(1));
        let mut came: Vec<u64> = Vec::new();
        for _ in 0..2000 {
            let item = rng.below(40);
            let mut model: Vec<u64> = Vec::new();
            came.iter().rev().for_each(|other| {
                if !model.contains(other) {
                    model.push(*other);
                }
            });
            model.truncate(20);
            assert_eq!(recent.items, model);
            assert_eq!(recent.touch(item), model.iter().position(|other| *other == item));
            came.push(item);
        }
    }

    #[test]
    fn a_doubling_of_the_distance_is_as_likely_as_the_one_before() {
        let (mut recent, mut rng) = (Recent::new(255), Seeded::new(2));
        assert_eq!(recent.draw(&mut rng), None);
        assert!(recent.is_empty());
        (0..255).rev().for_each(|item| assert_eq!(recent.touch(item), None));
        let mut doublings = [0u32; 8];
        for _ in 0..80_000 {
            let item: u32 = recent.draw(&mut rng).unwrap();
            doublings[(item + 1).ilog2() as usize] += 1;
        }
        assert_eq!(recent.len(), 255);
        assert!(doublings.iter().all(|count| (9_500..10_500).contains(count)), "{doublings:?}");
    }
}
