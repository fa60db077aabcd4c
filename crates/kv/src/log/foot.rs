//! The foot, which is the last unit of a segment: the places of its parts, its origin, and its sums. See
//! docs/formats/kv-segment.md.

use super::hint::SEGMENT_UNIT_BYTES;
use crate::bytes::{u32_at, u64_at};
use crate::journal::SegmentMeta;
use vellum_base::{Error, Kind, Result};

const MAGIC: &[u8; 4] = b"VKSF";
/// Version 1 has no origin; versions 1 and 2 have no sums.
const VERSION: u32 = 3;
/// Length of a foot of version 1.
const FIRST_FOOT_BYTES: usize = 56;
const NUMBERS_AT: usize = FIRST_FOOT_BYTES + 40;
/// Most numbers of each kind; any more are left out.
const FOOT_NUMBERS_MAX: usize = 200;
const SUMS_AT: usize = SEGMENT_UNIT_BYTES - 8;

/// Where a segment comes from: what a repair without a manifest goes by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// As in the manifest.
    pub order: u64,
    /// All that logs below it hold is in segments, this one perhaps; 0 if that is not known.
    pub log_floor: u64,
    /// What it was made of: segments that were collected together, or logs that a repair took it from. As long as all
    /// of them are there, nothing is lost without it.
    pub sources: Vec<u64>,
    /// Of the first `consumed` of them, all that counts is here, or in segments that were made together with this one
    /// and before it. They count until a manifest that does not name them is durable; only then is the first of them
    /// erased.
    pub consumed: usize,
    /// Replaced for good before this segment was written, and perhaps still on the medium.
    pub gone: Vec<u64>,
}

/// The last unit of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Foot {
    /// What keys are hashed with.
    pub seed: u64,
    /// Where the last record ends.
    pub data_bytes: u64,
    pub records: u64,
    /// Bytes of bubbles.
    pub bubble_bytes: u64,
    pub hint_units: u64,
    /// `None` in version 1.
    pub origin: Option<Origin>,
    /// `None` in versions 1 and 2.
    pub sums: Option<Sums>,
}

/// Sums of the parts of a segment ([`crate::sum`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub records: u32,
    pub hint: u32,
}

impl Foot {
    /// Appends it as a unit.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.version().to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for field in [self.seed, self.data_bytes, self.records, self.bubble_bytes, self.hint_units] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        if let Some(origin) = &self.origin {
            let [sources, gone] = [&origin.sources, &origin.gone]
                .map(|numbers| &numbers[..numbers.len().min(FOOT_NUMBERS_MAX)]);
            let counts = [sources.len(), origin.consumed.min(sources.len()), gone.len()].map(|n| n as u64);
            let head = [origin.order, origin.log_floor].into_iter().chain(counts);
            for field in head.chain(sources.iter().copied()).chain(gone.iter().copied()) {
                out.extend_from_slice(&field.to_le_bytes());
            }
        }
        out.resize(start + SUMS_AT, 0);
        let sums = self.sums.unwrap_or_default();
        [sums.records, sums.hint].iter().for_each(|sum| out.extend_from_slice(&sum.to_le_bytes()));
        let crc = crc_of(&out[start..]);
        out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
    }

    fn version(&self) -> u32 {
        match (&self.origin, self.sums) {
            (None, _) => 1,
            (_, None) => 2,
            _ => VERSION,
        }
    }

    /// Checks a segment's last unit.
    pub(crate) fn read(unit: &[u8]) -> Result<Foot> {
        let fits = unit.len() == SEGMENT_UNIT_BYTES && unit.starts_with(MAGIC);
        if !fits || crc_of(unit) != u32_at(unit, 4) {
            return Err(Error::corrupt("a segment's foot does not check out"));
        }
        let version = u32_at(unit, 8);
        if !(1..=VERSION).contains(&version) {
            let what = format!("a segment's foot of version {version}; this program knows {VERSION}");
            return Err(Error::new(Kind::Unsupported, what));
        }
        let field = |n: usize| u64_at(unit, 16 + 8 * n);
        Ok(Foot {
            seed: field(0),
            data_bytes: field(1),
            records: field(2),
            bubble_bytes: field(3),
            hint_units: field(4),
            origin: (version > 1).then(|| Origin::read(unit)).transpose()?,
            sums: (version > 2)
                .then(|| Sums { records: u32_at(unit, SUMS_AT), hint: u32_at(unit, SUMS_AT + 4) }),
        })
    }

    /// True if the manifest describes other records.
    pub(crate) fn is_another(&self, listed: &SegmentMeta) -> bool {
        listed.sum.is_some() && listed.sum != self.sums.map(|sums| sums.records)
    }

    /// The unit at which the hint begins; `None` if a segment of `bytes` cannot have these parts.
    pub(crate) fn hint_at(&self, bytes: u64) -> Option<u64> {
        let data = self.data_bytes.checked_next_multiple_of(SEGMENT_UNIT_BYTES as u64)?;
        let hint = self.hint_units.checked_mul(SEGMENT_UNIT_BYTES as u64)?;
        (data.checked_add(hint)?.checked_add(SEGMENT_UNIT_BYTES as u64)? == bytes).then_some(data)
    }
}

