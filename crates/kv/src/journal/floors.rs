//! How far a store is, as far as its manifest has told: which logs count, and which numbers are taken.

use super::Edit;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Floors {
    /// Logs below this number are in tables.
    pub log_floor: u64,
    /// Sequence numbers up to this one are taken.
    pub last_seq: u64,
    /// The log that was open when the store was last closed, and its length then.
    pub closed: Option<(u64, u64)>,
}

impl Floors {
    /// As they are after `edit`.
    pub(crate) fn after(self, edit: &Edit) -> Floors {
        Floors {
            log_floor: edit.log_floor.unwrap_or(self.log_floor),
            // A flush after an ingest may be of a memtable from before it.
            last_seq: edit.last_seq.unwrap_or(0).max(self.last_seq),
            closed: edit.closed.or(self.closed),
        }
    }

    /// `edit`, with these recorded in it.
    pub(crate) fn recorded_in(self, edit: Edit) -> Edit {
        let (log_floor, last_seq) = (Some(self.log_floor), Some(self.last_seq));
        Edit { log_floor, last_seq, closed: self.closed, ..edit }
    }
}
