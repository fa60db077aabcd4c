//! Sources of requests: streaming iterators that also count the rows they could not use.

use crate::formats::blkparse::Action;
use crate::request::{ByteLen, REQUEST_BYTES_MAX, Request};
use std::fmt;
use vellum_base::Result;

/// A stream of requests in trace order. Never holds the whole trace in memory; ends after an error.
pub trait RequestSource: Iterator<Item = Result<Request>> + Send {
    /// Counts of rejected or odd rows so far.
    fn rows(&self) -> RowCounts {
        RowCounts::default()
    }

    /// Names of the devices seen so far, by number, if the trace has names.
    fn device_names(&self) -> Vec<String> {
        Vec::new()
    }

    /// Size of the device, if the trace has it.
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

/// Common part of readers: they are pulled until the first error or the end, and never again.
pub(crate) trait Pull {
    /// The next request; `None` at the end.
    fn pull(&mut self) -> Result<Option<Request>>;

    /// The reader's flag for having ended.
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

/// Turns an iterator of requests (a generator, a list in a test) into a source.
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

/// Counts of rows that did not become requests, and of oddities in those that did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCounts {
    /// Rows that are invalid in the format.
    pub malformed: u64,
    /// Rows of length zero other than flushes.
    pub empty: u64,
    /// Rows longer than [`ReadOptions::request_max`].
    pub too_long: u64,
    /// Accepted rows with a time before that of an earlier row.
    pub out_of_order: u64,
    /// Position of the first row of each kind, in this order.
    pub firsts: [Option<Place>; 4],
}

/// Position of a row in its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Line of a text, from 1 on.
    Line(u64),
    /// Offset in a binary trace, from 0 on.
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
    /// The kinds that occurred, by name, with their number and the position of the first.
    pub fn kinds(&self) -> impl Iterator<Item = (&'static str, u64, Place)> {
        let counts = [
            ("malformed", self.malformed),
            ("empty", self.empty),
            ("too long", self.too_long),
            ("out of order", self.out_of_order),
        ];
        counts.into_iter().zip(self.firsts).filter_map(|((name, count), first)| Some((name, count, first?)))
    }

    /// Number of rows that did not become requests.
    pub const fn rejected(&self) -> u64 {
        self.malformed + self.empty + self.too_long
    }
}

/// Tolerance of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// The action whose rows become requests, in a blkparse text.
    pub blkparse_action: Action,
    /// With more malformed rows than this, reading fails.
    pub malformed_max: u64,
    /// Longer reads and writes are rejected: no host sends them, but a wrong unit produces them. A vtrace file has
    /// fixed units, and never holds any beyond [`REQUEST_BYTES_MAX`].
    pub request_max: ByteLen,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions { blkparse_action: Action::Queued, malformed_max: 1000, request_max: REQUEST_BYTES_MAX }
    }
}
