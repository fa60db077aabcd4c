//! Areas: what is small, appended to, and must not be lost. See docs/formats/kv-log.md.

mod chain;
mod edit;
mod group;
mod record;
mod search;
mod wal;

pub use record::{Area, AreaKind};

pub(crate) use chain::{Counted, LogRead, Payload, read_chain};
pub(crate) use edit::{
    COMPARATOR, Edit, LEVELS, LogPart, SegmentMeta, TableMeta, UNORDERED, check_comparator,
};
pub(crate) use group::GroupSync;
pub(crate) use record::{
    AREA_HEAD_BYTES, Ending, Framer, HEAD_BYTES, MARK_BYTES, PAYLOAD_BYTES_MAX, Previous, Records,
    fix_records,
};
pub(crate) use search::salvage_records;
pub(crate) use wal::{Wal, record_bytes};
