//! A hash-indexed log store (FAWN-DS, papers/freewrite.txt, section 3.2): records in the order in which they were
//! written, an index in memory of seven bytes per key, and garbage collection that rewrites as little as it can.
//!
//! It offers what [`crate::Store`] does except for anything that needs an order of keys: no bounds, keyspaces, range
//! compaction or ingest. There are no snapshots, either: the index knows one record per key, and collection would have
//! to spare older ones key by key; use [`crate::Map::checkpoint`] instead. A get takes one read of the medium.
//!
//! Reading order: `store`, `writer` (how a write goes), `entry` and `open_segment`, `core` (what readers see, locks),
//! `record`, `hint`, `segment` and `finish`, `pointer` and `index`, then `state`, `replay`, `rebuild` and `open`,
//! `collect`, `repair`. Formats are in docs/formats/kv-segment.md and kv-log.md; why things are so in
//! docs/decisions/0024-log-store.md.

mod background;
mod checkpoint;
mod collect;
mod core;
mod entry;
mod finish;
mod foot;
mod hint;
mod hint_reader;
mod index;
mod iter;
mod open;
mod open_segment;
mod options;
mod pointer;
mod rebuild;
mod record;
mod repair;
mod replay;
mod room;
mod segment;
mod stat;
mod state;
mod store;
mod verify;
mod writer;

pub(crate) use replay::holds_records;
pub(crate) use state::state_of;

pub use iter::Iter;
pub use options::Options;
pub use repair::repair;
pub use stat::StoreStat;
pub use store::Store;

/// Decodes fuzzed bytes as records, and as a hint and a foot (see `crate::fuzz`).
pub(crate) fn fuzzed(bytes: &[u8]) {
    record::fuzzed(bytes);
    hint::fuzzed(bytes);
    foot::fuzzed(bytes);
}

/// True if a table begins as a segment of a log store does.
pub(crate) fn is_segment(media: &dyn crate::media::Media, table: u64) -> bool {
    let mut unit = [0; hint::SEGMENT_UNIT_BYTES];
    let read =
        media.open_table(table).and_then(|table| table.read(0, &mut unit, vellum_base::IoClass::Background));
    read.is_ok() && segment::is_segment(&unit)
}
