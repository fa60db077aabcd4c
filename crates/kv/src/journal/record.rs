//! Reading records of logs and manifests, and distinguishing a torn tail from damage.
//!
//! 1. Records are returned in order, each complete; the first invalid one ends the area.
//! 2. That end is a torn tail unless more is proved to have been durable: by a mark after it, by the next area, or by
//!    the manifest. Otherwise it is damage, and an error.
//! 3. Records of another area or another store are invalid.

use super::frame::{Area, FRAME_HEAD_BYTES, PAYLOAD_BYTES_MAX, Previous, RecordKind, VERSIONS};
use super::search::Search;
use crate::bytes::{Fields, u32_at};
use crate::reason;
use vellum_base::{Error, Kind, Result};

pub(super) struct Record<'a> {
    pub kind: RecordKind,
    pub seq: u64,
    pub payload: &'a [u8],
}

/// Reads the records of an area.
pub(crate) struct Records<'a> {
    area: Area,
    tag: u32,
    bytes: &'a [u8],
    offset: usize,
    /// Known to have been durable up to here.
    safe: u64,
    /// Lower bound of the next record's number.
    seq: u64,
    /// The next number according to the last mark.
    marked_seq: u64,
    head: Head,
    ending: Ending,
}

/// Whether an area may end before everything that was written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Yes, unless more is proved to have been durable: what follows was never synced, and a power loss may have left
    /// part of it.
    Torn,
    /// Only if nothing follows.
    Strict,
}

impl Ending {
    /// As options say it.
    pub(crate) fn of(strict: bool) -> Ending {
        if strict { Ending::Strict } else { Ending::Torn }
    }
}

/// Contents of the first record of an area.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Head {
    previous: Previous,
    /// The store that wrote what follows; not known in version 1.
    store: Option<u64>,
}

impl Head {
    /// Of the payload of a head; `None` if it is none. An error if it is of a later version.
    fn decode(payload: &[u8]) -> Result<Option<Head>> {
        let mut fields = Fields::new(payload);
        let Some(version) = fields.take(4).map(|version| u32_at(version, 0)) else { return Ok(None) };
        if !VERSIONS.contains(&version) {
            let what = format!("format version {version}; this program knows versions {VERSIONS:?}");
            return Err(Error::new(Kind::Unsupported, what));
        }
        let (number, length) = (fields.u64(), fields.u64());
        let is_of_store = version == VERSIONS[1];
        let store = if is_of_store { fields.u64() } else { None };
        let previous = number.zip(length).map(|(number, length)| Previous { number, length });
        let is_whole = fields.is_empty() && store.is_some() == is_of_store;
        Ok(previous.filter(|_| is_whole).map(|previous| Head { previous, store }))
    }
}

