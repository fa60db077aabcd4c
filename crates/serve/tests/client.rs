//! A raw NBD client that says exactly what a test wants to say, and times out instead of hanging.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use vellum_serve::nbd::wire::handshake::{ClientOption, GREETING_BYTES, REPLY_MAGIC, greeting, option};
use vellum_serve::nbd::wire::transmission::{CHUNK_MAGIC, Request, SIMPLE_REPLY_MAGIC};

use crate::rig::Running;

pub struct Client(pub UnixStream);

/// An answer to an option: its type, and its data.
pub type OptionReply = (u32, Vec<u8>);

/// A reply to a request, chunks put together.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub error: u32,
    pub message: String,
    pub error_offset: Option<u64>,
    /// (offset, data) of chunks of data; offset 0 for a simple reply.
    pub data: Vec<(u64, Vec<u8>)>,
    pub holes: Vec<(u64, u32)>,
    pub extents: Vec<(u32, u32)>,
}

pub const ACK: u32 = 1;

impl Client {
    /// Connected and greeted.
    pub fn greeted(server: &Running, flags: u32) -> Client {
        let stream = UnixStream::connect(&server.socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut client = Client(stream);
        assert_eq!(client.take(GREETING_BYTES), greeting());
        client.say(&flags.to_be_bytes());
        client
    }

    /// In transmission, with structured replies and `base:allocation` or neither.
    pub fn ready(server: &Running, structured: bool) -> Client {
        let mut client = Client::greeted(server, 3);
        if structured {
            assert_eq!(client.option(&ClientOption::StructuredReply), [(ACK, vec![])]);
            let contexts = ClientOption::MetaContext {
                name: String::new(),
                queries: vec!["base:allocation".into()],
                set: true,
            };
            assert_eq!(client.option(&contexts).len(), 2);
        }
        let go = ClientOption::Info { name: String::new(), wanted: vec![], go: true };
        assert_eq!(client.option(&go).last().unwrap().0, ACK);
        client
    }

    pub fn say(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    pub fn take(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// True if the server has hung up and sent nothing more.
    pub fn is_hung_up(&mut self) -> bool {
        match self.0.read(&mut [0]) {
            Ok(count) => count == 0,
            Err(e) => e.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    /// Sends an option and takes all its answers.
    pub fn option(&mut self, option: &ClientOption) -> Vec<OptionReply> {
        self.say(&option.encode());
        self.option_replies()
    }

    pub fn option_replies(&mut self) -> Vec<OptionReply> {
        let mut replies = Vec::new();
        loop {
            let head = self.take(20);
            assert_eq!(u64::from_be_bytes(head[..8].try_into().unwrap()), REPLY_MAGIC);
            assert!(u32::from_be_bytes(head[8..12].try_into().unwrap()) != option::EXPORT_NAME);
            let kind = u32::from_be_bytes(head[12..16].try_into().unwrap());
            let length = u32::from_be_bytes(head[16..].try_into().unwrap());
            let data = self.take(length as usize);
            replies.push((kind, data));
            if kind == ACK || kind >> 31 == 1 {
                return replies;
            }
        }
    }

    pub fn send(&mut self, code: u16, flags: u16, offset: u64, length: u32, cookie: u64) {
        self.say(&Request { flags, code, cookie, offset, length }.encode());
    }

    /// Sends a request with `payload`, and takes the answer.
    pub fn ask(&mut self, code: u16, flags: u16, offset: u64, length: u32, payload: &[u8]) -> Answer {
        self.send(code, flags, offset, length, 7);
        self.say(payload);
        self.answer(7, if code == 0 { length } else { 0 })
    }

    /// Takes an answer; `simple` is how much data a successful simple reply brings.
    pub fn answer(&mut self, cookie: u64, simple: u32) -> Answer {
        let mut answer = Answer::default();
        let magic = u32::from_be_bytes(self.take(4).try_into().unwrap());
        if magic == SIMPLE_REPLY_MAGIC {
            answer.error = self.u32();
            assert_eq!(self.u64(), cookie);
            if answer.error == 0 && simple > 0 {
                answer.data.push((0, self.take(simple as usize)));
            }
            return answer;
        }
        assert_eq!(magic, CHUNK_MAGIC);
        while !self.chunk(cookie, &mut answer) {
            assert_eq!(self.u32(), CHUNK_MAGIC);
        }
        answer
    }

    /// Takes the rest of a chunk; true if it is the last.
    fn chunk(&mut self, cookie: u64, answer: &mut Answer) -> bool {
        let (flags, kind) = (self.u16(), self.u16());
        assert_eq!(self.u64(), cookie);
        let length = self.u32();
        match kind {
            0 => assert_eq!((length, flags), (0, 1)),
            1 => {
                let offset = self.u64();
                let data = self.take(length as usize - 8);
                answer.data.push((offset, data));
            }
            2 => {
                assert_eq!(length, 12);
                let hole = (self.u64(), self.u32());
                answer.holes.push(hole);
            }
            5 => {
                assert_eq!(self.u32(), 1, "the context's id");
                for _ in 0..(length - 4) / 8 {
                    let extent = (self.u32(), self.u32());
                    answer.extents.push(extent);
                }
            }
            error => {
                assert!(error >> 15 == 1, "chunk of kind {error}");
                answer.error = self.u32();
                let message = self.u16();
                answer.message = String::from_utf8(self.take(message.into())).unwrap();
                answer.error_offset = (error & 0x7fff == 2).then(|| self.u64());
            }
        }
        flags & 1 == 1
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.take(2).try_into().unwrap())
    }
    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().unwrap())
    }
    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take(8).try_into().unwrap())
    }
}

impl Answer {
    /// Data and holes of a read of `length` bytes from `offset`, each byte covered exactly once.
    pub fn bytes(&self, offset: u64, length: usize) -> Vec<u8> {
        assert_eq!(self.error, 0, "{}", self.message);
        let mut out: Vec<Option<u8>> = vec![None; length];
        let holes = self.holes.iter().map(|(at, count)| (*at, vec![0; *count as usize]));
        for (at, data) in self.data.iter().cloned().chain(holes) {
            for (slot, byte) in out[(at - offset) as usize..].iter_mut().zip(data) {
                assert!(slot.replace(byte).is_none(), "a byte came twice");
            }
        }
        out.into_iter().map(|b| b.expect("every byte came")).collect()
    }
}
