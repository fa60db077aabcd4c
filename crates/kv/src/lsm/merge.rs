//! Merging of sorted sources into one.

use crate::key::{Stamp, compare};
use crate::lsm::table::StoredLeaf;
use std::cmp::Ordering;
use vellum_base::Result;

/// A forward cursor over something sorted. `key`, `stamp` and `value` may be called only while it is valid.
pub(crate) trait Stream: Send {
    fn is_valid(&self) -> bool;
    fn key(&self) -> &[u8];
    fn stamp(&self) -> Stamp;
    /// If values may be elsewhere, [`Stream::load`] must have been called.
    fn value(&self) -> &[u8];
    /// Length of the value, loaded or not.
    fn value_bytes(&self) -> usize {
        self.value().len()
    }
    /// Reads the value of the current entry, if it is elsewhere.
    fn load(&mut self) -> Result<()> {
        Ok(())
    }
    /// True if clients are known to have read the entry, or one near it, lately.
    fn is_hot(&self) -> bool {
        false
    }
    fn first(&mut self) -> Result<()>;
    fn next(&mut self) -> Result<()>;

    /// If the current entry is the first of a leaf that could be kept unchanged: the stamp of that leaf's last entry,
    /// and its key in `last`.
    fn leaf_end(&mut self, last: &mut Vec<u8>) -> Result<Option<Stamp>> {
        let _ = last;
        Ok(None)
    }
    /// True if that leaf has a newer version of an entry with this key and stamp.
    fn leaf_hides(&self, key: &[u8], stamp: Stamp) -> Result<bool> {
        let _ = (key, stamp);
        Ok(false)
    }
    /// Returns the leaf that [`Stream::leaf_end`] described, and moves past it.
    fn take_leaf(&mut self) -> Result<Option<StoredLeaf>> {
        Ok(None)
    }
}

/// A cursor over something sorted that moves in both directions, and seeks.
pub(crate) trait Cursor: Stream {
    fn last(&mut self) -> Result<()>;
    /// Moves to the first entry at or after (`key`, `stamp`).
    fn seek(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        self.aim(key)?;
        self.land(key, stamp)
    }
    /// First half of a seek: finds the leaf and prefetches it, so that memory loads overlap with those of other
    /// sources.
    fn aim(&mut self, key: &[u8]) -> Result<()>;
    /// Second half of a seek.
    fn land(&mut self, key: &[u8], stamp: Stamp) -> Result<()>;
    /// Moves to the last entry before (`key`, `stamp`). Of what grows it must do so in one step.
    fn seek_before(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        self.seek(key, stamp)?;
        if self.is_valid() { self.prev() } else { self.last() }
    }
    fn prev(&mut self) -> Result<()>;
}

/// States: forward (every source is at its first entry at or after the current one) or backward (at its last entry at
/// or before it). [`Merge::next`] is for forward, [`Merge::prev`] for backward; `seek` and `seek_before` choose.
///
/// Invariants
/// 1. `heap` is a binary heap of the valid sources, ordered in the direction of travel.
/// 2. `rival` is a copy of the next entry among the sources other than the top one; `None` if there are none. Most
///    steps stay within the largest source: they compare with this copy, and touch no other source.
pub(crate) struct Merge<S: ?Sized> {
    sources: Vec<Box<S>>,
    heap: Vec<usize>,
    rival: Option<Stamp>,
    rival_key: Vec<u8>,
}

impl<S: Stream + ?Sized> Merge<S> {
    /// Where two sources hold the same entry (key and stamp), as between the pieces of a merge, both are shown, one
    /// after the other: whoever reads skips the second as an older version.
    pub(crate) fn new(sources: Vec<Box<S>>) -> Merge<S> {
        Merge { heap: Vec::with_capacity(sources.len()), sources, rival: None, rival_key: Vec::new() }
    }

    /// The source at the current entry.
    #[inline]
    pub(crate) fn current(&self) -> Option<&S> {
        self.heap.first().map(|at| &*self.sources[*at])
    }

    /// Moves to the first entry, forward.
    pub(crate) fn first(&mut self) -> Result<()> {
        self.sources.iter_mut().try_for_each(|s| s.first())?;
        self.arrange(Ordering::Less);
        Ok(())
    }

    /// Loads the value of the current entry, so that it can be read.
    #[inline]
    pub(crate) fn load(&mut self) -> Result<()> {
        match self.heap.first() {
            Some(at) => self.sources[*at].load(),
            None => Ok(()),
        }
    }

    /// Moves to the next entry.
    pub(crate) fn next(&mut self) -> Result<()> {
        if let Some(at) = self.heap.first() {
            self.sources[*at].next()?;
            self.settle(Ordering::Less);
        }
        Ok(())
    }

