//! A store on the paper's board, in virtual time: workloads of YCSB, on any of the systems of the FlashKV experiments.
//!
//! Every figure but the wall time is a function of the plan.

use crate::experiment::flashkv::{Board, Load, Measured, System, measure};
use serde::Serialize;
use std::collections::BTreeMap;
use vellum_base::{Cause, Error, Nanos, Result};
use vellum_trace::generate::kv::Workload;

/// A board that needs no garbage collection, in bytes of values.
const WRITTEN_TIMES: u64 = 12;

/// What is run.
#[derive(Clone, Debug)]
pub struct DevicePlan {
    /// Name of a system: see [`systems`].
    pub system: String,
    /// YCSB's A to F.
    pub workload: Workload,
    /// Channels of the board; pages of 8 KiB.
    pub channels: u32,
    /// Pages of an erase block; 256 are the paper's.
    pub pages_per_block: u32,
    /// Erase blocks of a channel; 0 for as many as no garbage collection needs.
    pub blocks_per_channel: u32,
    /// Records loaded first.
    pub records: u64,
    /// Requests then.
    pub requests: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Clients, each with one request at a time.
    pub clients: usize,
    /// Bytes of the store's cache.
    pub cache_bytes: usize,
    /// Compaction is waited for between load and requests.
    pub settle: bool,
    /// Decides everything random.
    pub seed: u64,
}

/// What it came to.
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
    /// Requests a second of virtual time.
    pub requests_per_second: f64,
    /// Requests a second of wall time.
    pub requests_per_wall_second: f64,
    /// Share of lookups that the store's cache answered.
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
    /// Hash over every event: the same plan gives the same.
    pub events_hash: String,
}

/// Names of the systems.
pub fn systems() -> impl Iterator<Item = &'static str> {
    System::ALL.into_iter().map(System::name)
}

/// Runs a plan.
pub fn run(plan: &DevicePlan) -> Result<DeviceReport> {
    let system = System::ALL.into_iter().find(|system| system.name().eq_ignore_ascii_case(&plan.system));
    let system = system.ok_or_else(|| Error::invalid(format!("there is no system '{}'", plan.system)))?;
    let board = Board {
        channels: plan.channels,
        pages_per_block: plan.pages_per_block,
        blocks_per_die: plan.blocks_per_channel,
    };
    let load = Load {
        workload: plan.workload,
        records: plan.records,
        requests: plan.requests,
        value_bytes: plan.value_bytes,
        clients: plan.clients,
        cache_bytes: plan.cache_bytes,
        settle: plan.settle,
    };
    let written = (plan.records + plan.requests) * plan.value_bytes as u64;
    let board = if board.blocks_per_die > 0 { board } else { board.holding(WRITTEN_TIMES * written) };
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
