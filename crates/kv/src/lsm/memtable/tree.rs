//! The sorted index of a memtable: three levels of rows, each row an array of eight-byte key prefixes and an array of
//! places.
//!
//! Invariants
//! 1. All keys begin with `common`; a prefix is the eight bytes that follow it, padded with zeros. So prefixes are in
//!    the order of the keys, and only equal ones need a look at the keys.
//! 2. Row `i` of a level holds what is at or above separator `i` and below separator `i + 1`; the first separator
//!    counts as below everything.
//! 3. No row is empty, but for the only row of an empty tree.

use super::arena::{Arena, ArenaOffset};
use crate::bytes::shared_len;
use crate::key::{Stamp, compare};
use crate::lsm::fences::pack;
use std::cmp::Ordering;

const LEAF_ENTRIES_MAX: usize = 64;
const CHILDREN_MAX: usize = 128;

/// An entry's stamp and where its batch entry is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub stamp: Stamp,
    pub place: ArenaOffset,
}

#[derive(Default)]
struct Row {
    prefixes: Vec<u64>,
    slots: Vec<Slot>,
}

/// A row of separators, and what is between them.
#[derive(Default)]
struct Inner<C> {
    row: Row,
    children: Vec<C>,
}

/// Where an entry is: row of the top, row of the middle, index in the leaf. Valid until the next insert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    middle: usize,
    leaf: usize,
    index: usize,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Tree {
    common: Vec<u8>,
    top: Inner<Inner<Row>>,
    count: usize,
    leaves: usize,
}

/// What is searched for, with its prefix.
struct Target<'a> {
    key: &'a [u8],
    stamp: Stamp,
    prefix: u64,
}

impl Tree {
    /// Entries.
    pub(crate) fn count(&self) -> usize {
        self.count
    }
    /// Memory taken, about.
    pub(crate) fn bytes(&self) -> usize {
        self.leaves * LEAF_ENTRIES_MAX * (8 + size_of::<Slot>()) + 4096
    }

    /// Adds an entry whose batch entry is at `slot.place`. No other has its key and stamp.
    pub(crate) fn insert(&mut self, arena: &Arena, key: &[u8], slot: Slot) {
        if self.count == 0 {
            self.common = key.to_vec();
            self.top.children = vec![Inner { row: Row::one(0, slot), children: vec![Row::one(0, slot)] }];
            self.top.row = Row::one(0, slot);
            (self.count, self.leaves) = (1, 1);
            return;
        }
        if !key.starts_with(&self.common) {
            let common = shared_len(key, &self.common);
            self.common.truncate(common);
            self.renew_prefixes(arena);
        }
        let skip = self.common.len();
        let target = Target { key, stamp: slot.stamp, prefix: pack(&key[skip..]) };
        let at_middle = self.top.row.child_of(arena, skip, &target);
        let middle = &mut self.top.children[at_middle];
        let at_leaf = middle.row.child_of(arena, skip, &target);
        let index = middle.children[at_leaf].rank(arena, skip, &target);
        middle.children[at_leaf].insert(index, target.prefix, slot);
        self.count += 1;
        if middle.children[at_leaf].slots.len() > LEAF_ENTRIES_MAX {
            self.leaves += 1;
            let right = middle.children[at_leaf].split_off(split_at(index, LEAF_ENTRIES_MAX));
            middle.row.insert(at_leaf + 1, right.prefixes[0], right.slots[0]);
            middle.children.insert(at_leaf + 1, right);
            if middle.children.len() > CHILDREN_MAX {
                let half = split_at(at_leaf + 1, CHILDREN_MAX);
                let row = middle.row.split_off(half);
                let right = Inner { children: middle.children.split_off(half), row };
                self.top.row.insert(at_middle + 1, right.row.prefixes[0], right.row.slots[0]);
                self.top.children.insert(at_middle + 1, right);
            }
        }
    }

    /// The first entry at or after (`key`, `stamp`).
    pub(crate) fn seek(&self, arena: &Arena, key: &[u8], stamp: Stamp) -> Option<Position> {
        if self.count == 0 {
            return None;
        }
        let skip = self.common.len();
        if !key.starts_with(&self.common) {
            return if key < &self.common[..] { self.first() } else { None };
        }
        let target = Target { key, stamp, prefix: pack(&key[skip..]) };
        let middle = self.top.row.child_of(arena, skip, &target);
        let inner = &self.top.children[middle];
        let leaf = inner.row.child_of(arena, skip, &target);
        let index = inner.children[leaf].rank(arena, skip, &target);
        let position = Position { middle, leaf, index };
        if index < inner.children[leaf].slots.len() { Some(position) } else { self.next_leaf(position) }
    }

