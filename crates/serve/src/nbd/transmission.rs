//! The second phase of a connection: requests in, replies out.
//!
//! One loop per connection: it takes every complete request out of the input, gathers the replies, and sends them when
//! no complete request is left. Invariants:
//! 1. An invalid request gets an error reply without further harm to the client; its payload is skipped.
//! 2. Memory: the two buffers, plus at most one read of `PAYLOAD_BYTES_MAX` for a client that wants it in one piece;
//!    with a crew, an output buffer per worker and the payloads of requests in flight.
//! 3. Without a crew, long writes go to the device as they arrive, split at sector boundaries. A crew gets them whole,
//!    up to [`FLIGHT_BYTES_MAX`]: its device has many requests in flight, and gains more from long ones.
//! 4. With a crew, replies come in any order. A flush covers at least the requests answered before it was received.

use super::answers::{Answers, Refusal, Session};
use super::buffers::{Fill, INPUT_BYTES, Input, OUTPUT_FULL};
use super::crew::{Crew, Flight, Threads};
use super::wire::transmission::{Command, Errno, PAYLOAD_BYTES_MAX, REQUEST_BYTES, Request, command};
use crate::endpoint::Stream;
use crate::stop::Stop;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use vellum_base::SECTOR_BYTES;

/// A write with a longer payload than this is not skipped: the client is disconnected.
const SKIPPED_BYTES_MAX: usize = 2 * PAYLOAD_BYTES_MAX as usize;
/// Most bytes of a write that is given to a crew.
const FLIGHT_BYTES_MAX: usize = 2 << 20;
/// Once stopping, a connection reads at most this often before it rejects requests.
const FILLS_AFTER_STOP: usize = 16;

pub(super) struct Transmission<'a> {
    stream: &'a Stream,
    stop: &'a Stop,
    input: Input,
    answers: Answers<'a>,
    turned_away: bool,
}

