//! An ordered key-value store that owns its flash: an LSM tree whose tables are superblocks, files, and whatever else
//! is written once and erased whole (FlashKV, papers/flashkv.txt).
//!
//! Give [`Store::open`] a [`Media`] ([`FlashMedia`] on raw flash, [`Directory`] on a file system, [`ZoneMedia`] on
//! raw and zoned devices) and a [`vellum_base::Env`]. Reading order: `store`, `writer` (how a write goes), `core` (what
//! readers see, locks), `table` and `memtable`, `background` and `compaction`, `open` and `recover`, `media`. The other
//! engine is [`log`]: keys without order, less written, one read a get. Formats are in docs/formats/kv-*.md; why things
//! are so in docs/decisions/0016-kv.md, 0017-kv-interface.md and 0024-log-store.md.

mod background;
mod batch;
mod bytes;
mod cache;
mod checkpoint;
mod compaction;
mod core;
mod freewrite;
#[doc(hidden)]
pub mod fuzz;
mod ingest;
mod iter;
mod journal;
mod key;
mod keyspace;
mod level;
mod lifetime;
pub mod log;
mod manifest;
mod media;
mod memtable;
mod merge;
mod open;
mod options;
mod recover;
mod repair;
mod stat;
mod store;
mod striped;
mod table;
mod tidy;
mod verify;
mod version;
mod writer;

pub use batch::Batch;
pub use freewrite::Caps;
pub use ingest::{Ingest, Ingested};
pub use iter::{Bounds, Iter};
pub use journal::{Area, AreaKind};
pub use key::KEY_BYTES_MAX;
pub use keyspace::{KEYSPACE_NAME_BYTES_MAX, KEYSPACES_MAX, Keyspace};
pub use lifetime::Lifetime;
pub use media::{
    AreaWriter, Asked, Directory, DirectoryOptions, Files, FlashMedia, Handle, Intent, Media, MediaShape,
    Parallelism, Schedule, Sharing, TableReader, TableWriter, ZoneHome, ZoneMedia,
};
pub use options::{CachePolicy, Compression, CpuModel, Durability, Options, Reuse, Rules};
pub use repair::{Repaired, repair};
pub use stat::{LevelStat, ReuseStat, StoreStat};
pub use store::{Snapshot, Store};
pub use table::Stored;
pub use verify::Verified;
