//! How much a medium has room for, in tables.

use crate::lsm::table::Table;
use std::sync::Arc;

/// Tables that flushes may need at any time.
pub(crate) const FLUSH_TABLES: u64 = 2;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Tables that can be created.
    pub tables: u64,
    /// Bytes that count as a table.
    pub table_bytes: u64,
    /// A shorter one does, too.
    pub whole_tables: bool,
}

impl Room {
    /// For how many tables these count.
    pub(crate) fn taken_by<'a>(&self, tables: impl IntoIterator<Item = &'a Arc<Table>>) -> u64 {
        // A table that shares superblocks with others takes more than one when it is written anew.
        let bytes = tables.into_iter().map(|table| table.meta.merged_bytes());
        match self.whole_tables {
            true => bytes.map(|bytes| bytes.div_ceil(self.table_bytes)).sum(),
            false => bytes.sum::<u64>().div_ceil(self.table_bytes),
        }
    }
}

/// Tables that merging `inputs` may create: about as many, but not all of them full.
pub(crate) fn tables_of_merge(inputs: u64) -> u64 {
    inputs + inputs / 4 + 1
}
