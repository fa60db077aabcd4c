//! On-flash structures, as in docs/formats/disk.md. Codecs only: no I/O, no state, and the bytes are not trusted.

pub(crate) mod bytes;
pub(crate) mod log_slot;
pub(crate) mod nvram;
pub(crate) mod oob;
pub(crate) mod place;
pub(crate) mod root;

/// Places in a map node, slots in a log node, nodes in a directory: one 4 KiB slot of u32.
pub(crate) const FANOUT: usize = 1024;
/// "None" in nodes and directories.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// Event numbers are below this: no disk can write that much, and sums cannot overflow.
pub(crate) const SEQ_END: u64 = 1 << 62;

/// Decodes a node slot into `out`.
pub(crate) fn decode_node(slot: &[u8], out: &mut [u32]) {
    for (to, from) in out.iter_mut().zip(slot.chunks_exact(4)) {
        *to = u32::from_le_bytes([from[0], from[1], from[2], from[3]]);
    }
}

/// Encodes a node slot; entries beyond `values` are "none".
pub(crate) fn encode_node(values: impl Iterator<Item = u32>, slot: &mut [u8]) {
    slot.fill(0xFF);
    for (to, value) in slot.chunks_exact_mut(4).zip(values) {
        to.copy_from_slice(&value.to_le_bytes());
    }
}