    /// The first entry.
    pub(crate) fn first(&self) -> Option<Position> {
        (self.count > 0).then(Position::default)
    }
    /// The last entry.
    pub(crate) fn last(&self) -> Option<Position> {
        let middle = self.top.children.len().checked_sub(1)?;
        let leaf = self.top.children[middle].children.len() - 1;
        Some(Position { middle, leaf, index: self.top.children[middle].children[leaf].slots.len() - 1 })
    }
    /// The entry after.
    pub(crate) fn next(&self, at: Position) -> Option<Position> {
        let leaf = &self.top.children[at.middle].children[at.leaf];
        if at.index + 1 < leaf.slots.len() {
            return Some(Position { index: at.index + 1, ..at });
        }
        self.next_leaf(at)
    }
    /// The entry before.
    pub(crate) fn prev(&self, at: Position) -> Option<Position> {
        if at.index > 0 {
            return Some(Position { index: at.index - 1, ..at });
        }
        let (middle, leaf) = match (at.middle, at.leaf) {
            (0, 0) => return None,
            (middle, 0) => (middle - 1, self.top.children[middle - 1].children.len() - 1),
            (middle, leaf) => (middle, leaf - 1),
        };
        Some(Position { middle, leaf, index: self.top.children[middle].children[leaf].slots.len() - 1 })
    }
    /// The entry there.
    #[inline]
    pub(crate) fn slot(&self, at: Position) -> Slot {
        self.top.children[at.middle].children[at.leaf].slots[at.index]
    }

    /// The entry so many further, if it is in this leaf or the next of the same row.
    #[inline]
    pub(crate) fn further(&self, at: Position, count: usize) -> Option<Slot> {
        let middle = &self.top.children[at.middle];
        let (leaf, index) = (&middle.children[at.leaf], at.index + count);
        let next = || middle.children.get(at.leaf + 1)?.slots.get(index - leaf.slots.len());
        leaf.slots.get(index).or_else(next).copied()
    }

    fn next_leaf(&self, at: Position) -> Option<Position> {
        if at.leaf + 1 < self.top.children[at.middle].children.len() {
            return Some(Position { leaf: at.leaf + 1, index: 0, ..at });
        }
        let middle = at.middle + 1;
        (middle < self.top.children.len()).then_some(Position { middle, leaf: 0, index: 0 })
    }

    /// After `common` became shorter, which it does at most as often as it has bytes.
    fn renew_prefixes(&mut self, arena: &Arena) {
        let skip = self.common.len();
        self.top.row.renew(arena, skip);
        for middle in &mut self.top.children {
            middle.row.renew(arena, skip);
            middle.children.iter_mut().for_each(|leaf| leaf.renew(arena, skip));
        }
    }
}

/// Where to split a row of `max + 1` after an insert at `index`: rows that grow at the end stay full.
fn split_at(index: usize, max: usize) -> usize {
    if index == max { max } else { max / 2 }
}

impl Row {
    fn one(prefix: u64, slot: Slot) -> Row {
        let mut row = Row {
            prefixes: Vec::with_capacity(LEAF_ENTRIES_MAX + 1),
            slots: Vec::with_capacity(LEAF_ENTRIES_MAX + 1),
        };
        row.insert(0, prefix, slot);
        row
    }

    fn insert(&mut self, index: usize, prefix: u64, slot: Slot) {
        self.prefixes.insert(index, prefix);
        self.slots.insert(index, slot);
    }

    fn split_off(&mut self, at: usize) -> Row {
        let mut right = Row {
            prefixes: Vec::with_capacity(self.prefixes.capacity()),
            slots: Vec::with_capacity(self.slots.capacity()),
        };
        right.prefixes.extend(self.prefixes.drain(at..));
        right.slots.extend(self.slots.drain(at..));
        right
    }

    fn renew(&mut self, arena: &Arena, skip: usize) {
        for (word, slot) in self.prefixes.iter_mut().zip(&self.slots) {
            *word = pack(&arena.key(slot.place)[skip..]);
        }
    }

    /// Which child holds `target`.
    #[inline]
    fn child_of(&self, arena: &Arena, skip: usize, target: &Target<'_>) -> usize {
        // The first separator counts as below everything, whatever it is.
        let rest = Slice { prefixes: &self.prefixes[1..], slots: &self.slots[1..] };
        rest.count_below(arena, skip, target, true)
    }

    /// How many entries are below `target`.
    #[inline]
    fn rank(&self, arena: &Arena, skip: usize, target: &Target<'_>) -> usize {
        Slice { prefixes: &self.prefixes, slots: &self.slots }.count_below(arena, skip, target, false)
    }
}

/// Part of a row.
struct Slice<'a> {
    prefixes: &'a [u64],
    slots: &'a [Slot],
}

impl Slice<'_> {
    /// How many entries are below `target`, or at it if `or_equal`.
    #[inline]
    fn count_below(&self, arena: &Arena, skip: usize, target: &Target<'_>, or_equal: bool) -> usize {
        let low = self.prefixes.partition_point(|prefix| *prefix < target.prefix);
        if self.prefixes.get(low) != Some(&target.prefix) {
            return low;
        }
        let alike = self.prefixes[low..].partition_point(|prefix| *prefix == target.prefix);
        low + self.slots[low..low + alike].partition_point(|slot| {
            let key = &arena.key(slot.place)[skip..];
            match compare((key, slot.stamp), (&target.key[skip..], target.stamp)) {
                Ordering::Less => true,
                Ordering::Equal => or_equal,
                Ordering::Greater => false,
            }
        })
    }
}
