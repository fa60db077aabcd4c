//! Tables that nobody needs any more, and logs that only such tables pointed into, to be erased: by one task at a time,
//! so that whoever finds no room waits for what another is about to win back.

use std::collections::BTreeSet;
use vellum_base::Result;
use vellum_base::sync::Mutex;

/// See the module.
#[derive(Default)]
pub(crate) struct Graves {
    tables: Mutex<Vec<u64>>,
    logs: Mutex<Vec<u64>>,
    /// Who has it erases.
    digging: Mutex<()>,
    /// All tables that were replaced and are not erased yet.
    retired: Mutex<BTreeSet<u64>>,
}

impl Graves {
    /// Hands out the tables to be erased, and the logs to be removed, once nobody else is at it. What is left in either
    /// when it returns stays here.
    pub(crate) fn dig(&self, erase: impl FnOnce(&mut Vec<u64>, &mut Vec<u64>) -> Result<()>) -> Result<()> {
        let _digging = self.digging.lock();
        let mut tables = std::mem::take(&mut *self.tables.lock());
        let mut logs = std::mem::take(&mut *self.logs.lock());
        let result = erase(&mut tables, &mut logs);
        self.tables.lock().append(&mut tables);
        self.logs.lock().append(&mut logs);
        result
    }
    /// True if nothing is to be erased, nor being erased.
    pub(crate) fn is_empty(&self) -> bool {
        self.digging.try_lock().is_some() && self.tables.lock().is_empty() && self.logs.lock().is_empty()
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

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_base::{Error, Kind};

    #[test]
    fn what_is_being_erased_is_room_to_wait_for() {
        let graves = Graves::default();
        graves.bury_table(7);
        let failed = graves.dig(|_, _| Err(Error::new(Kind::Io, "no")));
        assert!(failed.is_err() && !graves.is_empty(), "it is there still");
        let erase = |tables: &mut Vec<u64>, logs: &mut Vec<u64>| {
            assert!(tables.pop() == Some(7) && logs.is_empty());
            assert!(!graves.is_empty(), "it is not erased yet");
            Ok(())
        };
        graves.dig(erase).unwrap();
        assert!(graves.is_empty());
    }
}
