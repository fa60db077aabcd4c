//! Salvage of whatever can be read from a damaged table.
//!
//! Objects are adjacent: the next one begins after a valid one. After an invalid one the next may begin at any unit,
//! and something valid there may also be the bytes of a value that look like a leaf. So leaves wait for the index of
//! their run, which follows them and says where they are and what keys they have. From the first leaf that the index
//! names on, only leaves that it names are accepted. Leaves from before that, whose own index is lost, must have lower
//! keys.
//!
//! Invariants
//! 1. Entries are returned in order.
//! 2. Every entry of a valid leaf is either returned, or counted as stray.
//! 3. A leaf that no index names never displaces one that an index names.

mod windows;

use super::foot::{FOOT_BYTES, Foot};
use super::leaf::{Leaf, LeafCursor};
use super::object::{Head, ObjectKind};
use super::pack::UNPACKED_TIMES_MAX;
use crate::bytes::Fields;
use crate::key::{Stamp, compare};
use crate::media::TableReader;
use crate::sum::sum_with;
use std::cmp::Ordering;
use vellum_base::{Env, Result};
use windows::Windows;

/// Objects up to this length are tried wherever one may begin.
const TRIED_ALWAYS_BYTES: usize = 16 << 10;
/// Longer ones are tried in vain at most for so many times the bytes of the table per run, as a value may be full of
/// fake heads.
const TRIED_TIMES_MAX: u64 = 4;
/// Leaves that unpack to more than a leaf of several entries may have, and were found near damage, are unpacked up to
/// this total per table: values may be full of fakes.
const UNPACKED_MAX: u64 = 256 << 20;

/// The foot of a table, and the table's length; `None` if it is damaged. The foot may lie some units before the end of
/// the medium's table.
pub(crate) fn foot_of(
    reader: &dyn TableReader,
    env: &dyn Env,
    unit_bytes: usize,
) -> Result<Option<(Foot, u64)>> {
    let mut windows = Windows::new(reader, env, unit_bytes)?;
    let Some(last) = windows.end().checked_sub(FOOT_BYTES as u64) else { return Ok(None) };
    for at in (0..=last).rev().step_by(unit_bytes) {
        let Some(Ok(foot)) = windows.before(at, FOOT_BYTES).map(Foot::read) else { continue };
        if foot.unit() * foot.unit_bytes as u64 == at {
            return Ok(Some((foot, at + FOOT_BYTES as u64)));
        }
    }
    Ok(None)
}

/// Totals of what was found, and of what could not be saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Salvaged {
    /// Bytes in units that are not part of a valid object.
    pub lost_bytes: u64,
    /// Entries found where none belong: inside a value, or out of order.
    pub stray_entries: u64,
    /// Sum of the leaves found.
    pub sum: u32,
}

impl Salvaged {
    /// True if everything could be read, but is not what the manifest or foot states.
    pub(crate) fn is_another(&self, expected_sum: Option<u32>) -> bool {
        self.lost_bytes == 0 && expected_sum.is_some_and(|expected| expected != self.sum)
    }
}

/// Calls `found` for the entries of all valid data leaves, in order.
pub(crate) fn salvage(
    reader: &dyn TableReader,
    env: &dyn Env,
    unit_bytes: usize,
    found: impl FnMut(&[u8], Stamp, &[u8]) -> Result<()>,
) -> Result<Salvaged> {
    let windows = Windows::new(reader, env, unit_bytes)?;
    let (seen, last, run) = (Salvaged::default(), None, Run::new(windows.end()));
    let mut salvage = Salvage { windows, unit_bytes, found, last, seen, run, unpacks: UNPACKED_MAX };
    salvage.walk()?;
    Ok(salvage.seen)
}

/// A key and a stamp, as entries are ordered by.
type EntryKey = (Vec<u8>, Stamp);

fn is_below(a: (&[u8], Stamp), b: &EntryKey) -> bool {
    compare(a, (&b.0, b.1)) == Ordering::Less
}

struct Salvage<'a, F> {
    windows: Windows<'a>,
    unit_bytes: usize,
    found: F,
    /// The last entry returned.
    last: Option<EntryKey>,
    seen: Salvaged,
    run: Run,
    /// Remaining budget for unpacking, in bytes.
    unpacks: u64,
}

