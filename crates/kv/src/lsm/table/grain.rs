//! How finely a table is made: its units, and how long leaves are.

use super::object::UNIT_BYTES;

/// Most bytes of a leaf of small entries.
const LEAF_BYTES_MAX: usize = 16 << 10;
/// Of leaves that may stay where they are when what lies around them is merged. The smaller, the more of them stay, and
/// the more there is to list: this is a record of 1 KiB, two of half as much, four of a quarter.
const SHARED_LEAF_BYTES: usize = 1152;

/// How finely a table is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grain {
    /// Objects begin at multiples of it.
    pub unit_bytes: usize,
    /// A leaf is closed when the next entry would make it larger, as a rule.
    pub leaf_bytes: usize,
    /// Unless it wasted much then: a leaf of small entries takes up to so many.
    pub leaf_bytes_max: usize,
    /// Leaves that are not compressed begin and end where runs of sequence numbers do (runs.rs).
    pub by_runs: bool,
}

impl Grain {
    /// For leaves that are written anew with every merge.
    pub(crate) const fn of(unit_bytes: usize) -> Grain {
        // A leaf takes whole units.
        let leaf_bytes = if unit_bytes > UNIT_BYTES { unit_bytes } else { UNIT_BYTES };
        let leaf_bytes_max = if leaf_bytes > LEAF_BYTES_MAX { leaf_bytes } else { LEAF_BYTES_MAX };
        Grain { unit_bytes, leaf_bytes, leaf_bytes_max, by_runs: false }
    }

    /// The same with leaves that take no more units, however much they waste: more of them stay as they are.
    pub(crate) fn narrow(self) -> Grain {
        Grain { leaf_bytes_max: self.leaf_bytes, ..self }
    }

    /// For leaves that may stay where they are, where units are small enough for that.
    pub(crate) const fn sharing(unit_bytes: usize) -> Grain {
        match unit_bytes < SHARED_LEAF_BYTES {
            true => Grain { leaf_bytes: SHARED_LEAF_BYTES, by_runs: true, ..Grain::of(unit_bytes) },
            false => Grain::of(unit_bytes),
        }
    }
}

impl Default for Grain {
    fn default() -> Grain {
        Grain::of(UNIT_BYTES)
    }
}
