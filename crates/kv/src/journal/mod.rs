//! Areas: what is small, appended to, and must not be lost. See docs/formats/kv-log.md.

mod edit;
mod record;

pub use record::{Area, AreaKind};

pub(crate) use edit::{COMPARATOR, Edit, LEVELS, TableMeta};
pub(crate) use record::{
    Framer, HEAD_BYTES, PAYLOAD_BYTES_MAX, Previous, Records, fix_record, salvage_records,
};
