//! Experiments: a technique compared with a baseline, with the engine code that runs in production, in virtual time on
//! modelled devices. Every result is a function of its seed (and, for a scan, of the files).
//!
//! - [`array_cache`]: SSD caches of an array side by side;
//! - [`contents`]: which parts of real files are equal, for experiments;
//! - [`dedup_scan`]: what deduplication would find in existing files;
//! - [`replay`]: one workload in several dedup modes, side by side;
//! - [`experiment`]: the papers' experiments, one file each, with the required shape of their results;
//! - [`scoreboard`]: runs all of them and writes `RESULTS.md`;
//! - [`kv_bench`]: key-value stores side by side, in real time;
//! - [`report`]: self-contained HTML pages with charts.
//!
//! Nothing here prints: callers pass a [`Progress`].

pub mod array_cache;
pub mod contents;
pub mod dedup_scan;
pub mod experiment;
pub mod kv_bench;
pub mod progress;
pub mod reason;
pub mod replay;
pub mod report;
pub mod scoreboard;

pub use progress::Progress;
