//! Binary traces: consecutive records, with the same checks as for lines.

use crate::formats::intake::{Intake, Row};
use crate::request::Request;
use crate::source::{Place, Pull, ReadOptions, RequestSource, RowCounts};
use std::io::Read;
use vellum_base::{Error, Result};

/// Longest record of any format.
pub const RECORD_BYTES_MAX: usize = 128;

/// A binary format, parsed record by record.
pub trait Record: Send {
    /// Length of the part of each record that [`Record::record_len`] needs.
    fn head_len(&self) -> usize;

    /// Length of the whole record that begins with `head`; `None` if it is not valid. The reader must stop then, as it
    /// does not know where the next record begins.
    fn record_len(&self, head: &[u8]) -> Option<usize>;

    /// Parses a whole record.
    fn row(&mut self, record: &[u8]) -> Row;
}

/// A reader for a binary format.
pub struct Records<R, F> {
    input: R,
    format: F,
    intake: Intake,
    at: u64,
    ended: bool,
}

impl<R: Read, F: Record> Records<R, F> {
    /// Reads `input`, which is at its first record, byte `at` of the file.
    pub fn new(input: R, format: F, at: u64, options: ReadOptions) -> Records<R, F> {
        Records { input, format, intake: Intake::new(options), at, ended: false }
    }

    fn broken(&self, what: &str) -> Error {
        Error::corrupt(format!("byte {}: {what}; what came before is good", self.at))
    }
}

impl<R: Read, F: Record> Pull for Records<R, F> {
    fn pull(&mut self) -> Result<Option<Request>> {
        if let Some(request) = self.intake.pending() {
            return Ok(Some(request));
        }
        let mut bytes = [0; RECORD_BYTES_MAX];
        loop {
            let head_len = self.format.head_len();
            let got = fill(&mut self.input, &mut bytes[..head_len])?;
            if got == 0 {
                self.intake.check_end()?;
                return Ok(None);
            }
            let len = if got == head_len { self.format.record_len(&bytes[..head_len]) } else { None };
            let Some(len) = len.filter(|len| (head_len..=RECORD_BYTES_MAX).contains(len)) else {
                return Err(self.broken("not a record"));
            };
            if fill(&mut self.input, &mut bytes[head_len..len])? < len - head_len {
                return Err(self.broken("the trace ends within a record"));
            }
            let row = self.format.row(&bytes[..len]);
            let taken = self.intake.take(row, Place::Byte(self.at))?;
            self.at += len as u64;
            if let Some(request) = taken {
                return Ok(Some(request));
            }
        }
    }

    fn ended(&mut self) -> &mut bool {
        &mut self.ended
    }
}

impl<R: Read, F: Record> Iterator for Records<R, F> {
    type Item = Result<Request>;

    fn next(&mut self) -> Option<Result<Request>> {
        self.pull_to_end()
    }
}

impl<R: Read + Send, F: Record> RequestSource for Records<R, F> {
    fn rows(&self) -> RowCounts {
        self.intake.counts()
    }
}

/// Reads until `bytes` is full or the input ends; returns how many were read.
fn fill(input: &mut impl Read, bytes: &mut [u8]) -> Result<usize> {
    let mut got = 0;
    while got < bytes.len() {
        match input.read(&mut bytes[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::io("read the trace", e)),
        }
    }
    Ok(got)
}
