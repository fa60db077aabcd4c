//! Chunks of a vtrace file: compressed rows with a checksum, and the end record.

use crate::reason;
use std::io::{Read, Write};
use vellum_base::{Error, Result};
use vellum_codes::crc32c;

const CHUNK_MAGIC: [u8; 4] = *b"VCHK";
const END_MAGIC: [u8; 4] = *b"VEND";
const HEAD_BYTES: usize = 20;
/// Maximum size of a chunk before compression.
pub const RAW_BYTES_MAX: usize = 16 << 20;
/// A chunk is closed at this size, so that there is always room for one more request.
pub const RAW_BYTES_GOAL: usize = 1 << 20;

/// Compression effort for a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// For small traces that are kept: zstd level 12.
    Small,
    /// For not slowing down a recording at the device's full speed: level 3.
    Fast,
}

const CUT: &str =
    "the trace ends without its end record: the recorder was not finished; what came before is good";

/// True if a trace was read without errors up to the end of its file, but has no end record.
pub fn is_cut(error: &Error) -> bool {
    error.is_because(reason::CUT)
}

/// A unit of the file after its header.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// A chunk of uncompressed rows.
    Chunk {
        /// The rows.
        raw: Vec<u8>,
        /// Number of rows.
        requests: u32,
    },
    /// The end of the file, with the number of requests in all chunks (modulo 2^32).
    End {
        /// Number of all requests.
        requests: u32,
    },
}

/// Compresses and writes a chunk.
pub fn write_chunk(out: &mut impl Write, raw: &[u8], requests: u32, effort: Effort) -> Result<()> {
    assert!(raw.len() <= RAW_BYTES_MAX);
    let level = match effort {
        Effort::Small => 12,
        Effort::Fast => 3,
    };
    let stored = zstd::bulk::compress(raw, level).map_err(|e| Error::io("compress a trace chunk", e))?;
    write(out, CHUNK_MAGIC, raw.len() as u32, requests, &stored)
}

/// Writes the end record.
pub fn write_end(out: &mut impl Write, requests: u32) -> Result<()> {
    write(out, END_MAGIC, 0, requests, &[])
}

fn write(out: &mut impl Write, magic: [u8; 4], raw_len: u32, requests: u32, stored: &[u8]) -> Result<()> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + stored.len());
    bytes.extend(magic);
    for field in [stored.len() as u32, raw_len, requests, 0] {
        bytes.extend(field.to_le_bytes());
    }
    bytes.extend(stored);
    let crc = crc32c(&bytes);
    bytes[16..20].copy_from_slice(&crc.to_le_bytes());
    out.write_all(&bytes).map_err(|e| Error::io("write a trace chunk", e))
}

/// Reads and checks the next unit. Never allocates more than about `RAW_BYTES_MAX` for it, whatever its head says.
pub fn read(input: &mut impl Read) -> Result<Frame> {
    let mut head = [0; HEAD_BYTES];
    fill(input, &mut head)?;
    let field = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (stored_len, raw_len, requests, crc) = (field(4) as usize, field(8) as usize, field(12), field(16));
    // zstd stores incompressible data with a few additional bytes.
    if raw_len > RAW_BYTES_MAX || stored_len > raw_len + raw_len / 128 + 64 {
        return Err(Error::corrupt("vtrace chunk: sizes out of range"));
    }
    let mut bytes = head.to_vec();
    bytes.resize(HEAD_BYTES + stored_len, 0);
    fill(input, &mut bytes[HEAD_BYTES..])?;
    bytes[16..20].fill(0);
    if crc32c(&bytes) != crc {
        return Err(Error::corrupt("vtrace chunk: checksum mismatch"));
    }
    match (&head[..4], stored_len) {
        (magic, 0) if *magic == END_MAGIC => Ok(Frame::End { requests }),
        (magic, _) if *magic == CHUNK_MAGIC => {
            let raw = zstd::bulk::decompress(&bytes[HEAD_BYTES..], raw_len)
                .map_err(|e| Error::corrupt(format!("vtrace chunk: {e}")))?;
            if raw.len() != raw_len {
                return Err(Error::corrupt("vtrace chunk: shorter than it says"));
            }
            Ok(Frame::Chunk { raw, requests })
        }
        _ => Err(Error::corrupt("neither a vtrace chunk nor its end record")),
    }
}

fn fill(input: &mut impl Read, bytes: &mut [u8]) -> Result<()> {
    input.read_exact(bytes).map_err(|e| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => Error::corrupt(CUT).because(reason::CUT),
        _ => Error::io("read a trace chunk", e),
    })
}
