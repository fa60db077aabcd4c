//! The foot, which is the last 4096 bytes of a table: totals, and the place of the root.

use super::lineage::Lineage;
use super::object::{self, Head, OBJECT_HEAD_BYTES, ObjectKind, TABLE_UNIT_BYTES, UNIT_BYTES_MIN};
use crate::bytes::{Fields, u32_at};
use crate::freewrite::UNIT_BYTES_MAX;
use crate::journal::TableMeta;
use vellum_base::{Error, Kind, Result};

const MAGIC: &[u8; 4] = b"VKVT";
/// Bytes of the foot, zero-padded.
pub(crate) const FOOT_BYTES: usize = 4096;
/// Version 1: units have 4096 bytes. 2: the foot states the unit. 3: and a sum of the leaves.
const VERSIONS: [u32; 3] = [1, 2, 3];
/// Bytes of the fields of fixed length.
const FIXED_BYTES: usize = 64;
/// No table has more bytes of keys and values, compressed or not, so those of a merge can be added up.
const DATA_BYTES_MAX: u64 = 1 << 48;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Foot {
    /// Bytes of a unit.
    pub unit_bytes: usize,
    pub entries: u64,
    pub deletes: u64,
    pub seq_min: u64,
    /// 0 if the table was ingested: its entries then have the sequence number that the manifest states.
    pub seq_max: u64,
    pub root_unit: u32,
    pub root_units: u32,
    /// Bytes of keys and values.
    pub data_bytes: u64,
    /// Of an ingested table: all lower sequence numbers were in use when it was begun.
    pub seq_floor: u64,
    /// Of its leaves ([`crate::sum`]); `None` in versions 1 and 2.
    pub sum: Option<u32>,
    pub lineage: Lineage,
}

impl Foot {
    /// Appends it as an object of the newest version.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let start = object::begin(out);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSIONS[2].to_le_bytes());
        for number in [self.entries, self.deletes, self.seq_min, self.seq_max] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.root_unit.to_le_bytes());
        out.extend_from_slice(&self.root_units.to_le_bytes());
        out.extend_from_slice(&self.data_bytes.to_le_bytes());
        out.extend_from_slice(&self.seq_floor.to_le_bytes());
        out.extend_from_slice(&(self.unit_bytes as u32).to_le_bytes());
        out.extend_from_slice(&self.sum.unwrap_or(0).to_le_bytes());
        self.lineage.write(out);
        object::end(out, start, ObjectKind::Foot, 0, FOOT_BYTES);
    }

    /// Checks the last bytes of a table.
    pub(crate) fn read(last: &[u8]) -> Result<Foot> {
        let head = Head::parse(last)?;
        head.check(last, ObjectKind::Foot)?;
        let bytes = &last[OBJECT_HEAD_BYTES..head.length];
        if bytes.len() < FIXED_BYTES || &bytes[..4] != MAGIC {
            return Err(Error::corrupt("its foot is not one"));
        }
        let version = u32_at(bytes, 4);
        if !VERSIONS.contains(&version) {
            let what = format!("format version {version}; this program knows versions {VERSIONS:?}");
            return Err(Error::new(Kind::Unsupported, what));
        }
        let (mut fields, root) = (Fields::new(&bytes[8..]), 40);
        let mut next = || fields.u64().expect("64 bytes");
        let (entries, deletes, seq_min, seq_max) = (next(), next(), next(), next());
        let (_, data_bytes, seq_floor) = (next(), next(), next());
        if data_bytes > DATA_BYTES_MAX {
            return Err(Error::corrupt("its foot tells of more bytes than any table has"));
        }
        let (root_unit, root_units) = (u32_at(bytes, root), u32_at(bytes, root + 4));
        let unit_bytes = if version == VERSIONS[0] { Some(TABLE_UNIT_BYTES) } else { unit_of(&mut fields) };
        let unit_bytes = unit_bytes.ok_or_else(|| Error::corrupt("its units are of impossible length"))?;
        let lacks_sum = || Error::corrupt("its foot has no sum");
        let sum = match version == VERSIONS[2] {
            true => Some(fields.u32().ok_or_else(lacks_sum)?),
            false => None,
        };
        let lineage = Lineage::read(&mut fields).filter(|_| fields.is_empty());
        let lineage = lineage.ok_or_else(|| Error::corrupt("its foot names no tables"))?;
        Ok(Foot {
            unit_bytes,
            entries,
            deletes,
            seq_min,
            seq_max,
            root_unit,
            root_units,
            data_bytes,
            seq_floor,
            sum,
            lineage,
        })
    }

    /// True if the manifest states another sum: this is not the table that it names.
    pub(crate) fn is_another(&self, listed: &TableMeta) -> bool {
        listed.sum.is_some() && listed.sum != self.sum
    }

    /// The unit at which the foot begins, after the root.
    pub(crate) fn unit(&self) -> u64 {
        self.root_unit as u64 + self.root_units as u64
    }
}

fn unit_of(fields: &mut Fields<'_>) -> Option<usize> {
    let bytes = u32_at(fields.take(4)?, 0) as usize;
    (bytes.is_power_of_two() && (UNIT_BYTES_MIN..=UNIT_BYTES_MAX as usize).contains(&bytes)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foot_that_tells_of_too_many_bytes_is_damaged() {
        let read = |data_bytes| {
            let foot = Foot {
                unit_bytes: TABLE_UNIT_BYTES,
                entries: 1,
                deletes: 0,
                seq_min: 1,
                seq_max: 1,
                root_unit: 1,
                root_units: 1,
                data_bytes,
                seq_floor: 0,
                sum: Some(7),
                lineage: Lineage::default(),
            };
            let mut bytes = Vec::new();
            foot.write(&mut bytes);
            Foot::read(&bytes).map(|read| read == foot)
        };
        assert!(read(DATA_BYTES_MAX).unwrap());
        assert_eq!(read(u64::MAX / 2).unwrap_err().kind(), Kind::Corrupt);
    }
}
