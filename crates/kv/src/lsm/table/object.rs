//! Objects, of which tables consist: each has a head with a checksum, and takes whole units.

use crate::bytes::u32_at;
use vellum_base::{Error, Result};

/// Usual bytes of a unit; objects begin at multiples of it. Tables on media that can share less have smaller units
/// ([`crate::media::MediaShape::unit_bytes`]).
pub(crate) const TABLE_UNIT_BYTES: usize = 4096;
/// Bytes of the smallest unit.
pub(crate) const UNIT_BYTES_MIN: usize = 64;
/// Bytes of an object's head.
pub(crate) const OBJECT_HEAD_BYTES: usize = 16;
/// Most bytes of an object.
pub(crate) const OBJECT_BYTES_MAX: usize = 1 << 27;

/// What an object is. Values are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    Data = 1,
    Index = 2,
    Root = 3,
    Filter = 4,
    Foot = 5,
}

/// How a payload is stored. Values are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    None = 0,
    Lz4 = 1,
    Zstd = 2,
}

/// The head of an object, checked as far as possible without its checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    crc: u32,
    /// Bytes used, head included.
    pub length: usize,
    /// Bytes of the uncompressed payload.
    pub plain: usize,
    pub restarts: u16,
    pub kind: ObjectKind,
    pub codec: Codec,
}

impl Head {
    /// Reads the head at the start of `bytes`.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Head> {
        let bad = |what: &str| Err(Error::corrupt(format!("table object: {what}")));
        if bytes.len() < OBJECT_HEAD_BYTES {
            return bad("cut off before the end of its head");
        }
        let (length, plain) = (u32_at(bytes, 4) as usize, u32_at(bytes, 8) as usize);
        let kind = match bytes[14] {
            1 => ObjectKind::Data,
            2 => ObjectKind::Index,
            3 => ObjectKind::Root,
            4 => ObjectKind::Filter,
            5 => ObjectKind::Foot,
            _ => return bad("of no known kind"),
        };
        if !(OBJECT_HEAD_BYTES..=OBJECT_BYTES_MAX).contains(&length) || plain > OBJECT_BYTES_MAX {
            return bad("of impossible length");
        }
        let restarts = u16::from_le_bytes([bytes[12], bytes[13]]);
        let codec = match bytes[15] {
            0 if plain == length - OBJECT_HEAD_BYTES => Codec::None,
            0 => return bad("with two lengths"),
            1 => Codec::Lz4,
            2 => Codec::Zstd,
            _ => return bad("with an unknown codec"),
        };
        if codec != Codec::None && kind != ObjectKind::Data {
            return bad("that cannot be compressed so");
        }
        Ok(Head { crc: u32_at(bytes, 0), length, plain, restarts, kind, codec })
    }

    /// Verifies checksum, kind and length of the object at the start of `bytes`.
    pub(crate) fn check(&self, bytes: &[u8], kind: ObjectKind) -> Result<()> {
        match bytes.get(4..self.length) {
            Some(content) if vellum_codes::crc32c(content) != self.crc => {
                Err(Error::corrupt("table object: checksum does not match"))
            }
            _ => self.fits(bytes, kind),
        }
    }

    /// Verifies kind and length only.
    pub(crate) fn fits(&self, bytes: &[u8], kind: ObjectKind) -> Result<()> {
        match self.kind == kind {
            _ if bytes.len() < self.length => Err(Error::corrupt("table object: cut off")),
            true => Ok(()),
            false => Err(Error::corrupt(format!("table object: a {:?} where a {kind:?} belongs", self.kind))),
        }
    }
}

/// Begins an object at the end of `out`; returns its start.
pub(crate) fn begin(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    debug_assert!(start.is_multiple_of(UNIT_BYTES_MIN));
    out.resize(start + OBJECT_HEAD_BYTES, 0);
    start
}

/// Ends the object begun at `start`: fills in its head, and pads it to whole units. Returns their number.
pub(crate) fn end(
    out: &mut Vec<u8>,
    start: usize,
    kind: ObjectKind,
    restarts: u16,
    unit_bytes: usize,
) -> usize {
    let plain = out.len() - start - OBJECT_HEAD_BYTES;
    end_packed(out, start, (kind, Codec::None), restarts, plain, unit_bytes)
}

/// The same for a payload that had `plain` bytes before it was compressed.
pub(crate) fn end_packed(
    out: &mut Vec<u8>,
    start: usize,
    (kind, codec): (ObjectKind, Codec),
    restarts: u16,
    plain: usize,
    unit_bytes: usize,
) -> usize {
    let length = out.len() - start;
    out[start + 4..start + 8].copy_from_slice(&(length as u32).to_le_bytes());
    out[start + 8..start + 12].copy_from_slice(&(plain as u32).to_le_bytes());
    out[start + 12..start + 14].copy_from_slice(&restarts.to_le_bytes());
    out[start + 14] = kind as u8;
    out[start + 15] = codec as u8;
    let crc = vellum_codes::crc32c(&out[start + 4..]);
    out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
    let units = length.div_ceil(unit_bytes);
    out.resize(start + units * unit_bytes, 0);
    units
}
