//! Buffers of a connection: bytes received and not yet parsed, and replies not yet sent.
//!
//! Performance depends on few large system calls: one read takes many requests, one write sends many replies.
//! Invariant: neither buffer ever grows.

use crate::endpoint::Stream;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::io::{self, IoSlice, Write};
use std::net::Shutdown;
use vellum_base::sync::Mutex;

/// Size of the input buffer. Requests of up to half of it are handled in one piece.
pub(super) const INPUT_BYTES: usize = 512 << 10;
/// Replies are sent at this size, even if more requests are pending.
pub(super) const OUTPUT_FULL: usize = 256 << 10;
const OUTPUT_BYTES: usize = 2 * OUTPUT_FULL + 4096;

/// Bytes received from the client.
pub(super) struct Input {
    buf: Box<[u8]>,
    start: usize,
    end: usize,
}

/// Outcome of waiting for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    /// At least one byte arrived.
    Bytes,
    /// The client has disconnected, or the server is stopping.
    End,
    /// Nothing arrived within the socket's time limit.
    TimedOut,
}

impl Input {
    pub(super) fn new() -> Input {
        Input { buf: vec![0; INPUT_BYTES].into(), start: 0, end: 0 }
    }

    /// The bytes not yet consumed.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buf[self.start..self.end]
    }

    /// Removes `count` available bytes from the front.
    pub(super) fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Waits for bytes and reads once; there is room for `wanted` unconsumed bytes (at most [`INPUT_BYTES`]) in total.
    pub(super) fn fill(&mut self, stream: &Stream, wanted: usize) -> io::Result<Fill> {
        if self.start + wanted.max(4096) > self.buf.len() {
            self.buf.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        loop {
            return match rustix::net::recv(stream, &mut self.buf[self.end..], RecvFlags::empty()) {
                Ok((_, 0)) => Ok(Fill::End),
                Ok((_, count)) => {
                    self.end += count;
                    Ok(Fill::Bytes)
                }
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Ok(Fill::TimedOut),
                Err(e) => Err(e.into()),
            };
        }
    }
}

/// Bytes to be sent to the client.
pub(super) struct Output {
    // Always of full length, so that data can be read into it without clearing it first.
    buf: Box<[u8]>,
    used: usize,
}

impl Output {
    pub(super) fn new() -> Output {
        Output { buf: vec![0; OUTPUT_BYTES].into(), used: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.used >= OUTPUT_FULL
    }

    /// Room for `count` bytes (at most [`OUTPUT_FULL`] + 4096), which become output by [`Output::commit`].
    pub(super) fn room(&mut self, wire: &Wire<'_>, count: usize) -> io::Result<&mut [u8]> {
        if self.used + count > self.buf.len() {
            self.send(wire)?;
        }
        Ok(&mut self.buf[self.used..self.used + count])
    }

    /// Makes the first `count` bytes of the last [`Output::room`] output.
    pub(super) fn commit(&mut self, count: usize) {
        self.used += count;
    }

    /// Appends `bytes`, at most as many as [`Output::room`] may give.
    pub(super) fn put(&mut self, wire: &Wire<'_>, bytes: &[u8]) -> io::Result<()> {
        self.room(wire, bytes.len())?.copy_from_slice(bytes);
        self.commit(bytes.len());
        Ok(())
    }

    /// Sends everything.
    pub(super) fn send(&mut self, wire: &Wire<'_>) -> io::Result<()> {
        let used = std::mem::take(&mut self.used);
        if used == 0 {
            return Ok(());
        }
        let _turn = wire.turn.lock();
        let mut stream = wire.stream;
        stream.write_all(&self.buf[..used])
    }

    /// Sends everything, then `bytes`, without copying them.
    pub(super) fn send_with(&mut self, wire: &Wire<'_>, bytes: &[u8]) -> io::Result<()> {
        let used = std::mem::take(&mut self.used);
        let mut slices = [IoSlice::new(&self.buf[..used]), IoSlice::new(bytes)];
        let mut left = &mut slices[..];
        let (_turn, mut stream) = (wire.turn.lock(), wire.stream);
        while !left.is_empty() {
            match stream.write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => IoSlice::advance_slices(&mut left, count),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// The sending side of a client's stream, shared by several tasks that take turns.
pub(super) struct Wire<'a> {
    stream: &'a Stream,
    turn: Mutex<()>,
}

impl<'a> Wire<'a> {
    pub(super) fn new(stream: &'a Stream) -> Wire<'a> {
        Wire { stream, turn: Mutex::new(()) }
    }

    /// Shuts the connection down in both directions.
    pub(super) fn hang_up(&self) {
        let _ = self.stream.shutdown(Shutdown::Both); // it may have gone by itself
    }
}
