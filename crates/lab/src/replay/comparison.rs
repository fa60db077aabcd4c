//! Results of a replay: one [`ModeResult`] per mode. The JSON form is documented in docs/json/replay.md and stable:
//! fields are added, never renamed.

use serde::Serialize;
use vellum_disk::LedgerStat;

/// One workload in several modes.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// What was replayed, and on what.
    pub setup: Setup,
    /// Results by mode, in the requested order.
    pub modes: Vec<ModeResult>,
    /// Remarks for the reader.
    pub notes: Vec<String>,
}

impl Comparison {
    pub(super) fn new(setup: Setup, modes: Vec<ModeResult>) -> Comparison {
        let mut comparison = Comparison { setup, modes, notes: Vec::new() };
        comparison.notes = comparison.remarks();
        comparison
    }
}

/// What was replayed, and on what.
#[derive(Clone, Debug, Serialize)]
pub struct Setup {
    /// Seed of the run.
    pub seed: u64,
    /// Device preset.
    pub preset: &'static str,
    /// Logical size of the device.
    pub device_bytes: u64,
    /// Size of the raw flash.
    pub flash_bytes: u64,
    /// How many times smaller than the preset's the erase blocks are, with erase times in proportion, so that a small
    /// device has the preset's dies and over-provisioning.
    pub erase_block_divisor: u32,
    /// `closed` or `open`.
    pub pace: &'static str,
    /// Requests in flight; the maximum for an open replay.
    pub queue_depth: u32,
    /// The core that computes fingerprints.
    pub core: &'static str,
    /// `named` by the host, `discovered` by reading the disk, or `none`.
    pub journals: &'static str,
    /// Total size of all journals.
    pub journal_bytes: u64,
    /// Requests of the workload.
    pub requests: RequestCounts,
    /// The content model: `unique`, or `duplicates:40%`.
    pub content: String,
    /// Written sectors whose content is not in the trace and came from the model.
    pub modelled_content_sectors: u64,
    /// Rows of the trace that did not become requests.
    pub rows_rejected: u64,
}

/// Requests by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RequestCounts {
    /// Reads.
    pub read: u64,
    /// Writes.
    pub write: u64,
    /// Trims.
    pub trim: u64,
    /// Write-zeroes.
    pub write_zeroes: u64,
    /// Flushes.
    pub flush: u64,
    /// Writes with FUA, which are among the writes.
    pub fua: u64,
    /// Requests that were not whole sectors: widened by reading, or for trims and write-zeroes narrowed.
    pub unaligned: u64,
}

/// Results of the workload in one mode.
#[derive(Clone, Debug, Serialize)]
pub struct ModeResult {
    /// Name of the mode.
    pub mode: String,
    /// False if fingerprints were trusted without comparing bytes.
    pub verified: bool,
    /// Sectors the host wrote, write-zeroes included.
    pub host_sectors_written: u64,
    /// Bytes by cause and reason.
    pub ledger: LedgerStat,
    /// Writes at home locations, and how many were removed.
    pub home: HomeWrites,
    /// Sectors that at the end did not hold what was written last. Always 0 except in `woj-paper`.
    pub wrong_sectors: u64,
    /// Sectors read back to check this.
    pub checked_sectors: u64,
    /// Virtual time of the run.
    pub duration_ns: u64,
    /// Bytes read and written by the host, divided by that time.
    pub throughput_bytes_per_second: f64,
    /// Requests divided by that time.
    pub requests_per_second: f64,
    /// Latencies by kind of request.
    pub latency: Latencies,
    /// Number of blocks erased.
    pub erases: u64,
    /// Fingerprint tables at the end of the run, in bytes.
    pub dedup_memory_bytes: u64,
    /// Cache of journaled sectors for comparing, in bytes.
    pub verify_cache_bytes: u64,
    /// Hash over all events, in hexadecimal: equal for equal seeds.
    pub log_hash: String,
}

/// Writes at home locations: sectors written outside the journals, counted from the first transaction written to a
/// journal (before it, nothing can be a copy).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HomeWrites {
    /// Number of sectors.
    pub written: u64,
    /// Of those, sectors that programmed nothing: a copy of a journal sector or of any other sector, unchanged content,
    /// or zeros.
    pub removed: u64,
}

impl HomeWrites {
    /// Share removed, in percent; `None` if nothing was written.
    pub fn removed_percent(&self) -> Option<f64> {
        (self.written > 0).then(|| self.removed as f64 * 100.0 / self.written as f64)
    }
}

/// Latencies by kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Latencies {
    /// Of reads.
    pub read: Latency,
    /// Of writes without FUA.
    pub write: Latency,
    /// Of flushes and of writes with FUA.
    pub sync: Latency,
}

/// Latencies of one kind of request; zeros if there were none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// Number of requests.
    pub count: u64,
    /// Median.
    pub latency_ns_p50: u64,
    /// 99th percentile.
    pub latency_ns_p99: u64,
    /// 99.9th percentile.
    pub latency_ns_p999: u64,
    /// Maximum.
    pub latency_ns_max: u64,
}
