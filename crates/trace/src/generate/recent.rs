//! The most recent items, for repeating them soon.
//!
//! 1. Each item is present once, newest first; there are no more than `depth`.

use super::Seeded;

/// The last `depth` different items.
#[derive(Clone, Debug)]
pub struct Recent<T> {
    depth: usize,
    items: Vec<T>,
}

impl<T: Copy + PartialEq> Recent<T> {
    /// An empty list.
    pub fn new(depth: usize) -> Recent<T> {
        Recent { depth, items: Vec::with_capacity(depth) }
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// True before the first item.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Makes an item the newest. Returns how many others were newer; `None` if it was not present.
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

    /// Draws an item so that each doubling of the distance is equally likely: the first item is drawn as often as the
    /// second and third together. `None` if the list is empty.
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
