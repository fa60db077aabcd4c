//! `kv bench --device`: stores on the modelled board of the FlashKV paper, in virtual time, in this process.

use super::{Args, bytes, workloads};
use crate::failure::{Failure, Outcome, Verdict};
use crate::text;
use crate::ui::Ui;
use serde::Serialize;
use vellum::base::Error;
use vellum::lab::Progress;
use vellum::lab::kv_bench::device::{DevicePlan, DeviceReport, run, systems};

const BOARD: &str = "open-channel-";
const CHANNELS_MAX: u32 = 64;

/// docs/json/kv.md
#[derive(Debug, Serialize)]
pub struct Modelled {
    pub channels: u32,
    pub pages_per_block: u32,
    pub keys: u64,
    pub value_bytes: usize,
    pub threads: usize,
    pub cache_bytes: usize,
    pub results: Vec<DeviceReport>,
}

/// Number of channels of the board with this name.
pub fn parse_board(name: &str) -> Result<u32, String> {
    let channels = name.strip_prefix(BOARD).and_then(|channels| channels.parse().ok());
    let there = channels.filter(|channels| (1..=CHANNELS_MAX).contains(channels));
    there
        .ok_or_else(|| format!("{BOARD}N, of 1 to {CHANNELS_MAX} channels; the paper's are 8, 16, 32 and 34"))
}

impl Args {
    /// Runs every workload on every store, each on a board of its own that is loaded first.
    pub(super) fn run_modelled(&self, channels: u32, ui: &Ui) -> Outcome {
        let plans = self.device_plans(channels)?;
        let mut bench = Modelled {
            channels,
            pages_per_block: self.block_pages,
            keys: self.keys,
            value_bytes: bytes(self.value),
            threads: self.threads.into(),
            cache_bytes: bytes(self.cache),
            results: Vec::new(),
        };
        let bars = ui.bars();
        bars.begin("bench", plans.len() as u64);
        for plan in &plans {
            bench.results.push(run(plan)?);
            bars.advance(1);
        }
        drop(bars);
        ui.result(&bench, || text::kv_bench::render_modelled(&bench));
        Ok(Verdict::Fine)
    }

    fn device_plans(&self, channels: u32) -> Result<Vec<DevicePlan>, Failure> {
        let names = self.workload.clone().unwrap_or_else(|| vec!["ycsb-a".into()]);
        let workloads = workloads(&names)?;
        if let Some(other) = workloads.iter().find(|workload| !workload.name().starts_with("ycsb-")) {
            let error = Error::invalid(format!("{} is not for --device", other.name()));
            return Err(Failure::with_next(error, "ycsb-load, ycsb-a to ycsb-f, or ycsb"));
        }
        let mut stores = Vec::new();
        for word in &self.engine {
            let named = systems(word);
            if named.is_empty() {
                let error = Error::invalid(format!("there is no store '{word}' for --device"));
                let next = format!("one of {}, leveldb, all", systems("all").join(", "));
                return Err(Failure::with_next(error, next));
            }
            stores.extend(named.into_iter().filter(|name| !stores.contains(name)).collect::<Vec<_>>());
        }
        let plan = |workload, system| DevicePlan {
            system,
            workload,
            channels,
            pages_per_block: self.block_pages,
            board_bytes: self.flash.map(|size| size.0),
            records: self.keys,
            requests: self.requests.unwrap_or(self.keys),
            value_bytes: bytes(self.value),
            clients: self.threads.into(),
            cache_bytes: bytes(self.cache),
            settle: self.settle,
            seed: self.seed,
        };
        Ok(workloads.iter().flat_map(|workload| stores.iter().map(|store| plan(*workload, *store))).collect())
    }
}
