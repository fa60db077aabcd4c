//! A data leaf in its stored form, to be kept unchanged in another table.

use super::buffer::Buffer;
use super::build::WASTE_MAX;
use super::leaf::{Leaf, LeafCursor};
use crate::bytes::u32_at;
use crate::key::Stamp;
use crate::media::Stored;
use vellum_base::Result;

/// Bytes of a table being written that are also stored elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredSpan {
    /// Offset in the bytes being written.
    pub start: usize,
    pub bytes: usize,
    pub from: Stored,
}

impl StoredSpan {
    /// True if `next` is adjacent, both here and where it is stored.
    pub(crate) fn goes_on_with(&self, next: &StoredSpan) -> bool {
        let end = Stored { offset: self.from.offset + self.bytes as u64, ..self.from };
        self.start + self.bytes == next.start && end == next.from
    }
}

/// See the module.
pub(crate) struct StoredLeaf {
    /// Its bytes as on the medium, in whole units.
    pub bytes: Vec<u8>,
    /// Its unpacked bytes, if it is compressed.
    pub plain: Option<Buffer>,
    pub leaf: Leaf,
    pub from: Stored,
    /// Clients used it lately.
    pub is_hot: bool,
    pub first: Vec<u8>,
    pub last: Vec<u8>,
    pub entries: u64,
}

impl StoredLeaf {
    /// True if a table with this unit can take it unchanged: it must be aligned, and not take more units than needed,
    /// as the next object begins at the unit after its contents.
    pub(crate) fn is_of_units(&self, unit_bytes: usize) -> bool {
        self.bytes.len().is_multiple_of(unit_bytes)
            && self.padding() < unit_bytes
            && self.from.offset.is_multiple_of(unit_bytes as u64)
    }

    /// Bytes of padding at its end.
    pub(crate) fn padding(&self) -> usize {
        self.bytes.len() - u32_at(&self.bytes, 4) as usize
    }

    /// True if it contains a bubble: it would have room for another entry like its own.
    pub(crate) fn is_loose(&self) -> bool {
        let (padding, bytes) = (self.padding(), self.bytes.len());
        self.entries > 1 && padding * WASTE_MAX > bytes && padding > (bytes - padding) / self.entries as usize
    }

    /// Calls `show` for every entry in order.
    pub(crate) fn each(&self, mut show: impl FnMut(&[u8], Stamp, &[u8]) -> Result<()>) -> Result<()> {
        let bytes = self.plain.as_deref().unwrap_or(&self.bytes);
        let mut entry = LeafCursor::default();
        entry.first(&self.leaf, bytes)?;
        while entry.is_valid() {
            show(entry.key(), entry.stamp(), entry.value(bytes))?;
            entry.next(&self.leaf, bytes)?;
        }
        Ok(())
    }
}

/// The first leaf of a table's bytes, in units of so many, for tests of what takes leaves.
#[cfg(test)]
pub(crate) fn leaf_of(bytes: &[u8], from: Stored, unit_bytes: usize) -> Result<StoredLeaf> {
    let leaf = Leaf::check(bytes, super::object::ObjectKind::Data)?;
    let length = (u32_at(bytes, 4) as usize).next_multiple_of(unit_bytes);
    let (mut first, mut last) = (LeafCursor::default(), Vec::new());
    first.first(&leaf, bytes)?;
    leaf.last(bytes, &mut last)?;
    Ok(StoredLeaf {
        bytes: bytes[..length].to_vec(),
        plain: None,
        leaf,
        from,
        is_hot: false,
        first: first.key().to_vec(),
        last,
        entries: leaf.count(bytes)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::EntryKind;
    use crate::lsm::table::{Grain, TableBuilder};

    #[test]
    fn a_leaf_of_larger_units_is_not_one_of_smaller_ones() {
        let leaf = |grain| {
            let mut builder = TableBuilder::new(1, 10, grain);
            builder.add(b"key", Stamp::new(1, EntryKind::Put), &[7; 1000]);
            leaf_of(&builder.finish().tail, Stored { table: 1, offset: 0 }, grain.unit_bytes).unwrap()
        };
        let fine = leaf(Grain::sharing(64));
        assert!(fine.is_of_units(64) && !fine.is_of_units(4096));
        let coarse = leaf(Grain::default());
        assert!(
            coarse.is_of_units(4096) && !coarse.is_of_units(64),
            "what follows it would begin in its padding"
        );
    }

    #[test]
    fn a_leaf_is_loose_if_another_entry_like_its_own_would_have_fitted() {
        let leaf = |entries: u64| {
            let mut builder = TableBuilder::new(1, 10, Grain::default());
            (0..entries)
                .for_each(|i| builder.add(&i.to_be_bytes(), Stamp::new(i + 1, EntryKind::Put), &[7; 1024]));
            leaf_of(&builder.finish().tail, Stored { table: 1, offset: 0 }, 4096).unwrap()
        };
        let loose: Vec<bool> = (1..8).map(|entries| leaf(entries).is_loose()).collect();
        assert_eq!(loose, [false, true, false, true, true, true, false]);
    }
}
