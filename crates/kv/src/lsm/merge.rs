//! Sorted sources, seen as one.

use crate::key::{Stamp, compare};
use crate::lsm::table::StoredLeaf;
use std::cmp::Ordering;
use vellum_base::Result;

/// A place in something sorted that is read from front to back. `key`, `stamp` and `value` are only asked for while
/// valid.
pub(crate) trait Stream: Send {
    fn is_valid(&self) -> bool;
    fn key(&self) -> &[u8];
    fn stamp(&self) -> Stamp;
    fn value(&self) -> &[u8];
    /// True if the entry, or one beside it, was read by clients lately, as far as that is known.
    fn is_hot(&self) -> bool {
        false
    }
    fn first(&mut self) -> Result<()>;
    fn next(&mut self) -> Result<()>;

    /// If the entry is the first of a leaf that another table could take over as it is: the last entry of that leaf, its
    /// key in `last`.
    fn leaf_end(&mut self, last: &mut Vec<u8>) -> Result<Option<Stamp>> {
        let _ = last;
        Ok(None)
    }
    /// Passes the leaf that [`Stream::leaf_end`] told of, and hands it out.
    fn take_leaf(&mut self) -> Result<Option<StoredLeaf>> {
        Ok(None)
    }
}

/// A place in something sorted that goes anywhere.
pub(crate) trait Cursor: Stream {
    fn last(&mut self) -> Result<()>;
    /// To the first entry at or after (`key`, `stamp`).
    fn seek(&mut self, key: &[u8], stamp: Stamp) -> Result<()>;
    fn prev(&mut self) -> Result<()>;
}

/// States: forward (every source stands at its first entry at or after the current one) or backward (at its last
/// entry at or before it). [`Merge::next`] is for forward, [`Merge::prev`] for backward; `seek` and `seek_before`
/// choose.
///
/// Invariants
/// 1. `heap` holds the sources that are valid, each not after its two children in the direction of travel.
/// 2. `rival` is the entry that comes after the one on top, of the sources below it; `None` if there are none. Most
///    steps stay within the largest source: they compare with this copy and touch no other.
pub(crate) struct Merge<S: ?Sized> {
    sources: Vec<Box<S>>,
    heap: Vec<usize>,
    rival: Option<Stamp>,
    rival_key: Vec<u8>,
}

impl<S: Stream + ?Sized> Merge<S> {
    /// No two sources hold the same entry (key and stamp).
    pub(crate) fn new(sources: Vec<Box<S>>) -> Merge<S> {
        Merge { heap: Vec::with_capacity(sources.len()), sources, rival: None, rival_key: Vec::new() }
    }

    /// The source at the current entry.
    #[inline]
    pub(crate) fn current(&self) -> Option<&S> {
        self.heap.first().map(|at| &*self.sources[*at])
    }

    /// Forward from the first entry.
    pub(crate) fn first(&mut self) -> Result<()> {
        self.sources.iter_mut().try_for_each(|s| s.first())?;
        self.arrange(Ordering::Less);
        Ok(())
    }

    /// Forward by one.
    pub(crate) fn next(&mut self) -> Result<()> {
        if let Some(at) = self.heap.first() {
            self.sources[*at].next()?;
            self.settle(Ordering::Less);
        }
        Ok(())
    }

    /// If the source at the current entry has a leaf that begins here, and no other source has an entry before its end,
    /// passes it and hands it out. What others have of its last key is older then.
    pub(crate) fn take_leaf(&mut self, last: &mut Vec<u8>) -> Result<Option<StoredLeaf>> {
        let Some(at) = self.heap.first().copied() else { return Ok(None) };
        let Some(stamp) = self.sources[at].leaf_end(last)? else { return Ok(None) };
        let mut others = self.heap.iter().skip(1).take(2).map(|other| &self.sources[*other]);
        if others.any(|other| compare((other.key(), other.stamp()), (last, stamp)) == Ordering::Less) {
            return Ok(None);
        }
        let leaf = self.sources[at].take_leaf()?;
        self.settle(Ordering::Less);
        Ok(leaf)
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
        self.sources.iter_mut().try_for_each(|s| s.seek(key, stamp))?;
        self.arrange(Ordering::Less);
        Ok(())
    }

    /// Backward from the last entry before (`key`, `stamp`).
    pub(crate) fn seek_before(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        for source in &mut self.sources {
            source.seek(key, stamp)?;
            if source.is_valid() { source.prev()? } else { source.last()? }
        }
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
