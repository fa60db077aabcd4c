//! The second phase of a connection: requests in, replies out, in order.
//!
//! One loop a connection: take every complete request out of the input, gather the replies, and send them when
//! no complete request is left. Invariants:
//! 1. A wrong request gets an error reply and costs the client nothing else; its payload is passed over.
//! 2. Memory: the two buffers, plus at most one read of `PAYLOAD_BYTES_MAX` for a client that wants it in one piece.
//! 3. Long writes go to the device as they arrive, cut at sector boundaries.

use super::buffers::{Fill, INPUT_BYTES, Input, OUTPUT_FULL, Output};
use super::handshake::ALLOCATION_ID;
use super::server::Counters;
use super::wire::transmission::{
    Agreed, Command, DATA_CHUNK_BYTES, Errno, PAYLOAD_BYTES_MAX, REQUEST_BYTES, Request, SIMPLE_REPLY_BYTES,
    command, data_chunk, error_chunk, hole_chunk, simple_reply, status_chunk,
};
use crate::bytes::ByteDevice;
use crate::endpoint::Stream;
use crate::stop::Stop;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use vellum_base::{Allocation, Error, SECTOR_BYTES};

/// A write with a longer payload than this is not even passed over: the client is hung up on.
const SKIPPED_BYTES_MAX: usize = 2 * PAYLOAD_BYTES_MAX as usize;
/// Reads this long are worth asking the device for holes.
const HOLE_LOOKUP_BYTES: u64 = 64 << 10;
const EXTENTS_MAX: usize = 4096;
/// Once told to stop, a connection reads at most this often before it turns requests away.
const FILLS_AFTER_STOP: usize = 16;

const STATE_HOLE: u32 = 1;
const STATE_ZERO: u32 = 2;

pub(super) struct Transmission<'a> {
    pub(super) device: &'a ByteDevice,
    pub(super) stream: &'a Stream,
    pub(super) stop: &'a Stop,
    pub(super) counters: &'a Counters,
    pub(super) agreed: Agreed,
    pub(super) input: Input,
    output: Output,
    turned_away: bool,
}

/// Why a request could not be done.
struct Refusal {
    errno: Errno,
    message: String,
    offset: Option<u64>,
}

