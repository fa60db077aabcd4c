//! The superblocks that collection may take, and how many it could free by them; updated as counts change.

use super::{Hand, Superblock};
use std::collections::BTreeSet;

/// See the module.
#[derive(Default, PartialEq)]
pub(super) struct Victims {
    /// Units of the narrowest superblock that tables share.
    room: u64,
    /// Weight that collection can put on any such superblock.
    fill: u64,
    /// Victims by weight.
    by_weight: BTreeSet<(u64, u32)>,
    /// Total weight of the victims.
    weight: u64,
    /// Number of superblocks that tables share.
    shared: usize,
}

impl Victims {
    /// No victims yet; see [`super::Book::new`] for the parameters.
    pub(super) fn new(room: u64, fill: u64) -> Victims {
        Victims { room, fill: fill.max(1), ..Victims::default() }
    }

    /// True if tables may share the superblock; it must not be too narrow.
    pub(super) fn may_share(&self, s: &Superblock) -> bool {
        s.room >= self.room
    }

    /// Adds a superblock, as it is now.
    pub(super) fn enter(&mut self, s: &Superblock) {
        self.shared += s.is_shared() as usize;
        if self.is_victim(s) && self.by_weight.insert((s.weight(), s.home.index)) {
            self.weight += s.weight();
        }
    }

    /// Removes a superblock, before it changes.
    pub(super) fn leave(&mut self, s: &Superblock) {
        self.shared -= s.is_shared() as usize;
        if self.by_weight.remove(&(s.weight(), s.home.index)) {
            self.weight -= s.weight();
        }
    }

    pub(super) fn any_shared(&self) -> bool {
        self.shared > 0
    }

    /// True if one of them has no live units.
    pub(super) fn any_empty(&self) -> bool {
        self.by_weight.first().is_some_and(|(weight, _)| *weight == 0)
    }

    /// Superblocks that collection can free, given one to begin with: all that it empties less those that it fills.
    pub(super) fn won(&self) -> u64 {
        self.by_weight.len() as u64 - self.weight.div_ceil(self.fill)
    }

    /// About the same, once these superblocks have these numbers of live units; those without any are free then.
    pub(super) fn won_with(&self, lighter: &[(&Superblock, u64)]) -> u64 {
        let (mut count, mut weight) = (self.by_weight.len() as u64, self.weight);
        for (s, live) in lighter {
            if self.by_weight.contains(&(s.weight(), s.home.index)) {
                (count, weight) = (count - 1, weight - s.weight());
            }
            let after = s.weight() - (s.live() - live);
            if *live > 0 && self.may_become_victim(s) && after < self.fill {
                (count, weight) = (count + 1, weight + after);
            }
        }
        count - weight.div_ceil(self.fill)
    }

    /// See [`super::Book::price`].
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

    /// All victims, lightest first.
    pub(super) fn in_order(&self) -> impl Iterator<Item = u32> {
        self.by_weight.iter().map(|(_, index)| *index)
    }

    /// Its live units fit a new superblock with room to spare, so a part that is left over fits the next one.
    fn is_victim(&self, s: &Superblock) -> bool {
        self.may_become_victim(s) && s.weight() < self.fill
    }

    /// The same for when it is light enough.
    fn may_become_victim(&self, s: &Superblock) -> bool {
        let is_free_to = s.hand != Some(Hand::Writer) && !s.stuck && s.plain.is_none();
        is_free_to && self.may_share(s)
    }
}
