//! Answers to requests: carries them out on the device, and encodes replies into an output buffer.

use super::buffers::{OUTPUT_FULL, Output, Wire};
use super::handshake::ALLOCATION_ID;
use super::server::Counters;
use super::wire::transmission::{
    Agreed, Command, DATA_CHUNK_BYTES, Errno, Request, SIMPLE_REPLY_BYTES, data_chunk, error_chunk,
    hole_chunk, simple_reply, status_chunk,
};
use crate::bytes::ByteDevice;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use vellum_base::{Allocation, Error};

/// Reads of at least this length ask the device for holes first.
const HOLE_LOOKUP_BYTES: u64 = 64 << 10;
const EXTENTS_MAX: usize = 4096;

const STATE_HOLE: u32 = 1;
const STATE_ZERO: u32 = 2;

/// What all answers of a connection share.
#[derive(Clone, Copy)]
pub(super) struct Session<'a> {
    pub(super) device: &'a ByteDevice,
    pub(super) wire: &'a Wire<'a>,
    pub(super) counters: &'a Counters,
    pub(super) agreed: Agreed,
}

/// Carries out requests and encodes replies. Only whole chunks are sent at once, so that replies of others may go
/// between them.
pub(super) struct Answers<'a> {
    pub(super) session: Session<'a>,
    output: Output,
}

/// Why a request failed.
pub(super) struct Refusal {
    errno: Errno,
    message: String,
    offset: Option<u64>,
}

impl<'a> Answers<'a> {
    pub(super) fn new(session: Session<'a>) -> Answers<'a> {
        Answers { session, output: Output::new() }
    }

    /// Sends what has been encoded so far.
    pub(super) fn send(&mut self) -> io::Result<()> {
        self.output.send(self.session.wire)
    }

    /// True if the output should be sent.
    pub(super) fn is_full(&self) -> bool {
        self.output.is_full()
    }

    /// Carries out a request and encodes the reply.
    pub(super) fn answer(&mut self, request: &Request, command: Command, payload: &[u8]) -> io::Result<()> {
        match command {
            Command::Read { whole } => self.read(request, whole),
            Command::BlockStatus { one } => self.block_status(request, one),
            other => {
                let done = self.change(request, other, payload);
                self.acknowledge(request, done)
            }
        }
    }

    fn change(&mut self, request: &Request, command: Command, payload: &[u8]) -> Result<(), Refusal> {
        let (offset, length) = (request.offset, u64::from(request.length));
        match command {
            Command::Write { fua } => {
                self.session.counters.written_bytes.fetch_add(length, Relaxed);
                self.session.device.write(offset, payload, fua)?;
            }
            Command::Flush => self.session.device.flush()?,
            Command::Trim { fua } => {
                self.session.device.trim(offset, length)?;
                if fua {
                    self.session.device.flush()?;
                }
            }
            Command::WriteZeroes { fast: true, .. } if !self.session.device.trims() => {
                let why = "the device makes zeros no faster than it writes";
                return Err(Refusal::plain(Errno::Unsupported, why));
            }
            Command::WriteZeroes { fua, .. } => self.session.device.write_zeroes(offset, length, fua)?,
            // Nothing to do: there is no cache to fetch the range into.
            Command::Cache => {}
            Command::Read { .. } | Command::BlockStatus { .. } | Command::Disconnect => {
                unreachable!("these have answers of their own")
            }
        }
        Ok(())
    }

    pub(super) fn acknowledge(&mut self, request: &Request, done: Result<(), Refusal>) -> io::Result<()> {
        match done {
            Ok(()) => self.output.put(self.session.wire, &simple_reply(request.cookie, None)),
            Err(refusal) => self.refuse(request, refusal),
        }
    }

    pub(super) fn refuse(&mut self, request: &Request, refusal: Refusal) -> io::Result<()> {
        self.session.counters.errors.fetch_add(1, Relaxed);
        let Refusal { errno, message, offset } = refusal;
        if self.session.agreed.structured {
            self.output.put(self.session.wire, &error_chunk(request.cookie, errno, &message, offset))
        } else {
            self.output.put(self.session.wire, &simple_reply(request.cookie, Some(errno)))
        }
    }

    fn read(&mut self, request: &Request, whole: bool) -> io::Result<()> {
        self.session.counters.read_bytes.fetch_add(u64::from(request.length), Relaxed);
        if self.session.agreed.structured && !whole {
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
                match self.session.device.allocation(offset, length) {
                    Ok((found, alike)) => (kind, length) = (found, alike),
                    Err(e) => return self.refuse(request, Refusal::at(e, offset)),
                }
            }
            if kind != Allocation::Data {
                let last = offset + length == end;
                self.output
                    .put(self.session.wire, &hole_chunk(request.cookie, last, offset, length as u32))?;
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
        let done = if self.session.agreed.structured {
            let header = data_chunk(request.cookie, true, request.offset, request.length);
            self.put_data(&header, request.offset, length)?
        } else {
            self.put_data(&simple_reply(request.cookie, None), request.offset, length)?
        };
        done.or_else(|e| self.refuse(request, e.into()))
    }

    /// Appends a header and data from the device; nothing if the device fails.
    fn put_data(&mut self, header: &[u8], offset: u64, length: usize) -> io::Result<Result<(), Error>> {
        let room = self.output.room(self.session.wire, header.len() + length)?;
        let (front, data) = room.split_at_mut(header.len());
        front.copy_from_slice(header);
        if let Err(e) = self.session.device.read(offset, data) {
            return Ok(Err(e));
        }
        self.output.commit(header.len() + length);
        Ok(Ok(()))
    }

    /// A long read in one piece: the success header may only be sent once all data could be read.
    fn read_long(&mut self, request: &Request) -> io::Result<()> {
        let mut data = vec![0; request.length as usize];
        if let Err(e) = self.session.device.read(request.offset, &mut data) {
            return self.refuse(request, e.into());
        }
        if self.session.agreed.structured {
            let header = data_chunk(request.cookie, true, request.offset, request.length);
            self.output.put(self.session.wire, &header)?;
        } else {
            self.output.put(self.session.wire, &simple_reply(request.cookie, None))?;
        }
        self.output.send_with(self.session.wire, &data)
    }

    fn block_status(&mut self, request: &Request, one: bool) -> io::Result<()> {
        let most = if one { 1 } else { EXTENTS_MAX };
        match self.extents(request.offset, u64::from(request.length), most) {
            Ok(extents) => {
                self.output.put(self.session.wire, &status_chunk(request.cookie, ALLOCATION_ID, &extents))
            }
            Err(e) => self.refuse(request, e.into()),
        }
    }

    fn extents(&self, mut offset: u64, length: u64, most: usize) -> Result<Vec<(u32, u32)>, Error> {
        let end = offset + length;
        let mut extents: Vec<(u32, u32)> = Vec::new();
        while offset < end {
            let (kind, alike) = self.session.device.allocation(offset, end - offset)?;
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
    pub(super) fn plain(errno: Errno, message: &str) -> Refusal {
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

// The largest request to `Output::room` fits.
const _: () = assert!(OUTPUT_FULL + DATA_CHUNK_BYTES <= OUTPUT_FULL + 4096);
const _: () = assert!(SIMPLE_REPLY_BYTES <= DATA_CHUNK_BYTES && EXTENTS_MAX * 8 < OUTPUT_FULL);
