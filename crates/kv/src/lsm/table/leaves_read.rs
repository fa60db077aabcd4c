//! Leaves that the streams of a merge in parts read, so that the sum of each table can be checked when all parts are
//! done: a leaf may be valid, and yet belong to another table or another time.

use super::Table;
use crate::sum::sum_with;
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{Error, Result};

/// First bytes of leaves, which are their checksums, by the unit that they begin in.
type Leaves = BTreeMap<usize, [u8; 4]>;

/// What was read of each table.
#[derive(Clone, Default)]
pub(crate) struct LeavesRead(Arc<Mutex<BTreeMap<u64, Leaves>>>);

impl LeavesRead {
    pub(super) fn add(&self, table: u64, leaves: &mut Vec<(usize, [u8; 4])>) {
        self.0.lock().entry(table).or_default().extend(leaves.drain(..));
    }

    /// An error unless all leaves of the table were read as they were written.
    pub(crate) fn check(&self, table: &Table) -> Result<()> {
        let read = self.0.lock().remove(&table.meta.number).unwrap_or_default();
        let sum = read.values().fold(0, |sum, leaf| sum_with(sum, leaf));
        check_sum(table, sum).map_err(|e| e.context(format!("table {}", table.meta.number)))
    }
}

/// An error unless this is the sum of the table's leaves.
pub(super) fn check_sum(table: &Table, sum: u32) -> Result<()> {
    match table.meta.sum.is_none_or(|expected| expected == sum) {
        true => Ok(()),
        false => Err(Error::corrupt("a leaf is not the one that was written there")),
    }
}
