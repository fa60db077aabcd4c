//! Lookup of a key: root, then the branch of its run with the filter, then a leaf.

use super::Table;
use super::cached::Object;
use super::entry_fences::EntryFences;
use super::leaf::{self, Leaf};
use super::objects::LeafPlace;
use crate::key::{LookupKey, Stamp};
use std::sync::Arc;
use vellum_base::Result;

impl Table {
    /// Finds an entry, and copies its value to `out`.
    pub(crate) fn get(&self, wanted: LookupKey<'_>, out: &mut Vec<u8>) -> Result<Option<Stamp>> {
        if self.own_seq > wanted.stamp.seq() {
            return Ok(None);
        }
        self.find_value(wanted, out).map_err(|error| error.context(format!("table {}", self.meta.number)))
    }

    fn find_value(&self, wanted: LookupKey<'_>, out: &mut Vec<u8>) -> Result<Option<Stamp>> {
        let Some(stored) = self.find(wanted, out)? else { return Ok(None) };
        if stored.is_in_log() {
            let pointer = std::mem::take(out);
            self.resolve(&pointer, out)?;
        }
        Ok(Some(self.stamp(stored)))
    }

    fn find(&self, wanted: LookupKey<'_>, out: &mut Vec<u8>) -> Result<Option<Stamp>> {
        let mut next = self.root.at_or_after(&self.root_bytes, wanted.key)?;
        // Versions of a key may continue in the next run, and in the next leaf, if the separator is the key itself.
        while let Some((run, same)) = next {
            let place = self.branch_place(run.value)?;
            let found = match self.pins.get(place.unit).as_deref() {
                Some(Some(object)) => {
                    self.library.cache.hit_aside();
                    self.find_in_run(object, wanted, out)?
                }
                _ => {
                    let object = self.branch(place)?;
                    self.pins.pin(place.unit, &object);
                    self.find_in_run(&object, wanted, out)?
                }
            };
            if found.is_some() {
                return Ok(found);
            }
            if !same {
                break;
            }
            next = after_same(&self.root, &self.root_bytes, wanted.key, run.next)?;
        }
        Ok(None)
    }

    fn find_in_run(
        &self,
        branch: &Object,
        wanted: LookupKey<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Stamp>> {
        let Object::Branch { filter, index, fences, index_at, bytes, stay } = branch else { return Ok(None) };
        stay.touch();
        if !filter.may_hold(bytes, wanted.hash) {
            self.library.filters.stopped();
            return Ok(None);
        }
        let found = self.find_in_leaves((index, fences), &bytes[*index_at..], wanted, out)?;
        if found.is_none() {
            self.library.filters.wrong();
        }
        Ok(found)
    }

    fn find_in_leaves(
        &self,
        (index, fences): (&Leaf, &EntryFences),
        bytes: &[u8],
        wanted: LookupKey<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Stamp>> {
        let mut next = fences.at_or_after(index, bytes, wanted.key)?;
        while let Some((place, same)) = next {
            let found = self.find_in_leaf(self.leaf_place(place.value)?, wanted, out)?;
            if found.is_some() {
                return Ok(found);
            }
            if !same {
                break;
            }
            next = after_same(index, bytes, wanted.key, place.next)?;
        }
        Ok(None)
    }

    /// Searches a leaf: in the mapping, in the cache, or as read from the medium. In the last case it goes to the cache
    /// if that admits it.
    fn find_in_leaf(
        &self,
        place: LeafPlace,
        LookupKey { key, stamp, .. }: LookupKey<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Stamp>> {
        self.prefetch(place);
        if let Some(mapped) = &self.mapped
            && let Some((leaf, bytes)) = mapped.leaf(place)?
        {
            let found = leaf.get(bytes, key, stamp).map(|found| copied(found, out));
            if mapped.is_sound() {
                return found;
            }
        }
        let known = self.cache_key(place.unit);
        if let Some(object) = self.library.cache.get(known) {
            return object.get(key, stamp, out);
        }
        let own = self.fetch(place)?;
        if !self.library.cache.admits(known, place.units * self.unit_bytes) {
            return Ok(copied(own.leaf.get(&own.bytes, key, stamp)?, out));
        }
        let object = Arc::new(Object::searched(own)?);
        self.keep(known, object.clone());
        object.get(key, stamp, out)
    }
}

impl Object {
    /// Finds the newest entry of `key` up to `stamp` in a data leaf, and copies its value to `out`.
    fn get(&self, key: &[u8], stamp: Stamp, out: &mut Vec<u8>) -> Result<Option<Stamp>> {
        let found = match self {
            Object::Data { leaf, fences: Some(fences), bytes, .. } => fences.get(leaf, bytes, key, stamp)?,
            Object::Data { leaf, bytes, .. } => leaf.get(bytes, key, stamp)?,
            Object::Branch { .. } | Object::Value { .. } => None,
        };
        Ok(copied(found, out))
    }
}

/// Copies the value of an entry to `out`; returns its stamp.
fn copied(found: Option<(Stamp, &[u8])>, out: &mut Vec<u8>) -> Option<Stamp> {
    let (stamp, value) = found?;
    out.clear();
    out.extend_from_slice(value);
    Some(stamp)
}

/// The entry at `offset`, which follows one with key `key`, and whether it has the same key again. It has if it shares
/// all of it and adds nothing.
fn after_same<'a>(
    leaf: &Leaf,
    bytes: &'a [u8],
    key: &[u8],
    offset: usize,
) -> Result<Option<(leaf::RawEntry<'a>, bool)>> {
    let entry = leaf.entry(bytes, offset)?;
    Ok(entry.map(|entry| {
        let again = entry.shared == key.len() && entry.suffix.is_empty();
        (entry, again || entry.shared == 0 && entry.suffix == key)
    }))
}
