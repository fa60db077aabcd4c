//! The last unit of a table: what it holds in all, and where its root is.

use super::VERSION;
use super::lineage::Lineage;
use super::object::{self, HEAD_BYTES, Head, ObjectKind};
use crate::bytes::{Fields, u32_at};
use vellum_base::{Error, Kind, Result};

const MAGIC: &[u8; 4] = b"VKVT";
/// Of the fields whose length never changes.
const FIXED_BYTES: usize = 64;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Foot {
    pub entries: u64,
    pub deletes: u64,
    pub seq_min: u64,
    /// 0 if the table was ingested: then its entries have the number that the manifest says.
    pub seq_max: u64,
    pub root_unit: u32,
    pub root_units: u32,
    /// Bytes of keys and values.
    pub data_bytes: u64,
    /// Of an ingested table: numbers below were taken when it was begun.
    pub seq_floor: u64,
    pub lineage: Lineage,
}

impl Foot {
    /// Appends it as an object.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let start = object::begin(out);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        for number in [self.entries, self.deletes, self.seq_min, self.seq_max] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.root_unit.to_le_bytes());
        out.extend_from_slice(&self.root_units.to_le_bytes());
        out.extend_from_slice(&self.data_bytes.to_le_bytes());
        out.extend_from_slice(&self.seq_floor.to_le_bytes());
        self.lineage.write(out);
        object::end(out, start, ObjectKind::Foot, 0);
    }

    /// Checks the last unit of a table.
    pub(crate) fn read(unit: &[u8]) -> Result<Foot> {
        let head = Head::parse(unit)?;
        head.check(unit, ObjectKind::Foot)?;
        let bytes = &unit[HEAD_BYTES..head.length];
        if bytes.len() < FIXED_BYTES || &bytes[..4] != MAGIC {
            return Err(Error::corrupt("its foot is not one"));
        }
        if u32_at(bytes, 4) != VERSION {
            let what = format!("format version {}; this program knows version {VERSION}", u32_at(bytes, 4));
            return Err(Error::new(Kind::Unsupported, what));
        }
        let (mut fields, root) = (Fields::new(&bytes[8..]), 40);
        let mut next = || fields.u64().expect("64 bytes");
        let (entries, deletes, seq_min, seq_max) = (next(), next(), next(), next());
        let (_, data_bytes, seq_floor) = (next(), next(), next());
        let (root_unit, root_units) = (u32_at(bytes, root), u32_at(bytes, root + 4));
        let lineage = Lineage::read(&mut fields).filter(|_| fields.is_empty());
        let lineage = lineage.ok_or_else(|| Error::corrupt("its foot names no tables"))?;
        Ok(Foot { entries, deletes, seq_min, seq_max, root_unit, root_units, data_bytes, seq_floor, lineage })
    }
}
