//! The driver that carries a policy's steps out on an array and an SSD (docs/decisions/0023-array-cache.md).
//!
//! A request asks the policy under one lock (`job.rs`): its steps become jobs, each with a turn at what it touches
//! (`turns.rs`). Jobs before the mark are carried out by the requester, the others behind it (`behind.rs`); both
//! outside the lock (`core.rs`). Start reading at `requests.rs`.

mod account;
mod behind;
mod budget;
mod cached;
mod cleaner;
mod core;
pub mod delta_page;
mod detach;
mod job;
mod log_page;
pub mod nvram;
mod opening;
mod recovery;
mod requests;
mod segments;
mod slot;
mod ssd;
mod status;
mod superblock;
mod turns;

pub use cached::{CacheFormat, CacheOptions, CachedArray};
pub use log_page::LogPage;
pub use opening::examine_cache;
pub use status::CacheStatus;
pub use superblock::{CachePlot, CacheSuperblock};
