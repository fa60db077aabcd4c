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
    /// Bytes that count as a table; a shorter one does, too.
    pub table_bytes: u64,
}

impl Room {
    /// For how many tables these count.
    pub(crate) fn taken_by<'a>(&self, tables: impl IntoIterator<Item = &'a Arc<Table>>) -> u64 {
        // A table that shares superblocks with others takes more than one when it is written anew.
        let count = |table: &Arc<Table>| table.meta.merged_bytes().div_ceil(self.table_bytes);
        tables.into_iter().map(count).sum()
    }
}

/// Tables that merging `inputs` may create: about as many, but not all of them full.
pub(crate) fn tables_of_merge(inputs: u64) -> u64 {
    inputs + inputs / 4 + 1
}
