//! Key-value stores side by side: the same requests, keys and values for each, with time taken and bytes written.
//!
//! - [`engine`]: the interface to stores;
//! - `ours` and [`log`]: Vellum's stores, with their common client in [`kept`];
//! - [`peers`]: RocksDB and LevelDB, if the machine has their libraries;
//! - [`phase`]: one workload on one store;
//! - [`plan`]: several workloads, each on a store in a suitable state;
//! - [`device`]: a store on the modelled board of FlashKV, in virtual time;
//! - [`usage`]: resources used by the process.

mod c_api;
pub mod device;
pub mod engine;
pub mod kept;
pub mod log;
mod ours;
pub mod peers;
pub mod phase;
pub mod plan;
pub mod usage;

pub use engine::{Compression, Engine, EngineKind, Session, Setup};
pub use ours::vellum_option_names;
pub use phase::{Latencies, Measured, Phase};
pub use plan::{Plan, PlanReport, run};
