//! The order in which requests start.
//!
//! Workers take turns: the worker whose turn it is gets the next request of the trace, waits until it may start, and
//! passes the turn on. So requests start in the order of the trace, whatever they wait for.

use super::options::Pace;
use super::oracle::Oracle;
use std::ops::Range;
use std::sync::Arc;
use vellum_base::sync::{Condvar, Mutex};
use vellum_base::{Env, Error, Nanos, Result};
use vellum_trace::{Request, RequestKind, RequestSource, content};

/// Most requests in flight in an open replay.
pub(super) const OPEN_QUEUE_DEPTH: u32 = 256;

/// Hands out requests; see the module.
pub(super) struct Queue {
    env: Arc<dyn Env>,
    pace: Pace,
    started: Nanos,
    turn: Mutex<Turn>,
    flight: Mutex<Vec<InFlight>>,
    landed: Condvar,
}

struct Turn {
    source: Box<dyn RequestSource>,
    oracle: Oracle,
    next_id: u64,
    failed: Option<Error>,
}

struct InFlight {
    id: u64,
    sectors: Range<u64>,
    modifies: bool,
    barrier: bool,
}

/// A request that has started.
pub(super) struct Started {
    pub request: Request,
    /// Start of its latency.
    pub since: Nanos,
    pub sectors: Range<u64>,
    id: u64,
}

impl Queue {
    pub(super) fn new(
        env: Arc<dyn Env>,
        pace: Pace,
        source: Box<dyn RequestSource>,
        oracle: Oracle,
    ) -> Queue {
        Queue {
            started: env.now(),
            env,
            pace,
            turn: Mutex::new(Turn { source, oracle, next_id: 0, failed: None }),
            flight: Mutex::new(Vec::new()),
            landed: Condvar::new(),
        }
    }

    /// Returns the next request once it may start, with what it writes in `data`. `None` at the end.
    pub(super) fn take(&self, data: &mut Vec<u8>) -> Option<Started> {
        let mut turn = self.turn.lock();
        if turn.failed.is_some() {
            return None;
        }
        let request = match turn.source.next()? {
            Ok(request) => request,
            Err(e) => {
                turn.failed = Some(e);
                return None;
            }
        };
        let due = self.due(&request);
        if let Some(due) = due {
            self.env.sleep_until(due);
        }
        turn.next_id += 1;
        let started = self.start(request, turn.next_id, due);
        turn.note(&started, data);
        Some(started)
    }

    fn due(&self, request: &Request) -> Option<Nanos> {
        match self.pace {
            Pace::Closed { .. } => None,
            Pace::Open { speed } => {
                Some(self.started + Nanos((request.time.0 as f64 / speed).round() as u64))
            }
        }
    }

    /// Waits until the request may start, and marks it as in flight.
    fn start(&self, request: Request, id: u64, due: Option<Nanos>) -> Started {
        let sectors = whole_sectors(&request);
        let is_flush = request.kind == RequestKind::Flush;
        let barrier = due.is_none() && (is_flush || request.fua);
        let modifies = !matches!(request.kind, RequestKind::Read | RequestKind::Flush);
        let mut flight = self.flight.lock();
        loop {
            let blocked = flight.iter().any(|other| {
                let overlaps = other.sectors.start < sectors.end && sectors.start < other.sectors.end;
                barrier
                    || other.barrier
                    || (is_flush && other.modifies)
                    || (overlaps && (modifies || other.modifies))
            });
            if !blocked {
                break;
            }
            self.landed.wait(&mut flight);
        }
        flight.push(InFlight { id, sectors: sectors.clone(), modifies, barrier });
        Started { request, since: due.unwrap_or_else(|| self.env.now()), sectors, id }
    }

    /// Marks the request as finished.
    pub(super) fn finish(&self, started: &Started) {
        let mut flight = self.flight.lock();
        flight.retain(|other| other.id != started.id);
        self.landed.notify_all();
    }

    /// Stops handing out requests, because one has failed.
    pub(super) fn fail(&self, error: Error) {
        self.turn.lock().failed.get_or_insert(error);
    }

    /// Returns the oracle when all workers are done, or the error.
    pub(super) fn into_oracle(self) -> Result<Oracle> {
        let turn = self.turn.into_inner();
        match turn.failed {
            Some(error) => Err(error),
            None => Ok(turn.oracle),
        }
    }
}

impl Turn {
    /// Fills `data` with what the request writes, and updates the oracle.
    fn note(&mut self, started: &Started, data: &mut Vec<u8>) {
        let Range { start, end } = started.sectors;
        match started.request.kind {
            RequestKind::Write => {
                content::fill_all(&started.request.contents, data);
                self.oracle.write(start, data);
            }
            RequestKind::Trim => self.oracle.trim(start, end - start),
            RequestKind::WriteZeroes => self.oracle.write_zeroes(start, end - start),
            RequestKind::Read | RequestKind::Flush => {}
        }
    }
}

/// The sectors of a request: for reads and writes all that it touches, for trims and write-zeroes only those that it
/// covers completely (as a block layer rounds them).
fn whole_sectors(request: &Request) -> Range<u64> {
    let (first, count) = request.sectors();
    let touched = first.0..first.0 + count;
    let clears = matches!(request.kind, RequestKind::Trim | RequestKind::WriteZeroes);
    if request.is_aligned() || !clears {
        return touched;
    }
    let sector = vellum_base::SECTOR_BYTES as u64;
    let start = request.offset.0.div_ceil(sector);
    start..(request.end().0 / sector).max(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_trace::{ByteLen, ByteOffset};

    #[test]
    fn odd_writes_widen_and_odd_trims_narrow() {
        let of = |kind, offset, length| {
            whole_sectors(&Request::new(Nanos::ZERO, kind, ByteOffset(offset), ByteLen(length)))
        };
        assert_eq!(of(RequestKind::Write, 4095, 2), 0..2);
        assert_eq!(of(RequestKind::Read, 512, 512), 0..1);
        assert_eq!(of(RequestKind::Trim, 512, 8192), 1..2);
        assert_eq!(of(RequestKind::Trim, 512, 512), 1..1);
        assert_eq!(of(RequestKind::WriteZeroes, 4096, 8192), 1..3);
    }
}
