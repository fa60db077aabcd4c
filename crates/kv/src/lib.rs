//! Key-value stores that place their own data on flash. [`Store`] is ordered: an LSM tree whose tables are superblocks,
//! files or zones, written once and erased whole (FlashKV, papers/flashkv.txt). [`log::Store`] keeps keys without
//! order, writes less, and needs one read for a get (FAWN-DS, papers/freewrite.txt).
//!
//! Give [`Store::open`] a [`Media`] ([`FlashMedia`] on raw flash, [`Directory`] on a file system, [`ZoneMedia`] on raw
//! and zoned devices) and a [`vellum_base::Env`]. The interface that both share is [`Map`].
//!
//! Reading order: `map`, `lsm/mod.rs`, `log/mod.rs`; then what both engines are built on: `shared` (health of a store),
//! `obsolete` (tables to be erased), `durable` (sync of the log), `journal` (write-ahead log, edits of the manifest),
//! `freewrite` (which data is left where it is) and `media`. Formats are in docs/formats/kv-*.md, design decisions in
//! docs/decisions/0016-kv.md, 0017-kv-interface.md and 0024-log-store.md.

mod batch;
mod bytes;
mod durable;
mod engine;
mod freewrite;
#[doc(hidden)]
pub mod fuzz;
mod glance;
mod journal;
mod key;
mod leftovers;
mod lifetime;
pub mod log;
mod lsm;
mod manifest;
mod map;
pub mod media;
mod obsolete;
mod options;
mod prefetch;
pub mod reason;
mod repair;
mod shared;
mod sum;
mod swap;
mod waiting;

pub use batch::{BATCH_BYTES_MAX, Batch};
pub use engine::Engine;
pub use freewrite::{Caps, Reuse, ReuseOptions, ReuseStat, check_sharing};
pub use glance::{Glance, Glanced};
pub use journal::LEVELS;
pub use key::{KEY_BYTES_MAX, KEYSPACE_NAME_BYTES_MAX, KEYSPACES_MAX};
pub use leftovers::check_current;
pub use lifetime::Lifetime;
pub use lsm::ingest::{Ingest, Ingested};
pub use lsm::iter::{Bounds, Iter};
pub use lsm::keyspace::Keyspace;
pub use lsm::repair::repair;
pub use lsm::stat::{LevelStat, StoreStat};
pub use lsm::store::{Snapshot, Store};
pub use map::{Map, Show, Verified};
pub use media::{Directory, DirectoryOptions, FlashMedia, Media, ZoneMedia};
pub use options::{CachePolicy, Compression, CpuModel, Durability, Options, Rules, VALUE_BYTES_MAX};
pub use repair::Repaired;