    /// If the current entry begins a leaf of its source, and no other source has an entry before the end of that leaf,
    /// returns the leaf and moves past it. Entries of other sources with its last key are older then. If `newest_only`,
    /// older versions of the leaf's entries are skipped first; `passed` is called with the bytes of each.
    pub(crate) fn take_leaf(
        &mut self,
        last: &mut Vec<u8>,
        newest_only: bool,
        mut passed: impl FnMut(usize),
    ) -> Result<Option<StoredLeaf>> {
        let Some(at) = self.heap.first().copied() else { return Ok(None) };
        let Some(stamp) = self.sources[at].leaf_end(last)? else { return Ok(None) };
        while let Some(other) = self.runner_up() {
            let source = &self.sources[self.heap[other]];
            if compare((source.key(), source.stamp()), (last, stamp)) != Ordering::Less {
                break;
            }
            if !newest_only || !self.sources[at].leaf_hides(source.key(), source.stamp())? {
                return Ok(None);
            }
            passed(source.key().len() + source.value_bytes());
            self.pass(other)?;
        }
        let leaf = self.sources[at].take_leaf()?;
        self.settle(Ordering::Less);
        Ok(leaf)
    }

    /// Where in the heap the source is whose entry comes after the one on top, on the way forward.
    fn runner_up(&self) -> Option<usize> {
        let entry = |at: usize| self.heap.get(at).map(|source| &self.sources[*source]);
        let (left, right) = (entry(1)?, entry(2));
        let right_wins = right.is_some_and(|right| {
            compare((right.key(), right.stamp()), (left.key(), left.stamp())) == Ordering::Less
        });
        Some(1 + right_wins as usize)
    }

    /// Forward by one with a source that is not on top.
    fn pass(&mut self, at: usize) -> Result<()> {
        let source = &mut self.sources[self.heap[at]];
        source.next()?;
        if !source.is_valid() {
            self.heap.swap_remove(at);
        }
        if at < self.heap.len() {
            self.sink(at, Ordering::Less);
        }
        self.note_rival(Ordering::Less);
        Ok(())
    }

    /// Makes a heap of the sources that are valid; on top is the one whose entry is `wanted` beside all others.
    fn arrange(&mut self, wanted: Ordering) {
        self.heap.clear();
        self.heap.extend((0..self.sources.len()).filter(|at| self.sources[*at].is_valid()));
        (0..self.heap.len() / 2).rev().for_each(|at| self.sink(at, wanted));
        self.note_rival(wanted);
    }

    /// Puts the source on top, which has moved, where it belongs.
    #[inline]
    fn settle(&mut self, wanted: Ordering) {
        let top = &self.sources[self.heap[0]];
        match self.rival {
            _ if !top.is_valid() => drop(self.heap.swap_remove(0)),
            None => return,
            Some(rival) if compare((top.key(), top.stamp()), (&self.rival_key, rival)) == wanted => return,
            Some(_) => {}
        }
        self.sink(0, wanted);
        self.note_rival(wanted);
    }

    fn note_rival(&mut self, wanted: Ordering) {
        let entry = |at: &usize| (self.sources[*at].key(), self.sources[*at].stamp());
        let next = match (self.heap.get(1).map(entry), self.heap.get(2).map(entry)) {
            (Some(left), Some(right)) if compare(right, left) == wanted => Some(right),
            (left, _) => left,
        };
        self.rival = next.map(|(key, stamp)| {
            self.rival_key.clear();
            self.rival_key.extend_from_slice(key);
            stamp
        });
    }

    fn sink(&mut self, mut at: usize, wanted: Ordering) {
        let heap = &mut self.heap;
        let entry = |at: usize| (self.sources[at].key(), self.sources[at].stamp());
        while let Some(left) = heap.get(2 * at + 1) {
            let right = heap.get(2 * at + 2);
            let right_wins = right.is_some_and(|right| compare(entry(*right), entry(*left)) == wanted);
            let child = 2 * at + 1 + right_wins as usize;
            if compare(entry(heap[child]), entry(heap[at])) != wanted {
                break;
            }
            heap.swap(child, at);
            at = child;
        }
    }
}

impl<S: Cursor + ?Sized> Merge<S> {
    /// Forward from the first entry at or after (`key`, `stamp`).
    pub(crate) fn seek(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        self.sources.iter_mut().try_for_each(|s| s.aim(key))?;
        self.sources.iter_mut().try_for_each(|s| s.land(key, stamp))?;
        self.arrange(Ordering::Less);
        Ok(())
    }

    /// Backward from the last entry before (`key`, `stamp`).
    pub(crate) fn seek_before(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        self.sources.iter_mut().try_for_each(|source| source.seek_before(key, stamp))?;
        self.arrange(Ordering::Greater);
        Ok(())
    }

