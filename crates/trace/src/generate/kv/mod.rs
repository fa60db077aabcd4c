//! Requests to a key-value store: YCSB's workloads A to F, and those of LevelDB's and RocksDB's `db_bench`.
//!
//! Requests refer to records by number; [`KeyForm`] turns a number into a key, and [`Values`] generates values. A
//! [`Job`] is split into streams, one per task ([`Job::streams`]), which share only the progress of insertion.
//!
//! - [`workload`]: composition of the workloads;
//! - [`choice`]: choice of records;
//! - [`stream`]: the requests of one task;
//! - [`population`]: the existing records;
//! - [`record`]: keys and values.

pub mod choice;
pub mod population;
pub mod record;
pub mod stream;
pub mod workload;

pub use choice::{Choice, Chooser};
pub use population::{Inserter, Population};
pub use record::{KeyForm, Values};
pub use stream::{Job, Stream};
pub use workload::{Mix, Workload};

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Read the record's value.
    Read,
    /// Replace the record's value, whether it exists or not.
    Update,
    /// Insert a new record.
    Insert,
    /// Read the record and those that follow it in key order.
    Scan,
    /// Read the record's value, then replace it.
    ReadModifyWrite,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 5] = [Kind::Read, Kind::Update, Kind::Insert, Kind::Scan, Kind::ReadModifyWrite];

    /// Name, as in `--json`.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Update => "update",
            Kind::Insert => "insert",
            Kind::Scan => "scan",
            Kind::ReadModifyWrite => "read_modify_write",
        }
    }
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvRequest {
    /// Kind of the request.
    pub kind: Kind,
    /// The number of the record.
    pub record: u64,
    /// Number of records that a scan reads; 1 for other kinds.
    pub records: u32,
}
