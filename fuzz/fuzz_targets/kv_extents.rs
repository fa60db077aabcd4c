//! Lists of the extents that a table on flash is made of, made of anything.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| vellum_kv::fuzz::extents(bytes));
