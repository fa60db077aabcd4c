//! The ordered engine: an LSM tree (papers/flashkv.txt). Reading order: `store`, `writer` (the path of a write), `core`
//! (what readers see, locks), `table` and `memtable`, `background`, `flush`, `compaction`, and `rules` (ours and
//! LevelDB's); `room` (how much there is, what for, and who waits for it); `limits`, `open`, `recover` and `replay`;
//! then further functions: `keyspace`, `ingest`, `manual`, `checkpoint`, `verify`, `repair`. `kept_log` is about values
//! that stay in logs.

pub(crate) mod background;
pub(crate) mod cache;
pub(crate) mod checkpoint;
pub(crate) mod compaction;
pub(crate) mod core;
pub(crate) mod fences;
pub(crate) mod flush;
pub(crate) mod ingest;
pub(crate) mod iter;
pub(crate) mod kept_log;
pub(crate) mod keyspace;
pub(crate) mod level;
pub(crate) mod limits;
pub(crate) mod manual;
pub(crate) mod memtable;
pub(crate) mod merge;
pub(crate) mod open;
pub(crate) mod pace;
pub(crate) mod recover;
pub(crate) mod repair;
pub(crate) mod replay;
pub(crate) mod room;
pub(crate) mod rules;
pub(crate) mod source;
pub(crate) mod stat;
pub(crate) mod store;
pub(crate) mod striped;
pub(crate) mod table;
pub(crate) mod units;
pub(crate) mod verify;
pub(crate) mod version;
pub(crate) mod writer;
