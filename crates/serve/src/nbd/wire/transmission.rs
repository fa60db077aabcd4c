//! The second phase: requests, and simple or structured replies.

use super::{BadMagic, Cursor};
use vellum_base::Kind;

/// Before each request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Before each simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Before each chunk of a structured reply.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;
/// Bytes of a request without its payload.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of a simple reply without its payload.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Bytes of the header of a chunk.
pub const CHUNK_HEADER_BYTES: usize = 20;
/// Bytes before the data in a data chunk: its header and the offset.
pub const DATA_CHUNK_BYTES: usize = CHUNK_HEADER_BYTES + 8;
/// Largest payload in either direction that clients are promised.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// Flags of an export, sent at the end of the handshake.
pub mod export_flag {
    /// The other flags are valid.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// The export cannot be written.
    pub const READ_ONLY: u16 = 1 << 1;
    /// Flush is supported.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// Requests may ask for durability.
    pub const SEND_FUA: u16 = 1 << 3;
    /// Trim is supported, and cheap.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// Write-zeroes is supported.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// "Do not fragment" is supported.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers all of them.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// Cache is supported.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// Write-zeroes may be asked to fail rather than be slow.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Flags of a request.
pub mod flag {
    /// Durable before the reply.
    pub const FUA: u16 = 1 << 0;
    /// Write-zeroes must not leave a hole.
    pub const NO_HOLE: u16 = 1 << 1;
    /// A read must be answered in one piece.
    pub const DF: u16 = 1 << 2;
    /// Block status of a single extent.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Write-zeroes must fail rather than be slow.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Command codes.
pub mod command {
    /// `NBD_CMD_READ`.
    pub const READ: u16 = 0;
    /// `NBD_CMD_WRITE`.
    pub const WRITE: u16 = 1;
    /// `NBD_CMD_DISC`.
    pub const DISCONNECT: u16 = 2;
    /// `NBD_CMD_FLUSH`.
    pub const FLUSH: u16 = 3;
    /// `NBD_CMD_TRIM`.
    pub const TRIM: u16 = 4;
    /// `NBD_CMD_CACHE`.
    pub const CACHE: u16 = 5;
    /// `NBD_CMD_WRITE_ZEROES`.
    pub const WRITE_ZEROES: u16 = 6;
    /// `NBD_CMD_BLOCK_STATUS`.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Error numbers of the protocol (those of Linux).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// Not permitted: the export is read-only.
    Perm = 1,
    /// The device failed.
    Io = 5,
    /// The request is invalid.
    Invalid = 22,
    /// No space, or a write beyond the end.
    NoSpace = 28,
    /// Too long for one piece.
    Overflow = 75,
    /// Not supported, or not at the requested speed.
    Unsupported = 95,
    /// The server is stopping.
    Shutdown = 108,
}

impl From<Kind> for Errno {
    fn from(kind: Kind) -> Errno {
        match kind {
            Kind::Invalid => Errno::Invalid,
            Kind::NoSpace => Errno::NoSpace,
            Kind::Unsupported => Errno::Unsupported,
            Kind::PowerLost => Errno::Shutdown,
            _ => Errno::Io,
        }
    }
}

/// The header of a request, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// `flag::*`.
    pub flags: u16,
    /// `command::*`, or any other value.
    pub code: u16,
    /// Repeated in the reply.
    pub cookie: u64,
    /// First byte on the device.
    pub offset: u64,
    /// Bytes on the device.
    pub length: u32,
}

/// What the handshake agreed on, as far as it decides which requests are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Size of the export in bytes.
    pub bytes: u64,
    /// The export is read-only.
    pub read_only: bool,
    /// Reads are answered in chunks.
    pub structured: bool,
    /// `base:allocation` was selected.
    pub allocation: bool,
}

/// A valid request: its range is within the export, and its flags fit the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read the range; in one piece if `whole`.
    Read {
        /// As a single chunk.
        whole: bool,
    },
    /// Write the payload to the range.
    Write {
        /// Durably.
        fua: bool,
    },
    /// End the session; there is no reply.
    Disconnect,
    /// Make everything durable.
    Flush,
    /// Trim the range.
    Trim {
        /// Durably.
        fua: bool,
    },
    /// Prefetch the range.
    Cache,
    /// Zero the range.
    WriteZeroes {
        /// Durably.
        fua: bool,
        /// Fail if it is no faster than a write.
        fast: bool,
    },
    /// Report the allocation of the range.
    BlockStatus {
        /// A single extent only.
        one: bool,
    },
}

