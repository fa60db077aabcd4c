//! The NBD wire format, as pure functions between bytes and typed values. No I/O, no state.
//!
//! Source: the protocol document of the NetworkBlockDevice project, "fixed newstyle" with structured replies.
//! Everything on the wire is big endian. Invariants:
//! 1. No input makes these functions panic, and none allocates more than the length of the input.
//! 2. What one side encodes, the other parses to the same value.

pub mod handshake;
pub mod transmission;

/// The peer does not speak the protocol: the only possible reaction is to disconnect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadMagic(
    /// The value in the place of a magic number.
    pub u64,
);

impl std::fmt::Display for BadMagic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the client does not speak NBD: {:#x} is no magic number", self.0)
    }
}

impl std::error::Error for BadMagic {}

/// Takes big-endian numbers and bytes from the front of a slice; `None` when it is too short.
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N).map(|b| b.try_into().expect("N bytes were asked for"))
    }
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}
