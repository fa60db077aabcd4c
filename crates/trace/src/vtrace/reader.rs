//! Reads a vtrace file.

use crate::request::{ByteLen, REQUEST_BYTES_MAX, Request};
use crate::source::{Pull, RequestSource};
use crate::vtrace::frame::{self, Frame};
use crate::vtrace::header::Header;
use crate::vtrace::row::State;
use crate::vtrace::varint::Cursor;
use std::io::Read;
use vellum_base::{Error, Result};

/// The requests of a vtrace file, chunk by chunk (at most 16 MiB in memory). Ends after the first error.
pub struct Reader<R> {
    input: R,
    header: Header,
    raw: Vec<u8>,
    at: usize,
    state: State,
    left: u32,
    requests: u32,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    pub fn new(mut input: R) -> Result<Reader<R>> {
        let header = Header::read_from(&mut input)?;
        Ok(Reader {
            input,
            header,
            raw: Vec::new(),
            at: 0,
            state: State::default(),
            left: 0,
            requests: 0,
            ended: false,
        })
    }

    /// The header of the trace.
    pub fn header(&self) -> &Header {
        &self.header
    }

    fn open_chunk(&mut self, raw: Vec<u8>, requests: u32) -> Result<()> {
        let mut rows = Cursor(&raw);
        self.state = State::read_head(&mut rows)
            .ok_or_else(|| Error::corrupt("vtrace chunk: no state at its start"))?;
        self.at = raw.len() - rows.0.len();
        self.raw = raw;
        self.left = requests;
        Ok(())
    }
}

impl<R: Read> Pull for Reader<R> {
    fn pull(&mut self) -> Result<Option<Request>> {
        while self.left == 0 {
            if self.at != self.raw.len() {
                return Err(Error::corrupt("vtrace chunk: bytes behind its last request"));
            }
            match frame::read(&mut self.input)? {
                Frame::End { requests } if requests == self.requests => return Ok(None),
                Frame::End { requests } => {
                    let found = self.requests;
                    return Err(Error::corrupt(format!(
                        "the trace has {found} requests instead of {requests}"
                    )));
                }
                Frame::Chunk { raw, requests } => self.open_chunk(raw, requests)?,
            }
        }
        let mut rows = Cursor(&self.raw[self.at..]);
        let request =
            self.state.read(&mut rows).ok_or_else(|| Error::corrupt("vtrace chunk: not a request"))?;
        if request.moves_more_than(REQUEST_BYTES_MAX) {
            return Err(too_long(&request));
        }
        self.at = self.raw.len() - rows.0.len();
        self.left -= 1;
        self.requests = self.requests.wrapping_add(1);
        Ok(Some(request))
    }

    fn ended(&mut self) -> &mut bool {
        &mut self.ended
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Request>;

    fn next(&mut self) -> Option<Result<Request>> {
        self.pull_to_end()
    }
}

impl<R: Read + Send> RequestSource for Reader<R> {
    fn device_bytes(&self) -> Option<ByteLen> {
        Some(self.header.device_bytes)
    }
}

fn too_long(request: &Request) -> Error {
    let (kind, length, at) = (request.kind.name(), request.length.0, request.offset.0);
    Error::corrupt(format!(
        "vtrace chunk: a {kind} of {length} bytes at {at}; none is longer than 8 MiB: whoever wrote the trace must split it"
    ))
}