impl<F: FnMut(&[u8], Stamp, &[u8]) -> Result<()>> Salvage<'_, F> {
    fn walk(&mut self) -> Result<()> {
        let (mut at, mut object_end) = (0, 0);
        while at < self.windows.end() {
            let Some((kind, bytes)) = self.object_at(at) else {
                let unit = self.windows.get(at, self.unit_bytes);
                if !unit.is_some_and(|unit| unit.iter().all(|byte| *byte == 0)) {
                    self.run.hole.get_or_insert((object_end, at));
                    self.seen.lost_bytes += self.unit_bytes as u64;
                }
                at += self.unit_bytes as u64;
                continue;
            };
            match kind {
                ObjectKind::Data => self.wait(at, bytes),
                ObjectKind::Index => self.index(at, bytes)?,
                _ => {}
            }
            at += bytes as u64;
            object_end = at;
        }
        self.end_run(&[])
    }

    /// The object at byte `at`, if valid: its kind, and its bytes in whole units.
    fn object_at(&mut self, at: u64) -> Option<(ObjectKind, usize)> {
        let head = Head::parse(self.windows.get(at, self.unit_bytes)?).ok()?;
        let whole = head.length.next_multiple_of(self.unit_bytes);
        if whole > TRIED_ALWAYS_BYTES && whole as u64 > self.run.tries {
            return None;
        }
        let is_one = self.windows.get(at, whole).is_some_and(|bytes| head.check(bytes, head.kind).is_ok());
        if !is_one {
            self.run.tries = self.run.tries.saturating_sub(whole as u64);
        }
        (is_one && self.may_unpack(&head, whole)).then_some((head.kind, whole))
    }

    /// False if unpacking it would exceed the budget.
    fn may_unpack(&mut self, head: &Head, whole: usize) -> bool {
        if self.run.hole.is_none() || head.plain <= UNPACKED_TIMES_MAX * whole {
            return true;
        }
        let left = self.unpacks.checked_sub(head.plain as u64);
        self.unpacks = left.unwrap_or(self.unpacks);
        left.is_some()
    }

    /// Returns the entries of a leaf that are in order, and below `below`.
    fn hand_out(&mut self, at: u64, whole: usize, below: Option<&EntryKey>) -> Result<()> {
        let bytes = self.windows.get(at, whole).unwrap_or_default();
        let Ok((leaf, plain)) = Leaf::open(bytes) else {
            self.seen.lost_bytes += whole as u64;
            return Ok(());
        };
        let bytes = plain.as_deref().unwrap_or(bytes);
        let mut entry = LeafCursor::default();
        let mut result = entry.first(&leaf, bytes);
        while result.is_ok() && entry.is_valid() {
            let here = (entry.key(), entry.stamp());
            let follows =
                self.last.as_ref().is_none_or(|(key, stamp)| compare((key, *stamp), here) == Ordering::Less);
            let is_in_order = follows && below.is_none_or(|below| is_below(here, below));
            if is_in_order && !here.0.is_empty() && here.1.shown().kind().is_some() {
                (self.found)(here.0, here.1, entry.value(bytes))?;
                self.last = Some((here.0.to_vec(), here.1));
            } else {
                self.seen.stray_entries += 1;
            }
            result = entry.next(&leaf, bytes);
        }
        self.seen.lost_bytes += if result.is_err() { whole as u64 } else { 0 };
        Ok(())
    }

    /// A leaf was found.
    fn wait(&mut self, at: u64, whole: usize) {
        let leaf = self.windows.get(at, whole).unwrap_or_default();
        self.seen.sum = sum_with(self.seen.sum, leaf);
        match Waiting::new(at, whole, leaf) {
            Some(leaf) => self.run.leaves.push(leaf),
            None => self.seen.lost_bytes += whole as u64,
        }
    }

    /// An index was found.
    fn index(&mut self, at: u64, whole: usize) -> Result<()> {
        let bytes = self.windows.get(at, whole).unwrap_or_default();
        match named_by(bytes, self.unit_bytes as u64).filter(|named| self.run.is_of(named, at)) {
            Some(named) => self.end_run(&named),
            None => Ok(()),
        }
    }

    /// Hands out what waits, by what an index names; without one, as far as it is in order.
    fn end_run(&mut self, named: &[Named]) -> Result<()> {
        let run = std::mem::replace(&mut self.run, Run::new(self.windows.end()));
        let first =
            run.leaves.iter().find(|leaf| leaf.fits(named) == Some(true)).map(|leaf| leaf.first.clone());
        let below = first.or_else(|| named.first().map(|named| (named.key.clone(), Stamp(0))));
        for leaf in run.leaves {
            let is_before = named.first().is_none_or(|first| leaf.at < first.at);
            if is_before || leaf.fits(named) == Some(true) {
                self.hand_out(leaf.at, leaf.bytes, below.as_ref().filter(|_| is_before))?;
            } else {
                self.seen.stray_entries += leaf.entries;
                self.seen.lost_bytes += leaf.bytes as u64;
            }
        }
        Ok(())
    }
}

