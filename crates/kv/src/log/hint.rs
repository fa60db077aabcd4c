//! Hints: a summary of a segment's records, from which the index is rebuilt without reading them. It lists hashes in
//! order, each with the place of its record, in units with a checksum each. See docs/formats/kv-segment.md.

use super::record::RECORD_HEAD_BYTES;
use crate::bytes::{Fields, put_varint, u32_at};

/// What is read and written at a time.
pub(crate) const SEGMENT_UNIT_BYTES: usize = 4096;
/// Bits of a key's hash.
pub(crate) const HASH_BITS: u32 = 40;
/// Most bytes that a note takes in a unit.
const NOTE_BYTES_MAX: usize = 6 + 5 + 5;
const UNIT_HEAD_BYTES: usize = 8;

/// A key's hash. The seed is secret, so that nobody can choose keys whose hashes collide.
pub(crate) fn hash_of(seed: u64, key: &[u8]) -> u64 {
    vellum_codes::fingerprint::seeded64(seed, key) >> (64 - HASH_BITS)
}

/// Where the record with a hash is. Ordered by hash, and then by place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Note {
    pub hash: u64,
    /// A multiple of eight.
    pub offset: u64,
    pub bytes: u32,
    pub delete: bool,
    pub twin: bool,
}

/// Most units of a hint for `records` records.
pub(crate) fn units_max(records: u64) -> u64 {
    let in_unit = (SEGMENT_UNIT_BYTES - UNIT_HEAD_BYTES) / NOTE_BYTES_MAX;
    records.div_ceil(in_unit as u64)
}

/// Writes notes, which are in order, as whole units.
pub(crate) fn write(notes: &[Note], out: &mut Vec<u8>) {
    let mut left = notes;
    while !left.is_empty() {
        let start = out.len();
        out.extend_from_slice(&[0; UNIT_HEAD_BYTES]);
        let (mut hash, mut count) = (0, 0);
        for note in left {
            if out.len() - start + NOTE_BYTES_MAX > SEGMENT_UNIT_BYTES {
                break;
            }
            put_varint(out, note.hash - hash);
            let flags = u64::from(note.delete) << 1 | u64::from(note.twin);
            put_varint(out, (note.offset / RECORD_HEAD_BYTES as u64 * 4) | flags);
            put_varint(out, note.bytes as u64 / RECORD_HEAD_BYTES as u64);
            (hash, count) = (note.hash, count + 1);
        }
        out[start + 4..start + 6].copy_from_slice(&(count as u16).to_le_bytes());
        out.resize(start + SEGMENT_UNIT_BYTES, 0);
        let crc = vellum_codes::crc32c(&out[start + 4..]);
        out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
        left = &left[count..];
    }
}

/// Appends the notes of a unit. `None` if it does not check out.
pub(crate) fn read_unit(unit: &[u8], notes: &mut Vec<Note>) -> Option<()> {
    if unit.len() != SEGMENT_UNIT_BYTES || vellum_codes::crc32c(&unit[4..]) != u32_at(unit, 0) {
        return None;
    }
    let count = u16::from_le_bytes([unit[4], unit[5]]);
    let (mut fields, mut hash) = (Fields::new(&unit[UNIT_HEAD_BYTES..]), 0u64);
    for _ in 0..count {
        hash = hash.checked_add(fields.varint()?).filter(|hash| *hash < 1 << HASH_BITS)?;
        let (place, granules) = (fields.varint()?, fields.varint()?);
        let offset = (place / 4).checked_mul(RECORD_HEAD_BYTES as u64)?;
        let bytes = u32::try_from(granules.checked_mul(RECORD_HEAD_BYTES as u64)?).ok()?;
        notes.push(Note { hash, offset, bytes, delete: place & 2 != 0, twin: place & 1 != 0 });
    }
    Some(())
}

/// Decodes fuzzed bytes (see `crate::fuzz`).
pub(crate) fn fuzzed(bytes: &[u8]) {
    let mut unit = bytes.to_vec();
    unit.resize(SEGMENT_UNIT_BYTES, 0);
    let crc = vellum_codes::crc32c(&unit[4..]);
    unit[..4].copy_from_slice(&crc.to_le_bytes());
    let mut notes = Vec::new();
    if read_unit(&unit, &mut notes).is_some() {
        assert!(notes.is_sorted_by_key(|note| note.hash));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn notes() -> impl Strategy<Value = Vec<Note>> {
        let note = (0u64..1 << HASH_BITS, 0u64..1 << 33, 1u32..1 << 20, any::<bool>(), any::<bool>())
            .prop_map(|(hash, place, granules, delete, twin)| Note {
                hash,
                offset: place / 8 * 8,
                bytes: granules * 8,
                delete,
                twin,
            });
        prop::collection::vec(note, 0..1500)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn hints_round_trip(mut notes in notes()) {
            notes.sort();
            let mut out = Vec::new();
            write(&notes, &mut out);
            prop_assert!(out.len() as u64 <= units_max(notes.len() as u64) * SEGMENT_UNIT_BYTES as u64);
            let mut again = Vec::new();
            for unit in out.chunks(SEGMENT_UNIT_BYTES) {
                read_unit(unit, &mut again).unwrap();
            }
            prop_assert_eq!(again, notes);
        }

        #[test]
        fn hostile_units_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            fuzzed(&bytes);
        }
    }
}
