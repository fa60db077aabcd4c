//! The place of a sector's bytes: hole, zero, a slot, or packed in a log slot.

use vellum_base::SlotAddr;

/// Maximum number of packed entries of a log slot.
pub(crate) const PACKED_ENTRIES_MAX: usize = 64;
/// Log numbers are below this.
pub(crate) const LOG_NUMBERS_MAX: u32 = (1 << 25) - 1;

const PACKED: u32 = 1 << 31;

/// A place as stored, 4 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Place(pub u32);

/// A decoded place, for matching.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum At {
    Hole,
    Zero,
    Slot(SlotAddr),
    Packed { log: u32, entry: u32 },
}

impl Place {
    pub(crate) const HOLE: Place = Place(0xFFFF_FFFF);
    pub(crate) const ZERO: Place = Place(0xFFFF_FFFE);

    pub(crate) fn slot(slot: SlotAddr) -> Place {
        debug_assert!(slot.0 < PACKED);
        Place(slot.0)
    }

    pub(crate) fn packed(log: u32, entry: usize) -> Place {
        debug_assert!(log < LOG_NUMBERS_MAX && entry < PACKED_ENTRIES_MAX);
        Place(PACKED | log << 6 | entry as u32)
    }

    #[inline]
    pub(crate) fn at(self) -> At {
        match self {
            Place::HOLE => At::Hole,
            Place::ZERO => At::Zero,
            Place(p) if p & PACKED == 0 => At::Slot(SlotAddr(p)),
            Place(p) => At::Packed { log: (p & !PACKED) >> 6, entry: p & 63 },
        }
    }

    /// True for places that hold bytes, and so have owners.
    #[inline]
    pub(crate) fn holds_bytes(self) -> bool {
        self.0 < Place::ZERO.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_round_trip() {
        assert_eq!(Place::packed(77, 63).at(), At::Packed { log: 77, entry: 63 });
        assert_eq!(
            Place::packed(LOG_NUMBERS_MAX - 1, 63).at(),
            At::Packed { log: LOG_NUMBERS_MAX - 1, entry: 63 }
        );
        assert_eq!(Place::slot(SlotAddr(5)).at(), At::Slot(SlotAddr(5)));
        assert!(
            !Place::ZERO.holds_bytes() && !Place::HOLE.holds_bytes() && Place::packed(1, 0).holds_bytes()
        );
    }
}
