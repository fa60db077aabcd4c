//! Checksums of slots that were read lately: who shares one of them need not read it for its checksum.
//!
//! 1. A slot holds the same bytes until its block is erased, so a checksum counts as long as the block has been erased
//!    as often as when the slot was read.
//! 2. Nothing depends on it: what is not known here is read.

use vellum_base::SlotAddr;

/// Slots that are remembered: 64 MiB of data.
const SLOTS: usize = 16 << 10;

/// See the module. Each slot has one place, where it takes that of another.
pub(crate) struct Checked {
    slots: Vec<Option<Known>>,
}

#[derive(Clone, Copy)]
struct Known {
    slot: SlotAddr,
    erase_count: u32,
    crc: u32,
}

impl Default for Checked {
    fn default() -> Checked {
        Checked { slots: vec![None; SLOTS] }
    }
}

impl Checked {
    /// The slot, in a block that has been erased so often, was read and has this checksum.
    #[inline]
    pub fn note(&mut self, slot: SlotAddr, erase_count: u32, crc: u32) {
        self.slots[slot.0 as usize % SLOTS] = Some(Known { slot, erase_count, crc });
    }

    /// Its checksum, if it is known.
    #[inline]
    pub fn crc(&self, slot: SlotAddr, erase_count: u32) -> Option<u32> {
        let known = self.slots[slot.0 as usize % SLOTS]?;
        (known.slot == slot && known.erase_count == erase_count).then_some(known.crc)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_counts_for_its_slot_until_that_is_erased_or_another_takes_its_place() {
        let mut checked = Checked::default();
        let (slot, other) = (SlotAddr(7), SlotAddr(7 + SLOTS as u32));
        assert_eq!(checked.crc(slot, 3), None);
        checked.note(slot, 3, 99);
        assert_eq!(checked.crc(slot, 3), Some(99));
        assert_eq!(checked.crc(slot, 4), None, "it was erased");
        assert_eq!(checked.crc(other, 3), None);
        checked.note(other, 3, 98);
        assert_eq!(checked.crc(slot, 3), None);
    }
}
