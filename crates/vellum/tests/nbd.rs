//! A minimal NBD client for these tests: fixed newstyle, simple replies.

use std::io::{Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

const OPTION_MAGIC: u64 = 0x4948_4156_454F_5054;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;

pub struct Client {
    stream: UnixStream,
    pub bytes: u64,
}

impl Client {
    pub fn connect(socket: &Path) -> Client {
        let mut stream = UnixStream::connect(socket).unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting[..8], b"NBDMAGIC");
        // Fixed newstyle without padding; option 1 asks for the export without a name.
        let mut hello = 3u32.to_be_bytes().to_vec();
        hello.extend(OPTION_MAGIC.to_be_bytes());
        hello.extend(1u32.to_be_bytes());
        hello.extend(0u32.to_be_bytes());
        stream.write_all(&hello).unwrap();
        let mut export = [0; 10];
        stream.read_exact(&mut export).unwrap();
        let bytes = u64::from_be_bytes(export[..8].try_into().unwrap());
        Client { stream, bytes }
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        self.request(WRITE, offset, data.len() as u32, data, &mut [])
    }

    pub fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.request(READ, offset, out.len() as u32, &[], out)
    }

    pub fn flush(&mut self) -> Result<()> {
        self.request(FLUSH, 0, 0, &[], &mut [])
    }

    /// A read that must fail; returns the error of its reply.
    pub fn read_failing(&mut self, offset: u64, length: u32) -> Result<u32> {
        self.ask(READ, offset, length, &[])
    }

    fn request(&mut self, kind: u16, offset: u64, length: u32, data: &[u8], out: &mut [u8]) -> Result<()> {
        assert_eq!(self.ask(kind, offset, length, data)?, 0, "the server answered with an error");
        self.stream.read_exact(out)
    }

    /// Sends a request; returns the error of its reply, 0 for none.
    fn ask(&mut self, kind: u16, offset: u64, length: u32, data: &[u8]) -> Result<u32> {
        let mut head = REQUEST_MAGIC.to_be_bytes().to_vec();
        head.extend(0u16.to_be_bytes());
        head.extend(kind.to_be_bytes());
        head.extend(7u64.to_be_bytes());
        head.extend(offset.to_be_bytes());
        head.extend(length.to_be_bytes());
        self.stream.write_all(&head)?;
        self.stream.write_all(data)?;
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        Ok(u32::from_be_bytes(reply[4..8].try_into().unwrap()))
    }
}
