//! The first unit of a zone: the store's label in zone 0, a table's head in any other; and the unit behind a table. See
//! docs/formats/kv-zones.md.

use crate::bytes::{u32_at, u64_at};
use crate::media::patient::twice;
use vellum_base::{Error, Result, Zones, ZonesShape};

/// Bytes of a label, head or end, with what pads it.
pub(super) const ZONE_UNIT_BYTES: usize = 4096;
/// Zone that the label is in.
pub(super) const LABEL_ZONE: u32 = 0;
/// Offsets of its two copies, as a store without a label is lost. Earlier versions wrote only the first.
pub(super) const LABELS_AT: [u64; 2] = [0, ZONE_UNIT_BYTES as u64];
const CHECKED_BYTES: usize = 48;
const VERSION: u32 = 1;

/// Which store, and how it cuts its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label {
    pub id: [u8; 16],
    pub zones: u32,
    pub zone_bytes: u64,
}

/// The store and the table that a zone belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableHead {
    pub id: [u8; 16],
    pub table: u64,
    /// An end will follow the table: earlier programs wrote none.
    pub marks_end: bool,
}

/// The end of a finished table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableEnd {
    pub id: [u8; 16],
    pub table: u64,
    /// Length of the table, which is before it.
    pub bytes: u64,
}

impl Label {
    pub(super) fn new(id: [u8; 16], shape: &ZonesShape) -> Label {
        Label { id, zones: shape.zones, zone_bytes: shape.zone_bytes }
    }

    pub(super) fn encode(&self) -> [u8; ZONE_UNIT_BYTES] {
        sealed(b"VKZL", self.zones, self.id, [self.zone_bytes, 0])
    }

    /// The label in `unit`, if there is one.
    pub(super) fn decode(unit: &[u8]) -> Option<Label> {
        let (zones, id, [zone_bytes, _]) = opened(b"VKZL", unit)?;
        Some(Label { id, zones, zone_bytes })
    }
}

impl TableHead {
    pub(super) fn encode(&self) -> [u8; ZONE_UNIT_BYTES] {
        sealed(b"VKZT", self.marks_end.into(), self.id, [self.table, 0])
    }

    /// The head in `unit`, if there is one.
    pub(super) fn decode(unit: &[u8]) -> Option<TableHead> {
        let (marks_end, id, [table, _]) = opened(b"VKZT", unit)?;
        Some(TableHead { id, table, marks_end: marks_end == 1 })
    }
}

impl TableEnd {
    pub(super) fn encode(&self) -> [u8; ZONE_UNIT_BYTES] {
        sealed(b"VKZE", 0, self.id, [self.table, self.bytes])
    }

    /// The end in `unit`, if there is one.
    pub(super) fn decode(unit: &[u8]) -> Option<TableEnd> {
        let (_, id, [table, bytes]) = opened(b"VKZE", unit)?;
        Some(TableEnd { id, table, bytes })
    }
}

/// The label of a store's device. One that was extended since has zones that are not used.
pub(super) fn label_of(zones: &dyn Zones, id: [u8; 16], device: &str) -> Result<Label> {
    let shape = zones.shape();
    let is_own =
        |label: &Label| (label.id, label.zone_bytes) == (id, shape.zone_bytes) && label.zones <= shape.zones;
    find_label(zones, is_own)?.ok_or_else(|| {
        let what =
            "is not the device that the tables of this store are on, is shorter, or is cut into other zones";
        Error::corrupt(format!("{device} {what}"))
    })
}

/// The first label that is wanted; an error if there is none, and one of the copies cannot be read.
pub(super) fn find_label(zones: &dyn Zones, is_wanted: impl Fn(&Label) -> bool) -> Result<Option<Label>> {
    let mut unreadable = Ok(None);
    for at in LABELS_AT {
        match twice(|| unit_of(zones, LABEL_ZONE, at)) {
            Ok(unit) => {
                let label = unit.and_then(|unit| Label::decode(&unit)).filter(&is_wanted);
                if label.is_some() {
                    return Ok(label);
                }
            }
            Err(error) => unreadable = Err(error),
        }
    }
    unreadable
}

