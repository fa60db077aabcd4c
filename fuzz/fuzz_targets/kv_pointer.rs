//! A pointer into a log, made of anything.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| vellum_kv::fuzz::pointer(bytes));
