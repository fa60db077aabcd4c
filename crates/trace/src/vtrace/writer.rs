//! Writes a vtrace file.

use crate::content::Content;
use crate::request::{REQUEST_BYTES_MAX, Request, RequestKind};
use crate::vtrace::dictionary::Generations;
use crate::vtrace::frame::{self, Effort, RAW_BYTES_GOAL};
use crate::vtrace::header::Header;
use crate::vtrace::row::{CONTENTS_MAX, Coded, State};
use std::io::Write;
use vellum_base::{Error, Result};
use vellum_codes::pattern::Pattern;

/// Minimum number of contents remembered: 7 GiB of distinct sectors, in at most about 280 MB (two generations, each as
/// much as fits a hash table of 2 Mi slots).
const CONTENTS_REMEMBERED: usize = (2 << 20) / 8 * 7;

/// Writes requests to a file in vtrace format. Holds one chunk (about 1 MiB) and the dictionary in memory.
///
/// Only the equality structure of patterns is stored: the reader returns other numbers, which are equal or different
/// where these were.
pub struct Writer<W: Write> {
    out: W,
    raw: Vec<u8>,
    raw_requests: u32,
    requests: u64,
    state: State,
    contents: Generations<Pattern, Known>,
    heads: Generations<u64, u64>,
    effort: Effort,
}

#[derive(Clone, Copy)]
struct Known {
    id: u64,
    head: Option<u64>,
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    pub fn new(mut out: W, header: &Header) -> Result<Writer<W>> {
        header.write_to(&mut out)?;
        Ok(Writer {
            out,
            raw: Vec::new(),
            raw_requests: 0,
            requests: 0,
            state: State::default(),
            contents: Generations::new(CONTENTS_REMEMBERED),
            heads: Generations::new(CONTENTS_REMEMBERED),
            effort: Effort::Small,
        })
    }

    /// Compresses less, but several times as fast: for traces with the real bytes of everything written.
    pub fn hurry(&mut self) {
        self.effort = Effort::Fast;
    }

    /// Appends a request. After an error the file is incomplete and must not be finished.
    pub fn write(&mut self, request: &Request) -> Result<()> {
        check(request)?;
        if self.raw.is_empty() {
            self.state = State::at_chunk(request.time.0, self.state.next_id);
            self.state.write_head(&mut self.raw);
        }
        let mut next_id = self.state.next_id;
        let coded: Vec<Coded> = request.contents.iter().map(|c| self.code(c, &mut next_id)).collect();
        self.state.write(request, &coded, &mut self.raw);
        debug_assert_eq!(next_id, self.state.next_id);
        self.raw_requests += 1;
        self.requests += 1;
        if self.raw.len() >= RAW_BYTES_GOAL { self.close_chunk() } else { Ok(()) }
    }

    /// Number of requests written so far.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Writes out everything appended so far: a file that ends here is readable to its last request.
    pub fn save(&mut self) -> Result<()> {
        self.close_chunk()?;
        self.out.flush().map_err(|e| Error::io("flush the trace", e))
    }

    /// Writes the rest and the end record; flushes and returns the file.
    pub fn finish(mut self) -> Result<W> {
        self.close_chunk()?;
        frame::write_end(&mut self.out, self.requests as u32)?;
        self.out.flush().map_err(|e| Error::io("flush the trace", e))?;
        Ok(self.out)
    }

    fn close_chunk(&mut self) -> Result<()> {
        if self.raw_requests > 0 {
            frame::write_chunk(&mut self.out, &self.raw, self.raw_requests, self.effort)?;
        }
        self.raw.clear();
        self.raw_requests = 0;
        Ok(())
    }

    fn code(&mut self, content: &Content, next_id: &mut u64) -> Coded {
        match content {
            Content::Zero => Coded::Zero,
            Content::Pattern(pattern) if pattern.lines == 0 => Coded::Zero,
            Content::Verbatim(bytes) => Coded::Verbatim(bytes.clone()),
            Content::Pattern(pattern) => {
                let known = match self.contents.get(*pattern) {
                    Some(known) => known,
                    None => self.learn(*pattern, next_id),
                };
                Coded::Pattern { id: known.id, head: known.head, lines: pattern.lines }
            }
        }
    }

    fn learn(&mut self, pattern: Pattern, next_id: &mut u64) -> Known {
        let id = *next_id;
        *next_id += 1;
        let head = match (pattern.head, self.heads.get(pattern.head)) {
            (0, _) => None,
            (_, Some(first)) => Some(first),
            (head, None) => {
                self.heads.insert(head, id);
                Some(id)
            }
        };
        let known = Known { id, head };
        self.contents.insert(pattern, known);
        known
    }
}

fn check(request: &Request) -> Result<()> {
    let (_, sectors) = request.sectors();
    let contents = request.contents.len() as u64;
    let placed = request.kind != RequestKind::Flush;
    let wrong = if placed == (request.length.0 == 0) || !placed && request.offset.0 != 0 {
        "only a flush has no length, and it has no place"
    } else if request.offset.0.checked_add(request.length.0).is_none() {
        "it ends behind the last byte that can be addressed"
    } else if contents != 0 && (request.kind != RequestKind::Write || contents != sectors) {
        "contents go with writes, one for each touched sector"
    } else if request.moves_more_than(REQUEST_BYTES_MAX) || contents > CONTENTS_MAX {
        "reads and writes are at most 8 MiB: split it"
    } else {
        return Ok(());
    };
    Err(Error::invalid(format!("{} request at {}: {wrong}", request.kind.name(), request.offset.0)))
}
