//! Filters and index leaves of a key-value store made of anything, with right checksums: no panic, nothing unbounded.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| vellum_kv::fuzz::branch(bytes));
