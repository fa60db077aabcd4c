//! Tests of the lab through its API: replays that compare modes, and experiments; and engines stacked on one another,
//! which only the lab depends on together.

mod array_cache;
mod dedup_scan;
mod experiment;
mod replay;
mod reuse_on_disk;

// Modules of the tests of the key-value store.
#[path = "../../kv/tests/doubtful.rs"]
#[expect(dead_code, reason = "made for the tests of the key-value store, which use all of it")]
mod doubtful;
#[path = "../../kv/tests/harness.rs"]
#[expect(dead_code, reason = "made for the tests of the key-value store, which use all of it")]
mod harness;
#[path = "../../kv/tests/history.rs"]
#[expect(dead_code, reason = "made for the tests of the key-value store, which use all of it")]
mod history;
#[path = "../../kv/tests/lives.rs"]
#[expect(dead_code, reason = "made for the tests of the key-value store, which use all of it")]
mod lives;
