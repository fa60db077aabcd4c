//! Doors for fuzz targets: every decoder fed with any bytes, its checksums put right first, or no input would get in.
//! Nothing here is part of the interface.

use crate::batch::check_payload;
use crate::journal::{Area, Edit, Records, fix_records, salvage_records};
use crate::key::Stamp;
use crate::lsm::recover::state_of;
use crate::lsm::table::fuzzed;
use crate::manifest::Current;

/// A data leaf: read forward, backward, by seeking, and compressed.
pub fn leaf(bytes: &[u8]) {
    fuzzed::leaf(bytes, false);
}

/// A filter and an index leaf.
pub fn branch(bytes: &[u8]) {
    fuzzed::branch(bytes);
}

/// A root leaf and a foot.
pub fn root(bytes: &[u8]) {
    fuzzed::leaf(bytes, true);
    fuzzed::foot(bytes);
}

/// A log: its records, their batches, and what can be saved of it; and the end of one, as it is in memory.
pub fn log(bytes: &[u8]) {
    crate::media::fuzzed_tail(bytes);
    let area = Area::log(7);
    let mut bytes = bytes.to_vec();
    put_right("7.log", &mut bytes);
    if let Ok(Some(mut records)) = Records::open(area, Some(1), &bytes) {
        while let Ok(Some((_, payload))) = records.next() {
            let _ = check_payload(payload, |keyspace| keyspace < 9);
        }
    }
    let mut last = 0;
    for (seq, _) in salvage_records(area, Some(1), &bytes).unwrap_or_default() {
        assert!(seq >= last, "records that were saved go back in time");
        last = seq;
    }
}

/// Edits of a manifest, one after another, played; and CURRENT. The first byte of each says how long it is.
pub fn manifest(bytes: &[u8]) {
    let _ = Current::decode(bytes);
    let (mut rest, mut edits) = (bytes, Vec::new());
    while let Some((length, after)) = rest.split_first() {
        let (edit, after) = after.split_at((*length as usize).min(after.len()));
        if let Ok(edit) = Edit::decode(edit) {
            assert_eq!(Edit::decode(&edit.encode()).expect("what was decoded"), edit);
            edits.push(edit);
        }
        rest = after;
    }
    let _ = state_of(edits);
}

/// What the zones of a device begin with, and the file that names it.
pub fn zones(bytes: &[u8]) {
    crate::media::fuzzed_zones(bytes);
}

/// Lists of extents on flash.
pub fn extents(bytes: &[u8]) {
    crate::media::fuzzed_flash(bytes);
}

/// A pointer into a log, in the place of a value.
pub fn pointer(bytes: &[u8]) {
    crate::lsm::kept_log::fuzzed(bytes);
}

/// Records of a log store's segment, its hint and its foot.
pub fn segment(bytes: &[u8]) {
    crate::log::fuzzed(bytes);
}

/// Puts right the checksums of a log's or a manifest's records, as far as their lengths make sense; does nothing to
/// other files.
pub fn put_right(name: &str, bytes: &mut [u8]) {
    let area = |ending: &str, area: fn(u64) -> Area| Some(area(name.strip_suffix(ending)?.parse().ok()?));
    let Some(area) = area(".log", Area::log).or_else(|| area(".manifest", Area::manifest)) else { return };
    fix_records(area, bytes);
}

/// Probes that fuzzed leaves are searched for.
pub(crate) fn probes(bytes: &[u8]) -> impl Iterator<Item = (&[u8], Stamp)> {
    let stamps = [Stamp(0), Stamp(0x71), Stamp(u64::MAX)];
    bytes.chunks(5).take(8).zip(stamps.into_iter().cycle())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_decoder_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            super::leaf(&bytes);
            super::branch(&bytes);
            super::root(&bytes);
            super::log(&bytes);
            super::manifest(&bytes);
            super::zones(&bytes);
            super::extents(&bytes);
            super::pointer(&bytes);
            super::segment(&bytes);
        }
    }
}
