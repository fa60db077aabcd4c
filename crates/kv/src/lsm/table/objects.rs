//! Objects of a table, by place: from mapped memory, from the cache, or read from the medium.

use super::Table;
use super::buffer::Buffer;
use super::cached::{Object, OwnLeaf};
use super::object::OBJECT_BYTES_MAX;
use crate::bytes::Fields;
use crate::lsm::cache::CacheKey;
use std::sync::Arc;
use vellum_base::{Error, IoClass, Result};

/// Where a data leaf is.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeafPlace {
    pub unit: usize,
    pub units: usize,
}

/// Where a branch is.
#[derive(Clone, Copy, Debug)]
pub(super) struct BranchPlace {
    pub unit: usize,
    pub filter_units: usize,
    pub index_units: usize,
}

impl Table {
    /// A branch, from the cache or the medium. It always goes to the cache, as every get in its range needs it.
    pub(super) fn branch(&self, place: BranchPlace) -> Result<Arc<Object>> {
        let known = self.cache_key(place.unit);
        if let Some(object) = self.library.cache.get(known) {
            return Ok(object);
        }
        let mut bytes = Buffer::new((place.filter_units + place.index_units) * self.unit_bytes);
        self.read(place.unit, &mut bytes)?;
        let branch = Arc::new(Object::branch(bytes, place.filter_units * self.unit_bytes)?);
        self.keep(known, branch.clone());
        Ok(branch)
    }

    /// A data leaf in mapped memory, if the table is mapped and the leaf is not compressed.
    pub(super) fn mapped(&self, place: LeafPlace) -> Result<Option<Arc<Object>>> {
        let Some(mapped) = &self.mapped else { return Ok(None) };
        Ok(mapped.object(place)?.map(Arc::new))
    }

    /// A compressed data leaf, from the cache or from mapped memory.
    pub(super) fn unpacked(&self, place: LeafPlace) -> Result<Option<Arc<Object>>> {
        if let Some(object) = self.library.cache.get(self.cache_key(place.unit)) {
            return Ok(Some(object));
        }
        let Some(mapped) = &self.mapped else { return Ok(None) };
        Ok(mapped.unpacked(place)?.map(|leaf| Arc::new(Object::data(leaf))))
    }

    /// True if the table is mapped, and the leaf was verified lately.
    pub(super) fn was_verified(&self, place: LeafPlace) -> bool {
        self.mapped.as_ref().is_some_and(|mapped| mapped.was_verified(place))
    }

    /// True if the table is mapped, and these units are in the page cache.
    pub(super) fn is_resident(&self, unit: usize, units: usize) -> bool {
        self.mapped.as_ref().is_some_and(|mapped| mapped.is_resident(unit, units))
    }

    /// Prefetches a data leaf into the processor's cache, if the table is mapped.
    pub(super) fn prefetch(&self, place: LeafPlace) {
        if let Some(mapped) = &self.mapped {
            mapped.prefetch(place);
        }
    }

    /// Prefetches a data leaf that will be read soon, after others: also into memory, with as much again, which a scan
    /// will need, so that the device is waited for once.
    pub(super) fn prepare(&self, place: LeafPlace) {
        self.prefetch(place);
        let would_wait = match &self.mapped {
            Some(mapped) => mapped.would_wait(place),
            None => self.reader.waits(),
        };
        if would_wait && !self.library.cache.is_in_use(self.cache_key(place.unit)) {
            let units = (2 * place.units).min(self.root_unit - place.unit);
            self.reader.announce((place.unit * self.unit_bytes) as u64, (units * self.unit_bytes) as u64);
        }
    }

    /// A data leaf, from the cache or the medium. It goes to the cache if that admits it.
    pub(super) fn data(&self, place: LeafPlace) -> Result<Arc<Object>> {
        let known = self.cache_key(place.unit);
        if let Some(object) = self.library.cache.get(known) {
            return Ok(object);
        }
        let object = Arc::new(Object::data(self.fetch(place)?));
        if self.library.cache.admits(known, place.units * self.unit_bytes) {
            self.keep(known, object.clone());
        }
        Ok(object)
    }

    /// A data leaf that is not in the cache: from mapped memory, if it is compressed there, or from the medium.
    pub(super) fn fetch(&self, place: LeafPlace) -> Result<OwnLeaf> {
        if let Some(mapped) = &self.mapped
            && let Some(leaf) = mapped.unpacked_at_hand(place)?
        {
            return Ok(leaf);
        }
        let mut stored = Buffer::new(place.units * self.unit_bytes);
        self.read(place.unit, &mut stored)?;
        let leaf = OwnLeaf::open(stored)?;
        if let (true, Some(mapped)) = (leaf.packed, &self.mapped) {
            mapped.note_packed(place);
        }
        Ok(leaf)
    }

    /// Reads units for a client.
    pub(super) fn read(&self, unit: usize, out: &mut [u8]) -> Result<()> {
        let at = self.reader.read((unit * self.unit_bytes) as u64, out, IoClass::Foreground)?;
        self.library.env.sleep_until(at);
        Ok(())
    }

    pub(super) fn cache_key(&self, unit: usize) -> CacheKey {
        CacheKey { table: self.meta.number, unit: unit as u32 }
    }

    /// Gives an object to the cache.
    pub(super) fn keep(&self, place: CacheKey, object: Arc<Object>) {
        self.cached.mark(place.unit as usize);
        self.library.cache.insert(place, object);
    }

    pub(super) fn leaf_place(&self, value: &[u8]) -> Result<LeafPlace> {
        let [unit, units] = self.numbers(value)?;
        self.within(unit, &[units])?;
        Ok(LeafPlace { unit, units })
    }

    pub(super) fn branch_place(&self, value: &[u8]) -> Result<BranchPlace> {
        let [unit, filter_units, index_units] = self.numbers(value)?;
        self.within(unit, &[filter_units, index_units])?;
        Ok(BranchPlace { unit, filter_units, index_units })
    }

    pub(super) fn numbers<const N: usize>(&self, value: &[u8]) -> Result<[usize; N]> {
        let (mut fields, mut numbers) = (Fields::new(value), [0; N]);
        for number in &mut numbers {
            let field = fields.varint().filter(|n| *n <= u32::MAX as u64);
            *number = field.ok_or_else(|| Error::corrupt("an index entry does not decode"))? as usize;
        }
        Ok(numbers)
    }

    /// An error unless adjacent objects of these units each fit at `unit`.
    pub(super) fn within(&self, unit: usize, objects: &[usize]) -> Result<()> {
        let units: usize = objects.iter().sum();
        if units == 0 || unit + units > self.root_unit {
            return Err(Error::corrupt("an index entry points outside"));
        }
        match objects.iter().all(|units| *units * self.unit_bytes <= OBJECT_BYTES_MAX) {
            true => Ok(()),
            false => Err(Error::corrupt("an index entry names an object of impossible length")),
        }
    }
}
