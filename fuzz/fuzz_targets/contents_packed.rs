//! Surveys of contents of anything behind a right checksum: no panic, and what is read is written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vellum_lab::contents::packed::{decode, encode};

fuzz_target!(|bytes: &[u8]| {
    assert!(bytes.len() < 8 || decode(bytes).is_err() || bytes.starts_with(b"VLMCONT1"));
    let mut whole = [b"VLMCONT1".as_slice(), bytes].concat();
    whole.extend(vellum_codes::crc32c(&whole).to_le_bytes());
    let Ok(contents) = decode(&whole) else { return };
    assert_eq!(contents.files.iter().map(|chunks| u64::from(*chunks)).sum::<u64>(), contents.chunks.len() as u64);
    let known = contents.chunks.iter().try_fold(1, |next, number| {
        (*number <= next).then_some(next.max(number + 1)) // none is left out
    });
    assert!(known.is_some());
    assert_eq!(decode(&encode(&contents)).unwrap(), contents);
});
