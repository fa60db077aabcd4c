//! The array below a cache, as who brings the cache back must know it: one that is assembled, or one that nobody has
//! open, as its assembly will find it. So what is foreseen of an opening and what it finds come from the same code.

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
    /// Which cache has what the array has; 0: none.
    pub bond: u64,
    /// By role. Who is not there is missing.
    pub members: Vec<State>,
    pub stale: &'a Bitmap,
    /// Of the stale rows, those whose parity is not what any cache thinks.
    pub doubted: &'a BTreeSet<u64>,
}

impl Below<'_> {
    /// The row of a sector.
    pub fn row_of(&self, lba: Lba) -> u64 {
        lba.0 / self.shape.row_sectors()
    }

    /// Whether any member does not have all its data.
    pub fn lacks_member(&self) -> bool {
        self.members.iter().any(|state| *state != State::Active)
    }

    /// Whether any member has parity of the row.
    pub fn has_parity(&self, row: u64) -> bool {
        self.shape.parity_members(row).any(|role| self.members[role].has_row(row))
    }
}