/// The crew that answers concurrently, if there is one.
type Beside<'t, 's, 'e, 'a> = Option<(&'s Crew<'a>, Threads<'t, 's, 'e>)>;

impl<'a> Transmission<'a> {
    pub(super) fn new(
        session: Session<'a>,
        (stream, stop): (&'a Stream, &'a Stop),
        input: Input,
    ) -> Transmission<'a> {
        Transmission { stream, stop, input, answers: Answers::new(session), turned_away: false }
    }

    /// Serves until the client disconnects, breaks the protocol, stalls in the middle of a request, or the server
    /// stops. Carries out up to `at_once` requests concurrently.
    pub(super) fn run(mut self, at_once: usize) -> io::Result<()> {
        if at_once < 2 {
            return self.serve(None);
        }
        let crew = Crew::new(self.answers.session, at_once);
        std::thread::scope(|threads| {
            // Ends the workers however the loop ends; otherwise they would wait for ever.
            let _end = crew.ends();
            self.serve(Some((&crew, threads)))
        })
    }

    fn serve<'s>(&mut self, crew: Beside<'s, 's, '_, 'a>) -> io::Result<()> {
        let mut fills_left = FILLS_AFTER_STOP;
        loop {
            let Some(wanted) = self.batch(crew)? else { return self.answers.send() };
            self.answers.send()?;
            if self.stop.is_stopped() {
                match fills_left.checked_sub(1) {
                    Some(less) => fills_left = less,
                    None if self.turned_away => return Ok(()),
                    None => self.turned_away = true,
                }
            }
            match self.input.fill(self.stream, wanted)? {
                Fill::Bytes => {}
                // Between requests a client may be idle for any time.
                Fill::TimedOut if self.input.bytes().is_empty() => {}
                Fill::TimedOut | Fill::End => return Ok(()),
            }
        }
    }

    /// Handles every complete request in the input. Returns how many bytes the next one needs; `None` ends the
    /// connection.
    fn batch<'s>(&mut self, crew: Beside<'s, 's, '_, 'a>) -> io::Result<Option<usize>> {
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
                self.request(&request, crew)?;
                self.input.consume(whole);
            } else if payload <= SKIPPED_BYTES_MAX {
                self.input.consume(REQUEST_BYTES);
                self.answers.send()?;
                let goes_on = match (self.check(&request), crew) {
                    (Ok(command), Some(crew)) if payload <= FLIGHT_BYTES_MAX => {
                        self.long_flight(&request, command, crew)?
                    }
                    (checked, _) => self.long_write(&request, checked)?,
                };
                if !goes_on {
                    return Ok(None);
                }
            } else {
                return Ok(None);
            }
            if self.answers.is_full() {
                self.answers.send()?;
            }
        }
    }

    /// Carries out the request at the front of the input, with its payload, or hands it to the crew.
    fn request<'s>(&mut self, request: &Request, crew: Beside<'s, 's, '_, 'a>) -> io::Result<()> {
        let payload = &self.input.bytes()[REQUEST_BYTES..][..request.payload_bytes()];
        match (self.check(request), crew) {
            (Ok(command), Some((crew, threads))) if may_fly(command, request) => {
                crew.take(threads, Flight { request: *request, command, payload: payload.into() });
                Ok(())
            }
            (Ok(command), _) => self.answers.answer(request, command, payload),
            (Err(refusal), _) => self.answers.refuse(request, refusal),
        }
    }

    fn check(&self, request: &Request) -> Result<Command, Refusal> {
        self.answers.session.counters.requests.fetch_add(1, Relaxed);
        if self.turned_away {
            return Err(Refusal::plain(Errno::Shutdown, "the server is stopping"));
        }
        let agreed = &self.answers.session.agreed;
        request.check(agreed).map_err(|errno| {
            let (code, offset, length, end) = (request.code, request.offset, request.length, agreed.bytes);
            let message = format!(
                "command {code} with flags {:#x} at {offset} + {length} cannot be, with {end} bytes served",
                request.flags
            );
            Refusal::plain(errno, &message)
        })
    }

    /// Receives a payload that does not fit into the input, and hands it to the crew. False if the client disconnected
    /// before its end.
    fn long_flight<'s>(
        &mut self,
        request: &Request,
        command: Command,
        (crew, threads): (&'s Crew<'a>, Threads<'s, 's, '_>),
    ) -> io::Result<bool> {
        let bytes = request.payload_bytes();
        let mut payload = Vec::with_capacity(bytes);
        loop {
            let here = self.input.bytes().len().min(bytes - payload.len());
            payload.extend_from_slice(&self.input.bytes()[..here]);
            self.input.consume(here);
            let left = bytes - payload.len();
            if left == 0 {
                crew.take(threads, Flight { request: *request, command, payload: payload.into() });
                return Ok(true);
            }
            match self.input.fill(self.stream, INPUT_BYTES.min(left))? {
                Fill::Bytes => {}
                Fill::End | Fill::TimedOut => return Ok(false),
            }
        }
    }

    /// Receives a payload that does not fit into the input, and writes it as it arrives; skips it if the request is
    /// invalid. False if the client disconnected before its end.
    fn long_write(&mut self, request: &Request, checked: Result<Command, Refusal>) -> io::Result<bool> {
        let fua = matches!(checked, Ok(Command::Write { fua: true }));
        let mut outcome = checked.map(drop);
        let (mut offset, end) = (request.offset, u128::from(request.offset) + u128::from(request.length));
        let mut left = request.length as usize;
        while left > 0 {
            let mut here = self.input.bytes().len().min(left);
            if outcome.is_ok() && here < left {
                here = here.saturating_sub(((offset + here as u64) % SECTOR_BYTES as u64) as usize);
            }
            // Wait for a piece of reasonable size: small ones would cost the device more than they save.
            if here == 0 || (here < left && here < INPUT_BYTES / 4) {
                match self.input.fill(self.stream, INPUT_BYTES.min(left))? {
                    Fill::Bytes => continue,
                    Fill::End | Fill::TimedOut => return Ok(false),
                }
            }
            if outcome.is_ok() {
                debug_assert!(u128::from(offset) + here as u128 <= end);
                let piece = &self.input.bytes()[..here];
                outcome = self.answers.session.device.write(offset, piece, false).map_err(Refusal::from);
                self.answers.session.counters.written_bytes.fetch_add(here as u64, Relaxed);
            }
            self.input.consume(here);
            offset = offset.wrapping_add(here as u64);
            left -= here;
        }
        if fua && outcome.is_ok() {
            outcome = self.answers.session.device.flush().map_err(Refusal::from);
        }
        self.answers.acknowledge(request, outcome)?;
        Ok(true)
    }
}

/// True for requests that may take a while, and whose replies fit into an output buffer.
fn may_fly(command: Command, request: &Request) -> bool {
    match command {
        Command::Read { .. } => request.length as usize <= OUTPUT_FULL,
        Command::Write { .. } | Command::Flush | Command::Trim { .. } | Command::WriteZeroes { .. } => true,
        Command::Cache | Command::BlockStatus { .. } | Command::Disconnect => false,
    }
}
