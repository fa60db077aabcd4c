//! Deltas made of anything: no panic, and what is made of two versions leads from one to the other.
#![no_main]

use vellum_codes::delta;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut page = vec![0; bytes.first().map_or(0, |b| usize::from(*b) * 20)];
    let _ = delta::apply(bytes, &mut page);
    let (old, new) = bytes.split_at(bytes.len() / 2);
    let new = &new[..old.len()];
    let mut out = Vec::new();
    assert!(delta::encode(old, new, usize::MAX, &mut out) && out.len() <= old.len() + delta::OVERHEAD_MAX);
    let mut page = old.to_vec();
    delta::apply(&out, &mut page).unwrap();
    assert!(page == new);
});
