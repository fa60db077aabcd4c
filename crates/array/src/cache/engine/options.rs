//! How a cache is made, and how an array with one is run.

use crate::cache::policy::Scheme;
use vellum_base::Nanos;

/// What a cache is made with.
#[derive(Clone, Copy, Debug)]
pub struct CacheFormat {
    /// What decides what is kept.
    pub scheme: Scheme,
    /// Pages of a set.
    pub ways: u16,
    /// Pages of a segment (KDD in vellum mode); None: as the policy has it, 0: pages are written in place.
    pub segment_pages: Option<u32>,
    /// Bytes that may be written to the SSD a day (KDD in vellum mode only); None: as many as there are reasons for.
    pub budget: Option<u64>,
    /// Take an SSD that is a cache already.
    pub force: bool,
}

impl CacheFormat {
    /// Sets of 512 pages, as in the paper.
    pub fn new(scheme: Scheme) -> CacheFormat {
        CacheFormat { scheme, ways: 512, segment_pages: None, budget: None, force: false }
    }
}

/// How an array with a cache is run.
#[derive(Clone, Copy, Debug)]
pub struct CacheOptions {
    /// Bytes of the staging buffer; None: as the policy has it.
    pub staging_bytes: Option<usize>,
    /// Pages in memory before the SSD (KDD in vellum mode); None: as the policy has it.
    pub window: Option<u16>,
    /// Cleaning begins when this share of a set is not free and not clean...
    pub dirty_high: f64,
    /// ...and ends at this one.
    pub dirty_low: f64,
    /// About so many rows may be stale: those are without redundancy if the SSD is lost, until they are made anew.
    pub stale_rows_max: u64,
    /// Without requests for so long the array is idle, and rows are cleaned.
    pub idle_after: Nanos,
    /// Go on where the array's cache is not there, cannot be read, or was not left together with the array: nothing
    /// counts then that it holds, it begins empty if it can, and an NVRAM becomes its own, whosever it was. A cache
    /// that counts is used all the same. If a member is missing, what parity lacked of it is lost with what only the
    /// cache knew; else no data are.
    pub without_cache: bool,
}

impl Default for CacheOptions {
    fn default() -> CacheOptions {
        CacheOptions {
            staging_bytes: None,
            window: None,
            dirty_high: 0.5,
            dirty_low: 0.45,
            stale_rows_max: 16_384,
            idle_after: Nanos(2_000_000_000),
            without_cache: false,
        }
    }
}
