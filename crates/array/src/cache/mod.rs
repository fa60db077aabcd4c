//! The SSD cache of an array: policies that only decide, without I/O, data or time
//! (docs/decisions/0023-array-cache.md).
//!
//! A [`Policy`] is told of a request and answers with [`Step`]s. A driver carries them out: on devices, on version
//! numbers in a test, or by counting. Start reading at [`step`], then [`policy`], then `kdd/mod.rs`.

mod admission;
mod bare;
pub mod engine;
mod entries;
mod kdd;
mod leavo;
mod map;
mod metalog;
pub mod policy;
mod restore;
mod shape;
mod staging;
pub mod step;
mod whole;

pub use metalog::{ENTRIES_PER_LOG_PAGE, log_pages_min};
pub use policy::{Census, Policy, Recipe, Restored, Scheme};
pub use shape::{CacheShape, PageState};
pub use staging::{DELTA_BYTES_MAX, DELTA_HEAD_BYTES, DELTA_PAGE_HEAD_BYTES, encode_delta};
pub use step::{DeltaPlace, LogEntry, Newest, PageNo, ParityPart, Staged, Step, Steps, Why};
