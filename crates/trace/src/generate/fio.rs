//! Requests straight to a device, as fio makes them.

use crate::generate::{Seeded, Zipf};
use crate::request::{ByteLen, ByteOffset, Request, RequestKind};
use crate::source::{RequestSource, from_iter};
use vellum_base::{Error, Nanos, Result, SECTOR_BYTES};

/// Where the next request falls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// Behind the one before; from the start again at the end.
    Sequential,
    /// Anywhere, equally likely.
    Random,
    /// Anywhere, some places far more likely than others; the likely ones are scattered over the device.
    Zipf {
        /// Exponent: 0 is uniform, 1.2 is hot.
        skew: f64,
    },
}

/// A job. Contents come from [`crate::models`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    /// Size of the device.
    pub device_bytes: ByteLen,
    /// Length of every request: whole sectors.
    pub request_bytes: ByteLen,
    /// Where requests fall.
    pub pattern: Pattern,
    /// Share of reads, 0 to 1.
    pub read_share: f64,
    /// A flush after so many writes; 0 for none.
    pub flush_every: u64,
    /// So many requests are issued at the same time.
    pub queue_depth: u64,
    /// Time from one such batch to the next.
    pub interval: Nanos,
    /// Reads and writes in all.
    pub requests: u64,
    /// Decides everything random.
    pub seed: u64,
}

impl Default for Job {
    /// 4 KiB random writes to 1 GiB, queue depth 1, 100 µs apart, for ever.
    fn default() -> Job {
        Job {
            device_bytes: ByteLen(1 << 30),
            request_bytes: ByteLen(SECTOR_BYTES as u64),
            pattern: Pattern::Random,
            read_share: 0.0,
            flush_every: 0,
            queue_depth: 1,
            interval: Nanos::from_us(100),
            requests: u64::MAX,
            seed: 1,
        }
    }
}

impl Job {
    /// The requests of this job.
    pub fn start(self) -> Result<impl RequestSource> {
        let places = self.device_bytes.0.checked_div(self.request_bytes.0).unwrap_or(0);
        if places == 0 || !self.request_bytes.0.is_multiple_of(SECTOR_BYTES as u64) || self.queue_depth == 0 {
            return Err(Error::invalid(
                "a job needs requests of whole sectors that fit the device, and a queue",
            ));
        }
        let skew = match self.pattern {
            Pattern::Zipf { skew } => skew,
            _ => 0.0,
        };
        let zipf = Zipf::new(places, skew)?;
        let mut state =
            State { job: self, places, zipf, rng: Seeded::new(self.seed), issued: 0, unflushed: 0 };
        Ok(from_iter(std::iter::from_fn(move || state.next())))
    }
}

struct State {
    job: Job,
    places: u64,
    zipf: Zipf,
    rng: Seeded,
    issued: u64,
    unflushed: u64,
}

impl State {
    fn next(&mut self) -> Option<Request> {
        let batch = self.issued / self.job.queue_depth;
        let time = Nanos(self.job.interval.0.saturating_mul(batch));
        if self.job.flush_every > 0 && self.unflushed == self.job.flush_every {
            self.unflushed = 0;
            return Some(Request::flush(time));
        }
        if self.issued == self.job.requests {
            return None;
        }
        let place = self.place();
        self.issued += 1;
        let read = self.rng.chance(self.job.read_share);
        self.unflushed += u64::from(!read);
        let kind = if read { RequestKind::Read } else { RequestKind::Write };
        let offset = ByteOffset(place * self.job.request_bytes.0);
        Some(Request::new(time, kind, offset, self.job.request_bytes))
    }

    fn place(&mut self) -> u64 {
        match self.job.pattern {
            Pattern::Sequential => self.issued % self.places,
            Pattern::Random => self.rng.below(self.places),
            Pattern::Zipf { .. } => {
                let rank = self.zipf.sample(&mut self.rng);
                Seeded::new(self.job.seed ^ rank.wrapping_mul(0x9E37_79B9)).below(self.places)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Summary;
    use std::collections::BTreeMap;

    fn places(job: Job) -> Vec<u64> {
        job.start()
            .unwrap()
            .map(|r| r.unwrap())
            .filter(|r| r.length.0 > 0)
            .map(|r| r.offset.0 / 4096)
            .collect()
    }

    #[test]
    fn patterns_differ_and_seeds_repeat() {
        let job = Job { device_bytes: ByteLen(4 << 20), requests: 5000, ..Job::default() };
        assert_eq!(places(Job { pattern: Pattern::Sequential, ..job })[1023..1026], [1023, 0, 1]);
        assert_eq!(places(job), places(job));
        assert_ne!(places(job), places(Job { seed: 2, ..job }));
        let hottest = |job| {
            let mut counts = BTreeMap::new();
            for place in places(job) {
                assert!(place < 1024);
                *counts.entry(place).or_insert(0) += 1;
            }
            *counts.values().max().unwrap()
        };
        assert!(hottest(job) < 20);
        assert!(hottest(Job { pattern: Pattern::Zipf { skew: 1.2 }, ..job }) > 500);
    }

    #[test]
    fn shares_flushes_and_queue() {
        let job = Job { requests: 1000, read_share: 0.3, flush_every: 10, queue_depth: 4, ..Job::default() };
        let summary = Summary::of(job.start().unwrap()).unwrap();
        let (reads, writes) = (summary.requests(RequestKind::Read), summary.requests(RequestKind::Write));
        assert!((250..350).contains(&reads) && reads + writes == 1000);
        assert_eq!(summary.requests(RequestKind::Flush), writes / 10);
        assert_eq!(job.start().unwrap().map(|r| r.unwrap().time).filter(|t| *t == Nanos::ZERO).count(), 4);
        assert!(Job { request_bytes: ByteLen(512), ..job }.start().is_err());
        assert!(Job { queue_depth: 0, ..job }.start().is_err());
    }
}
