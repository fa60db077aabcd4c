//! Labels, heads and ends of tables of a key-value store's zones, and the file that names the device, made of anything.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| vellum_kv::fuzz::zones(bytes));
