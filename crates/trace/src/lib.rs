//! Workloads as data: readers for trace formats, a recorder, generators, content models.
//!
//! Everything is a [`RequestSource`], a streaming iterator of [`Request`]s; this crate knows no engine.

pub mod content;
pub mod devices;
pub mod formats;
pub mod generate;
pub mod keep;
pub mod models;
pub mod reason;
pub mod recorder;
pub mod request;
pub mod source;
pub mod summary;
pub mod vtrace;

pub use content::Content;
pub use formats::{Format, open};
pub use recorder::Recorder;
pub use request::{ByteLen, ByteOffset, DeviceId, Request, RequestKind};
pub use source::{Place, ReadOptions, RequestSource, RowCounts};
pub use summary::Summary;
