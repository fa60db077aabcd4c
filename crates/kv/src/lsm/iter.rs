//! Iterators over the keys of a store, forward and backward, as of one moment.
//!
//! States: nowhere (initially, past either end, and after an error), forward (the merge is at the current entry),
//! backward (the merge is before all entries of the current key).

use crate::journal::{LEVELS, TableMeta};
use crate::key::{EntryKind, Stamp, are_same, with_keyspace};
use crate::lsm::core::View;
use crate::lsm::level::LevelCursor;
use crate::lsm::memtable::MemtableCursor;
use crate::lsm::merge::{Merge, Stream};
use crate::lsm::source::Source;
use crate::lsm::table::{Table, TableCursor};
use std::fmt;
use std::sync::Arc;
use vellum_base::{Error, Result};

/// Versions of a key that are skipped one by one before seeking past the rest; a seek takes about as long.
const PASSED_MAX: u32 = 8;

/// The range of keys that an [`Iter`] covers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
}

impl Bounds {
    /// All keys.
    pub fn all() -> Bounds {
        Bounds::default()
    }
    /// Keys greater than or equal to `lower`.
    pub fn from(lower: &[u8]) -> Bounds {
        Bounds { lower: Some(lower.to_vec()), upper: None }
    }
    /// These bounds restricted to keys less than `upper`. Bounds that end before `upper` already stay as they are.
    ///
    /// ```
    /// use vellum_kv::Bounds;
    /// let all_of_march = Bounds::prefix(b"2026-03").until(b"2027");
    /// assert_eq!(all_of_march, Bounds::prefix(b"2026-03"));
    /// ```
    pub fn until(self, upper: &[u8]) -> Bounds {
        self.and(Bounds { lower: None, upper: Some(upper.to_vec()) })
    }
    /// Keys that begin with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Bounds {
        let mut upper = prefix.to_vec();
        while upper.pop_if(|byte| *byte == 0xFF).is_some() {}
        if let Some(last) = upper.last_mut() {
            *last += 1;
        }
        Bounds { lower: Some(prefix.to_vec()), upper: (!upper.is_empty()).then_some(upper) }
    }
    /// The intersection of both bounds, which may be empty.
    ///
    /// ```
    /// use vellum_kv::Bounds;
    /// let march = Bounds::prefix(b"2026-").and(Bounds::from(b"2026-03").until(b"2026-04"));
    /// ```
    pub fn and(self, other: Bounds) -> Bounds {
        let upper = match (self.upper, other.upper) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Bounds { lower: self.lower.max(other.lower), upper }
    }
}

/// Internal keys from `lower` (inclusive) to `upper` (exclusive).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub lower: Vec<u8>,
    pub upper: Vec<u8>,
}

impl Range {
    /// All keys of all keyspaces.
    pub(crate) fn everything() -> Range {
        Range { lower: Vec::new(), upper: vec![0xFF] }
    }
    /// True if `key` is below the end of the range; usually the first byte, the keyspace, decides.
    #[inline]
    fn ends_behind(&self, key: &[u8]) -> bool {
        match (key.first(), self.upper.first()) {
            (Some(here), Some(end)) if here != end => here < end,
            _ => key < &self.upper[..],
        }
    }
    /// True if the table may hold keys of the range.
    pub(crate) fn meets(&self, table: &TableMeta) -> bool {
        table.smallest < self.upper && table.largest >= self.lower
    }
}

impl Bounds {
    /// The range of internal keys that these bounds are in a keyspace.
    pub(crate) fn within(self, keyspace: u8) -> Range {
        let internal = |key: Vec<u8>| [&[keyspace], &key[..]].concat();
        Range {
            lower: self.lower.map_or(vec![keyspace], internal),
            upper: self.upper.map_or(vec![keyspace + 1], internal),
        }
    }
}

/// The tables of a level, kept alive by their view: cloning each `Arc` would cost more than a short scan.
struct Tables {
    view: Arc<View>,
    level: usize,
}

