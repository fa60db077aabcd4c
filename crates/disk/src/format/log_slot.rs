//! Log slot: map changes not recorded by programs themselves, and packed sectors.

use super::SEQ_END;
use super::bytes::{get_u16, get_u32, get_u64, put};
use super::place::{PACKED_ENTRIES_MAX, Place};
use vellum_base::SECTOR_BYTES;

const MAGIC: &[u8; 4] = b"VLOG";
const HEADER_BYTES: usize = 24;
const MAP_BYTES: usize = 17;
const RUN_BYTES: usize = 17;
const SMALL_BYTES: usize = 11;

/// Maximum size of a packed sector in a log slot: beyond it, packing saves too little.
pub(crate) const SMALL_MAX: usize = 8 + 12 * 64;

/// A decoded record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Record {
    /// The sector is now at the place, if the contents there match the check.
    Map { sector: u32, place: Place, check: u32 },
    /// `count` sectors from `first` are holes or zeros.
    Run { first: u32, place: Place, count: u32 },
    /// The sector is packed in this log slot at `offset`, `length` bytes.
    Small { sector: u32, offset: u16, length: u16 },
}

/// A log slot being filled.
pub(crate) struct LogWriter {
    bytes: Vec<u8>,
    log: u32,
    base_seq: u64,
    records: u16,
    small: usize,
}

impl LogWriter {
    pub(crate) fn new(log: u32, base_seq: u64) -> LogWriter {
        let mut bytes = Vec::with_capacity(SECTOR_BYTES);
        bytes.resize(HEADER_BYTES, 0);
        LogWriter { bytes, log, base_seq, records: 0, small: 0 }
    }

    /// Resumes a log slot that was read back; `None` if it is invalid.
    pub(crate) fn resume(slot: &[u8]) -> Option<LogWriter> {
        let log = LogSlot::decode(slot)?;
        let small = log.records().filter(|(_, r)| matches!(r, Record::Small { .. })).count();
        let bytes = slot[..log.length].to_vec();
        Some(LogWriter { bytes, log: log.log, base_seq: log.base_seq, records: log.record_count, small })
    }

    pub(crate) fn log(&self) -> u32 {
        self.log
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The bytes of a small record at `offset` in this slot.
    pub(crate) fn slice(&self, offset: u16, length: u16) -> &[u8] {
        &self.bytes[offset as usize..offset as usize + length as usize]
    }

    pub(crate) fn has_room_for_map(&self) -> bool {
        self.has_room(RUN_BYTES)
    }
    pub(crate) fn has_room_for_small(&self, length: usize) -> bool {
        self.has_room(SMALL_BYTES + length) && self.small < PACKED_ENTRIES_MAX
    }
    fn has_room(&self, bytes: usize) -> bool {
        self.bytes.len() + bytes <= SECTOR_BYTES
    }

    pub(crate) fn push_map(&mut self, seq: u64, sector: u32, place: Place, check: u32) {
        self.begin(1, seq, sector);
        self.bytes.extend_from_slice(&place.0.to_le_bytes());
        self.bytes.extend_from_slice(&check.to_le_bytes());
    }

    pub(crate) fn push_run(&mut self, seq: u64, first: u32, place: Place, count: u32) {
        self.begin(2, seq, first);
        self.bytes.extend_from_slice(&place.0.to_le_bytes());
        self.bytes.extend_from_slice(&count.to_le_bytes());
    }

    /// Adds a packed sector; returns its entry number, and the offset and length of its bytes.
    pub(crate) fn push_small(&mut self, seq: u64, sector: u32, packed: &[u8]) -> (usize, u16, u16) {
        debug_assert!(self.has_room_for_small(packed.len()));
        self.begin(3, seq, sector);
        self.bytes.extend_from_slice(&(packed.len() as u16).to_le_bytes());
        let offset = self.bytes.len() as u16;
        self.bytes.extend_from_slice(packed);
        self.small += 1;
        (self.small - 1, offset, packed.len() as u16)
    }

    fn begin(&mut self, kind: u8, seq: u64, id: u32) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(&((seq - self.base_seq) as u32).to_le_bytes());
        self.bytes.extend_from_slice(&id.to_le_bytes());
        self.records += 1;
    }

    /// True if `seq` can still be expressed relative to this slot's base.
    pub(crate) fn reaches(&self, seq: u64) -> bool {
        seq - self.base_seq <= u64::from(u32::MAX)
    }

