//! GUID partition tables (UEFI specification 2.10, section 5.3).

use super::partitions::{PARTITIONS_MAX, Partition};
use super::reader::Reader;
use std::ops::Range;

const MAGIC: &[u8; 8] = b"EFI PART";
const HEADER_BYTES: usize = 92;
/// The usual array of entries has 16 KiB; larger ones than this are refused.
const ENTRIES_BYTES_MAX: u64 = 256 << 10;

/// Reads the partitions of the table. The first valid header is used: the primary one, then the backup at the very end,
/// each tried with logical blocks of 512 bytes and of 4 KiB.
pub(super) fn read(reader: &mut Reader) -> Option<Vec<Partition>> {
    let units = [512, 4096];
    let primary = units.into_iter().find_map(|unit| read_at(reader, unit, 1));
    primary.or_else(|| {
        let disk_bytes = reader.disk_bytes();
        units.into_iter().find_map(|unit| read_at(reader, unit, (disk_bytes / unit).checked_sub(1)?))
    })
}

fn read_at(reader: &mut Reader, unit: u64, block: u64) -> Option<Vec<Partition>> {
    let header = Header::read(reader, unit, block)?;
    let mut entries = vec![0; header.entries_count * header.entry_bytes];
    reader.bytes(header.entries_at, &mut entries).ok()?;
    if crc32([&entries[..]]) != header.entries_crc {
        return None;
    }
    let numbered = (1..).zip(entries.chunks_exact(header.entry_bytes));
    let used =
        numbered.filter_map(|(number, entry)| Some(Partition { number, bytes: entry_range(entry, unit)? }));
    Some(used.take(PARTITIONS_MAX).collect())
}

struct Header {
    entries_at: u64,
    entries_count: usize,
    entry_bytes: usize,
    entries_crc: u32,
}

impl Header {
    fn read(reader: &mut Reader, unit: u64, block: u64) -> Option<Header> {
        let at = block.checked_mul(unit)?;
        if reader.array::<8>(at).ok()? != *MAGIC {
            return None;
        }
        let fixed = reader.array::<HEADER_BYTES>(at).ok()?;
        let header_bytes = le32(&fixed, 12) as usize;
        if !(HEADER_BYTES..=unit as usize).contains(&header_bytes) || le64(&fixed, 24) != block {
            return None;
        }
        let mut header = vec![0; header_bytes];
        reader.bytes(at, &mut header).ok()?;
        if crc32([&header[..16], &[0; 4][..], &header[20..]]) != le32(&fixed, 16) {
            return None;
        }
        let (count, size) = (le32(&fixed, 80) as u64, le32(&fixed, 84) as u64);
        if !(128..=4096).contains(&size) || count * size > ENTRIES_BYTES_MAX {
            return None;
        }
        Some(Header {
            entries_at: le64(&fixed, 72).checked_mul(unit)?,
            entries_count: count as usize,
            entry_bytes: size as usize,
            entries_crc: le32(&fixed, 88),
        })
    }
}

/// The byte range of a partition; `None` if the entry is unused or invalid.
fn entry_range(entry: &[u8], unit: u64) -> Option<Range<u64>> {
    let (first, last) = (le64(entry, 32), le64(entry, 40));
    if entry[..16] == [0; 16] || last < first {
        return None;
    }
    Some(first.checked_mul(unit)?..last.checked_add(1)?.checked_mul(unit)?)
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// CRC-32 of the parts, concatenated (reflected 0x04C11DB7, as in Ethernet).
pub(super) fn crc32<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let bytes = parts.into_iter().flatten();
    !bytes.fold(!0, |crc, byte| {
        (0..8).fold(crc ^ *byte as u32, |crc, _| (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg()))
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn crc_is_the_standard_one() {
        assert_eq!(super::crc32([&b"1234"[..], b"56789"]), 0xCBF4_3926);
    }
}
