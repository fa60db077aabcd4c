//! Which extents a table is made of, as it is written down behind the bytes of a superblock (docs/formats/kv-flash.md).
//!
//! A list names a superblock by what was written to it, not by where it is: names are never used twice, so a list that
//! is out of date names what is gone, never something else.

use super::superblock::{Name, UNIT_BYTES};
use crate::bytes::u32_at;
use std::collections::BTreeMap;

const MAGIC: &[u8; 4] = b"VKXL";
/// Of all lists of a superblock, of one, of a name in it, of an extent.
const HEAD_BYTES: usize = 12;
const LIST_BYTES: usize = 32;
const NAME_BYTES: usize = 16;
const EXTENT_BYTES: usize = 12;

/// A table, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct List {
    pub name: Name,
    /// In the order of the table's bytes.
    pub parts: Vec<Part>,
}

/// Units of a superblock that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// What was written to the superblock.
    pub source: Name,
    pub start: u32,
    pub units: u32,
}

impl List {
    /// Of a table that is a superblock by itself.
    pub(crate) fn plain(name: Name, bytes: u64) -> List {
        let units = (bytes / UNIT_BYTES) as u32;
        List { name, parts: vec![Part { source: name, start: 0, units }] }
    }

    /// Most bytes that the list of so many parts takes.
    pub(crate) fn bytes_max(parts: usize) -> usize {
        LIST_BYTES + parts * (NAME_BYTES + EXTENT_BYTES)
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut places = BTreeMap::new();
        let mut names = Vec::new();
        for part in &self.parts {
            places.entry(part.source).or_insert_with(|| {
                names.push(part.source);
                names.len() as u32 - 1
            });
        }
        out.extend_from_slice(&self.name.table.to_le_bytes());
        out.extend_from_slice(&self.name.edition.to_le_bytes());
        out.extend_from_slice(&(names.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.parts.len() as u32).to_le_bytes());
        out.extend_from_slice(&[0; 12]);
        for name in names {
            out.extend_from_slice(&name.table.to_le_bytes());
            out.extend_from_slice(&name.edition.to_le_bytes());
            out.extend_from_slice(&[0; 4]);
        }
        for part in &self.parts {
            for number in [places[&part.source], part.start, part.units] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
    }

    /// The list at the front of `bytes`, and what follows it.
    fn read(bytes: &[u8]) -> Option<(List, &[u8])> {
        let (head, rest) = bytes.split_at_checked(LIST_BYTES)?;
        let [names, parts] = [12, 16].map(|at| u32_at(head, at) as usize);
        let (names, rest) = rest.split_at_checked(names.checked_mul(NAME_BYTES)?)?;
        let names: Vec<Name> = names.chunks_exact(NAME_BYTES).map(name_in).collect();
        let (parts, rest) = rest.split_at_checked(parts.checked_mul(EXTENT_BYTES)?)?;
        let part = |bytes: &[u8]| {
            let source = *names.get(u32_at(bytes, 0) as usize)?;
            Some(Part { source, start: u32_at(bytes, 4), units: u32_at(bytes, 8) })
        };
        let parts = parts.chunks_exact(EXTENT_BYTES).map(part).collect::<Option<_>>()?;
        Some((List { name: name_in(head), parts }, rest))
    }
}

fn name_in(bytes: &[u8]) -> Name {
    let table = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    Name { table, edition: u32_at(bytes, 8) }
}

/// All lists of a superblock.
pub(crate) fn encode(lists: &[List]) -> Vec<u8> {
    let mut out = vec![0; HEAD_BYTES];
    out[..4].copy_from_slice(MAGIC);
    out[8..12].copy_from_slice(&(lists.len() as u32).to_le_bytes());
    lists.iter().for_each(|list| list.write(&mut out));
    let crc = vellum_codes::crc32c(&out[8..]);
    out[4..8].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Most bytes of lists with so many parts each.
pub(crate) fn encoded_max(parts: impl IntoIterator<Item = usize>) -> usize {
    HEAD_BYTES + parts.into_iter().map(List::bytes_max).sum::<usize>()
}

/// The lists, if they check out.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<List>> {
    if bytes.len() < HEAD_BYTES || &bytes[..4] != MAGIC {
        return None;
    }
    (u32_at(bytes, 4) == vellum_codes::crc32c(&bytes[8..])).then_some(())?;
    let mut rest = &bytes[HEAD_BYTES..];
    let mut lists = Vec::new();
    for _ in 0..u32_at(bytes, 8) {
        let (list, later) = List::read(rest)?;
        lists.push(list);
        rest = later;
    }
    rest.is_empty().then_some(lists)
}

/// Decodes fuzzed bytes, their checksum put right first (see `crate::fuzz`).
pub(crate) fn fuzzed(bytes: &[u8]) {
    let mut bytes = [&MAGIC[..], &[0; 4], bytes].concat();
    let crc = vellum_codes::crc32c(&bytes[8..]);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    if let Some(lists) = decode(&bytes) {
        assert_eq!(decode(&encode(&lists)).as_ref(), Some(&lists));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name() -> impl Strategy<Value = Name> {
        (0u64..6, 0u32..3).prop_map(|(table, edition)| Name { table, edition })
    }

    fn list() -> impl Strategy<Value = List> {
        let part = (name(), any::<u32>(), any::<u32>());
        let part = part.prop_map(|(source, start, units)| Part { source, start, units });
        (name(), prop::collection::vec(part, 0..20)).prop_map(|(name, parts)| List { name, parts })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(lists in prop::collection::vec(list(), 0..5)) {
            let bytes = encode(&lists);
            prop_assert!(bytes.len() <= encoded_max(lists.iter().map(|list| list.parts.len())));
            prop_assert_eq!(decode(&bytes), Some(lists));
        }

        #[test]
        fn what_is_damaged_is_noticed(lists in prop::collection::vec(list(), 1..3), at in any::<prop::sample::Index>(), bit in 0u32..8) {
            let mut bytes = encode(&lists);
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
            prop_assert_eq!(decode(&bytes), None);
            bytes[at] ^= 1u8 << bit;
            prop_assert_eq!(decode(&bytes[..at]), None);
        }

        #[test]
        fn fuzzed_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            fuzzed(&bytes);
        }
    }
}
