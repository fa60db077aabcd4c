//! Objects of tables in memory, as the cache holds them.

use super::buffer::Buffer;
use super::entry_fences::EntryFences;
use super::filter::Filter;
use super::leaf::Leaf;
use super::object::ObjectKind;
use super::pins::Stay;
use crate::lsm::kept_log::Pointer;
use crate::media::Mapping;
use std::ops::Deref;
use std::sync::Arc;
use vellum_base::Result;

/// An object's bytes.
pub(crate) enum Bytes {
    /// In memory of the store.
    Own(Buffer),
    /// In a mapped table. After taking anything from it the user must check that the mapping is sound.
    Mapped { map: Arc<Mapping>, start: usize, end: usize },
}

impl Deref for Bytes {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Own(bytes) => bytes,
            Bytes::Mapped { map, start, end } => map.lent(*start..*end),
        }
    }
}

/// A verified data leaf in memory of the store, unpacked.
pub(super) struct OwnLeaf {
    pub leaf: Leaf,
    pub bytes: Buffer,
    /// It was compressed on the medium.
    pub packed: bool,
}

impl OwnLeaf {
    /// Of bytes as on the medium.
    pub(super) fn of(stored: &[u8]) -> Result<OwnLeaf> {
        Ok(OwnLeaf::new(Leaf::open(stored)?, || Buffer::of(stored)))
    }

    /// The same; what is not compressed is not copied.
    pub(super) fn open(stored: Buffer) -> Result<OwnLeaf> {
        Ok(OwnLeaf::new(Leaf::open(&stored)?, || stored))
    }

    fn new((leaf, plain): (Leaf, Option<Buffer>), stored: impl FnOnce() -> Buffer) -> OwnLeaf {
        OwnLeaf { leaf, packed: plain.is_some(), bytes: plain.unwrap_or_else(stored) }
    }
}

/// A verified object in memory.
pub(crate) enum Object {
    /// A data leaf. If it was compressed, `bytes` are not those on the medium.
    Data { leaf: Leaf, fences: Option<EntryFences>, bytes: Bytes, packed: bool },
    /// A run's filter and index leaf.
    Branch { filter: Filter, index: Leaf, fences: EntryFences, index_at: usize, bytes: Buffer, stay: Stay },
    /// A value from a log, and the pointer that it was verified by.
    Value { pointer: Pointer, bytes: Box<[u8]> },
}

impl Object {
    /// A leaf, to be read in order.
    pub(super) fn data(OwnLeaf { leaf, bytes, packed }: OwnLeaf) -> Object {
        Object::Data { leaf, fences: None, bytes: Bytes::Own(bytes), packed }
    }

    /// The same, with fences for searching it.
    pub(super) fn searched(OwnLeaf { leaf, bytes, packed }: OwnLeaf) -> Result<Object> {
        let fences = Some(EntryFences::new(&leaf, &bytes)?);
        Ok(Object::Data { leaf, fences, bytes: Bytes::Own(bytes), packed })
    }

    /// A filter, and at byte `index_at` an index leaf.
    pub(super) fn branch(bytes: Buffer, index_at: usize) -> Result<Object> {
        let filter = Filter::check(&bytes)?;
        let index = Leaf::check(&bytes[index_at..], ObjectKind::Index)?;
        let fences = EntryFences::new(&index, &bytes[index_at..])?;
        Ok(Object::Branch { filter, index, fences, index_at, bytes, stay: Stay::default() })
    }

    /// The mapping that its bytes are in, if they are mapped.
    fn map(&self) -> Option<&Mapping> {
        match self {
            Object::Data { bytes: Bytes::Mapped { map, .. }, .. } => Some(map),
            _ => None,
        }
    }
    /// True if its bytes are mapped.
    pub(super) fn is_mapped(&self) -> bool {
        self.map().is_some()
    }
    /// True if everything taken from its bytes so far was right.
    #[inline]
    pub(super) fn is_sound(&self) -> bool {
        self.map().is_none_or(Mapping::is_sound)
    }

    fn stay(&self) -> Option<&Stay> {
        match self {
            Object::Data { .. } | Object::Value { .. } => None,
            Object::Branch { stay, .. } => Some(stay),
        }
    }
    /// Notes that it enters the cache.
    pub(crate) fn enters(&self) {
        self.stay().into_iter().for_each(Stay::begin);
    }
    /// Notes that it leaves the cache.
    pub(crate) fn leaves(&self) {
        self.stay().into_iter().for_each(Stay::end);
    }
    /// True if it was used without a cache lookup, through a pin.
    pub(crate) fn is_used(&self) -> bool {
        self.stay().is_some_and(Stay::is_used)
    }
    /// The same, and resets it.
    pub(crate) fn take_used(&self) -> bool {
        self.stay().is_some_and(Stay::take_used)
    }

    /// Its size in memory.
    pub(crate) fn bytes(&self) -> usize {
        let fences = match self {
            Object::Data { fences, .. } => fences.as_ref(),
            Object::Branch { fences, .. } => Some(fences),
            Object::Value { .. } => None,
        };
        self.as_bytes().len() + fences.map_or(0, EntryFences::bytes)
    }

    /// The value, if it is the one that `wanted` points to.
    pub(crate) fn value_of(&self, wanted: &Pointer) -> Option<&[u8]> {
        match self {
            Object::Value { pointer, bytes } if pointer == wanted => Some(bytes),
            _ => None,
        }
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Object::Data { bytes, .. } => bytes,
            Object::Branch { bytes, .. } => bytes,
            Object::Value { bytes, .. } => bytes,
        }
    }

    /// Its bytes as on the medium; `None` if it was compressed there.
    pub(super) fn as_stored(&self) -> Option<&[u8]> {
        match self {
            Object::Data { packed: true, .. } | Object::Value { .. } => None,
            _ => Some(self.as_bytes()),
        }
    }

    /// A data leaf of so many bytes, for tests of the cache.
    #[cfg(test)]
    pub(crate) fn for_test(bytes: usize) -> Object {
        let (mut builder, mut out) = (super::leaf_build::LeafBuilder::default(), Vec::new());
        builder.add(b"k", crate::key::Stamp(1), b"", 0);
        builder.finish(&mut out, ObjectKind::Data, super::object::TABLE_UNIT_BYTES);
        let leaf = Leaf::check(&out, ObjectKind::Data).expect("a leaf");
        Object::Data { leaf, fences: None, bytes: Bytes::Own(Buffer::new(bytes)), packed: false }
    }
}