impl AsRef<[Arc<Table>]> for Tables {
    fn as_ref(&self) -> &[Arc<Table>] {
        &self.view.version.levels[self.level]
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Nowhere,
    Forward,
    Backward,
}

/// A cursor over keys. A new one is invalid: seek first. Until it is dropped it keeps the tables and memtables that it
/// reads from, so room and memory of those replaced meanwhile are not freed.
pub struct Iter {
    merge: Merge<Source<Tables>>,
    visible: Stamp,
    keyspace: u8,
    /// Keys outside are not shown.
    range: Range,
    at: At,
    key: Vec<u8>,
    /// The value, in backward direction; forward it is read from the merge.
    value: Vec<u8>,
}

impl Iter {
    pub(crate) fn new(view: Arc<View>, seq: u64, keyspace: u8, bounds: Bounds) -> Iter {
        let memtables = std::iter::once(&view.active).chain(&view.frozen);
        let memtables = memtables.map(|memtable| Source::Memtable(MemtableCursor::new(memtable.clone())));
        let tables = view.version.levels[0].iter();
        let tables = tables.map(|table| Source::Table(TableCursor::new(table.clone())));
        let sorted = (1..LEVELS).filter(|level| !view.version.levels[*level].is_empty());
        let levels =
            sorted.map(|level| Source::Level(LevelCursor::over(Tables { view: view.clone(), level })));
        let merge = Merge::new(memtables.chain(tables).chain(levels).map(Box::new).collect());
        let visible = Stamp::visible_at(seq);
        let (key, value) = (Vec::new(), Vec::new());
        let range = bounds.within(keyspace);
        Iter { merge, visible, keyspace, range, at: At::Nowhere, key, value }
    }

    /// True if the iterator is at a key.
    pub fn is_valid(&self) -> bool {
        self.at != At::Nowhere
    }
    /// The current key; empty if the iterator is not valid.
    pub fn key(&self) -> &[u8] {
        if self.is_valid() { &self.key[1..] } else { &[] }
    }
    /// The current value; meaningful only while the iterator is valid.
    pub fn value(&self) -> &[u8] {
        match self.at {
            At::Forward => self.merge.current().map_or(&[], |entry| entry.value()),
            _ => &self.value,
        }
    }

