//! Which superblocks collection may take, and how many it would win if it took them all, kept while counts change.

use super::{Hand, Superblock};
use std::collections::BTreeSet;

/// Of the units that are moved one in so many may be needed for the lists.
const LIST_SHARE: u64 = 64;

/// See the module.
#[derive(Default, PartialEq)]
pub(super) struct Victims {
    /// Units of the narrowest superblock that tables share.
    room: u64,
    /// Units that collection puts on any of these, at least.
    fill: u64,
    /// With how many of their units are live.
    by_live: BTreeSet<(u64, u32)>,
    /// Live units of all of them.
    live: u64,
    /// Superblocks that tables share.
    shared: usize,
}

impl Victims {
    /// Of superblocks of at least so many units; the pages at the end of two lists are so many of them.
    pub(super) fn new(room: u64, pages: u64) -> Victims {
        Victims { room, fill: room.saturating_sub(room / LIST_SHARE + 1 + pages), ..Victims::default() }
    }

    /// False of a superblock so narrow that what lies there had better not be counted on.
    pub(super) fn may_share(&self, s: &Superblock) -> bool {
        s.room >= self.room
    }

    /// A superblock is there, or has become what it is.
    pub(super) fn enter(&mut self, s: &Superblock) {
        self.shared += s.is_shared() as usize;
        if self.is_victim(s) && self.by_live.insert((s.live(), s.home.index)) {
            self.live += s.live();
        }
    }

    /// It is no more what it was.
    pub(super) fn leave(&mut self, s: &Superblock) {
        self.shared -= s.is_shared() as usize;
        if self.by_live.remove(&(s.live(), s.home.index)) {
            self.live -= s.live();
        }
    }

    pub(super) fn any_shared(&self) -> bool {
        self.shared > 0
    }

    /// True if nothing is left on one of them.
    pub(super) fn any_empty(&self) -> bool {
        self.by_live.first().is_some_and(|(live, _)| *live == 0)
    }

    /// Superblocks that collection wins, if it has one to begin with: all that it empties, less those that it fills.
    pub(super) fn won(&self) -> u64 {
        self.by_live.len() as u64 - self.live.div_ceil(self.fill.max(1))
    }

    /// The part that is live of what is collected to win so many superblocks; all, if so many cannot be won.
    pub(super) fn price(&self, wanted: u64) -> f64 {
        let (mut count, mut live) = (0, 0);
        for (more, _) in &self.by_live {
            (count, live) = (count + 1, live + more);
            if count >= live.div_ceil(self.fill.max(1)) + wanted {
                return live as f64 / (count * self.fill.max(1)) as f64;
            }
        }
        1.0
    }

    /// Those of which least is live first.
    pub(super) fn in_order(&self) -> impl Iterator<Item = u32> {
        self.by_live.iter().map(|(_, index)| *index)
    }

    /// What is live has room with a little else: whatever is left over of it fits another.
    fn is_victim(&self, s: &Superblock) -> bool {
        let is_free_to = s.hand != Some(Hand::Writer) && !s.stuck && s.plain.is_none();
        is_free_to && self.may_share(s) && s.live() < self.fill
    }
}
