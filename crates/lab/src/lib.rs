//! Experiments: baseline beside technique, on the very engine code that runs in production, in virtual time on
//! modelled devices. Every result is a function of its seed (and, of a scan, of the files).
//!
//! - [`array_cache`]: SSD caches of an array side by side;
//! - [`contents`]: what is equal to what in real files, for experiments;
//! - [`dedup_scan`]: what deduplication would find in somebody's own files;
//! - [`replay`]: one workload through several dedup modes, side by side;
//! - [`experiment`]: the papers' experiments, one file each, with the shape that must hold;
//! - [`scoreboard`]: all of them, written to `RESULTS.md`;
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
pub mod replay;
pub mod report;
pub mod scoreboard;

pub use progress::Progress;
