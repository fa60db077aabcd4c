//! Records response times as requests are answered.

use crate::array_cache::workload::PageKind;
use hdrhistogram::Histogram;
use serde::Serialize;
use vellum_base::{Error, Nanos, Result};

/// Response times of one kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Response {
    /// Number of requests.
    pub requests: u64,
    /// Mean.
    pub mean_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
}

/// Result of a timed run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// All requests.
    pub all: Response,
    /// Reads.
    pub reads: Response,
    /// Writes.
    pub writes: Response,
    /// From the first request to the last answer.
    pub duration_s: f64,
    /// Share of that time that disks were busy, on average.
    pub disks_busy: f64,
}

/// See the module.
pub(in crate::array_cache) struct Clocked {
    began: Nanos,
    /// When the last request was answered.
    answered: Nanos,
    reads: Histogram<u64>,
    writes: Histogram<u64>,
}

impl Clocked {
    /// No requests yet.
    pub fn new(began: Nanos) -> Result<Clocked> {
        Ok(Clocked { began, answered: began, reads: histogram()?, writes: histogram()? })
    }

    /// Records an answered request. Trims and zeroing count as writes.
    pub fn answered(&mut self, kind: PageKind, came: Nanos, now: Nanos) {
        self.answered = now;
        let of = if kind == PageKind::Read { &mut self.reads } else { &mut self.writes };
        of.saturating_record((now - came).0 / 1000);
    }

    /// Times of all requests, given how long disks were busy on average.
    pub fn times(&self, busy_s: f64) -> Times {
        let mut all = self.reads.clone();
        all.add(&self.writes).expect("histograms of the same bounds");
        let duration_s = (self.answered - self.began).as_secs_f64();
        Times {
            all: response(&all),
            reads: response(&self.reads),
            writes: response(&self.writes),
            duration_s,
            disks_busy: if duration_s > 0.0 { busy_s / duration_s } else { 0.0 },
        }
    }
}

/// A histogram of microseconds, up to an hour.
fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 3_600_000_000, 3)
        .map_err(|e| Error::invalid(format!("a histogram of response times: {e}")))
}

fn response(of: &Histogram<u64>) -> Response {
    if of.is_empty() {
        return Response::default();
    }
    let at = |share| of.value_at_quantile(share) as f64 / 1e3;
    Response { requests: of.len(), mean_ms: of.mean() / 1e3, p50_ms: at(0.5), p99_ms: at(0.99) }
}
