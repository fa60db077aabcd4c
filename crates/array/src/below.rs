//! The array below a cache, as needed to bring the cache back: either an assembled array, or a survey of one that is
//! not open, as its assembly will find it. So an opening and its forecast share their code.

use crate::bitmap::Bitmap;
use crate::layout::Shape;
use crate::superblock::{Id, LogPlace, State};
use std::collections::BTreeSet;
use vellum_base::Lba;

/// See the module.
pub(crate) struct Below<'a> {
    pub array: Id,
    pub shape: Shape,
    pub log: LogPlace,
    /// The cache that is in step with the array; 0: none.
    pub bond: u64,
    /// By role; absent members are `Missing`.
    pub members: Vec<State>,
    pub stale: &'a Bitmap,
    /// The stale rows whose parity is in doubt: it is not what a cache assumes.
    pub doubted: &'a BTreeSet<u64>,
}

impl Below<'_> {
    /// The row of a sector.
    pub fn row_of(&self, lba: Lba) -> u64 {
        lba.0 / self.shape.row_sectors()
    }

    /// True if a member does not have all its data.
    pub fn lacks_member(&self) -> bool {
        self.members.iter().any(|state| *state != State::Active)
    }

    /// True if at least one member has parity of the row.
    pub fn has_parity(&self, row: u64) -> bool {
        self.shape.parity_members(row).any(|role| self.members[role].has_row(row))
    }
}
