//! Partition tables: the kind of a disk's table, and the master boot record with its chain of logical partitions.
//!
//! An MBR does not specify its block size: 512 bytes, or 4 KiB on a disk with such logical blocks. So it can be read
//! with both, and the file systems found decide.

use super::gpt;
use super::reader::Reader;
use std::ops::Range;

/// Maximum number of partitions examined.
pub(super) const PARTITIONS_MAX: usize = 256;
/// Maximum number of logical partitions followed; this ends a cyclic chain.
const LOGICAL_MAX: u32 = 128;

const GPT_PROTECTIVE: u8 = 0xEE;
const EXTENDED: [u8; 3] = [0x05, 0x0F, 0x85];

/// A partition, numbered as in Linux.
pub(super) struct Partition {
    pub(super) number: u32,
    pub(super) bytes: Range<u64>,
}

/// The partition table of a disk.
pub(super) enum Layout {
    None,
    /// To be read with [`mbr`].
    Mbr([Entry; 4]),
    Gpt(Vec<Partition>),
}

/// Reads the layout of the disk. Like Linux, uses a GPT only if the MBR announces one: a backup header may be left over
/// from an earlier use of the disk.
pub(super) fn layout(reader: &mut Reader) -> Layout {
    let Some(entries) = boot_record(reader, 0) else {
        return Layout::None;
    };
    if entries.iter().any(|entry| entry.kind == GPT_PROTECTIVE)
        && let Some(partitions) = gpt::read(reader)
    {
        return Layout::Gpt(partitions);
    }
    match entries.iter().any(|entry| entry.is_data() || entry.is_extended()) {
        true => Layout::Mbr(entries),
        false => Layout::None,
    }
}

/// The partitions of an MBR with logical blocks of `unit` bytes.
pub(super) fn mbr(reader: &mut Reader, entries: &[Entry; 4], unit: u64) -> Vec<Partition> {
    let mut partitions = Vec::new();
    for (number, entry) in (1..).zip(entries).filter(|(_, entry)| entry.is_data()) {
        partitions.push(Partition { number, bytes: entry.bytes(0, unit) });
    }
    if let Some(extended) = entries.iter().find(|entry| entry.is_extended()) {
        logical(reader, extended.start, unit, &mut partitions);
    }
    partitions
}

/// An entry of a boot record, in logical blocks.
pub(super) struct Entry {
    kind: u8,
    start: u64,
    blocks: u64,
}

impl Entry {
    fn is_extended(&self) -> bool {
        EXTENDED.contains(&self.kind) && self.blocks > 0
    }

    fn is_data(&self) -> bool {
        self.kind != 0 && self.kind != GPT_PROTECTIVE && self.blocks > 0 && !self.is_extended()
    }

    /// Its byte range, if its start is relative to block `base`. (32-bit values: no overflow.)
    fn bytes(&self, base: u64, unit: u64) -> Range<u64> {
        let start = (base + self.start) * unit;
        start..start + self.blocks * unit
    }
}

/// The four entries of the boot record at byte `at`, if there is one. Boot code of a file system has the same
/// signature, but is recognised by invalid boot flags.
fn boot_record(reader: &mut Reader, at: u64) -> Option<[Entry; 4]> {
    if reader.array(at + 510).ok()? != [0x55, 0xAA] {
        return None;
    }
    let table = reader.array::<64>(at + 446).ok()?;
    let (entries, _) = table.as_chunks::<16>();
    if entries.iter().any(|entry| entry[0] & 0x7F != 0) {
        return None;
    }
    let le32 =
        |entry: &[u8; 16], at: usize| u32::from_le_bytes(std::array::from_fn(|i| entry[at + i])) as u64;
    Some(std::array::from_fn(|i| Entry {
        kind: entries[i][4],
        start: le32(&entries[i], 8),
        blocks: le32(&entries[i], 12),
    }))
}

/// Follows the chain of boot records in the extended partition at block `base`. Data partitions are relative to their
/// own record, links to `base`.
fn logical(reader: &mut Reader, base: u64, unit: u64, partitions: &mut Vec<Partition>) {
    let mut record = base;
    let mut number = 5;
    for _ in 0..LOGICAL_MAX {
        let Some(entries) = boot_record(reader, record * unit) else { return };
        for entry in entries.iter().filter(|entry| entry.is_data()) {
            if partitions.len() == PARTITIONS_MAX {
                return;
            }
            partitions.push(Partition { number, bytes: entry.bytes(record, unit) });
            number += 1;
        }
        match entries.iter().find(|entry| entry.is_extended()) {
            Some(link) if base + link.start != record => record = base + link.start,
            _ => return,
        }
    }
}
