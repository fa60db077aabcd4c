//! What is written behind the units of a superblock: which units a table is made of, or which ones collection put there
//! (docs/formats/kv-flash.md).
//!
//! A unit is named by its *origin*: the table that wrote it to its own superblock, and its number there. It keeps that
//! name wherever collection moves it, so a list is never written anew and never out of date. Numbers of tables are not
//! used twice, so neither are names.

use super::superblock::UNIT_BYTES;
use crate::bytes::u32_at;

const MAGIC: &[u8; 4] = b"VKXL";
/// Of a list, of a run in it, of the number of a table that is gone.
pub(super) const HEAD_BYTES: usize = 24;
pub(super) const RUN_BYTES_MAX: usize = 16;
const GONE_BYTES: usize = 8;

/// The units of a table's list are numbered from here.
pub(crate) const LIST: u32 = 1 << 31;

/// Units of one origin that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The table that wrote them.
    pub origin: u64,
    pub start: u32,
    pub units: u32,
}

impl Run {
    /// The list of a table, which takes so many bytes, all told.
    pub(crate) fn of_list(table: u64, bytes: u64) -> Run {
        Run { origin: table, start: LIST, units: bytes.div_ceil(UNIT_BYTES) as u32 }
    }

    pub(crate) fn is_list(&self) -> bool {
        self.start >= LIST
    }

    pub(crate) fn end(&self) -> u32 {
        self.start + self.units
    }
}

/// Appends a run, as part of the last if it follows that.
pub(crate) fn push_run(runs: &mut Vec<Run>, next: Run) {
    match runs.last_mut() {
        Some(last) if last.origin == next.origin && last.end() == next.start => last.units += next.units,
        _ => runs.push(next),
    }
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct List {
    /// In the order of the table's bytes, or of the superblock's.
    pub runs: Vec<Run>,
    /// Tables that were erased before it was written, though a later opening may find them: what it finds is not to be
    /// taken for a table.
    pub gone: Vec<u64>,
}

impl List {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; HEAD_BYTES];
        for run in &self.runs {
            out.extend_from_slice(&run.origin.to_le_bytes());
            out.extend_from_slice(&run.start.to_le_bytes());
            out.extend_from_slice(&run.units.to_le_bytes());
        }
        self.gone.iter().for_each(|table| out.extend_from_slice(&table.to_le_bytes()));
        out[..4].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&(self.runs.len() as u32).to_le_bytes());
        out[12..16].copy_from_slice(&(self.gone.len() as u32).to_le_bytes());
        let crc = vellum_codes::crc32c(&out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Bytes of a list of so many runs and tables that are gone.
    pub(crate) fn bytes(runs: usize, gone: usize) -> u64 {
        (HEAD_BYTES + runs * RUN_BYTES_MAX + gone * GONE_BYTES) as u64
    }

    /// The list at the front of `bytes`, if it checks out.
    pub(crate) fn decode(bytes: &[u8]) -> Option<List> {
        let head = bytes.get(..HEAD_BYTES)?;
        let [runs, gone] = [8, 12].map(|at| u32_at(head, at) as usize);
        let gone_at = HEAD_BYTES.checked_add(runs.checked_mul(RUN_BYTES_MAX)?)?;
        let bytes = bytes.get(..gone_at.checked_add(gone.checked_mul(GONE_BYTES)?)?)?;
        if &head[..4] != MAGIC || u32_at(head, 4) != vellum_codes::crc32c(&bytes[8..]) {
            return None;
        }
        let run = |bytes: &[u8]| {
            let run = Run { origin: u64_in(bytes), start: u32_at(bytes, 8), units: u32_at(bytes, 12) };
            let end = run.start.checked_add(run.units)?;
            (run.units > 0 && (run.is_list() || end <= LIST)).then_some(run)
        };
        let runs = bytes[HEAD_BYTES..gone_at].chunks_exact(RUN_BYTES_MAX).map(run).collect::<Option<_>>()?;
        let gone = bytes[gone_at..].chunks_exact(GONE_BYTES).map(u64_in).collect();
        Some(List { runs, gone })
    }
}

fn u64_in(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}

/// Decodes fuzzed bytes, their checksum put right first (see `crate::fuzz`).
pub(crate) fn fuzzed(bytes: &[u8]) {
    let mut bytes = [&MAGIC[..], &[0; 4], bytes].concat();
    let crc = vellum_codes::crc32c(&bytes[8..]);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    if let Some(list) = List::decode(&bytes) {
        assert_eq!(List::decode(&list.encode()).as_ref(), Some(&list));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn run()(origin in any::<u64>(), start in 0u32..LIST - 300, units in 1u32..300, is_list: bool) -> Run {
            Run { origin, start: if is_list { LIST + start } else { start }, units }
        }
    }

    prop_compose! {
        fn list()(runs in prop::collection::vec(run(), 0..20), gone in prop::collection::vec(any::<u64>(), 0..9)) -> List {
            List { runs, gone }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(list in list(), behind in 0usize..5000) {
            let mut bytes = list.encode();
            prop_assert_eq!(bytes.len() as u64, List::bytes(list.runs.len(), list.gone.len()));
            bytes.resize(bytes.len() + behind, 0);
            prop_assert_eq!(List::decode(&bytes), Some(list));
        }

        #[test]
        fn what_is_damaged_is_noticed(list in list(), at in any::<prop::sample::Index>(), bit in 0u32..8) {
            let mut bytes = list.encode();
            // Eight bytes of the head are reserved, and checked all the same.
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
            prop_assert_eq!(List::decode(&bytes), None);
            bytes[at] ^= 1u8 << bit;
            prop_assert_eq!(List::decode(&bytes[..at]), None);
        }

        #[test]
        fn fuzzed_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            fuzzed(&bytes);
        }
    }

    #[test]
    fn fuzzed_bytes_are_read_if_they_are_a_list() {
        let list = List { runs: vec![Run { origin: 3, start: 4, units: 5 }], gone: vec![1] };
        fuzzed(&list.encode()[8..]);
    }
}
