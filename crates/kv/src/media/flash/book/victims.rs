//! Which superblocks are worth collecting, kept in order while counts change.

use super::Superblock;
use std::collections::{BTreeMap, BinaryHeap};

/// Of a superblock that is collected at most seven of so many parts are live.
const PARTS: u64 = 8;
/// Of the units that are moved one in so many may be needed for the lists.
const LIST_SHARE: u64 = 64;
/// Superblocks to be won that are counted; nobody needs to know of more.
const COUNTED_MAX: u64 = 256;

/// See the module.
#[derive(Default, PartialEq)]
pub(super) struct Victims {
    /// By live units, with the units that they have.
    by_live: BTreeMap<(u64, u32), u64>,
    /// Superblocks that tables share.
    shared: usize,
}

impl Victims {
    /// A superblock is there, or has become what it is.
    pub(super) fn enter(&mut self, s: &Superblock) {
        self.shared += s.is_shared() as usize;
        if is_victim(s) {
            self.by_live.insert((s.live(), s.home.index), s.room);
        }
    }

    /// It is no more what it was.
    pub(super) fn leave(&mut self, s: &Superblock) {
        self.shared -= s.is_shared() as usize;
        self.by_live.remove(&(s.live(), s.home.index));
    }

    pub(super) fn any_shared(&self) -> bool {
        self.shared > 0
    }

    /// Superblocks that can be won, if there is one of `target` units to begin with, and the pages at the end of two
    /// lists are so many units. Plays what collection will do: the widest that was won is filled next.
    pub(super) fn collectable(&self, target: u64, pages: u64) -> u64 {
        let budget = |room: u64| room.saturating_sub(room / LIST_SHARE + 1 + pages);
        let (mut won, mut left, mut most) = (BinaryHeap::new(), budget(target), 0);
        for ((live, _), room) in &self.by_live {
            if *live > left {
                // What does not fit goes to the next, with others.
                let next = won.pop().map_or(0, budget);
                let Some(rest) = next.checked_sub(live - left) else { break };
                left = rest;
            } else {
                left -= live;
            }
            won.push(*room);
            // The first stands for the one that there was to begin with.
            most = most.max(won.len() as u64 - 1);
            if most >= COUNTED_MAX {
                break;
            }
        }
        most
    }

    /// Those of which least is live first.
    pub(super) fn in_order(&self) -> impl Iterator<Item = u32> {
        self.by_live.keys().map(|(_, index)| *index)
    }
}

fn is_victim(s: &Superblock) -> bool {
    s.held == 0 && !s.stuck && s.plain.is_none() && s.live() * PARTS <= s.room * (PARTS - 1)
}
