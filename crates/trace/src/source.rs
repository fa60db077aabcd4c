//! Where requests come from: streaming iterators that also say which rows they could not use.

use crate::formats::blkparse::Action;
use crate::request::{ByteLen, REQUEST_BYTES_MAX, Request};
use std::fmt;
use vellum_base::Result;

/// A stream of requests in trace order. Never holds the whole trace; after an error it ends.
pub trait RequestSource: Iterator<Item = Result<Request>> + Send {
    /// What was left out or looked odd so far.
    fn rows(&self) -> RowCounts {
        RowCounts::default()
    }

    /// Names of the devices by number, so far, where the trace tells them apart by name.
    fn device_names(&self) -> Vec<String> {
        Vec::new()
    }

    /// Size of the device, where the trace says it.
    fn device_bytes(&self) -> Option<ByteLen> {
        None
    }
}

impl<S: RequestSource + ?Sized> RequestSource for Box<S> {
    fn rows(&self) -> RowCounts {
        (**self).rows()
    }
    fn device_names(&self) -> Vec<String> {
        (**self).device_names()
    }
    fn device_bytes(&self) -> Option<ByteLen> {
        (**self).device_bytes()
    }
}

/// What readers have in common: pulled until the first error or the end, and never again.
pub(crate) trait Pull {
    /// The next request; `None` at the end.
    fn pull(&mut self) -> Result<Option<Request>>;

    /// Where the reader keeps that it has ended.
    fn ended(&mut self) -> &mut bool;

    /// [`Iterator::next`] of a reader.
    fn pull_to_end(&mut self) -> Option<Result<Request>> {
        if *self.ended() {
            return None;
        }
        let item = self.pull().transpose();
        *self.ended() = !matches!(item, Some(Ok(_)));
        item
    }
}

/// Turns any iterator of requests (a generator, a test's list) into a source.
pub fn from_iter(requests: impl Iterator<Item = Request> + Send) -> impl RequestSource {
    struct FromIter<I>(I);
    impl<I: Iterator<Item = Request>> Iterator for FromIter<I> {
        type Item = Result<Request>;
        fn next(&mut self) -> Option<Result<Request>> {
            self.0.next().map(Ok)
        }
    }
    impl<I: Iterator<Item = Request> + Send> RequestSource for FromIter<I> {}
    FromIter(requests)
}

/// Rows of a trace that did not become requests, and oddities of those that did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCounts {
    /// Rows that are not of the format.
    pub malformed: u64,
    /// Rows of length zero that are not flushes.
    pub empty: u64,
    /// Rows longer than [`ReadOptions::request_max`].
    pub too_long: u64,
    /// Accepted rows with a time before that of an earlier row.
    pub out_of_order: u64,
    /// Where the first of each is, in this order.
    pub firsts: [Option<Place>; 4],
}

/// Where a row is in its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Of a text, from 1.
    Line(u64),
    /// Of a binary trace, from 0.
    Byte(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(line) => write!(f, "line {line}"),
            Place::Byte(byte) => write!(f, "byte {byte}"),
        }
    }
}

impl RowCounts {
    /// Each kind by its name, with how many there are and where the first is; those that there are.
    pub fn kinds(&self) -> impl Iterator<Item = (&'static str, u64, Place)> {
        let counts = [
            ("malformed", self.malformed),
            ("empty", self.empty),
            ("too long", self.too_long),
            ("out of order", self.out_of_order),
        ];
        counts.into_iter().zip(self.firsts).filter_map(|((name, count), first)| Some((name, count, first?)))
    }

    /// Rows that did not become requests.
    pub const fn rejected(&self) -> u64 {
        self.malformed + self.empty + self.too_long
    }
}

/// How forgiving a reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// Which step of a request counts in a blkparse text.
    pub blkparse_action: Action,
    /// More malformed rows than this end the trace with an error.
    pub malformed_max: u64,
    /// Longer reads and writes are rejected: no host sends them, a wrong unit does. A vtrace file has no units to
    /// mistake, and never holds any beyond [`REQUEST_BYTES_MAX`].
    pub request_max: ByteLen,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions { blkparse_action: Action::Queued, malformed_max: 1000, request_max: REQUEST_BYTES_MAX }
    }
}
