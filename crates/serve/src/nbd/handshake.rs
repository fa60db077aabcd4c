//! The first phase of a connection: negotiation of the export and of protocol features.
//!
//! States: greeting, options, then transmission or the end. A client can waste only bounded resources: [`OPTIONS_MAX`]
//! options of [`OPTION_BYTES_MAX`] bytes within the time limit, after which it is disconnected.

use super::buffers::{Fill, Input};
use super::server::Export;
use super::wire::handshake::{
    BASE_ALLOCATION, ClientOption, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, OPTION_HEADER_BYTES, OptionHeader,
    Reply, block_size_data, export_data, greeting, info, info_data, meta_context_data, option, put_reply,
    server_data,
};
use super::wire::transmission::{Agreed, PAYLOAD_BYTES_MAX, export_flag};
use crate::endpoint::Stream;
use std::io::{self, Write};
use std::time::{Duration, Instant};

const OPTIONS_MAX: usize = 256;
const OPTION_BYTES_MAX: usize = 64 << 10;
/// The id of `base:allocation` in all connections.
pub(super) const ALLOCATION_ID: u32 = 1;
const PREFERRED_BYTES: u32 = 4096;

/// Runs the handshake. `None` if the client disconnected, or was disconnected.
pub(super) fn run(
    export: &Export,
    stream: &Stream,
    input: &mut Input,
    limit: Duration,
) -> io::Result<Option<Agreed>> {
    let agreed = Agreed {
        bytes: export.device.bytes(),
        read_only: export.read_only(),
        structured: false,
        allocation: false,
    };
    let peer = Peer { stream, input, started: now(), limit };
    Handshake { export, peer, agreed, zeroes: true, fixed: false, out: Vec::new() }.run()
}

struct Handshake<'a> {
    export: &'a Export,
    peer: Peer<'a>,
    agreed: Agreed,
    /// Send 124 zeros after the answer to `EXPORT_NAME`.
    zeroes: bool,
    fixed: bool,
    out: Vec<u8>,
}

/// What follows an option.
enum Next {
    Option,
    Transmission,
    HangUp,
}

