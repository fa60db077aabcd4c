//! What a replay found: one [`ModeResult`] a mode. The JSON form is documented in docs/json/replay.md and
//! stable: fields are added, never renamed.

use serde::Serialize;
use vellum_disk::LedgerStat;

/// One workload through several modes.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// What was replayed, and on what.
    pub setup: Setup,
    /// One result a mode, in the order asked for.
    pub modes: Vec<ModeResult>,
    /// What a reader has to know.
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
    /// Logical size.
    pub device_bytes: u64,
    /// Raw flash.
    pub flash_bytes: u64,
    /// How many times smaller than the preset's the erase blocks are, and the time of an erase with them, so
    /// that a small device has the preset's dies and its over-provisioning.
    pub erase_block_divisor: u32,
    /// `closed` or `open`.
    pub pace: &'static str,
    /// Requests at a time; of an open replay the most.
    pub queue_depth: u32,
    /// Core that fingerprints.
    pub core: &'static str,
    /// `named` by the host, `discovered` by reading the disk, or `none`.
    pub journals: &'static str,
    /// Sectors of all journals together.
    pub journal_bytes: u64,
    /// Requests of the workload.
    pub requests: RequestCounts,
    /// The content model: `unique`, or `duplicates:40%`.
    pub content: String,
    /// Written sectors whose content the trace does not say, and the model gave.
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

/// What became of the workload in one mode.
#[derive(Clone, Debug, Serialize)]
pub struct ModeResult {
    /// Name of the mode.
    pub mode: String,
    /// False if fingerprints were believed without comparing bytes.
    pub verified: bool,
    /// Sectors the host wrote, write-zeroes included.
    pub host_sectors_written: u64,
    /// Bytes by cause and reason.
    pub ledger: LedgerStat,
    /// Writes at home locations and what they cost.
    pub home: HomeWrites,
    /// Sectors that held other bytes at the end than were written last. Never but in `woj-paper`.
    pub wrong_sectors: u64,
    /// Sectors read back for that.
    pub checked_sectors: u64,
    /// Virtual time of the run.
    pub duration_ns: u64,
    /// Bytes read and written by the host over that time.
    pub throughput_bytes_per_second: f64,
    /// Requests over that time.
    pub requests_per_second: f64,
    /// Latencies of requests.
    pub latency: Latencies,
    /// Erase blocks erased.
    pub erases: u64,
    /// Fingerprint tables at the end of the run, in bytes.
    pub dedup_memory_bytes: u64,
    /// Cache of journaled sectors for comparing, in bytes.
    pub verify_cache_bytes: u64,
    /// Hash over everything that happened, in hexadecimal: equal for equal seeds.
    pub log_hash: String,
}

/// Writes at home locations: sectors written outside the journals, from the first transaction that was
/// written into a journal (before, nothing can be a copy).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HomeWrites {
    /// Sectors.
    pub written: u64,
    /// Of those, sectors that programmed nothing: a copy of a journal sector, of any sector, the same bytes
    /// again, or zeros.
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

/// Latencies of one kind; zeros if there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// Half were faster.
    pub latency_ns_p50: u64,
    /// 99 % were faster.
    pub latency_ns_p99: u64,
    /// 99.9 % were faster.
    pub latency_ns_p999: u64,
    /// The slowest.
    pub latency_ns_max: u64,
}
