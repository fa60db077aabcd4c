//! Replays a workload against a fresh [`vellum_disk::Disk`] on modelled flash, once for each mode, in virtual time.
//!
//! 1. The same options and source give the same results, latencies and log hash.
//! 2. Requests that touch the same sector are never in flight together: the last write of the trace counts.
//! 3. After every run the ledger is compared with the device, and every sector with what was written last.

mod comparison;
mod mode;
mod options;

pub use comparison::{Comparison, HomeWrites, Latencies, Latency, ModeResult, RequestCounts, Setup};
pub use mode::Mode;
pub use options::{Core, DEFAULT_PRESET, Pace, Precondition, ReplayOptions};

use crate::Progress;
use vellum_base::{Error, Kind, Result};
use vellum_trace::RequestSource;

/// Opens the workload from its start: called once for each mode, and once before to look at it.
pub type Opener<'a> = dyn Fn() -> Result<Box<dyn RequestSource>> + 'a;

/// Replays the workload once in each mode.
pub fn run(open: &Opener<'_>, options: &ReplayOptions, progress: &dyn Progress) -> Result<Comparison> {
    let _ = (open, options, progress);
    Err(Error::new(Kind::Unsupported, "replay is being built"))
}
