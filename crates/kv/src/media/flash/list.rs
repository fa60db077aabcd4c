//! The list that is written after the units of a superblock: which units the table consists of, or which ones
//! collection moved there (docs/formats/kv-flash.md).
//!
//! A unit is named by its *origin*, the table that wrote it to its own superblock, and its number there. It keeps that
//! name wherever collection moves it, so lists never have to be rewritten. Table numbers are not reused, so names are
//! unique.

use super::superblock::EXTENT_UNIT_BYTES;
use crate::bytes::{Fields, put_varint, u32_at, varint_len};
use std::collections::BTreeMap;

const MAGIC: &[u8; 4] = b"VKXL";
/// Bytes of the head of a list.
pub(super) const LIST_HEAD_BYTES: usize = 24;
/// Bytes of a table number.
const NUMBER_BYTES: usize = 8;
/// Most bytes of a varint of 32 bits, or of a difference of two such numbers.
const VARINT_BYTES_MAX: usize = 5;
/// Most bytes of a run, including the table number of its origin.
pub(super) const RUN_BYTES_MAX: usize = NUMBER_BYTES + 3 * VARINT_BYTES_MAX;
/// Most bytes of a run of the first origin that begins where the previous one of it ended.
const OWN_RUN_BYTES_MAX: usize = 2 + VARINT_BYTES_MAX;

// A linked unit adds at least as many bytes to a table as its entries in both lists take from the table's superblock.
const _: () = assert!(2 * (RUN_BYTES_MAX + OWN_RUN_BYTES_MAX) as u64 <= EXTENT_UNIT_BYTES);

/// The units of a table's list are numbered from here.
pub(crate) const LIST: u32 = 1 << 31;

/// Adjacent units of one origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The table that wrote them.
    pub origin: u64,
    pub start: u32,
    pub units: u32,
}

impl Run {
    /// The units of a table's list, both copies, which takes `bytes` in all.
    pub(crate) fn of_list(table: u64, bytes: u64) -> Run {
        Run { origin: table, start: LIST, units: bytes.div_ceil(EXTENT_UNIT_BYTES) as u32 }
    }

    pub(crate) fn is_list(&self) -> bool {
        self.start >= LIST
    }

    pub(crate) fn end(&self) -> u32 {
        self.start + self.units
    }

    /// True if its unit numbers fit a superblock of `room` units.
    fn fits(&self, room: u32) -> bool {
        let first = if self.is_list() { LIST } else { 0 };
        self.end() - first <= room
    }

    fn is_followed_by(&self, next: &Run) -> bool {
        self.origin == next.origin && self.end() == next.start
    }
}