impl Request {
    /// Parses the request at the front of `bytes`; `None` if there are fewer than [`REQUEST_BYTES`].
    pub fn parse(bytes: &[u8]) -> Result<Option<Request>, BadMagic> {
        let mut cursor = Cursor(bytes);
        match cursor.u32() {
            Some(REQUEST_MAGIC) => {}
            Some(other) => return Err(BadMagic(u64::from(other))),
            None => return Ok(None),
        }
        let mut rest = || {
            Some(Request {
                flags: cursor.u16()?,
                code: cursor.u16()?,
                cookie: cursor.u64()?,
                offset: cursor.u64()?,
                length: cursor.u32()?,
            })
        };
        Ok(rest())
    }

    /// The request as sent by a client, without its payload.
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut out = [0; REQUEST_BYTES];
        out[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        out[4..6].copy_from_slice(&self.flags.to_be_bytes());
        out[6..8].copy_from_slice(&self.code.to_be_bytes());
        out[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        out[16..24].copy_from_slice(&self.offset.to_be_bytes());
        out[24..].copy_from_slice(&self.length.to_be_bytes());
        out
    }

    /// Length of the payload that follows.
    pub fn payload_bytes(&self) -> usize {
        if self.code == command::WRITE { self.length as usize } else { 0 }
    }

    /// The command to carry out, or the error to answer with.
    pub fn check(&self, agreed: &Agreed) -> Result<Command, Errno> {
        use command::*;
        let known = match self.code {
            READ if agreed.structured => flag::FUA | flag::DF,
            WRITE_ZEROES => flag::FUA | flag::NO_HOLE | flag::FAST_ZERO,
            BLOCK_STATUS => flag::FUA | flag::REQ_ONE,
            _ => flag::FUA,
        };
        if self.flags & !known != 0 {
            return Err(Errno::Invalid);
        }
        let has = |flag| self.flags & flag != 0;
        let fua = has(flag::FUA);
        match self.code {
            READ => self.check_read(agreed, has(flag::DF)),
            WRITE => self.check_change(agreed, Errno::NoSpace, Command::Write { fua }),
            DISCONNECT => Ok(Command::Disconnect),
            FLUSH if self.offset == 0 && self.length == 0 => Ok(Command::Flush),
            TRIM => self.check_change(agreed, Errno::Invalid, Command::Trim { fua }),
            CACHE => self.check_range(agreed, Errno::Invalid).map(|()| Command::Cache),
            WRITE_ZEROES => {
                let command = Command::WriteZeroes { fua, fast: has(flag::FAST_ZERO) };
                self.check_change(agreed, Errno::NoSpace, command)
            }
            BLOCK_STATUS if agreed.allocation => {
                self.check_range(agreed, Errno::Invalid)?;
                Ok(Command::BlockStatus { one: has(flag::REQ_ONE) })
            }
            _ => Err(Errno::Invalid),
        }
    }

    fn check_read(&self, agreed: &Agreed, whole: bool) -> Result<Command, Errno> {
        self.check_range(agreed, Errno::Invalid)?;
        match self.length > PAYLOAD_BYTES_MAX {
            true if whole => Err(Errno::Overflow),
            true => Err(Errno::Invalid),
            false => Ok(Command::Read { whole }),
        }
    }

    fn check_change(&self, agreed: &Agreed, beyond: Errno, command: Command) -> Result<Command, Errno> {
        if agreed.read_only {
            return Err(Errno::Perm);
        }
        self.check_range(agreed, beyond)?;
        match command {
            Command::Write { .. } if self.length > PAYLOAD_BYTES_MAX => Err(Errno::Invalid),
            _ => Ok(command),
        }
    }

    fn check_range(&self, agreed: &Agreed, beyond: Errno) -> Result<(), Errno> {
        match self.offset.checked_add(u64::from(self.length)) {
            _ if self.length == 0 => Err(Errno::Invalid),
            Some(end) if end <= agreed.bytes => Ok(()),
            _ => Err(beyond),
        }
    }
}

/// Kinds of chunk in a structured reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Chunk {
    /// Nothing; ends the reply.
    None = 0,
    /// Offset, data.
    Data = 1,
    /// Offset and number of zeros.
    Hole = 2,
    /// Context, extents.
    BlockStatus = 5,
    /// Error, message.
    Error = 1 << 15 | 1,
    /// Error, message, offset.
    ErrorOffset = 1 << 15 | 2,
}

