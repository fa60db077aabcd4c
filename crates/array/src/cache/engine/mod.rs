//! The driver: carries out a policy's steps on an array and an SSD (docs/decisions/0023-array-cache.md).
//!
//! A request asks the policy under a single lock (`brain.rs`); the resulting steps become jobs, each with a turn for
//! what it touches (`turns.rs`). Jobs that the answer depends on are carried out by the requester, the others by tasks
//! (`behind.rs`); both outside the lock (`core.rs`). Start reading at `requests.rs`.

mod account;
mod begin;
mod behind;
mod brain;
mod budget;
mod cached;
mod cleaner;
mod close;
mod core;
pub(crate) mod delta_page;
mod detach;
mod foreseen;
mod job;
mod left;
mod log_page;
mod logger;
mod marks;
pub(crate) mod nvram;
mod opening;
mod options;
mod parity;
mod past;
mod recovery;
mod redo;
mod requests;
mod segments;
mod slot;
mod ssd;
mod status;
mod sums;
mod superblock;
mod tend;
mod turns;

pub use cached::CachedArray;
pub use foreseen::{Foreseen, foresee};
pub(crate) use job::Stored;
pub use left::{Bond, check_bound, check_left_together};
pub(crate) use log_page::LogPage;
pub use nvram::check_size as check_nvram_size;
pub use opening::examine_cache;
pub use options::{CacheFormat, CacheOptions};
pub use status::CacheStatus;
pub use superblock::{CachePlot, CacheSuperblock};