impl Handshake<'_> {
    fn run(mut self) -> io::Result<Option<Agreed>> {
        self.out.extend(greeting());
        self.send()?;
        let Some(flags) = self.peer.take(4)? else { return Ok(None) };
        let flags = u32::from_be_bytes(flags.try_into().expect("4 bytes were taken"));
        if flags & !u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES) != 0 {
            return Ok(None);
        }
        self.fixed = flags & u32::from(FLAG_FIXED_NEWSTYLE) != 0;
        self.zeroes = flags & u32::from(FLAG_NO_ZEROES) == 0;
        for _ in 0..OPTIONS_MAX {
            let Some(next) = self.option()? else { return Ok(None) };
            self.send()?;
            match next {
                Next::Option => {}
                Next::Transmission => return Ok(Some(self.agreed)),
                Next::HangUp => return Ok(None),
            }
        }
        Ok(None)
    }

    fn send(&mut self) -> io::Result<()> {
        let mut stream = self.peer.stream;
        stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Reads an option and encodes the answer.
    fn option(&mut self) -> io::Result<Option<Next>> {
        let Some(header) = self.peer.take(OPTION_HEADER_BYTES)? else { return Ok(None) };
        let header = header.as_slice().try_into().expect("a header's bytes were taken");
        let Ok(header) = OptionHeader::parse(header) else { return Ok(None) };
        let length = header.length as usize;
        if length > OPTION_BYTES_MAX {
            if length > OPTION_BYTES_MAX * 16 || !self.peer.skip(length)? {
                return Ok(None);
            }
            self.reply(header.code, Reply::TooBig, b"");
            return Ok(Some(Next::Option));
        }
        let Some(data) = self.peer.take(length)? else { return Ok(None) };
        Ok(Some(match ClientOption::parse(header.code, &data) {
            Err(_) | Ok(ClientOption::Unknown(_)) if !self.fixed => Next::HangUp,
            Err(_) if header.code == option::EXPORT_NAME => Next::HangUp,
            Err(problem) => self.answer(header.code, problem, b"the option's data is malformed"),
            Ok(option) => self.act(header.code, option),
        }))
    }

    fn act(&mut self, code: u32, option: ClientOption) -> Next {
        match option {
            ClientOption::ExportName(name) => self.export_name(&name),
            ClientOption::Abort => {
                self.reply(code, Reply::Ack, b"");
                Next::HangUp
            }
            ClientOption::List => {
                self.reply(code, Reply::Server, &server_data(&self.export.name));
                self.answer(code, Reply::Ack, b"")
            }
            ClientOption::Info { name, wanted, go } => self.info(code, &name, &wanted, go),
            ClientOption::StructuredReply => {
                self.agreed.structured = true;
                self.answer(code, Reply::Ack, b"")
            }
            ClientOption::MetaContext { name, queries, set } => self.meta_context(code, &name, &queries, set),
            ClientOption::StartTls => self.answer(code, Reply::Unsupported, b"no encryption here"),
            ClientOption::Unknown(_) => self.answer(code, Reply::Unsupported, b""),
        }
    }

    fn reply(&mut self, code: u32, reply: Reply, data: &[u8]) {
        put_reply(&mut self.out, code, reply, data);
    }

    fn answer(&mut self, code: u32, reply: Reply, data: &[u8]) -> Next {
        self.reply(code, reply, data);
        Next::Option
    }

    fn export_name(&mut self, name: &str) -> Next {
        if !self.export.is_called(name) {
            return Next::HangUp;
        }
        let flags = self.flags();
        self.out.extend(export_data(self.agreed.bytes, flags));
        if self.zeroes {
            self.out.extend([0; 124]);
        }
        Next::Transmission
    }

    fn info(&mut self, code: u32, name: &str, wanted: &[u16], go: bool) -> Next {
        if !self.export.is_called(name) {
            return self.answer(code, Reply::UnknownExport, b"there is no such export");
        }
        let export = export_data(self.agreed.bytes, self.flags());
        self.reply(code, Reply::Info, &info_data(info::EXPORT, &export));
        let sizes = block_size_data(1, PREFERRED_BYTES, PAYLOAD_BYTES_MAX);
        self.reply(code, Reply::Info, &info_data(info::BLOCK_SIZE, &sizes));
        let description = &self.export.description;
        for (kind, text) in [(info::NAME, &self.export.name), (info::DESCRIPTION, description)] {
            if wanted.contains(&kind) && !(kind == info::DESCRIPTION && text.is_empty()) {
                put_reply(&mut self.out, code, Reply::Info, &info_data(kind, text.as_bytes()));
            }
        }
        self.reply(code, Reply::Ack, b"");
        if go { Next::Transmission } else { Next::Option }
    }

    fn meta_context(&mut self, code: u32, name: &str, queries: &[String], set: bool) -> Next {
        if set {
            self.agreed.allocation = false; // whatever comes of it, the old choice is gone
        }
        if !self.agreed.structured {
            return self.answer(code, Reply::Invalid, b"structured replies must come first");
        }
        if !self.export.is_called(name) {
            return self.answer(code, Reply::UnknownExport, b"there is no such export");
        }
        let all = !set && (queries.is_empty() || queries.iter().any(|q| q == "base:"));
        if all || queries.iter().any(|q| q == BASE_ALLOCATION) {
            self.agreed.allocation |= set;
            let id = if set { ALLOCATION_ID } else { 0 };
            self.reply(code, Reply::MetaContext, &meta_context_data(id, BASE_ALLOCATION));
        }
        self.answer(code, Reply::Ack, b"")
    }

    fn flags(&self) -> u16 {
        use export_flag::*;
        let always = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN | SEND_CACHE;
        let change = match self.agreed.read_only {
            true => READ_ONLY,
            // Trim is not offered if the device trims by writing zeros: a client may trim the whole disk in passing.
            false if self.export.device.trims() => SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO,
            false => SEND_WRITE_ZEROES,
        };
        always | change | if self.agreed.structured { SEND_DF } else { 0 }
    }
}

/// The client, and the time limit for its handshake.
struct Peer<'a> {
    stream: &'a Stream,
    input: &'a mut Input,
    started: Instant,
    limit: Duration,
}

impl Peer<'_> {
    /// The next `count` bytes, at most [`OPTION_BYTES_MAX`]; `None` if they do not arrive in time.
    fn take(&mut self, count: usize) -> io::Result<Option<Vec<u8>>> {
        while self.input.bytes().len() < count {
            if !self.fill(count)? {
                return Ok(None);
            }
        }
        let taken = self.input.bytes()[..count].to_vec();
        self.input.consume(count);
        Ok(Some(taken))
    }

    fn skip(&mut self, mut count: usize) -> io::Result<bool> {
        while count > 0 {
            if self.input.bytes().is_empty() && !self.fill(1)? {
                return Ok(false);
            }
            let here = self.input.bytes().len().min(count);
            self.input.consume(here);
            count -= here;
        }
        Ok(true)
    }

    fn fill(&mut self, count: usize) -> io::Result<bool> {
        if now().duration_since(self.started) > self.limit {
            return Ok(false);
        }
        Ok(self.input.fill(self.stream, count)? == Fill::Bytes)
    }
}

#[expect(clippy::disallowed_methods, reason = "a socket server lives in real time")]
fn now() -> Instant {
    Instant::now()
}