    /// Moves to the first key.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.twice(|iter| {
            iter.merge.seek(&iter.range.lower, Stamp(u64::MAX))?;
            iter.forward(false)
        })
    }

    /// Moves to the last key.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.twice(|iter| {
            iter.merge.seek_before(&iter.range.upper, Stamp(u64::MAX))?;
            iter.backward()
        })
    }

    /// Moves to the first key at or after `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        with_keyspace(self.keyspace, key, |target| {
            self.twice(|iter| {
                iter.merge.seek(target.max(&iter.range.lower), Stamp(u64::MAX))?;
                iter.forward(false)
            })
        })
    }

    /// Moves to the last key at or before `key`.
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        with_keyspace(self.keyspace, key, |target| {
            self.twice(|iter| {
                match target < &iter.range.upper[..] {
                    true => iter.merge.seek_before(target, Stamp(0))?,
                    false => iter.merge.seek_before(&iter.range.upper, Stamp(u64::MAX))?,
                }
                iter.backward()
            })
        })
    }

    /// Moves to the next key; an error unless the iterator is valid. After an error it is invalid, and may be
    /// positioned anew by a seek.
    #[expect(clippy::should_implement_trait, reason = "it may fail, goes both ways, and lends what it shows")]
    pub fn next(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.at, At::Nowhere) {
            At::Nowhere => return Err(Error::invalid("the iterator is nowhere; seek first")),
            At::Forward => self.merge.next()?,
            At::Backward => self.merge.seek(&self.key, Stamp(0))?,
        }
        self.forward(true)
    }

    /// Moves to the previous key; an error unless the iterator is valid. After an error it is invalid, and may be
    /// positioned anew by a seek.
    pub fn prev(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.at, At::Nowhere) {
            At::Nowhere => return Err(Error::invalid("the iterator is nowhere; seek first")),
            At::Forward => self.merge.seek_before(&self.key, Stamp(u64::MAX))?,
            At::Backward => {}
        }
        self.backward()
    }

    /// Seeks, and retries once: what could not be read through a mapping is read by system calls the second time.
    fn twice(&mut self, seek: impl Fn(&mut Iter) -> Result<()>) -> Result<()> {
        self.at = At::Nowhere;
        seek(self).or_else(|_| seek(self))
    }

    /// Advances the merge to the first entry that is a visible value. If `pass`, further entries of `self.key` are
    /// skipped.
    fn forward(&mut self, mut pass: bool) -> Result<()> {
        let mut passed = 0;
        while let Some(entry) = self.merge.current() {
            if !self.range.ends_behind(entry.key()) {
                return Ok(());
            }
            if !are_same(entry.key(), &self.key) {
                self.key.clear();
                self.key.extend_from_slice(entry.key());
                (pass, passed) = (false, 0);
            }
            let is_newer = entry.stamp() > self.visible;
            if !is_newer && !pass {
                if kind_of(entry.stamp())? == EntryKind::Put {
                    self.merge.load()?;
                    self.at = At::Forward;
                    return Ok(());
                }
                pass = true;
            }
            passed += 1;
            match passed < PASSED_MAX {
                true => self.merge.next()?,
                false => self.leap(is_newer)?,
            }
            passed %= PASSED_MAX;
        }
        Ok(())
    }

    /// Seeks past the versions of `self.key` that are too new to be visible, or else past all its versions.
    fn leap(&mut self, is_newer: bool) -> Result<()> {
        self.merge.seek(&self.key, if is_newer { self.visible } else { Stamp(0) })
    }

    /// Moves the merge back to the nearest key with a visible value.
    fn backward(&mut self) -> Result<()> {
        let (mut shown, mut passed) = (false, 0);
        while let Some(entry) = self.merge.current() {
            let is_same = entry.key() == self.key;
            if entry.key() < &self.range.lower[..] || shown && !is_same {
                break;
            }
            passed = if is_same { passed + 1 } else { 0 };
            if passed == PASSED_MAX {
                shown = self.leap_back()?;
                continue;
            }
            if !is_same {
                self.key.clear();
                self.key.extend_from_slice(entry.key());
            }
            // Going back, the versions of a key come oldest first: the last that is visible counts.
            if entry.stamp() <= self.visible {
                shown = self.take()?;
            }
            self.merge.prev()?;
        }
        if shown {
            self.at = At::Backward;
        }
        Ok(())
    }

    /// Takes the newest visible version of `self.key` by a seek, then moves before all its versions. True if it is a
    /// value.
    fn leap_back(&mut self) -> Result<bool> {
        self.merge.seek(&self.key, self.visible)?;
        let is_there = self.merge.current().is_some_and(|entry| entry.key() == self.key);
        let shown = is_there && self.take()?;
        self.merge.seek_before(&self.key, Stamp(u64::MAX))?;
        Ok(shown)
    }

    /// Copies the value of the merge's current entry; false if that is a delete.
    fn take(&mut self) -> Result<bool> {
        let Some(entry) = self.merge.current() else { return Ok(false) };
        if kind_of(entry.stamp())? != EntryKind::Put {
            return Ok(false);
        }
        self.merge.load()?;
        self.value.clear();
        self.value.extend_from_slice(self.merge.current().map_or(&[], |entry| entry.value()));
        Ok(true)
    }
}

impl fmt::Debug for Iter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").field("key", &self.is_valid().then(|| self.key())).finish_non_exhaustive()
    }
}

fn kind_of(stamp: Stamp) -> Result<EntryKind> {
    stamp.kind().ok_or_else(|| Error::corrupt("an entry is of no known kind"))
}
