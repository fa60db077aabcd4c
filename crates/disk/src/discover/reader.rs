//! Reads single fields from a disk, and records which bytes the result depends on.
//!
//! Invariants:
//! 1. No sector is read twice, and no more than [`READS_MAX`] in all; so memory is bounded as well (32 MiB, held only
//!    during discovery).
//! 2. All bytes returned by [`Reader::bytes`] are recorded, and the requested bits of numbers from
//!    [`Reader::le32_bits`]; bytes from [`Reader::peek`] are not.

use super::{Sectors, Why};
use std::collections::BTreeMap;
use std::ops::Range;
use vellum_base::{Lba, SECTOR_BYTES};

/// Maximum number of sectors that one discovery reads. A usual disk takes about ten. The map of a badly fragmented
/// journal takes one more for every 340 pieces.
pub const READS_MAX: u32 = 4096;

/// Addresses within a disk are below this, so that adding the offset of a field never overflows.
const DISK_BYTES_MAX: u64 = 1 << 62;

/// The disk as an array of bytes.
pub(super) struct Reader<'d> {
    disk: &'d mut dyn Sectors,
    disk_bytes: u64,
    sectors: BTreeMap<Lba, Sector>,
}

/// A sector that was read, and a mask of the bits used.
struct Sector {
    content: Why<Box<[u8; SECTOR_BYTES]>>,
    used: Box<[u8; SECTOR_BYTES]>,
}

/// A sector that the result depends on: the relevant bytes and their contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Watched {
    pub(super) lba: Lba,
    ranges: Vec<Range<u16>>,
    /// Contents of the ranges, concatenated; `None` if the sector could not be read.
    bytes: Option<Box<[u8]>>,
    /// Single relevant bits and their values.
    bits: Vec<Bits>,
}

/// Bits of one byte.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bits {
    at: u16,
    mask: u8,
    value: u8,
}

impl<'d> Reader<'d> {
    pub(super) fn new(disk: &'d mut dyn Sectors) -> Reader<'d> {
        let disk_bytes = disk.sectors().saturating_mul(SECTOR_BYTES as u64).min(DISK_BYTES_MAX);
        Reader { disk, disk_bytes, sectors: BTreeMap::new() }
    }

    pub(super) fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    pub(super) fn sectors_read(&self) -> u32 {
        self.sectors.len() as u32
    }

    /// Fills `out` from byte `at` of the disk, and records that the result depends on these bytes.
    pub(super) fn bytes(&mut self, at: u64, out: &mut [u8]) -> Why<()> {
        self.copy(at, out, |_| u8::MAX)
    }

    /// Fills `out` from byte `at` of the disk, without recording a dependency.
    pub(super) fn peek(&mut self, at: u64, out: &mut [u8]) -> Why<()> {
        self.copy(at, out, |_| 0)
    }

    pub(super) fn array<const N: usize>(&mut self, at: u64) -> Why<[u8; N]> {
        let mut out = [0; N];
        self.bytes(at, &mut out)?;
        Ok(out)
    }

    pub(super) fn le16(&mut self, at: u64) -> Why<u16> {
        self.array(at).map(u16::from_le_bytes)
    }

    pub(super) fn le32(&mut self, at: u64) -> Why<u32> {
        self.array(at).map(u32::from_le_bytes)
    }

    /// Reads the bits of `mask`, and records only these: changes of others do not matter.
    pub(super) fn le32_bits(&mut self, at: u64, mask: u32) -> Why<u32> {
        let mut out = [0; 4];
        self.copy(at, &mut out, |i| mask.to_le_bytes()[i])?;
        Ok(u32::from_le_bytes(out) & mask)
    }

    pub(super) fn be32(&mut self, at: u64) -> Why<u32> {
        self.array(at).map(u32::from_be_bytes)
    }

    /// The sectors with recorded bytes, ascending.
    pub(super) fn into_watch(self) -> Vec<Watched> {
        let sectors = self.sectors.into_iter();
        sectors
            .map(|(lba, sector)| sector.watched(lba))
            .filter(|w| !w.ranges.is_empty() || !w.bits.is_empty())
            .collect()
    }

    /// Copies from byte `at`, and records the bits given by `mask` for each byte of `out`.
    fn copy(&mut self, at: u64, out: &mut [u8], mask: impl Fn(usize) -> u8) -> Why<()> {
        let end = at.checked_add(out.len() as u64).filter(|end| *end <= self.disk_bytes);
        if end.is_none() {
            return Err(format!("byte {at} lies beyond the end of the disk"));
        }
        let mut done = 0;
        while done < out.len() {
            let here = at + done as u64;
            let from = (here % SECTOR_BYTES as u64) as usize;
            let length = (SECTOR_BYTES - from).min(out.len() - done);
            let sector = self.sector(Lba(here / SECTOR_BYTES as u64))?;
            for (i, used) in sector.used[from..from + length].iter_mut().enumerate() {
                *used |= mask(done + i);
            }
            let content = sector.content.as_ref().map_err(Clone::clone)?;
            out[done..done + length].copy_from_slice(&content[from..from + length]);
            done += length;
        }
        Ok(())
    }

    fn sector(&mut self, lba: Lba) -> Why<&mut Sector> {
        if !self.sectors.contains_key(&lba) {
            if self.sectors_read() >= READS_MAX {
                return Err(format!("finding it takes more than {READS_MAX} sector reads"));
            }
            let mut content = Box::new([0; SECTOR_BYTES]);
            let content = match self.disk.read(lba, &mut content) {
                Ok(()) => Ok(content),
                Err(error) => Err(format!("{lba} could not be read: {error}")),
            };
            self.sectors.insert(lba, Sector { content, used: Box::new([0; SECTOR_BYTES]) });
        }
        Ok(self.sectors.get_mut(&lba).expect("inserted above"))
    }
}

impl Sector {
    fn watched(self, lba: Lba) -> Watched {
        let mut ranges: Vec<Range<u16>> = Vec::new();
        for at in (0..SECTOR_BYTES as u16).filter(|at| self.used[*at as usize] == u8::MAX) {
            match ranges.last_mut() {
                Some(last) if last.end == at => last.end += 1,
                _ => ranges.push(at..at + 1),
            }
        }
        let masks = (0..).zip(self.used.iter()).filter(|(_, mask)| !matches!(**mask, 0 | u8::MAX));
        let value = |at: u16| self.content.as_ref().map_or(0, |content| content[at as usize]);
        let bits = masks.map(|(at, mask)| Bits { at, mask: *mask, value: value(at) & mask }).collect();
        let bytes = self.content.ok().map(|content| {
            let used = ranges.iter().flat_map(|r| &content[r.start as usize..r.end as usize]);
            used.copied().collect()
        });
        Watched { lba, ranges, bytes, bits }
    }
}

impl Watched {
    pub(super) fn still_holds(&self, content: &[u8; SECTOR_BYTES]) -> bool {
        let Some(mut rest) = self.bytes.as_deref() else {
            return false;
        };
        let bits_hold = self.bits.iter().all(|b| content[b.at as usize] & b.mask == b.value);
        bits_hold
            && self.ranges.iter().all(|range| {
                let (before, after) = rest.split_at(range.len());
                rest = after;
                content[range.start as usize..range.end as usize] == *before
            })
    }
}
