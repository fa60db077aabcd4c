//! Roots and feet of a key-value store's tables made of anything, with right checksums: no panic, nothing unbounded.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| vellum_kv::fuzz::root(bytes));