impl Origin {
    fn read(unit: &[u8]) -> Result<Origin> {
        let [order, log_floor, sources, consumed, gone] =
            [0, 8, 16, 24, 32].map(|at| u64_at(unit, FIRST_FOOT_BYTES + at));
        if sources.max(gone) > FOOT_NUMBERS_MAX as u64 || consumed > sources {
            return Err(Error::corrupt("a segment's foot names more segments than there is room for"));
        }
        let numbers = |from: u64, count: u64| {
            (from..from + count).map(|n| u64_at(unit, NUMBERS_AT + 8 * n as usize)).collect()
        };
        let (sources, gone) = (numbers(0, sources), numbers(sources, gone));
        Ok(Origin { order, log_floor, sources, consumed: consumed as usize, gone })
    }

    /// Sources that count no more once this segment does.
    pub(crate) fn replaced(&self) -> &[u64] {
        &self.sources[..self.consumed]
    }

    /// True if nothing is lost without this segment, as all that it was made of is there. A full list may lack some.
    pub(crate) fn is_spare(&self, is_there: impl FnMut(&u64) -> bool) -> bool {
        !self.sources.is_empty() && self.sources.len() < FOOT_NUMBERS_MAX && self.sources.iter().all(is_there)
    }
}

/// The checksum of a foot; in version 1 it covers fewer bytes.
fn crc_of(unit: &[u8]) -> u32 {
    let end = if u32_at(unit, 8) == 1 { FIRST_FOOT_BYTES } else { SEGMENT_UNIT_BYTES };
    vellum_codes::crc32c(&unit[8..end])
}

/// Decodes fuzzed bytes (see `crate::fuzz`).
pub(crate) fn fuzzed(bytes: &[u8]) {
    let mut unit = bytes.to_vec();
    unit.resize(SEGMENT_UNIT_BYTES, 0);
    unit[..4].copy_from_slice(MAGIC);
    let crc = crc_of(&unit);
    unit[4..8].copy_from_slice(&crc.to_le_bytes());
    if let Ok(foot) = Foot::read(&unit) {
        let _ = foot.hint_at(bytes.len() as u64);
        let mut again = Vec::new();
        foot.write(&mut again);
        assert_eq!(Foot::read(&again).expect("what was written"), foot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn foot(origin: Option<Origin>) -> (Foot, Vec<u8>) {
        let sums = origin.as_ref().filter(|origin| origin.order > 0).map(|_| Sums { records: 3, hint: 4 });
        let foot =
            Foot { seed: 5, data_bytes: 9000, records: 7, bubble_bytes: 16, hint_units: 2, origin, sums };
        let mut unit = Vec::new();
        foot.write(&mut unit);
        (foot, unit)
    }

    #[test]
    fn a_foot_says_where_its_parts_are_and_where_the_segment_comes_from() {
        let origin = Origin { order: 3 << 16, log_floor: 8, sources: vec![1, 2], consumed: 1, gone: vec![7] };
        let later = [Origin::default(), origin].map(|origin| (Some(origin), SEGMENT_UNIT_BYTES));
        for (origin, checked) in [(None, FIRST_FOOT_BYTES)].into_iter().chain(later) {
            let (foot, unit) = foot(origin);
            assert_eq!(Foot::read(&unit).unwrap(), foot);
            assert_eq!((foot.hint_at(6 * 4096), foot.hint_at(7 * 4096)), (Some(3 * 4096), None));
            for at in 8..checked {
                let mut bad = unit.clone();
                bad[at] ^= 4;
                assert_eq!(Foot::read(&bad).unwrap_err().kind(), Kind::Corrupt, "byte {at}");
            }
        }
    }

    #[test]
    fn a_foot_names_as_many_segments_as_it_has_room_for() {
        let many: Vec<u64> = (0..1000).collect();
        let origin = Origin { sources: many.clone(), consumed: 900, gone: many.clone(), ..Origin::default() };
        let read = Foot::read(&foot(Some(origin)).1).unwrap().origin.unwrap();
        assert_eq!((read.replaced(), &read.gone[..]), (&many[..FOOT_NUMBERS_MAX], &many[..FOOT_NUMBERS_MAX]));
        assert!(!read.is_spare(|_| true), "there may have been more");
    }
}
