//! The kernel's ioctls of zoned block devices (`linux/blkzoned.h`), for discards, and for the read-only flag of a
//! device (`linux/fs.h`).
//!
//! `unsafe`: an `ioctl` accesses memory as its number implies. The structures are the kernel's.
#![allow(unsafe_code)]

use rustix::fd::AsFd;
use rustix::io::{Errno, Result};
use rustix::ioctl::{Getter, Opcode, Setter, Updater, ioctl, opcode};

const SECTOR_BYTES: u64 = 512;
/// Number of zones requested per call.
const AT_ONCE: usize = 512;

/// The kernel's description of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Zone {
    pub start_bytes: u64,
    pub length_bytes: u64,
    pub capacity_bytes: u64,
    pub written_bytes: u64,
    pub is_sequential: bool,
    pub is_writable: bool,
    pub is_full: bool,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct BlkZone {
    start: u64,
    len: u64,
    wp: u64,
    kind: u8,
    condition: u8,
    non_sequential: u8,
    reset: u8,
    reserved: [u8; 4],
    capacity: u64,
    reserved2: [u8; 24],
}

#[repr(C)]
struct BlkZoneReport {
    sector: u64,
    zones: u32,
    flags: u32,
}

#[repr(C)]
struct Report {
    head: BlkZoneReport,
    zones: [BlkZone; AT_ONCE],
}

#[repr(C)]
struct BlkZoneRange {
    sector: u64,
    sectors: u64,
}

const REPORT: Opcode = opcode::read_write::<BlkZoneReport>(0x12, 130);
const RESET: Opcode = opcode::write::<BlkZoneRange>(0x12, 131);
const FINISH: Opcode = opcode::write::<BlkZoneRange>(0x12, 136);
const DISCARD: Opcode = opcode::none(0x12, 119);
const IS_READ_ONLY: Opcode = opcode::none(0x12, 94);
/// `head.flags`: the kernel reports capacities.
const HAS_CAPACITY: u32 = 1;
const SEQUENTIAL_REQUIRED: u8 = 2;
const READ_ONLY: u8 = 0xD;
const FULL: u8 = 0xE;
const OFFLINE: u8 = 0xF;

/// All zones of a device; none if it has no zones.
pub(super) fn report(device: impl AsFd) -> Result<Vec<Zone>> {
    const NONE: BlkZone = BlkZone {
        start: 0,
        len: 0,
        wp: 0,
        kind: 0,
        condition: 0,
        non_sequential: 0,
        reset: 0,
        reserved: [0; 4],
        capacity: 0,
        reserved2: [0; 24],
    };
    let mut found = Vec::new();
    let mut sector = 0;
    loop {
        let head = BlkZoneReport { sector, zones: AT_ONCE as u32, flags: 0 };
        let mut report = Box::new(Report { head, zones: [NONE; AT_ONCE] });
        // SAFETY: the kernel fills in at most `head.zones` zones after the head, for which there is room.
        match unsafe { ioctl(&device, Updater::<REPORT, Report>::new(&mut report)) } {
            Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::INVAL) if found.is_empty() => return Ok(found),
            other => other?,
        }
        let count = (report.head.zones as usize).min(AT_ONCE);
        let has_capacity = report.head.flags & HAS_CAPACITY != 0;
        found.extend(report.zones[..count].iter().map(|zone| described(zone, has_capacity)));
        match report.zones[..count].last() {
            Some(last) if last.len > 0 => sector = last.start + last.len,
            _ => return Ok(found),
        }
    }
}

fn described(zone: &BlkZone, has_capacity: bool) -> Zone {
    Zone {
        start_bytes: zone.start * SECTOR_BYTES,
        length_bytes: zone.len * SECTOR_BYTES,
        capacity_bytes: if has_capacity { zone.capacity } else { zone.len } * SECTOR_BYTES,
        written_bytes: zone.wp.saturating_sub(zone.start) * SECTOR_BYTES,
        is_sequential: zone.kind == SEQUENTIAL_REQUIRED,
        is_writable: !matches!(zone.condition, READ_ONLY | OFFLINE),
        is_full: zone.condition == FULL,
    }
}

/// Resets the zone of `length` bytes at `start`.
pub(super) fn reset(device: impl AsFd, start: u64, length: u64) -> Result<()> {
    let range = BlkZoneRange { sector: start / SECTOR_BYTES, sectors: length / SECTOR_BYTES };
    // SAFETY: the kernel reads one range.
    unsafe { ioctl(device, Setter::<RESET, BlkZoneRange>::new(range)) }
}

/// Moves the write pointer of the zone of `length` bytes at `start` to its end.
pub(super) fn finish(device: impl AsFd, start: u64, length: u64) -> Result<()> {
    let range = BlkZoneRange { sector: start / SECTOR_BYTES, sectors: length / SECTOR_BYTES };
    // SAFETY: the kernel reads one range.
    unsafe { ioctl(device, Setter::<FINISH, BlkZoneRange>::new(range)) }
}

/// Discards a range of a block device. [`Errno::NOTTY`] if it is no block device.
pub(crate) fn discard(device: impl AsFd, start: u64, length: u64) -> Result<()> {
    // SAFETY: the kernel reads two numbers.
    unsafe { ioctl(device, Setter::<DISCARD, [u64; 2]>::new([start, length])) }
}

/// Whether a block device is set read-only; such a device can still be opened for writing. [`Errno::NOTTY`] if it is no
/// block device.
pub(super) fn is_read_only(device: impl AsFd) -> Result<bool> {
    // SAFETY: the kernel writes one int.
    unsafe { ioctl(device, Getter::<IS_READ_ONLY, i32>::new()) }.map(|set| set != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of `linux/blkzoned.h`, as printed by other programs.
    #[test]
    fn numbers_and_sizes_are_the_kernels() {
        assert_eq!((REPORT, RESET, FINISH, DISCARD), (0xC010_1282, 0x4010_1283, 0x4010_1288, 0x1277));
        assert_eq!(IS_READ_ONLY, 0x125E);
        assert_eq!(std::mem::size_of::<BlkZone>(), 64);
        assert_eq!(std::mem::size_of::<Report>(), 16 + 64 * AT_ONCE);
    }

    #[test]
    fn an_ordinary_file_has_no_zones() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(report(&file).unwrap(), []);
        assert_eq!(discard(&file, 0, 4096), Err(Errno::NOTTY));
        assert_eq!(is_read_only(&file), Err(Errno::NOTTY));
    }
}
