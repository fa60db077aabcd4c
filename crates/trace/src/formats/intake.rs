//! Common treatment of rows by all readers: rejects impossible ones, counts them, and makes times relative to the
//! first.

use crate::request::{Request, RequestKind};
use crate::source::{Place, ReadOptions, RowCounts};
use vellum_base::{Error, Nanos, Result};

/// Indices in [`RowCounts::firsts`].
const MALFORMED: usize = 0;
const EMPTY: usize = 1;
const TOO_LONG: usize = 2;
const OUT_OF_ORDER: usize = 3;

/// A parsed row.
#[derive(Debug, PartialEq, Eq)]
pub enum Row {
    /// One request, at the trace's own absolute time.
    Request(Request),
    /// A flush followed by a request, in a single row.
    Flushed(Request),
    /// Not a request, but valid: a comment, or an event of another kind.
    Other,
    /// Not a valid row of this format, with the reason.
    Malformed(&'static str),
}

/// Decides which rows become requests.
pub struct Intake {
    options: ReadOptions,
    counts: RowCounts,
    accepted: u64,
    first: Option<Nanos>,
    latest: Nanos,
    pending: Option<Request>,
}

impl Intake {
    /// An intake that has seen no rows.
    pub fn new(options: ReadOptions) -> Intake {
        Intake {
            options,
            counts: RowCounts::default(),
            accepted: 0,
            first: None,
            latest: Nanos::ZERO,
            pending: None,
        }
    }

    /// What has been rejected so far.
    pub fn counts(&self) -> RowCounts {
        self.counts
    }

    /// The second request of the row taken last, if it had two. Must be called before the next row is taken.
    pub fn pending(&mut self) -> Option<Request> {
        self.pending.take()
    }

    /// Turns the row at `place` into a request.
    pub fn take(&mut self, row: Row, place: Place) -> Result<Option<Request>> {
        match row {
            Row::Other => Ok(None),
            Row::Malformed(why) => self.malformed(why, place).map(|()| None),
            Row::Request(request) => Ok(self.admit(request, place)),
            Row::Flushed(request) => {
                let flush = Request { device: request.device, ..Request::flush(request.time) };
                let flush = self.admit(flush, place);
                self.pending = self.admit(request, place);
                Ok(flush)
            }
        }
    }

    /// Fails if the trace had rows and none was accepted.
    pub fn check_end(&self) -> Result<()> {
        if self.accepted == 0 && self.counts.malformed > 0 {
            let first =
                self.counts.firsts[MALFORMED].map_or(String::new(), |first| format!(", from {first} on"));
            let what = format!("no row of the trace is of this format{first}: name the right one");
            return Err(Error::corrupt(what));
        }
        if self.accepted == 0 && self.counts.rejected() > 0 {
            let kinds: Vec<String> = self
                .counts
                .kinds()
                .map(|(name, count, first)| format!("{count} {name} (first: {first})"))
                .collect();
            let what =
                format!("all rows of the trace were left out: {}: is it this format?", kinds.join(", "));
            return Err(Error::corrupt(what));
        }
        Ok(())
    }

    fn malformed(&mut self, why: &str, place: Place) -> Result<()> {
        self.counts.malformed += 1;
        self.counts.firsts[MALFORMED].get_or_insert(place);
        if self.counts.malformed > self.options.malformed_max {
            return Err(Error::corrupt(format!(
                "{place}: {why}; that is malformed row {}, more than allowed: is it this format?",
                self.counts.malformed
            )));
        }
        Ok(())
    }

    fn admit(&mut self, mut request: Request, place: Place) -> Option<Request> {
        if request.kind != RequestKind::Flush && request.length.0 == 0 {
            self.counts.empty += 1;
            self.counts.firsts[EMPTY].get_or_insert(place);
            return None;
        }
        if request.offset.0.checked_add(request.length.0).is_none()
            || request.moves_more_than(self.options.request_max)
        {
            self.counts.too_long += 1;
            self.counts.firsts[TOO_LONG].get_or_insert(place);
            return None;
        }
        request.time = self.relative(request.time, place);
        self.accepted += 1;
        Some(request)
    }

    /// Time since the first accepted row. An earlier time becomes zero, and counts as out of order.
    fn relative(&mut self, time: Nanos, place: Place) -> Nanos {
        let first = *self.first.get_or_insert(time);
        if time < self.latest {
            self.counts.out_of_order += 1;
            self.counts.firsts[OUT_OF_ORDER].get_or_insert(place);
        }
        self.latest = self.latest.max(time);
        time.saturating_sub(first)
    }
}
