//! Flash of a key-value store that anybody may have written: areas and CURRENT in its NVRAM, tags of its superblocks.
#![no_main]

#[path = "../../crates/kv/tests/hostile.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    hostile::open_hostile(bytes);
});