    /// Backward by one.
    pub(crate) fn prev(&mut self) -> Result<()> {
        if let Some(at) = self.heap.first() {
            self.sources[*at].prev()?;
            self.settle(Ordering::Greater);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::EntryKind;
    use crate::lsm::table::{Grain, TableBuilder, leaf_of};
    use crate::media::Stored;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    type Entry = (u8, u64);

    /// Leaves of entries, in order.
    struct Leaves {
        leaves: Vec<Vec<Entry>>,
        keys: Vec<[u8; 1]>,
        at: (usize, usize),
    }

    impl Leaves {
        fn here(&self) -> Entry {
            self.leaves[self.at.0][self.at.1]
        }
        fn skip(&mut self) {
            if self.leaves.get(self.at.0).is_some_and(|leaf| self.at.1 == leaf.len()) {
                self.at = (self.at.0 + 1, 0);
            }
        }
    }

    fn stamp(seq: u64) -> Stamp {
        Stamp::new(seq, EntryKind::Put)
    }

    impl Stream for Leaves {
        fn is_valid(&self) -> bool {
            self.at.0 < self.leaves.len()
        }
        fn key(&self) -> &[u8] {
            &self.keys[self.here().0 as usize]
        }
        fn stamp(&self) -> Stamp {
            stamp(self.here().1)
        }
        fn value(&self) -> &[u8] {
            b""
        }
        fn first(&mut self) -> Result<()> {
            self.at = (0, 0);
            Ok(())
        }
        fn next(&mut self) -> Result<()> {
            self.at.1 += 1;
            self.skip();
            Ok(())
        }
        fn leaf_end(&mut self, last: &mut Vec<u8>) -> Result<Option<Stamp>> {
            let end = *self.leaves[self.at.0].last().expect("no leaf is empty");
            last.clone_from(&vec![end.0]);
            Ok((self.at.1 == 0).then_some(stamp(end.1)))
        }
        fn leaf_hides(&self, key: &[u8], older: Stamp) -> Result<bool> {
            Ok(self.leaves[self.at.0].iter().any(|entry| [entry.0] == key && stamp(entry.1) > older))
        }
        fn take_leaf(&mut self) -> Result<Option<StoredLeaf>> {
            let mut builder = TableBuilder::new(1, 10, Grain::default());
            self.leaves[self.at.0].iter().for_each(|entry| builder.add(&[entry.0], stamp(entry.1), b""));
            self.at = (self.at.0 + 1, 0);
            leaf_of(&builder.finish().tail, Stored { table: 1, offset: 0 }, 4096).map(Some)
        }
    }

    proptest! {
        #[test]
        fn leaves_and_entries_are_what_the_sources_have(
            entries in prop::collection::btree_map((0u8..12, 0u64..60), 0usize..3, 1..60),
            sizes in prop::collection::vec(1usize..5, 60),
            newest_only in any::<bool>(),
        ) {
            let mut sources: Vec<Vec<Entry>> = vec![Vec::new(); 3];
            entries.iter().for_each(|(entry, source)| sources[*source].push(*entry));
            let streams = sources.into_iter().map(|mut entries| {
                entries.sort_by_key(|entry| (entry.0, std::cmp::Reverse(entry.1)));
                let (mut leaves, mut rest, mut sizes) = (Vec::new(), &entries[..], sizes.iter());
                while !rest.is_empty() {
                    let (leaf, more) = rest.split_at(rest.len().min(*sizes.next().expect("enough")));
                    leaves.push(leaf.to_vec());
                    rest = more;
                }
                Box::new(Leaves { leaves, keys: (0..12).map(|key| [key]).collect(), at: (0, 0) })
            });
            let mut merge = Merge::new(streams.collect());
            let (mut found, mut last, mut passed) = (Vec::new(), Vec::new(), 0);
            merge.first().unwrap();
            loop {
                if let Some(leaf) = merge.take_leaf(&mut last, newest_only, |_| passed += 1).unwrap() {
                    leaf.each(|key, stamp, _| {
                        found.push((key[0], stamp.seq()));
                        Ok(())
                    }).unwrap();
                    continue;
                }
                let Some(source) = merge.current() else { break };
                found.push(source.here());
                merge.next().unwrap();
            }
            prop_assert!(found.is_sorted_by_key(|entry| (entry.0, std::cmp::Reverse(entry.1))));
            prop_assert_eq!(found.len() + passed, entries.len());
            if !newest_only {
                prop_assert_eq!(passed, 0);
            }
            let there: BTreeSet<Entry> = found.into_iter().collect();
            let newest: BTreeMap<u8, u64> = entries.keys().copied().collect();
            prop_assert!(newest.into_iter().all(|entry| there.contains(&entry)), "a newest version is missing");
        }
    }
}
