//! Key-value stores side by side: the same requests, keys and values for each, and what each took and wrote.
//!
//! - [`engine`]: what is asked of a store;
//! - `ours` and [`log`]: those of Vellum, which [`kept`] is the same client for;
//! - [`peers`]: RocksDB and LevelDB, if the machine has their libraries;
//! - [`phase`]: one workload on one store;
//! - [`plan`]: workloads one after the other, each on a store that it can begin with;
//! - [`device`]: a store on the modelled board of FlashKV, in virtual time;
//! - [`usage`]: what the process used meanwhile.

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
