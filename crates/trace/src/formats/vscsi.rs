//! VMware vscsi, versions 1 and 2, little endian (layouts from libCacheSim's vscsi.h).
//!
//! ```text
//! v1, 32 bytes: serial u32, bytes u32, segments u32, command u16, version u16, lbn u64, time_us u64
//! v2, 40 bytes: command u16, version u16, serial u32, bytes u32, segments u32, lbn u64, time_us u64, response_us u64
//! ```
//!
//! The version is in the high byte of its field. LBNs count 512-byte blocks; the command is a SCSI opcode.

use crate::formats::intake::Row;
use crate::formats::records::{Record, Records};
use crate::request::{ByteLen, ByteOffset, Request, RequestKind};
use crate::source::{ReadOptions, RequestSource};
use std::io::Read;
use vellum_base::{Error, Nanos, Result};

/// Determines the version from the first record, which is still in `input`.
pub fn open<R: Read + Send>(
    input: R,
    first: &[u8],
    options: ReadOptions,
) -> Result<impl RequestSource + use<R>> {
    let version = version_of(first)
        .ok_or_else(|| Error::corrupt("not a vscsi trace: its first record is neither version 1 nor 2"))?;
    Ok(Records::new(input, Vscsi { version }, 0, options))
}

/// The version, if the first record has a valid one and a known command.
pub fn version_of(first: &[u8]) -> Option<u8> {
    let at = |i: usize| first.get(i..i + 2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    match (at(14)? >> 8, at(2)? >> 8) {
        (1, _) if at(12)? <= 0xFF => Some(1),
        (_, 2) if at(0)? <= 0xFF => Some(2),
        _ => None,
    }
}

struct Vscsi {
    version: u8,
}

impl Record for Vscsi {
    fn head_len(&self) -> usize {
        if self.version == 1 { 32 } else { 40 }
    }

    fn record_len(&self, head: &[u8]) -> Option<usize> {
        Some(head.len())
    }

    fn row(&mut self, record: &[u8]) -> Row {
        if version_of(record) != Some(self.version) {
            return Row::Malformed("the record has another version");
        }
        self.parse(record).map_or(Row::Malformed("the record's numbers are out of range"), |r| {
            r.map_or(Row::Other, Row::Request)
        })
    }
}

impl Vscsi {
    /// `None` if a value is out of range, `Some(None)` for commands that neither move data nor flush.
    fn parse(&self, record: &[u8]) -> Option<Option<Request>> {
        let (command_at, bytes_at) = if self.version == 1 { (12, 4) } else { (0, 8) };
        let u64_at = |i: usize| record[i..].first_chunk().map(|b| u64::from_le_bytes(*b));
        let length = record[bytes_at..].first_chunk().map(|b| u32::from_le_bytes(*b))?;
        let offset = ByteOffset(u64_at(16)?.checked_mul(512)?);
        let time = Nanos(u64_at(24)?.checked_mul(1000)?);
        let kind = match record[command_at] {
            0x08 | 0x28 | 0x88 | 0xA8 => RequestKind::Read,
            0x0A | 0x2A | 0x8A | 0xAA => RequestKind::Write,
            0x35 | 0x91 => return Some(Some(Request::flush(time))),
            _ => return Some(None),
        };
        Some(Some(Request::new(time, kind, offset, ByteLen(u64::from(length)))))
    }
}
