//! The log of an array made of anything, with right checksums: no panic, nothing unbounded.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| vellum_array::fuzz::log(bytes));
