//! What clients of a key-value store ask for: YCSB's workloads A to F, and those of LevelDB's and RocksDB's `db_bench`.
//!
//! Requests name records by number; [`KeyForm`] makes a number a key, and [`Values`] makes values. A [`Job`] is
//! dealt to tasks ([`Job::streams`]), each with requests of its own; they share only how far insertion has come.
//!
//! - [`workload`]: what each workload is made of;
//! - [`choice`]: which record a request falls on;
//! - [`stream`]: the requests of one task;
//! - [`population`]: which records are there;
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

/// What is done with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Its value is read.
    Read,
    /// Its value is replaced; whether it is there is not asked.
    Update,
    /// It is new.
    Insert,
    /// It and those whose keys follow are read.
    Scan,
    /// Its value is read, then replaced.
    ReadModifyWrite,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 5] = [Kind::Read, Kind::Update, Kind::Insert, Kind::Scan, Kind::ReadModifyWrite];

    /// As in `--json`.
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
    /// What is done.
    pub kind: Kind,
    /// With which record: its number.
    pub record: u64,
    /// How many records a scan reads; 1 of other kinds.
    pub records: u32,
}
