//! Walking through a store's keys, forward and backward, as of one moment.
//!
//! States: nowhere (as at the beginning, behind the last key, and after an error), forward (the merge stands at the
//! entry shown), backward (the merge stands before every entry of the key shown).

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

/// Versions of a key that are passed one by one: a seek takes about as long.
const PASSED_MAX: u32 = 8;

/// Which keys an [`Iter`] shows.
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
    /// Keys from `lower` on, it included.
    pub fn from(lower: &[u8]) -> Bounds {
        Bounds { lower: Some(lower.to_vec()), upper: None }
    }
    /// The same, but only keys below `upper`. This takes keys away and adds none: bounds that end before `upper` stay.
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
    /// Keys that are within both; there may be none.
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

/// Internal keys from `lower` on and below `upper`.
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
    /// True if `key` is below the end of the range; most are by their first byte, which is the keyspace.
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
    /// The bounds within a keyspace.
    pub(crate) fn within(self, keyspace: u8) -> Range {
        let internal = |key: Vec<u8>| [&[keyspace], &key[..]].concat();
        Range {
            lower: self.lower.map_or(vec![keyspace], internal),
            upper: self.upper.map_or(vec![keyspace + 1], internal),
        }
    }
}

/// The tables of a level, held by the view that they are of: a clone of each would cost more than a short scan.
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

/// A place among the keys. Begins nowhere: seek first. Holds what it reads from until it is dropped: tables, which take
/// room when they have been merged, and memtables, which take memory when they have become tables.
pub struct Iter {
    merge: Merge<Source<Tables>>,
    visible: Stamp,
    keyspace: u8,
    /// Outside of it there is nothing.
    range: Range,
    at: At,
    key: Vec<u8>,
    /// Going back; going forward it is the merge's.
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

    /// True if there is a key here.
    pub fn is_valid(&self) -> bool {
        self.at != At::Nowhere
    }
    /// The key here, as long as the iterator is valid.
    pub fn key(&self) -> &[u8] {
        self.key.get(1..).unwrap_or_default()
    }
    /// Its value, as long as the iterator is valid.
    pub fn value(&self) -> &[u8] {
        match self.at {
            At::Forward => self.merge.current().map_or(&[], |entry| entry.value()),
            _ => &self.value,
        }
    }

    /// To the first key.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.twice(|iter| {
            iter.merge.seek(&iter.range.lower, Stamp(u64::MAX))?;
            iter.forward(false)
        })
    }

    /// To the last key.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.twice(|iter| {
            iter.merge.seek_before(&iter.range.upper, Stamp(u64::MAX))?;
            iter.backward()
        })
    }

    /// To the first key at or after `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        with_keyspace(self.keyspace, key, |target| {
            self.twice(|iter| {
                iter.merge.seek(target.max(&iter.range.lower), Stamp(u64::MAX))?;
                iter.forward(false)
            })
        })
    }

    /// To the last key at or before `key`.
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

    /// To the next key. Must be valid. After an error the iterator is nowhere: a seek finds what can be read.
    #[expect(clippy::should_implement_trait, reason = "it may fail, goes both ways, and lends what it shows")]
    pub fn next(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.at, At::Nowhere) {
            At::Nowhere => return Err(Error::invalid("the iterator is nowhere; seek first")),
            At::Forward => self.merge.next()?,
            At::Backward => self.merge.seek(&self.key, Stamp(0))?,
        }
        self.forward(true)
    }

    /// To the key before. Must be valid. After an error the iterator is nowhere.
    pub fn prev(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.at, At::Nowhere) {
            At::Nowhere => return Err(Error::invalid("the iterator is nowhere; seek first")),
            At::Forward => self.merge.seek_before(&self.key, Stamp(u64::MAX))?,
            At::Backward => {}
        }
        self.backward()
    }

    /// Seeks, and once more if that failed: what could not be read where it is mapped is read by calls then.
    fn twice(&mut self, seek: impl Fn(&mut Iter) -> Result<()>) -> Result<()> {
        self.at = At::Nowhere;
        seek(self).or_else(|_| seek(self))
    }

    /// From the merge's entry on to the first that shows a value; past `self.key`'s entries first, if `pass`.
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

    /// Past versions of `self.key` that are newer than what is visible, or else past all of them.
    fn leap(&mut self, is_newer: bool) -> Result<()> {
        self.merge.seek(&self.key, if is_newer { self.visible } else { Stamp(0) })
    }

    /// From the merge's entry back to the key before that shows a value.
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

    /// Past what is left of the versions of `self.key`, by its newest one that is visible. True if that is a value.
    fn leap_back(&mut self) -> Result<bool> {
        self.merge.seek(&self.key, self.visible)?;
        let is_there = self.merge.current().is_some_and(|entry| entry.key() == self.key);
        let shown = is_there && self.take()?;
        self.merge.seek_before(&self.key, Stamp(u64::MAX))?;
        Ok(shown)
    }

    /// Takes the value of the merge's entry, going back; false if that is a delete.
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
