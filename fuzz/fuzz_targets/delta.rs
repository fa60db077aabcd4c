//! Deltas of any bytes: no panic, and the delta of two versions turns one into the other.
#![no_main]

use vellum_codes::delta;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut page = vec![0; bytes.first().map_or(0, |b| usize::from(*b) * 20)];
    let _ = delta::apply(bytes, &mut page);
    let _ = delta::apply(&[&[0, 0, 1][..], bytes].concat(), &mut page);
    let frame = zstd::bulk::compress(bytes, 1).unwrap();
    let _ = delta::apply(&[&[0, 0, 1][..], &frame].concat(), &mut page);
    let (old, new) = bytes.split_at(bytes.len() / 2);
    let new = &new[..old.len()];
    let mut out = Vec::new();
    assert!(delta::encode(old, new, usize::MAX, &mut out) && out.len() <= old.len() + delta::OVERHEAD_MAX);
    let mut once = Vec::new();
    delta::encode_once(old, new, &mut once);
    assert!(out.len() <= once.len());
    let mut page = old.to_vec();
    delta::apply(&out, &mut page).unwrap();
    assert!(page == new);
});
