//! Which tables a table replaces. Repairs rely on it if the manifest is lost, or lost its end. See
//! docs/formats/kv-table.md.

use crate::bytes::{Fields, put_varint};

/// Most numbers of each kind that are stored, so that they fit the foot. Others are left out.
const LINEAGE_NUMBERS_MAX: usize = 128;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lineage {
    /// Tables merged into this one and others of the same job. They stay valid until a manifest that does not name them
    /// is durable; only then is the first of them erased.
    pub merged: Vec<u64>,
    /// Tables that were replaced before this one was begun, but may still be on the medium.
    pub gone: Vec<u64>,
}

impl Lineage {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        for numbers in [&self.merged, &self.gone] {
            let numbers = &numbers[..numbers.len().min(LINEAGE_NUMBERS_MAX)];
            put_varint(out, numbers.len() as u64);
            numbers.iter().for_each(|number| put_varint(out, *number));
        }
    }

    pub(super) fn read(fields: &mut Fields<'_>) -> Option<Lineage> {
        Some(Lineage { merged: numbers(fields)?, gone: numbers(fields)? })
    }
}

fn numbers(fields: &mut Fields<'_>) -> Option<Vec<u64>> {
    let count = fields.varint().filter(|count| *count <= LINEAGE_NUMBERS_MAX as u64)?;
    (0..count).map(|_| fields.varint()).collect()
}