/// A unit of a zone, if the zone exists and the unit was written.
pub(super) fn unit_of(zones: &dyn Zones, zone: u32, at: u64) -> Result<Option<[u8; ZONE_UNIT_BYTES]>> {
    let is_there = zone < zones.shape().zones;
    if !is_there || zones.report(zone).written < at.saturating_add(ZONE_UNIT_BYTES as u64) {
        return Ok(None);
    }
    let mut unit = [0; ZONE_UNIT_BYTES];
    zones.read(zone, at, &mut unit)?;
    Ok(Some(unit))
}

fn sealed(magic: &[u8; 4], small: u32, id: [u8; 16], large: [u64; 2]) -> [u8; ZONE_UNIT_BYTES] {
    let mut unit = [0; ZONE_UNIT_BYTES];
    unit[..4].copy_from_slice(magic);
    unit[8..12].copy_from_slice(&VERSION.to_le_bytes());
    unit[12..16].copy_from_slice(&small.to_le_bytes());
    unit[16..32].copy_from_slice(&id);
    unit[32..40].copy_from_slice(&large[0].to_le_bytes());
    unit[40..48].copy_from_slice(&large[1].to_le_bytes());
    let crc = vellum_codes::crc32c(&unit[8..CHECKED_BYTES]);
    unit[4..8].copy_from_slice(&crc.to_le_bytes());
    unit
}

fn opened(magic: &[u8; 4], unit: &[u8]) -> Option<(u32, [u8; 16], [u64; 2])> {
    let checked = unit.get(8..CHECKED_BYTES)?;
    let is_whole = &unit[..4] == magic && u32_at(unit, 4) == vellum_codes::crc32c(checked);
    let id = unit[16..32].try_into().ok()?;
    let large = [32, 40].map(|at| u64_at(unit, at));
    (is_whole && u32_at(unit, 8) == VERSION).then(|| (u32_at(unit, 12), id, large))
}

/// Decodes fuzzed bytes, their checksum put right; what is decoded is encoded the same.
pub(super) fn fuzzed(bytes: &[u8]) {
    let mut unit = [0; ZONE_UNIT_BYTES];
    let len = bytes.len().min(CHECKED_BYTES);
    unit[..len].copy_from_slice(&bytes[..len]);
    let crc = vellum_codes::crc32c(&unit[8..CHECKED_BYTES]);
    unit[4..8].copy_from_slice(&crc.to_le_bytes());
    if let Some(label) = Label::decode(&unit) {
        assert_eq!(Label::decode(&label.encode()), Some(label));
    }
    if let Some(head) = TableHead::decode(&unit) {
        assert_eq!(TableHead::decode(&head.encode()), Some(head));
    }
    if let Some(end) = TableEnd::decode(&unit) {
        assert_eq!(TableEnd::decode(&end.encode()), Some(end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_round_trip_and_damaged_ones_are_refused() {
        let label = Label { id: [7; 16], zones: 9, zone_bytes: 1 << 28 };
        let head = TableHead { id: [3; 16], table: 1 << 40, marks_end: true };
        let before = TableHead { marks_end: false, ..head };
        let end = TableEnd { id: [3; 16], table: 1 << 40, bytes: 1 << 27 };
        assert_eq!(Label::decode(&label.encode()), Some(label));
        [head, before].iter().for_each(|head| assert_eq!(TableHead::decode(&head.encode()), Some(*head)));
        assert_eq!(TableEnd::decode(&end.encode()), Some(end));
        assert_eq!((Label::decode(&head.encode()), TableHead::decode(&end.encode())), (None, None));
        for at in 0..CHECKED_BYTES {
            let bad = [label.encode(), head.encode(), end.encode()].map(|mut unit| {
                unit[at] ^= 4;
                unit
            });
            assert_eq!(Label::decode(&bad[0]), None, "byte {at}");
            assert_eq!(TableHead::decode(&bad[1]), None, "byte {at}");
            assert_eq!(TableEnd::decode(&bad[2]), None, "byte {at}");
        }
    }
}