impl<'a> Transmission<'a> {
    pub(super) fn new(
        device: &'a ByteDevice,
        (stream, stop): (&'a Stream, &'a Stop),
        counters: &'a Counters,
        (agreed, input): (Agreed, Input),
    ) -> Transmission<'a> {
        let output = Output::new();
        Transmission { device, stream, stop, counters, agreed, input, output, turned_away: false }
    }

    /// Serves until the client leaves, breaks the protocol, stalls in the middle of a request, or we stop.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut fills_left = FILLS_AFTER_STOP;
        loop {
            let Some(wanted) = self.batch()? else { return self.output.send(self.stream) };
            self.output.send(self.stream)?;
            if self.stop.is_stopped() {
                match fills_left.checked_sub(1) {
                    Some(less) => fills_left = less,
                    None if self.turned_away => return Ok(()),
                    None => self.turned_away = true,
                }
            }
            match self.input.fill(self.stream, wanted)? {
                Fill::Bytes => {}
                // Between requests a client may be silent for as long as it likes.
                Fill::TimedOut if self.input.bytes().is_empty() => {}
                Fill::TimedOut | Fill::End => return Ok(()),
            }
        }
    }

    /// Does every complete request there is. Says how many bytes the next one needs; `None` ends the connection.
    fn batch(&mut self) -> io::Result<Option<usize>> {
        loop {
            let Ok(request) = Request::parse(self.input.bytes()) else { return Ok(None) };
            let Some(request) = request else { return Ok(Some(REQUEST_BYTES)) };
            if request.code == command::DISCONNECT {
                return Ok(None);
            }
            let payload = request.payload_bytes();
            let whole = REQUEST_BYTES + payload;
            if whole <= INPUT_BYTES / 2 {
                if self.input.bytes().len() < whole {
                    return Ok(Some(whole));
                }
                self.request(&request)?;
                self.input.consume(whole);
            } else if payload <= SKIPPED_BYTES_MAX {
                self.input.consume(REQUEST_BYTES);
                self.output.send(self.stream)?;
                if !self.long_write(&request)? {
                    return Ok(None);
                }
            } else {
                return Ok(None);
            }
            if self.output.is_full() {
                self.output.send(self.stream)?;
            }
        }
    }

    /// Does the request at the front of the input, payload and all.
    fn request(&mut self, request: &Request) -> io::Result<()> {
        match self.check(request) {
            Ok(Command::Read { whole }) => self.read(request, whole),
            Ok(Command::BlockStatus { one }) => self.block_status(request, one),
            Ok(other) => {
                let done = self.change(request, other);
                self.acknowledge(request, done)
            }
            Err(refusal) => self.refuse(request, refusal),
        }
    }

    fn check(&self, request: &Request) -> Result<Command, Refusal> {
        self.counters.requests.fetch_add(1, Relaxed);
        if self.turned_away {
            return Err(Refusal::plain(Errno::Shutdown, "the server is stopping"));
        }
        let agreed = &self.agreed;
        request.check(agreed).map_err(|errno| {
            let (code, offset, length, end) = (request.code, request.offset, request.length, agreed.bytes);
            let message = format!(
                "command {code} with flags {:#x} at {offset} + {length} cannot be, with {end} bytes served",
                request.flags
            );
            Refusal { errno, message, offset: None }
        })
    }

    fn change(&mut self, request: &Request, command: Command) -> Result<(), Refusal> {
        let (offset, length) = (request.offset, u64::from(request.length));
        match command {
            Command::Write { fua } => {
                let payload = &self.input.bytes()[REQUEST_BYTES..][..request.length as usize];
                self.counters.written_bytes.fetch_add(length, Relaxed);
                self.device.write(offset, payload, fua)?;
            }
            Command::Flush => self.device.flush()?,
            Command::Trim { fua } => {
                self.device.trim(offset, length)?;
                if fua {
                    self.device.flush()?;
                }
            }
            Command::WriteZeroes { fua } => self.device.write_zeroes(offset, length, fua)?,
            // Everything is as near at hand as it gets.
            Command::Cache => {}
            Command::Read { .. } | Command::BlockStatus { .. } | Command::Disconnect => {
                unreachable!("these have answers of their own")
            }
        }
        Ok(())
    }

    fn acknowledge(&mut self, request: &Request, done: Result<(), Refusal>) -> io::Result<()> {
        match done {
            Ok(()) => self.output.put(self.stream, &simple_reply(request.cookie, None)),
            Err(refusal) => self.refuse(request, refusal),
        }
    }

    fn refuse(&mut self, request: &Request, refusal: Refusal) -> io::Result<()> {
        self.counters.errors.fetch_add(1, Relaxed);
        let Refusal { errno, message, offset } = refusal;
        if self.agreed.structured {
            self.output.put(self.stream, &error_chunk(request.cookie, errno, &message, offset))
        } else {
            self.output.put(self.stream, &simple_reply(request.cookie, Some(errno)))
        }
    }

    /// Takes a payload that does not fit the input and writes it as it comes, or passes over it if the request is
    /// wrong. False if the client left half-way.
    fn long_write(&mut self, request: &Request) -> io::Result<bool> {
        let checked = self.check(request);
        let fua = matches!(checked, Ok(Command::Write { fua: true }));
        let mut outcome = checked.map(drop);
        let (mut offset, end) = (request.offset, u128::from(request.offset) + u128::from(request.length));
        let mut left = request.length as usize;
        while left > 0 {
            let mut here = self.input.bytes().len().min(left);
            if outcome.is_ok() && here < left {
                here = here.saturating_sub(((offset + here as u64) % SECTOR_BYTES as u64) as usize);
            }
            // Wait for a good piece: small ones would cost the device more than they save.
            if here == 0 || (here < left && here < INPUT_BYTES / 4) {
                match self.input.fill(self.stream, INPUT_BYTES.min(left))? {
                    Fill::Bytes => continue,
                    Fill::End | Fill::TimedOut => return Ok(false),
                }
            }
            if outcome.is_ok() {
                debug_assert!(u128::from(offset) + here as u128 <= end);
                let piece = &self.input.bytes()[..here];
                outcome = self.device.write(offset, piece, false).map_err(Refusal::from);
                self.counters.written_bytes.fetch_add(here as u64, Relaxed);
            }
            self.input.consume(here);
            offset = offset.wrapping_add(here as u64);
            left -= here;
        }
        if fua && outcome.is_ok() {
            outcome = self.device.flush().map_err(Refusal::from);
        }
        self.acknowledge(request, outcome)?;
        Ok(true)
    }

    fn read(&mut self, request: &Request, whole: bool) -> io::Result<()> {
        self.counters.read_bytes.fetch_add(u64::from(request.length), Relaxed);
        if self.agreed.structured && !whole {
            self.read_in_chunks(request)
        } else if request.length as usize <= OUTPUT_FULL {
            self.read_at_once(request)
        } else {
            self.read_long(request)
        }
    }

    fn read_in_chunks(&mut self, request: &Request) -> io::Result<()> {
        let mut offset = request.offset;
        let end = offset + u64::from(request.length);
        while offset < end {
            let mut length = end - offset;
            let mut kind = Allocation::Data;
            if length >= HOLE_LOOKUP_BYTES {
                match self.device.allocation(offset, length) {
                    Ok((found, alike)) => (kind, length) = (found, alike),
                    Err(e) => return self.refuse(request, Refusal::at(e, offset)),
                }
            }
            if kind != Allocation::Data {
                let last = offset + length == end;
                self.output.put(self.stream, &hole_chunk(request.cookie, last, offset, length as u32))?;
            } else {
                length = length.min(OUTPUT_FULL as u64);
                let last = offset + length == end;
                let header = data_chunk(request.cookie, last, offset, length as u32);
                if let Err(e) = self.put_data(&header, offset, length as usize)? {
                    return self.refuse(request, Refusal::at(e, offset));
                }
            }
            offset += length;
        }
        Ok(())
    }

    fn read_at_once(&mut self, request: &Request) -> io::Result<()> {
        let length = request.length as usize;
        let done = if self.agreed.structured {
            let header = data_chunk(request.cookie, true, request.offset, request.length);
            self.put_data(&header, request.offset, length)?
        } else {
            self.put_data(&simple_reply(request.cookie, None), request.offset, length)?
        };
        done.or_else(|e| self.refuse(request, e.into()))
    }

    /// Appends a header and data from the device; on failure of the device, nothing.
    fn put_data(&mut self, header: &[u8], offset: u64, length: usize) -> io::Result<Result<(), Error>> {
        let room = self.output.room(self.stream, header.len() + length)?;
        let (front, data) = room.split_at_mut(header.len());
        front.copy_from_slice(header);
        if let Err(e) = self.device.read(offset, data) {
            return Ok(Err(e));
        }
        self.output.commit(header.len() + length);
        Ok(Ok(()))
    }

    /// A long read that must be in one piece: a success header may only go out when all of it could be read.
    fn read_long(&mut self, request: &Request) -> io::Result<()> {
        let mut data = vec![0; request.length as usize];
        if let Err(e) = self.device.read(request.offset, &mut data) {
            return self.refuse(request, e.into());
        }
        if self.agreed.structured {
            let header = data_chunk(request.cookie, true, request.offset, request.length);
            self.output.put(self.stream, &header)?;
        } else {
            self.output.put(self.stream, &simple_reply(request.cookie, None))?;
        }
        self.output.send_with(self.stream, &data)
    }

    fn block_status(&mut self, request: &Request, one: bool) -> io::Result<()> {
        let most = if one { 1 } else { EXTENTS_MAX };
        match self.extents(request.offset, u64::from(request.length), most) {
            Ok(extents) => {
                self.output.put(self.stream, &status_chunk(request.cookie, ALLOCATION_ID, &extents))
            }
            Err(e) => self.refuse(request, e.into()),
        }
    }

    fn extents(&self, mut offset: u64, length: u64, most: usize) -> Result<Vec<(u32, u32)>, Error> {
        let end = offset + length;
        let mut extents: Vec<(u32, u32)> = Vec::new();
        while offset < end {
            let (kind, alike) = self.device.allocation(offset, end - offset)?;
            let state = match kind {
                Allocation::Data => 0,
                Allocation::Zero => STATE_ZERO,
                Allocation::Hole => STATE_HOLE | STATE_ZERO,
            };
            let found = extents.len();
            match extents.last_mut() {
                Some((bytes, same)) if *same == state => *bytes += alike as u32,
                _ if found == most => break,
                _ => extents.push((alike as u32, state)),
            }
            offset += alike;
        }
        Ok(extents)
    }
}

impl Refusal {
    fn plain(errno: Errno, message: &str) -> Refusal {
        Refusal { errno, message: message.into(), offset: None }
    }
    fn at(error: Error, offset: u64) -> Refusal {
        Refusal { offset: Some(offset), ..error.into() }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal { errno: error.kind().into(), message: error.to_string(), offset: None }
    }
}

// What `Output::room` is asked for at most, and can give at most.
const _: () = assert!(OUTPUT_FULL + DATA_CHUNK_BYTES <= OUTPUT_FULL + 4096);
const _: () = assert!(SIMPLE_REPLY_BYTES <= DATA_CHUNK_BYTES && EXTENTS_MAX * 8 < OUTPUT_FULL);
