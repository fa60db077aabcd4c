//! The write-ahead log and the manifest: records that are appended to areas. See docs/formats/kv-log.md.

mod chain;
mod edit;
mod floors;
mod frame;
mod group;
mod record;
mod search;
mod table_meta;
mod wal;

pub use edit::LEVELS;
pub use frame::{Area, AreaKind};

pub(crate) use chain::{LogBounds, LogRead, Payload, lacks_a_log, read_chain};
pub(crate) use edit::{
    COMPARATOR, Edit, SEGMENT_MANIFEST_BYTES, SEQ_STORED_MAX, STORE_MANIFEST_BYTES, SegmentMeta, UNORDERED,
    check_comparator,
};
pub(crate) use floors::Floors;
pub(crate) use frame::{AREA_HEAD_BYTES, FRAME_HEAD_BYTES, Framer, MARK_BYTES, PAYLOAD_BYTES_MAX, Previous};
pub(crate) use group::GroupSync;
pub(crate) use record::{Ending, Records, fix_records, of_another_store, record_bytes_of, store_of};
pub(crate) use search::salvage_records;
pub(crate) use table_meta::{BOUNDS_MANIFEST_BYTES, LogPart, TABLE_MANIFEST_BYTES, TableMeta};
pub(crate) use wal::{Wal, record_bytes};
