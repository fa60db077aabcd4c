//! What the manifest of a log store says.

use super::collect::ORDERS;
use super::pointer::DATA_BYTES_MAX;
use super::record::RECORD_HEAD_BYTES;
use crate::journal::{Edit, Floors, SegmentMeta, UNORDERED, check_comparator};
use crate::leftovers::{TABLE_NUMBER_MAX, number_after};
use crate::lifetime::Lifetime;
use std::collections::BTreeSet;
use vellum_base::{Error, Result};

const _: () = assert!(TABLE_NUMBER_MAX < u64::MAX / ORDERS / 2, "orders are made of numbers");

/// What the manifest says after its last edit.
#[derive(Clone, Debug, Default)]
pub(crate) struct ManifestState {
    pub seed: u64,
    /// In their order.
    pub segments: Vec<SegmentMeta>,
    pub floors: Floors,
    pub next_number: u64,
    pub lifetime: Lifetime,
}

/// Plays the edits.
pub(crate) fn state_of(edits: Vec<Edit>) -> Result<ManifestState> {
    let mut state = ManifestState { next_number: 1, ..ManifestState::default() };
    for edit in edits {
        check_comparator(&edit, UNORDERED)?;
        state.floors = state.floors.after(&edit);
        for number in &edit.segments_gone {
            let Some(at) = state.segments.iter().position(|meta| meta.number == *number) else {
                return Err(Error::corrupt(format!("manifest: segment {number} is not there")));
            };
            state.segments.remove(at);
        }
        state.segments.extend(&edit.segments);
        if !edit.lifetime.is_empty() {
            state.lifetime = edit.lifetime;
        }
        state.seed = edit.seed.unwrap_or(state.seed);
        state.next_number = edit.next_number.unwrap_or(0).max(state.next_number);
    }
    number_after(std::iter::once(state.next_number.saturating_sub(1)))?; // an error if nothing can have such a number
    state.segments.sort_by_key(|meta| meta.order);
    let is_impossible = |meta: &&SegmentMeta| {
        // What is written next is to be newer.
        meta.order / ORDERS > meta.number
            || meta.data_bytes > meta.bytes.min(DATA_BYTES_MAX)
            || meta.bubble_bytes > meta.data_bytes
            || meta.records > meta.data_bytes / RECORD_HEAD_BYTES as u64
    };
    if let Some(meta) = state.segments.iter().find(is_impossible) {
        return Err(Error::corrupt(format!(
            "manifest: segment {} cannot be so large, or there",
            meta.number
        )));
    }
    let same = |two: &[SegmentMeta]| two[0].order == two[1].order;
    let numbers: BTreeSet<u64> = state.segments.iter().map(|meta| meta.number).collect();
    match state.segments.windows(2).any(same) || numbers.len() < state.segments.len() {
        true => Err(Error::corrupt("manifest: two segments have one place")),
        false => Ok(state),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_base::Kind;

    #[test]
    fn segments_that_cannot_be_are_refused() {
        let good =
            SegmentMeta { number: 1, bytes: 8192, data_bytes: 4000, records: 500, ..Default::default() };
        let state = |meta| state_of(vec![Edit { segments: vec![meta], ..Edit::default() }]);
        assert_eq!(state(good).unwrap().segments, [good]);
        let larger_than_its_table = SegmentMeta { data_bytes: 8193, ..good };
        let no_pointer = SegmentMeta { bytes: u64::MAX, data_bytes: DATA_BYTES_MAX + 1, ..good };
        let crowded = SegmentMeta { records: 501, ..good };
        let all_bubbles = SegmentMeta { bubble_bytes: u64::MAX, ..good };
        for bad in [larger_than_its_table, no_pointer, crowded, all_bubbles] {
            assert_eq!(state(bad).unwrap_err().kind(), Kind::Corrupt, "{bad:?}");
        }
    }
}
