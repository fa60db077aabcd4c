//! A request of a workload, and its units.
//!
//! Traces are often not aligned to 4 KiB (CloudPhysics starts at 512-byte sector 63, hplajw has units of 2 KiB), so a
//! request has its exact bytes; [`Request::sectors`] returns the sectors that these touch.

use crate::content::Content;
use std::fmt;
use vellum_base::{Lba, Nanos, SECTOR_BYTES};

const SECTOR: u64 = SECTOR_BYTES as u64;

/// Longest read or write in a trace, as replaying one takes that much memory. No host sends longer ones; readers reject
/// them, recorders split them.
pub const REQUEST_BYTES_MAX: ByteLen = ByteLen(8 << 20);

/// A position on a device, in bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteOffset(pub u64);

/// A length in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteLen(pub u64);

impl ByteLen {
    /// `sectors` whole 4 KiB sectors.
    pub const fn of_sectors(sectors: u64) -> ByteLen {
        ByteLen(sectors * SECTOR)
    }
}

/// A device of a multi-device trace. Addresses of different devices must not be merged; see [`crate::devices`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u32);

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {}", self.0)
    }
}

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestKind {
    /// Read bytes.
    Read,
    /// Write bytes.
    Write,
    /// Discard bytes, which then read as zeros.
    Trim,
    /// Zero bytes.
    WriteZeroes,
    /// Make everything acknowledged so far durable. Has no offset and no length.
    Flush,
}

impl RequestKind {
    /// Every kind, in the order of `kind as usize`.
    pub const ALL: [RequestKind; 5] = [
        RequestKind::Read,
        RequestKind::Write,
        RequestKind::Trim,
        RequestKind::WriteZeroes,
        RequestKind::Flush,
    ];

    /// Stable name.
    pub const fn name(self) -> &'static str {
        match self {
            RequestKind::Read => "read",
            RequestKind::Write => "write",
            RequestKind::Trim => "trim",
            RequestKind::WriteZeroes => "write-zeroes",
            RequestKind::Flush => "flush",
        }
    }
}

/// One request of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Time of issue, since the start of the trace.
    pub time: Nanos,
    /// The device.
    pub device: DeviceId,
    /// Kind of the request.
    pub kind: RequestKind,
    /// First byte.
    pub offset: ByteOffset,
    /// Length in bytes; zero only for a flush.
    pub length: ByteLen,
    /// Durable when acknowledged (force unit access).
    pub fua: bool,
    /// For a write: the content of each touched sector afterwards, in the order of [`Request::sectors`]. Empty if the
    /// trace has no contents; [`crate::models`] can add them.
    pub contents: Vec<Content>,
}

impl Request {
    /// A request without contents for device 0.
    pub const fn new(time: Nanos, kind: RequestKind, offset: ByteOffset, length: ByteLen) -> Request {
        Request { time, device: DeviceId(0), kind, offset, length, fua: false, contents: Vec::new() }
    }

    /// A flush.
    pub const fn flush(time: Nanos) -> Request {
        Request::new(time, RequestKind::Flush, ByteOffset(0), ByteLen(0))
    }

    /// A write of whole sectors from `lba` on, one for each of `contents`.
    pub fn write(time: Nanos, lba: Lba, contents: Vec<Content>, fua: bool) -> Request {
        let length = ByteLen::of_sectors(contents.len() as u64);
        let offset = ByteOffset(lba.0 * SECTOR);
        Request { fua, contents, ..Request::new(time, RequestKind::Write, offset, length) }
    }

    /// The byte after the last; `u64::MAX` if that overflows.
    pub const fn end(&self) -> ByteOffset {
        ByteOffset(self.offset.0.saturating_add(self.length.0))
    }

    /// The sectors that the request touches, completely or partially: the first, and their number.
    pub const fn sectors(&self) -> (Lba, u64) {
        let first = self.offset.0 / SECTOR;
        if self.length.0 == 0 {
            return (Lba(first), 0);
        }
        (Lba(first), (self.end().0 - 1) / SECTOR - first + 1)
    }

    /// True for a read or write of more than `max` bytes.
    pub fn moves_more_than(&self, max: ByteLen) -> bool {
        matches!(self.kind, RequestKind::Read | RequestKind::Write) && self.length > max
    }

    /// True if the request covers every sector that it touches completely.
    pub const fn is_aligned(&self) -> bool {
        self.offset.0.is_multiple_of(SECTOR) && self.length.0.is_multiple_of(SECTOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(offset: u64, length: u64) -> Request {
        Request::new(Nanos::ZERO, RequestKind::Read, ByteOffset(offset), ByteLen(length))
    }

    #[test]
    fn touched_sectors_of_unaligned_requests() {
        assert_eq!(read(0, 4096).sectors(), (Lba(0), 1));
        assert_eq!(read(63 * 512, 4096).sectors(), (Lba(7), 2));
        assert_eq!(read(2048, 2048).sectors(), (Lba(0), 1));
        assert_eq!(read(4095, 2).sectors(), (Lba(0), 2));
        assert_eq!(read(8192, 0).sectors(), (Lba(2), 0));
        assert!(read(8192, 4096).is_aligned() && !read(8192, 512).is_aligned());
        let (first, count) = read(u64::MAX - 1, u64::MAX).sectors();
        assert_eq!((first, count), (Lba(u64::MAX / 4096), 1));
    }
}
