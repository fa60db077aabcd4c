//! Bitmaps of an array's stale rows made of anything, with right checksums: no panic, nothing unbounded.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| vellum_array::fuzz::bitmap(bytes));
