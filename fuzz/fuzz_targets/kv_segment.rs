//! Records, hint and foot of a log store's segment made of anything, with right checksums: no panic, nothing unbounded.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| vellum_kv::fuzz::segment(bytes));