/// The header of a simple reply; without `error`, a success.
pub fn simple_reply(cookie: u64, error: Option<Errno>) -> [u8; SIMPLE_REPLY_BYTES] {
    let mut out = [0; SIMPLE_REPLY_BYTES];
    out[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    out[4..8].copy_from_slice(&error.map_or(0, |e| e as u32).to_be_bytes());
    out[8..].copy_from_slice(&cookie.to_be_bytes());
    out
}

/// The header of a chunk with `length` bytes to follow; `done` marks the last chunk of a reply.
pub fn chunk_header(cookie: u64, kind: Chunk, done: bool, length: u32) -> [u8; CHUNK_HEADER_BYTES] {
    let mut out = [0; CHUNK_HEADER_BYTES];
    out[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    out[4..6].copy_from_slice(&u16::from(done).to_be_bytes());
    out[6..8].copy_from_slice(&(kind as u16).to_be_bytes());
    out[8..16].copy_from_slice(&cookie.to_be_bytes());
    out[16..].copy_from_slice(&length.to_be_bytes());
    out
}

/// The header of a data chunk, before `length` bytes of data from `offset`.
pub fn data_chunk(cookie: u64, done: bool, offset: u64, length: u32) -> [u8; DATA_CHUNK_BYTES] {
    let mut out = [0; DATA_CHUNK_BYTES];
    out[..CHUNK_HEADER_BYTES].copy_from_slice(&chunk_header(cookie, Chunk::Data, done, length + 8));
    out[CHUNK_HEADER_BYTES..].copy_from_slice(&offset.to_be_bytes());
    out
}

/// A chunk that reports `length` bytes from `offset` as zeros.
pub fn hole_chunk(cookie: u64, done: bool, offset: u64, length: u32) -> [u8; DATA_CHUNK_BYTES + 4] {
    let mut out = [0; DATA_CHUNK_BYTES + 4];
    out[..CHUNK_HEADER_BYTES].copy_from_slice(&chunk_header(cookie, Chunk::Hole, done, 12));
    out[CHUNK_HEADER_BYTES..DATA_CHUNK_BYTES].copy_from_slice(&offset.to_be_bytes());
    out[DATA_CHUNK_BYTES..].copy_from_slice(&length.to_be_bytes());
    out
}

/// The last chunk of a failed reply, with a message and, if known, the offset that failed.
pub fn error_chunk(cookie: u64, error: Errno, message: &str, offset: Option<u64>) -> Vec<u8> {
    let cut = (0..=message.len().min(1024)).rev().find(|&i| message.is_char_boundary(i)).unwrap_or(0);
    let message = &message.as_bytes()[..cut];
    let kind = if offset.is_some() { Chunk::ErrorOffset } else { Chunk::Error };
    let length = 6 + message.len() + if offset.is_some() { 8 } else { 0 };
    let mut out = chunk_header(cookie, kind, true, length as u32).to_vec();
    out.extend((error as u32).to_be_bytes());
    out.extend((message.len() as u16).to_be_bytes());
    out.extend(message);
    out.extend(offset.iter().flat_map(|o| o.to_be_bytes()));
    out
}

/// The single chunk of a block-status reply: extents as (bytes, state) for the context `id`.
pub fn status_chunk(cookie: u64, id: u32, extents: &[(u32, u32)]) -> Vec<u8> {
    let mut out = chunk_header(cookie, Chunk::BlockStatus, true, 4 + extents.len() as u32 * 8).to_vec();
    out.extend(id.to_be_bytes());
    for (bytes, state) in extents {
        out.extend(bytes.to_be_bytes());
        out.extend(state.to_be_bytes());
    }
    out
}
