//! HP SRT 1.3, **big endian** (field order from DiskSim's disksim_iotrace.c).
//!
//! A text header that ends with a form feed, then records of u32: `size, id, sec, usec, start, stop, bytes, sector,
//! devno, driver, cylinder, flags, info[, queue length][, suspicion]`. Flag bit 0 is **read**; the disk is in bits 8–15
//! of devno. Records whose id has 4 in its low half are suspect, and are skipped as in DiskSim.
//!
//! Sectors are in units of the header's `sectorsize`, 256 bytes in the hplajw trace. DiskSim assumes 512, which is
//! wrong there: 664 requests follow their predecessor exactly in units of 256 bytes and 24 in units of 512, and the
//! highest sector, 1,308,096, is just below the disk's 1,309,896 sectors of 256 bytes.

use crate::formats::intake::Row;
use crate::formats::records::{Record, Records};
use crate::request::{ByteLen, ByteOffset, DeviceId, Request, RequestKind};
use crate::source::{ReadOptions, RequestSource};
use std::io::{BufRead, Read};
use vellum_base::{Error, Kind, Nanos, Result};

/// First bytes of every such file.
pub const MAGIC: &[u8] = b"$$TR_IOREC-";
const HEADER_BYTES_MAX: u64 = 1 << 16;
const FORM_FEED: u8 = 0x0C;
const SHORT_IO: u32 = 1;
const SUSPECT_IO: u32 = 4;

/// Reads the header, and returns a reader for the records.
pub fn open(mut input: impl BufRead + Send, options: ReadOptions) -> Result<impl RequestSource> {
    let mut header = Vec::new();
    Read::take(&mut input, HEADER_BYTES_MAX)
        .read_until(FORM_FEED, &mut header)
        .map_err(|e| Error::io("read the trace", e))?;
    if !header.starts_with(MAGIC) || header.last() != Some(&FORM_FEED) {
        return Err(Error::corrupt("not an SRT trace: no $$TR_IOREC header that ends with a form feed"));
    }
    let format = Srt { sector_bytes: sector_bytes(&header)? };
    Ok(Records::new(input, format, header.len() as u64, options))
}

/// The `sectorsize = n;` of the disks in the header, which must agree; 512 if there is none.
fn sector_bytes(header: &[u8]) -> Result<u64> {
    let text = String::from_utf8_lossy(header);
    let mut found = None;
    for part in text.split("sectorsize").skip(1) {
        let value = part.trim_start().strip_prefix('=').and_then(|rest| rest.split([',', ';', '\n']).next());
        let bytes = value.and_then(|v| v.trim().parse::<u64>().ok()).filter(|n| (1..=1 << 16).contains(n));
        match (bytes, found) {
            (None, _) => return Err(Error::corrupt("SRT header: a sectorsize that is not a number")),
            (Some(bytes), Some(before)) if bytes != before => {
                let text = "SRT trace of disks with different sector sizes";
                return Err(Error::new(Kind::Unsupported, text));
            }
            _ => found = bytes,
        }
    }
    Ok(found.unwrap_or(512))
}

struct Srt {
    sector_bytes: u64,
}

fn word(record: &[u8], n: usize) -> u32 {
    let at = 4 * n;
    u32::from_be_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]])
}

impl Record for Srt {
    fn head_len(&self) -> usize {
        8
    }

    /// The size must match the id: 13 words, one more in version 4, one more if suspect.
    fn record_len(&self, head: &[u8]) -> Option<usize> {
        let (size, version, kind) = (word(head, 0) as usize, word(head, 1) >> 16, word(head, 1) & 0xFFFF);
        let words = 13 + usize::from(version == 4) + usize::from(kind == SUSPECT_IO);
        let known = (1..=4).contains(&version) && matches!(kind, SHORT_IO | SUSPECT_IO);
        (known && size == 4 * words).then_some(size)
    }

    fn row(&mut self, record: &[u8]) -> Row {
        if word(record, 1) & 0xFFFF == SUSPECT_IO {
            return Row::Other;
        }
        let us = u64::from(word(record, 2)) * 1_000_000 + u64::from(word(record, 3));
        let kind = if word(record, 11) & 1 == 1 { RequestKind::Read } else { RequestKind::Write };
        let offset = ByteOffset(u64::from(word(record, 7)) * self.sector_bytes);
        let length = ByteLen(u64::from(word(record, 6)));
        let device = DeviceId(word(record, 8) >> 8 & 0xFF);
        Row::Request(Request { device, ..Request::new(Nanos::from_us(us), kind, offset, length) })
    }
}
