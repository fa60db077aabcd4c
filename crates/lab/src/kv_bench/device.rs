//! A store on the paper's board in virtual time: YCSB workloads on any of the systems of the FlashKV experiments.
//!
//! All figures except wall time are a function of the plan.

use crate::experiment::flashkv::{Board, Load, Measured, System, measure};
use serde::Serialize;
use std::collections::BTreeMap;
use vellum_base::{Cause, Error, Nanos, Result};
use vellum_trace::generate::kv::Workload;

/// Pages per block of the paper's board.
pub const PAGES_PER_BLOCK: u32 = 256;
/// Size of a board that needs no garbage collection, in multiples of the size of all values.
const WRITTEN_TIMES: u64 = 12;
/// Minimum number of superblocks of such a board: for the table being written, those it is made of, and those for logs.
const SUPERBLOCKS_MIN: u64 = 64;

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct DevicePlan {
    /// Name of a system: see [`systems`].
    pub system: &'static str,
    /// Workload that is run after the load; `ycsb-load` for the load alone.
    pub workload: Workload,
    /// Channels of the board; pages are of 8 KiB.
    pub channels: u32,
    /// Pages of an erase block; [`PAGES_PER_BLOCK`] on the paper's board.
    pub pages_per_block: u32,
    /// Bytes of the board; `None` for enough to need no garbage collection.
    pub board_bytes: Option<u64>,
    /// Records loaded first.
    pub records: u64,
    /// Requests after the load.
    pub requests: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Clients, each with one request at a time.
    pub clients: usize,
    /// Bytes of the store's cache.
    pub cache_bytes: usize,
    /// Wait for compaction between load and requests.
    pub settle: bool,
    /// Seed for everything random.
    pub seed: u64,
}

/// Results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceReport {
    /// The system.
    pub system: &'static str,
    /// The workload.
    pub workload: &'static str,
    /// Virtual time of the load.
    pub load_seconds: f64,
    /// Virtual time of the requests.
    pub run_seconds: f64,
    /// Requests per second of virtual time.
    pub requests_per_second: f64,
    /// Median latency, in virtual time.
    pub latency_ns_p50: u64,
    /// 99th percentile.
    pub latency_ns_p99: u64,
    /// 99.9th percentile.
    pub latency_ns_p999: u64,
    /// Requests per second of wall time.
    pub requests_per_wall_second: f64,
    /// Hit ratio of the store's cache.
    pub cache_hit_share: f64,
    /// Bytes of keys and values that were put.
    pub user_bytes: u64,
    /// Bytes programmed to flash.
    pub programmed_bytes: u64,
    /// What the store wrote, by cause.
    pub store_bytes_by_cause: BTreeMap<&'static str, u64>,
    /// Bytes that garbage collection moved.
    pub moved_bytes: u64,
    /// Share of recycled pages that were invalid.
    pub gc_efficiency: Option<f64>,
    /// Time that writers waited or were slowed down.
    pub waited_seconds: f64,
    /// Hash over all events: equal for equal plans.
    pub events_hash: String,
}

/// Names of the systems that `word` selects in any case: one, `leveldb` for all with this prefix, or `all`.
pub fn systems(word: &str) -> Vec<&'static str> {
    let word = word.to_ascii_lowercase();
    let names = System::ALL.map(|system| system.name());
    let means = |name: &str| {
        let name = name.to_ascii_lowercase();
        word == "all" || name == word || word == "leveldb" && name.starts_with("leveldb-")
    };
    names.into_iter().filter(|name| means(name)).collect()
}

/// Runs a plan.
pub fn run(plan: &DevicePlan) -> Result<DeviceReport> {
    let system = System::ALL.into_iter().find(|system| system.name() == plan.system);
    let system = system.ok_or_else(|| Error::invalid(format!("there is no system '{}'", plan.system)))?;
    let requests = if plan.workload == Workload::YcsbLoad { 0 } else { plan.requests };
    let load = Load {
        workload: plan.workload,
        records: plan.records,
        requests,
        value_bytes: plan.value_bytes,
        clients: plan.clients,
        cache_bytes: plan.cache_bytes,
        settle: plan.settle,
    };
    let board = Board { channels: plan.channels, pages_per_block: plan.pages_per_block, blocks_per_die: 0 };
    let written = (plan.records + requests).saturating_mul(plan.value_bytes as u64);
    let enough = || written.saturating_mul(WRITTEN_TIMES).max(SUPERBLOCKS_MIN * board.superblock_bytes());
    let board = board.holding(plan.board_bytes.unwrap_or_else(enough));
    let measured = measure(system, &board, &load, plan.seed)?;
    Ok(report(plan, system, &measured))
}

fn report(plan: &DevicePlan, system: System, m: &Measured) -> DeviceReport {
    let seconds = |time: Nanos| time.0 as f64 / 1e9;
    let by_cause = Cause::ALL.iter().map(|cause| (cause.name(), m.stat.ledger.programmed_by(*cause)));
    DeviceReport {
        system: system.name(),
        workload: plan.workload.name(),
        load_seconds: seconds(m.load),
        run_seconds: seconds(m.run),
        requests_per_second: m.ops_per_second(),
        latency_ns_p50: m.latency.latency_ns_p50,
        latency_ns_p99: m.latency.latency_ns_p99,
        latency_ns_p999: m.latency.latency_ns_p999,
        requests_per_wall_second: m.requests as f64 / seconds(m.run_wall).max(1e-9),
        cache_hit_share: m.hit_share,
        user_bytes: m.stat.since_opened.user_bytes(),
        programmed_bytes: m.programmed_bytes,
        store_bytes_by_cause: by_cause.filter(|(_, bytes)| *bytes > 0).collect(),
        moved_bytes: m.moved_bytes,
        gc_efficiency: m.gc_efficiency(),
        waited_seconds: (m.stat.since_opened.stalls().1 + m.stat.since_opened.slowed_ns()) as f64 / 1e9,
        events_hash: format!("{:016x}", m.events_hash),
    }
}
