//! Parameters of a cache, and options for running an array with one.

use crate::cache::policy::Scheme;
use vellum_base::Nanos;

/// Parameters of a new cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheFormat {
    /// The policy, which decides what is cached.
    pub scheme: Scheme,
    /// Pages per set.
    pub ways: u16,
    /// Pages per segment (KDD in vellum mode); `None`: the policy's default, 0: pages are written in place.
    pub segment_pages: Option<u32>,
    /// Bytes that may be written to the SSD per day (KDD in vellum mode only); `None`: no limit.
    pub budget: Option<u64>,
    /// Use an SSD even if it is already a cache or a member.
    pub force: bool,
}

impl CacheFormat {
    /// Sets of 512 pages, as in the paper.
    pub fn new(scheme: Scheme) -> CacheFormat {
        CacheFormat { scheme, ways: 512, segment_pages: None, budget: None, force: false }
    }
}

/// Options for running an array with a cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheOptions {
    /// Bytes of the staging buffer; `None`: the policy's default.
    pub staging_bytes: Option<usize>,
    /// Pages kept in memory before they go to the SSD (KDD in vellum mode); `None`: the policy's default.
    pub window: Option<u16>,
    /// Cleaning begins when this share of a set is neither free nor clean...
    pub dirty_high: f64,
    /// ...and ends at this one.
    pub dirty_low: f64,
    /// About how many rows may be stale: they have no redundancy if the SSD is lost, until they are resynchronised.
    pub stale_rows_max: u64,
    /// After this time without requests the array is idle, and rows are cleaned.
    pub idle_after: Nanos,
    /// Go on where the array's cache is absent, unreadable, or was not left together with the array. Its content is
    /// discarded then: it begins empty if possible, and an NVRAM is taken over whoever owned it. A valid cache is used
    /// all the same. If a member is missing, its data in stale rows are lost as far as only the cache had the deltas;
    /// otherwise no data are lost.
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
