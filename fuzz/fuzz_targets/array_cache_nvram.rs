//! The NVRAM of an array's cache made of anything, with right checksums: no panic, nothing unbounded.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| vellum_array::fuzz::cache_nvram(bytes));
