//! Runs of sequence numbers: adjacent entries with consecutive numbers. They were written together, by a batch or as
//! successive keys, and are likely to be overwritten together.

/// What the next entry reveals about the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    /// The entry before neither begins nor ends a run.
    None,
    /// The entry before is the first of a run.
    Began,
    /// The entry before is the last of a run.
    Ended,
}

/// Detects runs among entries in order.
#[derive(Default)]
pub(super) struct Runs {
    last: Option<u64>,
    in_run: bool,
}

impl Runs {
    /// Takes the sequence number of the next entry.
    pub(super) fn next(&mut self, seq: u64) -> Edge {
        let goes_on = self.last.replace(seq).and_then(|last| last.checked_add(1)) == Some(seq);
        match (std::mem::replace(&mut self.in_run, goes_on), goes_on) {
            (false, true) => Edge::Began,
            (true, false) => Edge::Ended,
            _ => Edge::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::build::TableBuilder;
    use super::super::grain::Grain;
    use super::super::object::{Head, ObjectKind};
    use super::super::stored::leaf_of;
    use crate::key::{EntryKind, Stamp};
    use crate::media::Stored;
    use crate::options::Compression;
    use proptest::prelude::*;

    const SHARED: Grain = Grain::sharing(64);

    fn key(at: usize) -> [u8; 8] {
        (at as u64).to_be_bytes()
    }

    fn table(entries: &[(u64, usize)], grain: Grain, compression: Compression) -> Vec<u8> {
        let mut builder = TableBuilder::new(1, 10, grain).packing(compression);
        let mut most = 0;
        for (at, (seq, bytes)) in entries.iter().enumerate() {
            most = builder.bytes_with(&key(at), &vec![7; *bytes]);
            builder.add(&key(at), Stamp::new(*seq, EntryKind::Put), &vec![7; *bytes]);
            assert!(builder.bytes() <= most);
        }
        let table = builder.finish().tail;
        assert!(table.len() <= most);
        table
    }

    /// Sequence numbers of each leaf of a table of such entries.
    fn leaves(entries: &[(u64, usize)], grain: Grain) -> Vec<Vec<u64>> {
        let (table, mut at, mut leaves) = (table(entries, grain, Compression::None), 0, Vec::new());
        loop {
            let head = Head::parse(&table[at..]).unwrap();
            match head.kind {
                ObjectKind::Foot => return leaves,
                ObjectKind::Data => {
                    let leaf = leaf_of(&table[at..], Stored { table: 1, offset: 0 }, 64).unwrap();
                    let mut seqs = Vec::new();
                    leaf.each(|_, stamp, _| {
                        seqs.push(stamp.seq());
                        Ok(())
                    })
                    .unwrap();
                    leaves.push(seqs);
                }
                _ => {}
            }
            at += head.length.next_multiple_of(grain.unit_bytes);
        }
    }

    /// Values of a quarter of a KiB: four fit a leaf.
    fn of(seqs: impl IntoIterator<Item = u64>) -> Vec<(u64, usize)> {
        seqs.into_iter().map(|seq| (seq, 256)).collect()
    }

    #[test]
    fn leaves_end_where_a_run_does() {
        let two = leaves(&of((100..106).chain(40..46)), SHARED);
        assert_eq!(two, [vec![100, 101, 102, 103], vec![104, 105], vec![40, 41, 42, 43], vec![44, 45]]);
        let then_none = leaves(&of((100..106).chain([9, 7, 5, 3, 1])), SHARED);
        assert_eq!(then_none, [vec![100, 101, 102, 103], vec![104, 105], vec![9, 7, 5, 3], vec![1]]);
    }

    #[test]
    fn leaves_end_before_a_run() {
        let found = leaves(&of([9, 7].into_iter().chain(100..106)), SHARED);
        assert_eq!(found, [vec![9, 7], vec![100, 101, 102, 103], vec![104, 105]]);
    }

    #[test]
    fn without_runs_leaves_are_full() {
        let entries = of((0..100).rev());
        let full = leaves(&entries, Grain { by_runs: false, ..SHARED });
        assert!(full[..24].iter().all(|leaf| leaf.len() == 4), "{full:?}");
        assert_eq!(leaves(&entries, SHARED), full);
        let one_run = leaves(&of(0..100), SHARED);
        assert_eq!(one_run.len(), full.len(), "a run of a hundred: {one_run:?}");
    }

    #[test]
    fn no_leaf_is_too_short_for_what_it_takes() {
        let pairs: Vec<(u64, usize)> = (0..500).map(|at| (at ^ 0x3fe, 20)).collect();
        let found = leaves(&pairs, SHARED);
        assert!(found[..found.len() - 1].iter().all(|leaf| (6..9).contains(&leaf.len())), "{found:?}");
    }

    #[test]
    fn compressed_leaves_know_no_runs() {
        let entries: Vec<(u64, usize)> = (0..2000).map(|at| (at / 5 * 9 + at, 256)).collect();
        let [by_runs, not] =
            [true, false].map(|by_runs| table(&entries, Grain { by_runs, ..SHARED }, Compression::Lz4));
        assert!(by_runs == not);
    }

    proptest! {
        #[test]
        fn what_is_in_leaves_is_what_was_added(
            runs in prop::collection::vec((0u64..1000, 1u64..7, 0usize..1500), 1..80),
        ) {
            let entries: Vec<(u64, usize)> =
                runs.iter().flat_map(|(from, count, bytes)| (*from..from + count).map(|seq| (seq, *bytes))).collect();
            let found = leaves(&entries, SHARED).concat();
            prop_assert_eq!(found, entries.iter().map(|(seq, _)| *seq).collect::<Vec<_>>());
        }
    }
}
