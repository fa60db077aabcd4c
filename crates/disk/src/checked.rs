//! Checksums of recently read slots, so that sharing such a slot does not require reading it for its checksum.
//!
//! 1. A slot holds the same bytes until its block is erased, so a checksum is valid while the block's erase count is
//!    the same as when the slot was read.
//! 2. This is only a cache: slots that are not in it are read.

use vellum_base::SlotAddr;

/// Number of slots remembered: 64 MiB of data.
const SLOTS: usize = 16 << 10;

/// The cache; see the module. It is direct-mapped.
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
    /// Remembers the checksum of a slot that was read, and the erase count of its block.
    #[inline]
    pub fn note(&mut self, slot: SlotAddr, erase_count: u32, crc: u32) {
        self.slots[slot.0 as usize % SLOTS] = Some(Known { slot, erase_count, crc });
    }

    /// The slot's checksum, if it is known.
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