    /// Fills in the header and returns the used part.
    pub(crate) fn seal(&mut self) -> &[u8] {
        let length = self.bytes.len();
        put(&mut self.bytes, 0, MAGIC);
        put(&mut self.bytes, 8, &self.log.to_le_bytes());
        put(&mut self.bytes, 12, &(length as u16).to_le_bytes());
        put(&mut self.bytes, 14, &self.records.to_le_bytes());
        put(&mut self.bytes, 16, &self.base_seq.to_le_bytes());
        let crc = vellum_codes::crc32c(&self.bytes[8..]);
        put(&mut self.bytes, 4, &crc.to_le_bytes());
        &self.bytes
    }
}

/// A valid log slot.
pub(crate) struct LogSlot<'a> {
    bytes: &'a [u8],
    pub(crate) length: usize,
    pub(crate) log: u32,
    pub(crate) base_seq: u64,
    record_count: u16,
}

impl<'a> LogSlot<'a> {
    pub(crate) fn decode(slot: &'a [u8]) -> Option<LogSlot<'a>> {
        if slot.len() < HEADER_BYTES || &slot[..4] != MAGIC {
            return None;
        }
        let length = get_u16(slot, 12) as usize;
        if !(HEADER_BYTES..=slot.len()).contains(&length)
            || vellum_codes::crc32c(&slot[8..length]) != get_u32(slot, 4)
            || get_u64(slot, 16) >= SEQ_END
        {
            return None;
        }
        Some(LogSlot {
            bytes: &slot[..length],
            length,
            log: get_u32(slot, 8),
            base_seq: get_u64(slot, 16),
            record_count: get_u16(slot, 14),
        })
    }

    /// The records with their sequence numbers; stops at the first invalid one.
    pub(crate) fn records(&self) -> impl Iterator<Item = (u64, Record)> + 'a {
        let (bytes, base_seq, mut left) = (self.bytes, self.base_seq, self.record_count);
        let mut at = HEADER_BYTES;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let (seq_delta, record, next) = decode_record(bytes, at)?;
            left -= 1;
            at = next;
            Some((base_seq.checked_add(u64::from(seq_delta))?, record))
        })
    }
}

fn decode_record(bytes: &[u8], at: usize) -> Option<(u32, Record, usize)> {
    let rest = bytes.get(at..)?;
    if rest.len() < 9 {
        return None;
    }
    let (seq_delta, id) = (get_u32(rest, 1), get_u32(rest, 5));
    let (record, used) = match rest[0] {
        1 if rest.len() >= MAP_BYTES => {
            (Record::Map { sector: id, place: Place(get_u32(rest, 9)), check: get_u32(rest, 13) }, MAP_BYTES)
        }
        2 if rest.len() >= RUN_BYTES => {
            (Record::Run { first: id, place: Place(get_u32(rest, 9)), count: get_u32(rest, 13) }, RUN_BYTES)
        }
        3 if rest.len() >= SMALL_BYTES => {
            let length = get_u16(rest, 9);
            let used = SMALL_BYTES + length as usize;
            if rest.len() < used {
                return None;
            }
            (Record::Small { sector: id, offset: (at + SMALL_BYTES) as u16, length }, used)
        }
        _ => return None,
    };
    Some((seq_delta, record, at + used))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn records_round_trip() {
        let mut w = LogWriter::new(5, 100);
        w.push_map(100, 1, Place(2), 5);
        w.push_run(101, 10, Place::ZERO, 99);
        assert_eq!(w.push_small(1 << 20, 3, &[9; 72]), (0, 24 + 17 + 17 + 11, 72));
        let bytes = w.seal().to_vec();
        let log = LogSlot::decode(&bytes).unwrap();
        let records: Vec<_> = log.records().collect();
        assert_eq!(records[0], (100, Record::Map { sector: 1, place: Place(2), check: 5 }));
        assert_eq!(records[1], (101, Record::Run { first: 10, place: Place::ZERO, count: 99 }));
        assert_eq!(records[2], (1 << 20, Record::Small { sector: 3, offset: 69, length: 72 }));
        let mut again = LogWriter::resume(&bytes).unwrap();
        assert_eq!(again.slice(69, 72), [9; 72]);
        assert_eq!(again.seal(), bytes);
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), fix: bool) {
            if fix && bytes.len() >= HEADER_BYTES {
                // Make magic, length and checksum valid, so that the records are decoded.
                let length = bytes.len();
                put(&mut bytes, 0, MAGIC);
                put(&mut bytes, 12, &(length as u16).to_le_bytes());
                let crc = vellum_codes::crc32c(&bytes[8..]);
                put(&mut bytes, 4, &crc.to_le_bytes());
            }
            if let Some(log) = LogSlot::decode(&bytes) {
                for (_, record) in log.records() {
                    if let Record::Small { offset, length, .. } = record {
                        prop_assert!(offset as usize + length as usize <= bytes.len());
                    }
                }
            }
        }
    }
}
