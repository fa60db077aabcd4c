//! Tables that nobody needs any more, and logs that only such tables pointed into, to be erased.

use std::collections::BTreeSet;
use vellum_base::sync::Mutex;

/// See the module.
#[derive(Default)]
pub(crate) struct Graves {
    tables: Mutex<Vec<u64>>,
    logs: Mutex<Vec<u64>>,
    /// All tables that were replaced and are not erased yet.
    retired: Mutex<BTreeSet<u64>>,
}

impl Graves {
    /// Tables to be erased, and logs to be removed.
    pub(crate) fn take(&self) -> (Vec<u64>, Vec<u64>) {
        (std::mem::take(&mut *self.tables.lock()), std::mem::take(&mut *self.logs.lock()))
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.lock().is_empty() && self.logs.lock().is_empty()
    }

    /// True if somebody reads from a table that was replaced, where all others are erased.
    pub(crate) fn is_any_held(&self) -> bool {
        !self.retired.lock().is_empty()
    }

    /// Tables that were replaced, and are not erased yet.
    pub(crate) fn retired(&self) -> Vec<u64> {
        self.retired.lock().iter().copied().collect()
    }

    /// A table was replaced.
    pub(super) fn retire(&self, table: u64) {
        self.retired.lock().insert(table);
    }
    /// The last holder let go of a table that was replaced.
    pub(super) fn bury_table(&self, table: u64) {
        self.tables.lock().push(table);
    }
    /// The same of a log.
    pub(crate) fn bury_log(&self, log: u64) {
        self.logs.lock().push(log);
    }

    /// A table is erased.
    pub(crate) fn erased(&self, number: u64) {
        self.retired.lock().remove(&number);
    }
}
