//! Pointers of the index: the slot of a segment, and an offset in it.

use super::index::{POINTER_BITS, Pointer};

/// Most bytes of a segment's data: a pointer has no more bits.
pub(crate) const DATA_BYTES_MAX: u64 = 8 << POINTER_BITS;

/// How a pointer is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PointerFormat {
    offset_bits: u32,
}

impl PointerFormat {
    /// For segments whose data have at most `data_bytes`, which is at most [`DATA_BYTES_MAX`].
    pub(crate) fn new(data_bytes: u64) -> PointerFormat {
        PointerFormat { offset_bits: (data_bytes / 8).saturating_sub(1).max(1).ilog2() + 1 }
    }
    /// How many segments there can be.
    pub(crate) fn slots(self) -> usize {
        1 << (POINTER_BITS - self.offset_bits)
    }
    pub(crate) fn pointer(self, slot: usize, offset: u64) -> Pointer {
        debug_assert!(
            offset / 8 < 1 << self.offset_bits,
            "a segment is longer than any was when it was opened"
        );
        ((slot as u64) << self.offset_bits) | (offset / 8)
    }
    pub(crate) fn slot(self, pointer: Pointer) -> usize {
        (pointer >> self.offset_bits) as usize
    }
    pub(crate) fn offset(self, pointer: Pointer) -> u64 {
        (pointer & ((1 << self.offset_bits) - 1)) * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_divided() {
        for data_bytes in [4096, 64 << 20, (64 << 20) - 8, 1 << 30] {
            let format = PointerFormat::new(data_bytes);
            for (slot, offset) in [(0, 0), (format.slots() - 1, data_bytes - 8), (7, 16)] {
                let pointer = format.pointer(slot, offset);
                assert!(pointer < 1 << POINTER_BITS);
                assert_eq!((format.slot(pointer), format.offset(pointer)), (slot, offset));
            }
        }
        assert_eq!(PointerFormat::new(64 << 20).slots() as u64 * (64 << 20), 512 << 30);
        assert_eq!((PointerFormat::new(0).slots(), PointerFormat::new(DATA_BYTES_MAX).slots()), (1 << 35, 1));
    }
}
