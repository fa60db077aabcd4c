//! The header of a vtrace file.

use crate::request::{ByteLen, ByteOffset};
use crate::vtrace::varint::Cursor;
use std::io::{Read, Write};
use vellum_base::{Error, Kind, Result, SECTOR_BYTES};
use vellum_codes::crc32c;

/// First bytes of every file.
pub const MAGIC: [u8; 8] = *b"VELTRACE";
/// The version written by this code, and the only one so far.
pub const FORMAT_VERSION: u32 = 1;

const FIXED_BYTES: usize = 40;
const HEADER_BYTES_MAX: usize = 1 << 16;
const JOURNALS_MAX: usize = 1024;

/// Description of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Size of the recorded device.
    pub device_bytes: ByteLen,
    /// A short name, for use in tables.
    pub label: String,
    /// Origin of the trace, for people.
    pub comment: String,
    /// Journals of the file systems on the device, if declared by the host.
    pub journals: Vec<JournalRange>,
}

/// A part of the device that a host declares to be a journal (WOJ's paper mode).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalRange {
    /// Name of the journal.
    pub name: String,
    /// First byte.
    pub offset: ByteOffset,
    /// Length.
    pub length: ByteLen,
}

impl Header {
    /// Writes the header. Fails for text that is too long for it.
    pub fn write_to(&self, out: &mut impl Write) -> Result<()> {
        let mut bytes = Vec::with_capacity(FIXED_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(FORMAT_VERSION.to_le_bytes());
        bytes.extend([0; 4]); // header_bytes, below
        bytes.extend(self.device_bytes.0.to_le_bytes());
        bytes.extend((SECTOR_BYTES as u32).to_le_bytes());
        bytes.extend([0; 4]); // flags
        for count in [self.label.len(), self.comment.len(), self.journals.len()] {
            bytes.extend(short(count)?.to_le_bytes());
        }
        bytes.extend([0; 2]); // reserved
        bytes.extend(self.label.as_bytes());
        bytes.extend(self.comment.as_bytes());
        for journal in &self.journals {
            bytes.extend(journal.offset.0.to_le_bytes());
            bytes.extend(journal.length.0.to_le_bytes());
            bytes.extend(short(journal.name.len())?.to_le_bytes());
            bytes.extend(journal.name.as_bytes());
        }
        let total = bytes.len() + 4;
        if total > HEADER_BYTES_MAX || self.journals.len() > JOURNALS_MAX {
            return Err(Error::invalid(
                "the header of a trace is at most 64 KiB with 1024 journals: shorten it",
            ));
        }
        bytes[12..16].copy_from_slice(&(total as u32).to_le_bytes());
        bytes.extend(crc32c(&bytes).to_le_bytes());
        out.write_all(&bytes).map_err(|e| Error::io("write the trace's header", e))
    }

    /// Reads and checks a header.
    pub fn read_from(input: &mut impl Read) -> Result<Header> {
        let mut bytes = vec![0; FIXED_BYTES];
        fill(input, &mut bytes)?;
        if bytes[..8] != MAGIC {
            return Err(Error::corrupt("not a vtrace file: it does not begin with VELTRACE"));
        }
        let version = le32(&bytes[8..]);
        if version != FORMAT_VERSION {
            let text = format!("vtrace version {version}; this program reads version {FORMAT_VERSION}");
            return Err(Error::new(Kind::Unsupported, text));
        }
        let total = le32(&bytes[12..]) as usize;
        if !(FIXED_BYTES + 4..=HEADER_BYTES_MAX).contains(&total) {
            return Err(Error::corrupt(format!("vtrace header of {total} bytes")));
        }
        bytes.resize(total, 0);
        fill(input, &mut bytes[FIXED_BYTES..])?;
        let (body, crc) = bytes.split_at(total - 4);
        if crc32c(body) != le32(crc) {
            return Err(Error::corrupt("vtrace header: checksum mismatch"));
        }
        Header::parse(body).ok_or_else(|| Error::corrupt("vtrace header: its fields do not fit together"))
    }

    fn parse(body: &[u8]) -> Option<Header> {
        let mut fields = Cursor(&body[16..]);
        let device_bytes = ByteLen(fields.u64()?);
        let sector_and_flags = fields.u64()?;
        let counts = fields.u64()?;
        let count = |i: usize| (counts >> (16 * i)) as usize & 0xFFFF;
        if sector_and_flags != SECTOR_BYTES as u64 || count(2) > JOURNALS_MAX {
            return None;
        }
        let label = text(fields.take(count(0))?)?;
        let comment = text(fields.take(count(1))?)?;
        let mut journals = Vec::new();
        for _ in 0..count(2) {
            let (offset, length) = (ByteOffset(fields.u64()?), ByteLen(fields.u64()?));
            let name_len = fields.take(2)?;
            let name = text(fields.take(usize::from(u16::from_le_bytes([name_len[0], name_len[1]])))?)?;
            journals.push(JournalRange { name, offset, length });
        }
        fields.0.is_empty().then_some(Header { device_bytes, label, comment, journals })
    }
}

fn short(length: usize) -> Result<u16> {
    u16::try_from(length).map_err(|_| Error::invalid("a text in a trace's header is at most 65535 bytes"))
}

fn text(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

fn le32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn fill(input: &mut impl Read, bytes: &mut [u8]) -> Result<()> {
    input.read_exact(bytes).map_err(|e| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => Error::corrupt("the trace ends within its header"),
        _ => Error::io("read the trace's header", e),
    })
}
