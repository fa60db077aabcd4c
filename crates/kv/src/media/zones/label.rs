//! The first unit of a zone: the store's label in zone 0, a table's head in any other. See docs/formats/kv-zones.md.

use crate::bytes::u32_at;
use vellum_base::ZonesShape;

/// Bytes of a label or head, with what pads it.
pub(super) const UNIT_BYTES: usize = 4096;
const CHECKED_BYTES: usize = 48;
const VERSION: u32 = 1;

/// Which store, and how it cuts its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label {
    pub id: [u8; 16],
    pub zones: u32,
    pub zone_bytes: u64,
}

/// Whose a zone is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableHead {
    pub id: [u8; 16],
    pub table: u64,
}

impl Label {
    pub(super) fn new(id: [u8; 16], shape: &ZonesShape) -> Label {
        Label { id, zones: shape.zones, zone_bytes: shape.zone_bytes }
    }

    pub(super) fn encode(&self) -> [u8; UNIT_BYTES] {
        sealed(b"VKZL", self.zones, self.id, self.zone_bytes)
    }

    /// The label in `unit`, if there is one.
    pub(super) fn decode(unit: &[u8]) -> Option<Label> {
        let (zones, id, zone_bytes) = opened(b"VKZL", unit)?;
        Some(Label { id, zones, zone_bytes })
    }
}

impl TableHead {
    pub(super) fn encode(&self) -> [u8; UNIT_BYTES] {
        sealed(b"VKZT", 0, self.id, self.table)
    }

    /// The head in `unit`, if there is one.
    pub(super) fn decode(unit: &[u8]) -> Option<TableHead> {
        let (_, id, table) = opened(b"VKZT", unit)?;
        Some(TableHead { id, table })
    }
}

fn sealed(magic: &[u8; 4], small: u32, id: [u8; 16], large: u64) -> [u8; UNIT_BYTES] {
    let mut unit = [0; UNIT_BYTES];
    unit[..4].copy_from_slice(magic);
    unit[8..12].copy_from_slice(&VERSION.to_le_bytes());
    unit[12..16].copy_from_slice(&small.to_le_bytes());
    unit[16..32].copy_from_slice(&id);
    unit[32..40].copy_from_slice(&large.to_le_bytes());
    let crc = vellum_codes::crc32c(&unit[8..CHECKED_BYTES]);
    unit[4..8].copy_from_slice(&crc.to_le_bytes());
    unit
}

fn opened(magic: &[u8; 4], unit: &[u8]) -> Option<(u32, [u8; 16], u64)> {
    let checked = unit.get(8..CHECKED_BYTES)?;
    let is_whole = &unit[..4] == magic && u32_at(unit, 4) == vellum_codes::crc32c(checked);
    let id = unit[16..32].try_into().ok()?;
    let large = u64::from_le_bytes(unit[32..40].try_into().ok()?);
    (is_whole && u32_at(unit, 8) == VERSION).then(|| (u32_at(unit, 12), id, large))
}

/// Decodes fuzzed bytes, their checksum put right; what is decoded is encoded the same.
pub(super) fn fuzzed(bytes: &[u8]) {
    let mut unit = [0; UNIT_BYTES];
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_round_trip_and_damaged_ones_are_refused() {
        let label = Label { id: [7; 16], zones: 9, zone_bytes: 1 << 28 };
        let head = TableHead { id: [3; 16], table: 1 << 40 };
        assert_eq!(Label::decode(&label.encode()), Some(label));
        assert_eq!(TableHead::decode(&head.encode()), Some(head));
        assert_eq!(Label::decode(&head.encode()), None);
        for at in 0..CHECKED_BYTES {
            let (mut bad_label, mut bad_head) = (label.encode(), head.encode());
            bad_label[at] ^= 4;
            bad_head[at] ^= 4;
            assert_eq!((Label::decode(&bad_label), TableHead::decode(&bad_head)), (None, None), "byte {at}");
        }
    }
}
