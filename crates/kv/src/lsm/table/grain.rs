//! The grain of a table: its unit, and the size of its leaves.

use super::object::TABLE_UNIT_BYTES;

/// Most bytes of a leaf of small entries.
const LEAF_BYTES_MAX: usize = 16 << 10;
/// Size of leaves that may stay in place when their neighbours are merged. Smaller leaves stay more often, but lists
/// get longer. This is enough for one record of 1 KiB, two of 512 bytes, or four of 256.
const SHARED_LEAF_BYTES: usize = 1152;

/// Unit and leaf sizes of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grain {
    /// Objects begin at multiples of it.
    pub unit_bytes: usize,
    /// Nominal size of a leaf: it is closed when the next entry would exceed it, with the exception below.
    pub leaf_bytes: usize,
    /// If closing would waste much, a leaf of small entries may grow to this size.
    pub leaf_bytes_max: usize,
    /// Leaves that are not compressed begin and end where runs of sequence numbers do (runs.rs).
    pub by_runs: bool,
}

impl Grain {
    /// For leaves that are rewritten with every merge.
    pub(crate) const fn of(unit_bytes: usize) -> Grain {
        // A leaf takes whole units.
        let leaf_bytes = if unit_bytes > TABLE_UNIT_BYTES { unit_bytes } else { TABLE_UNIT_BYTES };
        let leaf_bytes_max = if leaf_bytes > LEAF_BYTES_MAX { leaf_bytes } else { LEAF_BYTES_MAX };
        Grain { unit_bytes, leaf_bytes, leaf_bytes_max, by_runs: false }
    }

    /// The same with leaves that never grow, however much is wasted, so that more of them stay unchanged.
    pub(crate) fn narrow(self) -> Grain {
        Grain { leaf_bytes_max: self.leaf_bytes, ..self }
    }

    /// For leaves that may stay in place, if units are small enough for that.
    pub(crate) const fn sharing(unit_bytes: usize) -> Grain {
        match unit_bytes < SHARED_LEAF_BYTES {
            true => Grain { leaf_bytes: SHARED_LEAF_BYTES, by_runs: true, ..Grain::of(unit_bytes) },
            false => Grain::of(unit_bytes),
        }
    }
}

impl Default for Grain {
    fn default() -> Grain {
        Grain::of(TABLE_UNIT_BYTES)
    }
}
