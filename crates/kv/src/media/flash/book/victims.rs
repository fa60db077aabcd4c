//! Which superblocks collection may take, and how many it would win if it took them all, kept while counts change.

use super::{Hand, Superblock};
use std::collections::BTreeSet;

/// See the module.
#[derive(Default, PartialEq)]
pub(super) struct Victims {
    /// Units of the narrowest superblock that tables share.
    room: u64,
    /// What collection puts on any of these weighs so much, at least.
    fill: u64,
    /// With what each of them weighs.
    by_weight: BTreeSet<(u64, u32)>,
    /// Of all of them.
    weight: u64,
    /// Superblocks that tables share.
    shared: usize,
}

impl Victims {
    /// Of superblocks of at least `room` units, of which collection has `fill` for what it moves.
    pub(super) fn new(room: u64, fill: u64) -> Victims {
        Victims { room, fill: fill.max(1), ..Victims::default() }
    }

    /// False of a superblock so narrow that what lies there had better not be counted on.
    pub(super) fn may_share(&self, s: &Superblock) -> bool {
        s.room >= self.room
    }

    /// A superblock is there, or has become what it is.
    pub(super) fn enter(&mut self, s: &Superblock) {
        self.shared += s.is_shared() as usize;
        if self.is_victim(s) && self.by_weight.insert((s.weight(), s.home.index)) {
            self.weight += s.weight();
        }
    }

    /// It is no more what it was.
    pub(super) fn leave(&mut self, s: &Superblock) {
        self.shared -= s.is_shared() as usize;
        if self.by_weight.remove(&(s.weight(), s.home.index)) {
            self.weight -= s.weight();
        }
    }

    pub(super) fn any_shared(&self) -> bool {
        self.shared > 0
    }

    /// True if nothing is left on one of them.
    pub(super) fn any_empty(&self) -> bool {
        self.by_weight.first().is_some_and(|(weight, _)| *weight == 0)
    }

    /// Superblocks that collection wins, if it has one to begin with: all that it empties, less those that it fills.
    pub(super) fn won(&self) -> u64 {
        self.by_weight.len() as u64 - self.weight.div_ceil(self.fill)
    }

    /// The part that what is live weighs of what is collected to win so many superblocks; all, if so many cannot be
    /// won.
    pub(super) fn price(&self, wanted: u64) -> f64 {
        let (mut count, mut weight) = (0, 0);
        for (more, _) in &self.by_weight {
            (count, weight) = (count + 1, weight + more);
            if count >= weight.div_ceil(self.fill) + wanted {
                return weight as f64 / (count * self.fill) as f64;
            }
        }
        1.0
    }

    /// The lightest first.
    pub(super) fn in_order(&self) -> impl Iterator<Item = u32> {
        self.by_weight.iter().map(|(_, index)| *index)
    }

    /// What is live has room with a little else: whatever is left over of it fits another.
    fn is_victim(&self, s: &Superblock) -> bool {
        let is_free_to = s.hand != Some(Hand::Writer) && !s.stuck && s.plain.is_none();
        is_free_to && self.may_share(s) && s.weight() < self.fill
    }
}
