//! The lab from outside: replays that compare modes, and experiments; and engines on one another, which only the lab
//! knows all of.

mod array_cache;
mod dedup_scan;
mod experiment;
mod replay;
mod reuse_on_disk;

// What tests of the key-value store end lives with.
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
