//! Out-of-band entry of a slot: its owner and its sequence number.

use super::SEQ_END;
use super::bytes::{get_u32, get_u64, put};
use vellum_base::{Cause, SlotAddr};

/// Bytes of out-of-band data for each slot of a page.
pub(crate) const OOB_ENTRY_BYTES: usize = 24;

/// Kinds of slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum SlotKind {
    Data = 1,
    Log = 2,
    MapNode = 3,
    LogNode = 4,
    Directory = 5,
    Root = 6,
    Padding = 7,
}

impl SlotKind {
    fn from_byte(b: u8) -> Option<SlotKind> {
        use SlotKind::*;
        [Data, Log, MapNode, LogNode, Directory, Root, Padding].into_iter().find(|k| *k as u8 == b)
    }
}

/// See docs/formats/disk.md.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Oob {
    pub seq: u64,
    pub id: u32,
    pub data_crc: u32,
    pub kind: SlotKind,
    pub cause: Cause,
}

impl Oob {
    /// Encodes the entry of slot `at` at the start of `out`.
    pub(crate) fn encode(&self, at: SlotAddr, out: &mut [u8]) {
        let out = &mut out[..OOB_ENTRY_BYTES];
        put(out, 0, &self.seq.to_le_bytes());
        put(out, 8, &self.id.to_le_bytes());
        put(out, 12, &self.data_crc.to_le_bytes());
        put(out, 16, &[self.kind as u8, self.cause as u8, 0, 0]);
        let crc = checksum(out, at);
        put(out, 20, &crc.to_le_bytes());
    }

    /// The scrambler seed of this slot: the sector's address; for other kinds of slots, a value that no sector has.
    pub(crate) fn seed(&self) -> u64 {
        match self.kind {
            SlotKind::Data => self.id.into(),
            kind => u64::from(kind as u8) << 32 | u64::from(self.id),
        }
    }

    /// Decodes the entry of slot `at` at the start of `bytes`; `None` if it is torn or was meant for another slot.
    pub(crate) fn decode(bytes: &[u8], at: SlotAddr) -> Option<Oob> {
        if bytes.len() < OOB_ENTRY_BYTES || checksum(bytes, at) != get_u32(bytes, 20) {
            return None;
        }
        Some(Oob {
            seq: Some(get_u64(bytes, 0)).filter(|seq| *seq < SEQ_END)?,
            id: get_u32(bytes, 8),
            data_crc: get_u32(bytes, 12),
            kind: SlotKind::from_byte(bytes[16])?,
            cause: *Cause::ALL.get(bytes[17] as usize)?,
        })
    }
}

/// The checksum covers the entry's address, so that a misdirected program is detected.
fn checksum(entry: &[u8], at: SlotAddr) -> u32 {
    let mut covered = [0; 24];
    covered[..20].copy_from_slice(&entry[..20]);
    covered[20..].copy_from_slice(&at.0.to_le_bytes());
    vellum_codes::crc32c(&covered)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: SlotAddr = SlotAddr(77);

    #[test]
    fn entries_round_trip_and_torn_ones_are_refused() {
        let oob = Oob { seq: 1 << 40, id: 7, data_crc: 9, kind: SlotKind::Log, cause: Cause::MapLog };
        let mut bytes = [0; OOB_ENTRY_BYTES];
        oob.encode(AT, &mut bytes);
        assert_eq!(Oob::decode(&bytes, AT), Some(oob));
        assert_eq!(Oob::decode(&bytes, SlotAddr(78)), None, "meant for another slot");
        for at in 0..OOB_ENTRY_BYTES {
            let mut torn = bytes;
            torn[at] ^= 0x10;
            assert_eq!(Oob::decode(&torn, AT), None, "byte {at}");
        }
        assert_eq!(Oob::decode(&[0xFF; 24], AT), None);
        assert_eq!(Oob::decode(&[0; 24], AT), None, "a hole is not an entry");
    }
}