impl<'a> Records<'a> {
    pub(super) fn at_start(area: Area, store: Option<u64>, bytes: &'a [u8], ending: Ending) -> Records<'a> {
        let (tag, head) = (area.tag(store), Head::default());
        Records { area, tag, bytes, offset: 0, safe: 0, seq: 0, marked_seq: 0, head, ending }
    }

    /// Begins with the head. `None` if that is torn: the area holds nothing. An error if anything follows it, as it was
    /// durable before: records of `store`, if that is known, or such of version 1.
    pub(crate) fn open(area: Area, store: Option<u64>, bytes: &'a [u8]) -> Result<Option<Records<'a>>> {
        Records::open_as(area, store, bytes, Ending::Torn)
    }

    /// The same, of an area that may end as `ending` says.
    pub(crate) fn open_as(
        area: Area,
        store: Option<u64>,
        bytes: &'a [u8],
        ending: Ending,
    ) -> Result<Option<Records<'a>>> {
        let records = Records::at_head(area, bytes, ending)?;
        if records.is_none() {
            for store in [store, None] {
                let headless = Records::at_start(area, store, bytes, ending);
                if let Some((at, _)) = Search::of(&headless, 0).next() {
                    return Err(headless.damage(&format!("lost its head (a record follows at byte {at})")));
                }
            }
        }
        Ok(records)
    }

    /// Behind the head; `None` if that is torn.
    pub(super) fn at_head(area: Area, bytes: &'a [u8], ending: Ending) -> Result<Option<Records<'a>>> {
        let start = |store| Records::at_start(area, store, bytes, ending);
        let heads = start(None);
        let Some((record, next)) = heads.record_at(0) else { return Ok(None) };
        let head = match record.kind {
            RecordKind::Head => Head::decode(record.payload).map_err(|error| error.context(area))?,
            _ => None,
        };
        let head = head.ok_or_else(|| heads.damage("does not begin with its head"))?;
        Ok(Some(Records { head, seq: record.seq, offset: next, ..start(head.store) }))
    }

    /// The store that wrote this; not known of areas of version 1.
    pub(crate) fn store(&self) -> Option<u64> {
        self.head.store
    }
    /// An error if another store than this wrote it, as far as either is known.
    pub(crate) fn check_store(&self, store: Option<u64>) -> Result<()> {
        match self.store().zip(store) {
            Some((own, store)) if own != store => Err(of_another_store(self.area)),
            _ => Ok(()),
        }
    }

    /// What the head says of the area before.
    pub(crate) fn previous(&self) -> Previous {
        self.head.previous
    }
    /// Offset of the next record; at the end, the length of the area.
    pub(crate) fn offset(&self) -> u64 {
        self.offset as u64
    }
    /// How many bytes of the area are known to have been durable.
    pub(crate) fn safe(&self) -> u64 {
        self.safe
    }
    /// The next number according to the last mark; 0 before the first one.
    pub(crate) fn marked_seq(&self) -> u64 {
        self.marked_seq
    }
    /// What checksums of records are mixed with.
    pub(super) fn tag(&self) -> u32 {
        self.tag
    }
    /// What is read.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
    /// The number that the head, or the last record, began with.
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    /// The next record's number and payload; `None` at the end, which is where the area was torn, or whole. An
    /// error if it is damaged there.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, &'a [u8])>> {
        loop {
            let Some((record, next)) = self.record_at(self.offset) else {
                self.must_be_torn()?;
                return Ok(None);
            };
            if record.seq < self.seq {
                return Err(self.damage("goes back in time"));
            }
            (self.seq, self.offset) = (record.seq, next);
            match record.kind {
                RecordKind::Data => return Ok(Some((record.seq, record.payload))),
                RecordKind::Mark => {
                    self.safe = self.safe.max(safe_of(&record));
                    self.marked_seq = record.seq;
                }
                RecordKind::Head => return Err(self.damage("has a second head")),
            }
        }
    }

    fn damage(&self, what: &str) -> Error {
        Error::corrupt(format!("{} {what}, at byte {}", self.area, self.offset))
    }

    /// The record at `offset`, if it checks out, and where the next one begins.
    pub(super) fn record_at(&self, offset: usize) -> Option<(Record<'a>, usize)> {
        let (head, length, kind) = self.plausible(offset)?;
        let end = offset + FRAME_HEAD_BYTES + length;
        let crc = vellum_codes::crc32c(self.bytes.get(offset + 4..end)?) ^ self.tag;
        if crc != u32_at(head, 0) {
            return None;
        }
        let seq = seq_of(head);
        Some((Record { kind, seq, payload: &self.bytes[offset + FRAME_HEAD_BYTES..end] }, end))
    }

    /// The head at `offset`, its length and kind, if they are possible.
    pub(super) fn plausible(&self, offset: usize) -> Option<(&'a [u8], usize, RecordKind)> {
        let head = self.bytes.get(offset..offset + FRAME_HEAD_BYTES)?;
        let field = u32_at(head, 4);
        let length = (field & PAYLOAD_BYTES_MAX as u32) as usize;
        let kind = match field >> 30 {
            0 => RecordKind::Data,
            1 if length == 8 => RecordKind::Mark,
            2 => RecordKind::Head,
            _ => return None,
        };
        (length <= self.bytes.len() - offset - FRAME_HEAD_BYTES).then_some((head, length, kind))
    }

    /// `Ok` if what is at `offset` was torn; an error if a later record proves that it was durable once.
    fn must_be_torn(&self) -> Result<()> {
        if (self.offset as u64) < self.safe {
            return Err(self.damage("is damaged where it was safe"));
        }
        let mut first = None;
        for (at, record) in Search::of(self, self.offset) {
            if record.kind == RecordKind::Mark && safe_of(&record) > self.offset as u64 {
                return Err(self.damage("is damaged where it was safe"));
            }
            first.get_or_insert(at);
        }
        match first.filter(|_| self.ending == Ending::Strict) {
            Some(at) => {
                let what = format!("is damaged in its middle (a record follows at byte {at})");
                Err(self.damage(&what).because(reason::LOG_DAMAGED))
            }
            None => Ok(()),
        }
    }
}

/// What is said of an area that was moved to a store that did not write it.
pub(crate) fn of_another_store(area: Area) -> Error {
    let what = format!("{area} is of another store: move it away, or put there what belongs to it");
    Error::new(Kind::Unsupported, what)
}

/// The number of the store that wrote an area, if its head says.
pub(crate) fn store_of(area: Area, bytes: &[u8]) -> Option<u64> {
    Records::at_head(area, bytes, Ending::Torn).ok()??.store()
}

/// Bytes of the records of an area behind its head, up to the first that is invalid, whatever follows that; of one that
/// another store wrote, none.
pub(crate) fn record_bytes_of(area: Area, store: u64, bytes: &[u8]) -> u64 {
    let Ok(Some(mut records)) = Records::at_head(area, bytes, Ending::Torn) else { return 0 };
    if records.check_store(Some(store)).is_err() {
        return 0;
    }
    let begin = records.offset();
    while let Some((_, next)) = records.record_at(records.offset) {
        records.offset = next;
    }
    records.offset() - begin
}

/// Gives the records of fuzzed bytes the checksums they need, as far as their lengths make sense.
pub(crate) fn fix_records(area: Area, bytes: &mut [u8]) {
    let (mut store, mut offset) = (None, 0);
    while let Some((_, length, _)) = Records::at_start(area, None, bytes, Ending::Torn).plausible(offset) {
        let end = offset + FRAME_HEAD_BYTES + length;
        let crc = vellum_codes::crc32c(&bytes[offset + 4..end]) ^ area.tag(store);
        bytes[offset..offset + 4].copy_from_slice(&crc.to_le_bytes());
        if offset == 0 {
            store = store_of(area, bytes);
        }
        offset = end;
    }
}

/// The number in a record's head.
pub(super) fn seq_of(head: &[u8]) -> u64 {
    u64::from_le_bytes(head[8..FRAME_HEAD_BYTES].try_into().expect("eight bytes"))
}

fn safe_of(record: &Record<'_>) -> u64 {
    record.payload.try_into().map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::super::frame::{AreaKind, Framer};
    use super::*;
    use proptest::prelude::*;

    const AREA: Area = Area { kind: AreaKind::Log, number: 9 };
    const STORE: u64 = 77;

    /// A log of these payloads, with a mark after the third that says it is safe up to there.
    fn log_of(payloads: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
        log_by(Framer::new(AREA, STORE), payloads)
    }

    fn log_by(framer: Framer, payloads: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
        let (mut out, mut ends) = (Vec::new(), Vec::new());
        framer.head(&mut out, 5, Previous { number: 8, length: 77 });
        for (index, payload) in payloads.iter().enumerate() {
            if index == 3 {
                let safe = out.len() as u64;
                framer.mark(&mut out, 5 + index as u64, safe);
            }
            framer.data(&mut out, 5 + index as u64, payload);
            ends.push(out.len());
        }
        (out, ends)
    }

    fn read(area: Area, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        read_as(area, bytes, Ending::Torn)
    }

    fn read_as(area: Area, bytes: &[u8], ending: Ending) -> Result<Vec<Vec<u8>>> {
        let mut all = Vec::new();
        let Some(mut records) = Records::open_as(area, Some(STORE), bytes, ending)? else { return Ok(all) };
        assert_eq!(records.previous(), Previous { number: 8, length: 77 });
        while let Some((seq, payload)) = records.next()? {
            assert_eq!(seq, 5 + all.len() as u64);
            all.push(payload.to_vec());
        }
        Ok(all)
    }

    fn payloads() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 4..9)
    }

    proptest! {
        #[test]
        fn a_log_cut_anywhere_gives_a_prefix(payloads in payloads(), cut in 0usize..400, stale in any::<u8>()) {
            let (mut bytes, ends) = log_of(&payloads);
            prop_assert_eq!(read(AREA, &bytes).unwrap(), payloads.clone());
            let cut = cut.min(bytes.len());
            let whole = ends.iter().filter(|end| **end <= cut).count();
            bytes[cut..].fill(stale);
            let got = read(AREA, &bytes).unwrap();
            prop_assert!(got.len() >= whole && got[..] == payloads[..got.len()]);
            bytes.truncate(cut);
            prop_assert_eq!(read(AREA, &bytes).unwrap(), &payloads[..whole]);
        }

        #[test]
        fn a_flipped_bit_is_damage_below_the_mark_and_a_torn_tail_above(payloads in payloads(), at in 0usize..4000) {
            let (mut bytes, ends) = log_of(&payloads);
            let at = at % (bytes.len() * 8);
            bytes[at / 8] ^= 1 << (at % 8);
            let hit = ends.iter().filter(|end| **end <= at / 8).count();
            match read(AREA, &bytes) {
                Err(error) => prop_assert!(error.kind() == Kind::Corrupt && hit < 3),
                Ok(got) => {
                    prop_assert!(hit >= 3, "damage to record {hit} went unnoticed");
                    prop_assert_eq!(&got[..], &payloads[..hit]);
                }
            }
        }

        #[test]
        fn strictly_a_flipped_bit_is_damage_if_anything_follows(payloads in payloads(), at in 0usize..4000) {
            let (mut bytes, ends) = log_of(&payloads);
            let at = at % (bytes.len() * 8);
            bytes[at / 8] ^= 1 << (at % 8);
            let last = bytes.len() - FRAME_HEAD_BYTES - payloads.last().unwrap().len();
            let hit = ends.iter().filter(|end| **end <= at / 8).count();
            match read_as(AREA, &bytes, Ending::Strict) {
                Err(error) => {
                    prop_assert_eq!(error.kind(), vellum_base::Kind::Corrupt);
                    prop_assert!(at / 8 < last, "nothing follows record {hit}: {error}");
                }
                Ok(got) => {
                    prop_assert!(at / 8 >= last, "damage to record {hit} went unnoticed");
                    prop_assert_eq!(&got[..], &payloads[..hit]);
                }
            }
        }

        #[test]
        fn strictly_a_cut_is_a_torn_tail_all_the_same(payloads in payloads(), cut in 0usize..400, stale in any::<u8>()) {
            let (mut bytes, ends) = log_of(&payloads);
            let cut = cut.min(bytes.len());
            let whole = ends.iter().filter(|end| **end <= cut).count();
            bytes[cut..].fill(stale);
            let got = read_as(AREA, &bytes, Ending::Strict).unwrap();
            prop_assert!(got.len() >= whole && got[..] == payloads[..got.len()]);
        }

        #[test]
        fn hostile_areas_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read_as(AREA, &bytes, Ending::Strict);
            let mut right = bytes;
            fix_records(AREA, &mut right);
            let _ = read_as(AREA, &right, Ending::Strict);
        }
    }

    #[test]
    fn of_version_1_a_log_is_read_and_its_damage_told() {
        let payloads: Vec<Vec<u8>> = (0..6).map(|n| vec![n; 9]).collect();
        let (mut bytes, ends) = log_by(Framer::of_version_1(AREA), &payloads);
        assert_eq!(read(AREA, &bytes).unwrap(), payloads);
        for at in 0..ends[2] {
            bytes[at] ^= 1;
            assert!(read(AREA, &bytes).is_err(), "{at}");
            bytes[at] ^= 1;
        }
    }

    #[test]
    fn a_log_of_another_store_is_told_from_ours() {
        let payloads: Vec<Vec<u8>> = (0..6).map(|n| vec![n; 9]).collect();
        let by = |store| (Framer::new(AREA, store), Some(store));
        let of_version_1 = (Framer::of_version_1(AREA), None);
        for ((framer, store), is_ours) in [(by(STORE), true), (of_version_1, true), (by(STORE + 1), false)] {
            let (bytes, _) = log_by(framer, &payloads);
            let records = Records::open(AREA, Some(STORE), &bytes).unwrap().unwrap();
            assert_eq!(records.store(), store);
            assert_eq!(records.check_store(Some(STORE)).is_ok(), is_ours);
            assert!(records.check_store(None).is_ok());
        }
    }

    #[test]
    fn an_area_that_begins_with_no_head_has_no_version() {
        let mut bytes = Vec::new();
        Framer::of_version_1(AREA).data(&mut bytes, 5, &[9; 40]);
        let error = Records::open(AREA, Some(STORE), &bytes).map(drop).unwrap_err();
        assert!(
            error.kind() == Kind::Corrupt && error.to_string().contains("begin with its head"),
            "{error}"
        );
    }

    #[test]
    fn records_of_a_former_life_are_nothing() {
        let (bytes, _) = log_of(&[vec![1], vec![2], vec![3], vec![4]]);
        assert_eq!(read(Area::log(10), &bytes).unwrap(), Vec::<Vec<u8>>::new());
        assert_eq!(read(Area::manifest(9), &bytes).unwrap(), Vec::<Vec<u8>>::new());
    }
}