/// What was found since the last index.
struct Run {
    /// In order.
    leaves: Vec<Waiting>,
    /// The first unit that is neither an object nor zeros, and where the object before it ended.
    hole: Option<(u64, u64)>,
    /// Bytes that may still be looked at in vain.
    tries: u64,
}

impl Run {
    /// Of a table of so many bytes.
    fn new(table_bytes: u64) -> Run {
        Run { leaves: Vec::new(), hole: None, tries: TRIED_TIMES_MAX * table_bytes }
    }

    /// True if an index at byte `at` is the run's, and not bytes of a value: leaves that wait are where it says, and
    /// have such keys; or none is there, and the hole begins with one that it names, or where the last ends.
    fn is_of(&self, named: &[Named], at: u64) -> bool {
        let Some(last) = named.last().filter(|last| last.end <= at) else { return false };
        if !named.windows(2).all(|pair| pair[0].end <= pair[1].at && pair[0].key <= pair[1].key) {
            return false;
        }
        let (fit, others): (Vec<bool>, _) =
            self.leaves.iter().filter_map(|leaf| leaf.fits(named)).partition(|fits| *fits);
        let is_in_hole = |at: u64| self.hole.is_some_and(|(from, to)| (from..=to).contains(&at));
        match fit.len() + others.len() {
            0 => named.iter().any(|named| is_in_hole(named.at)) || is_in_hole(last.end),
            _ => fit.len() > others.len(),
        }
    }
}

/// A leaf that was found.
struct Waiting {
    at: u64,
    bytes: usize,
    first: EntryKey,
    last: Vec<u8>,
    entries: u64,
}

impl Waiting {
    fn new(at: u64, whole: usize, bytes: &[u8]) -> Option<Waiting> {
        let (mut entry, mut last) = (LeafCursor::default(), Vec::new());
        let (leaf, plain) = Leaf::open(bytes).ok()?;
        let bytes = plain.as_deref().unwrap_or(bytes);
        entry.first(&leaf, bytes).ok()?;
        leaf.last(bytes, &mut last).ok()?;
        let first = (entry.key().to_vec(), entry.stamp());
        Some(Waiting { at, bytes: whole, first, last, entries: leaf.count(bytes).ok()? })
    }

    /// Whether it is as long as an index says, and its keys are between those that the index has. `None` if that names
    /// none there.
    fn fits(&self, named: &[Named]) -> Option<bool> {
        let index = named.binary_search_by_key(&self.at, |named| named.at).ok()?;
        let before = index.checked_sub(1).map(|before| &named[before].key);
        let follows = before.is_none_or(|before| *before <= self.first.0);
        let is_as_long = self.at + self.bytes as u64 == named[index].end;
        Some(is_as_long && follows && self.last <= named[index].key)
    }
}

/// A leaf that an index names.
struct Named {
    /// At least its last key.
    key: Vec<u8>,
    at: u64,
    end: u64,
}

/// What an index leaf names, if all of it decodes.
fn named_by(bytes: &[u8], unit_bytes: u64) -> Option<Vec<Named>> {
    let (leaf, mut entry, mut named) =
        (Leaf::check(bytes, ObjectKind::Index).ok()?, LeafCursor::default(), Vec::new());
    entry.first(&leaf, bytes).ok()?;
    while entry.is_valid() {
        let mut fields = Fields::new(entry.value(bytes));
        let [unit, units] = [fields.varint()?, fields.varint()?];
        let at = unit.checked_mul(unit_bytes)?;
        let end = units.checked_mul(unit_bytes)?.checked_add(at)?;
        named.push(Named { key: entry.key().to_vec(), at, end });
        entry.next(&leaf, bytes).ok()?;
    }
    Some(named)
}

#[cfg(test)]
mod tests;
