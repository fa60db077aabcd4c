//! A hash-indexed log store (FAWN-DS, papers/freewrite.txt, section 3.2): records in the order in which they were
//! written, an index of seven bytes a key in memory, and collecting that writes little of what is stored already.
//!
//! The same as [`crate::Store`] but for the order of keys: it has none, so there are no bounds, keyspaces, ranges and
//! ingest. It has no snapshots, either: its index knows one record of a key, and old ones would have to be kept out of
//! the way of collecting, key by key. [`crate::Map::checkpoint`] is what there is for that. A get reads the
//! medium once.
//!
//! Reading order: `store`, `writer` (how a write goes), `core` (what readers see, locks), `record`, `hint`, `segment`,
//! `index`, `rebuild` and `open`, `collect`, `repair`. Formats are in docs/formats/kv-segment.md and kv-log.md; why
//! things are so in docs/decisions/0024-log-store.md.

mod background;
mod checkpoint;
mod collect;
mod core;
mod foot;
mod hint;
mod index;
mod iter;
mod open;
mod options;
mod rebuild;
mod record;
mod repair;
mod room;
mod segment;
mod stat;
mod store;
mod verify;
mod writer;

pub(crate) use open::{holds_records, state_of};

pub use iter::Iter;
pub use options::Options;
pub use repair::repair;
pub use stat::StoreStat;
pub use store::{Store, ValueLimit};

/// Decodes fuzzed bytes as records, and as a hint and a foot (see `crate::fuzz`).
pub(crate) fn fuzzed(bytes: &[u8]) {
    record::fuzzed(bytes);
    hint::fuzzed(bytes);
    foot::fuzzed(bytes);
}

/// True if a table begins as a segment of a log store does.
pub(crate) fn is_segment(media: &dyn crate::media::Media, table: u64) -> bool {
    let mut unit = [0; hint::UNIT_BYTES];
    let read =
        media.open_table(table).and_then(|table| table.read(0, &mut unit, vellum_base::IoClass::Background));
    read.is_ok() && segment::is_segment(&unit)
}