/// Appends a run, joined to the last one if adjacent.
pub(crate) fn push_run(runs: &mut Vec<Run>, next: Run) {
    match runs.last_mut() {
        Some(last) if last.is_followed_by(&next) => last.units += next.units,
        _ => runs.push(next),
    }
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct List {
    /// In the order of the bytes of the table, or of the superblock if by collection.
    runs: Vec<Run>,
    /// Tables that were erased before the list was written, but of which an opening may find traces, which it must
    /// ignore.
    gone: Vec<u64>,
    origins: Origins,
    /// Encoded bytes of all runs but the last, which may still grow.
    closed_bytes: usize,
    /// Of the last run: index of its origin, and distance from the previous run of that origin.
    last: Option<[u64; 2]>,
}

impl List {
    /// An empty list of a table. Its own number comes first, as a run of its own may follow at any time.
    pub(crate) fn of_table(table: u64, gone: Vec<u64>) -> List {
        let mut list = List { gone, ..List::default() };
        list.origins.index(table);
        list
    }

    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    pub(crate) fn gone(&self) -> &[u64] {
        &self.gone
    }

    /// Appends a run, joined to the last one if adjacent.
    pub(crate) fn push(&mut self, next: Run) {
        let before = self.runs.len();
        self.closed_bytes += match self.runs.last() {
            Some(last) if !last.is_followed_by(&next) => self.last_bytes(last.units.into()),
            _ => 0,
        };
        push_run(&mut self.runs, next);
        let [index, distance, _] = self.origins.code(&next);
        if self.runs.len() > before {
            self.last = Some([index, distance]);
        }
    }

    /// Encoded bytes of the last run, if it has `units` units.
    fn last_bytes(&self, units: u64) -> usize {
        self.last.map_or(0, |[index, distance]| [index, distance, units].into_iter().map(varint_len).sum())
    }

    /// Encoded bytes, if the last run has at most `last_units` units.
    fn bytes(&self, last_units: u64) -> u64 {
        let numbers = self.origins.names.len() + self.gone.len();
        (LIST_HEAD_BYTES + numbers * NUMBER_BYTES + self.closed_bytes + self.last_bytes(last_units)) as u64
    }

    /// Most encoded bytes with `runs` more runs.
    pub(crate) fn bytes_with(&self, runs: usize) -> u64 {
        self.bytes(u32::MAX.into()) + (runs * RUN_BYTES_MAX) as u64
    }

    /// Most encoded bytes if only units of the table itself follow. A run of another table adds at most half a unit.
    pub(crate) fn bytes_of_table(&self) -> u64 {
        let goes_on = self.last.is_some_and(|[index, _]| index == 0);
        self.bytes(u32::MAX.into()) + if goes_on { 0 } else { OWN_RUN_BYTES_MAX as u64 }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; LIST_HEAD_BYTES];
        let numbers = self.origins.names.iter().chain(&self.gone);
        numbers.for_each(|table| out.extend_from_slice(&table.to_le_bytes()));
        let (runs_at, mut origins) = (out.len(), Origins::default());
        for origin in &self.origins.names {
            origins.index(*origin);
        }
        let fields = self.runs.iter().flat_map(|run| origins.code(run));
        fields.for_each(|field| put_varint(&mut out, field));
        let counts = [self.runs.len(), self.origins.names.len(), self.gone.len(), out.len() - runs_at];
        for (count, at) in counts.into_iter().zip([8, 12, 16, 20]) {
            out[at..at + 4].copy_from_slice(&(count as u32).to_le_bytes());
        }
        out[..4].copy_from_slice(MAGIC);
        let crc = vellum_codes::crc32c(&out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The list at the front of `bytes`, if it checks out, and names only units that a superblock of `room` can have.
    pub(crate) fn decode(bytes: &[u8], room: u32) -> Option<List> {
        let head = bytes.get(..LIST_HEAD_BYTES)?;
        let [runs, origins, gone, run_bytes] = [8, 12, 16, 20].map(|at| u32_at(head, at) as usize);
        let numbers = origins.checked_add(gone)?.checked_mul(NUMBER_BYTES)?;
        let bytes = bytes.get(..LIST_HEAD_BYTES.checked_add(numbers)?.checked_add(run_bytes)?)?;
        if &head[..4] != MAGIC || u32_at(head, 4) != vellum_codes::crc32c(&bytes[8..]) {
            return None;
        }
        let (mut list, mut fields) = (List::default(), Fields::new(&bytes[LIST_HEAD_BYTES..]));
        for index in 0..origins as u64 {
            // Each is named once.
            (list.origins.index(fields.u64()?) == index).then_some(())?;
        }
        list.gone = (0..gone).map(|_| fields.u64()).collect::<Option<_>>()?;
        for _ in 0..runs {
            let run = list.origins.decode(&mut fields).filter(|run| run.fits(room))?;
            list.push(run);
        }
        (fields.is_empty() && list.runs.len() == runs).then_some(list)
    }
}

/// Tables that wrote what a list names, in the order in which they are named, and where the last run of each ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Origins {
    names: Vec<u64>,
    /// By name: which of these it is, and that end.
    places: BTreeMap<u64, (u64, u32)>,
}

impl Origins {
    /// Which of them this is.
    fn index(&mut self, origin: u64) -> u64 {
        let next = self.names.len() as u64;
        let (index, _) = *self.places.entry(origin).or_insert((next, 0));
        if index == next {
            self.names.push(origin);
        }
        index
    }

    /// The origin of a run, how far from the end of the run before it begins, and its units.
    fn code(&mut self, run: &Run) -> [u64; 3] {
        let index = self.index(run.origin);
        let before = self.places.insert(run.origin, (index, run.end())).map_or(0, |(_, end)| end);
        let distance = i64::from(run.start) - i64::from(before);
        [index, ((distance << 1) ^ (distance >> 63)) as u64, run.units.into()]
    }

    /// The next run, if it is one.
    fn decode(&self, fields: &mut Fields<'_>) -> Option<Run> {
        let [index, distance, units] = [fields.varint()?, fields.varint()?, fields.varint()?];
        let origin = *self.names.get(usize::try_from(index).ok()?)?;
        let (_, before) = self.places[&origin];
        let distance = (distance >> 1) as i64 ^ -((distance & 1) as i64);
        let start = u32::try_from(i64::from(before).checked_add(distance)?).ok()?;
        let run = Run { origin, start, units: u32::try_from(units).ok()? };
        start.checked_add(run.units)?;
        (run.units > 0).then_some(run)
    }
}

/// Decodes fuzzed bytes, their checksum put right first (see `crate::fuzz`).
pub(crate) fn fuzzed(bytes: &[u8]) {
    let mut bytes = [&MAGIC[..], &[0; 4], bytes].concat();
    let crc = vellum_codes::crc32c(&bytes[8..]);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    if let Some(list) = List::decode(&bytes, LIST) {
        assert_eq!(List::decode(&list.encode(), LIST).as_ref(), Some(&list));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        /// Of a few origins, or of any.
        fn run()(few in 0u64..4, any: u64, is_few: bool, start in 0u32..LIST - 300, units in 1u32..300, is_list: bool, is_near: bool) -> Run {
            let start = if is_near { start % 1000 } else { start };
            Run { origin: if is_few { few } else { any }, start: if is_list { LIST + start } else { start }, units }
        }
    }

    pub(in crate::media::flash) fn list_of(runs: &[Run], gone: Vec<u64>) -> List {
        let mut list = List { gone, ..List::default() };
        runs.iter().for_each(|run| list.push(*run));
        list
    }

    prop_compose! {
        fn list()(runs in prop::collection::vec(run(), 0..40), gone in prop::collection::vec(any::<u64>(), 0..9)) -> List {
            list_of(&runs, gone)
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(runs in prop::collection::vec(run(), 0..40), gone in prop::collection::vec(any::<u64>(), 0..9), behind in 0usize..5000) {
            let list = list_of(&runs, gone);
            let mut merged = Vec::new();
            runs.into_iter().for_each(|run| push_run(&mut merged, run));
            prop_assert_eq!(list.runs(), &merged);
            let mut bytes = list.encode();
            prop_assert_eq!(bytes.len() as u64, list.bytes(list.runs.last().map_or(0, |run| run.units.into())));
            prop_assert!(bytes.len() as u64 <= list.bytes_with(0));
            bytes.resize(bytes.len() + behind, 0);
            prop_assert_eq!(List::decode(&bytes, LIST), Some(list));
        }

        #[test]
        fn what_was_promised_is_kept(runs in prop::collection::vec((run(), prop::option::of(1u32..1 << 20)), 0..40)) {
            let (mut list, mut own) = (List::of_table(9, vec![1, 2]), 0);
            for (run, of_table) in runs {
                let (kept, more) = (list.bytes_of_table(), list.bytes_with(1));
                match of_table {
                    Some(units) => {
                        list.push(Run { origin: 9, start: own, units });
                        own += units;
                        prop_assert!(list.bytes_of_table() <= kept);
                    }
                    None => {
                        list.push(run);
                        prop_assert!(2 * list.bytes_of_table() <= 2 * kept + EXTENT_UNIT_BYTES);
                    }
                }
                prop_assert!(list.bytes_with(0) <= more);
                prop_assert!(list.encode().len() as u64 <= list.bytes_of_table());
            }
        }

        #[test]
        fn what_is_damaged_is_noticed(list in list(), at in any::<prop::sample::Index>(), bit in 0u32..8) {
            let mut bytes = list.encode();
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
            prop_assert_eq!(List::decode(&bytes, LIST), None);
            bytes[at] ^= 1u8 << bit;
            prop_assert_eq!(List::decode(&bytes[..at], LIST), None);
        }

        #[test]
        fn fuzzed_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            fuzzed(&bytes);
        }
    }

    #[test]
    fn fuzzed_bytes_are_read_if_they_are_a_list() {
        let list =
            list_of(&[Run { origin: 3, start: 4, units: 5 }, Run { origin: 3, start: 1, units: 2 }], vec![1]);
        fuzzed(&list.encode()[8..]);
        assert_eq!(list.encode().len(), LIST_HEAD_BYTES + 2 * NUMBER_BYTES + 6);
    }
}
