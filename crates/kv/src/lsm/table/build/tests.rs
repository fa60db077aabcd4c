//! What tables take, and where they end.

use super::super::object::OBJECT_BYTES_MAX;
use super::super::stored::leaf_of;
use super::*;
use crate::key::EntryKind;
use crate::media::Stored;
use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

/// What of a table of so large values is not data.
fn waste(value: usize, grain: Grain) -> f64 {
    let mut builder = TableBuilder::new(1, 10, grain);
    for i in 0..2000u64 {
        builder.add(&i.to_be_bytes(), Stamp::new(i + 1, EntryKind::Put), &vec![1; value]);
    }
    let finished = builder.finish();
    1.0 - (2000 * (8 + value)) as f64 / finished.meta.bytes as f64
}

#[test]
fn leaves_waste_little() {
    for (value, most) in [(100, 0.06), (500, 0.13), (1024, 0.13), (3000, 0.13), (5000, 0.3)] {
        let waste = waste(value, Grain::default());
        assert!(waste < most + 0.08, "values of {value} bytes: {:.1} % is not data", waste * 100.0);
    }
}

#[test]
fn small_leaves_in_small_units_waste_less() {
    for (value, most) in [(100, 0.17), (256, 0.13), (500, 0.11), (1024, 0.07), (3000, 0.03), (5000, 0.02)] {
        let waste = waste(value, Grain::sharing(64));
        assert!(waste < most, "values of {value} bytes: {:.1} % is not data", waste * 100.0);
    }
}

/// Long keys that differ at their ends only: each is whole in the root.
#[test]
fn a_table_ends_before_its_root_is_too_large_to_be_read() {
    let mut builder = TableBuilder::new(1, 10, Grain::default());
    let key = |i: u16| [&[0; 65_533][..], &i.to_be_bytes()].concat();
    let (value, mut added) = ([7; 4000], 0);
    while builder.bytes_with(&key(added), &value) < usize::MAX {
        builder.add(&key(added), Stamp::new(1, EntryKind::Put), &value);
        builder.taken();
        added += 1;
    }
    assert!(added > 1000, "{added} keys");
    let tail = builder.finish().tail;
    assert!(tail.len() <= OBJECT_BYTES_MAX + (1 << 20), "{} bytes", tail.len());
}

/// Versions of a long key share it while they are collected for compression. If they do not compress, each takes a
/// leaf, and is told from the others by the whole key.
#[test]
fn versions_of_a_long_key_take_no_more_than_was_said() {
    for (key, compression) in (3800..4000)
        .step_by(20)
        .flat_map(|key| [Compression::Lz4, Compression::Zstd(1)].map(|compression| (key, compression)))
    {
        let mut builder = TableBuilder::new(1, 10, Grain::default()).packing(compression);
        // After what compresses well more is collected.
        let add = |n: u16| builder.add(&n.to_be_bytes(), Stamp::new(1, EntryKind::Put), &bytes(1000, None));
        (0..50).for_each(add);
        builder.pack_collected();
        let (key, value, mut promised) = ([&[1], &bytes(key, Some(0))[..]].concat(), 4060 - key, 0);
        for seq in (1..=8).rev() {
            let value = bytes(value, Some(seq));
            promised = builder.bytes_with(&key, &value);
            builder.add(&key, Stamp::new(seq, EntryKind::Put), &value);
        }
        let (key, bytes) = (key.len(), builder.finish().meta.bytes as usize);
        assert!(
            bytes <= promised,
            "{compression:?}, a key of {key} bytes: {bytes} bytes, {promised} were promised"
        );
    }
}

/// Small entries would pile up in a leaf as large as the last large value had.
#[test]
fn a_large_value_before_a_leaf_that_is_kept_makes_no_large_leaf_behind_it() {
    let (grain, stamp) = (Grain::default(), Stamp::new(1, EntryKind::Put));
    let from = Stored { table: 1, offset: 0 };
    let mut stored = TableBuilder::new(1, 10, grain);
    stored.add(b"b", stamp, &[7; 1000]);
    let kept = leaf_of(&stored.finish().tail, from, grain.unit_bytes).unwrap();
    let mut builder = TableBuilder::new(2, 10, grain);
    builder.add(b"a", stamp, &vec![7; 4 << 20]);
    builder.keep(&kept).unwrap();
    builder.taken();
    (0..2000u32).for_each(|n| builder.add(&[b"c", &n.to_be_bytes()[..]].concat(), stamp, b"v"));
    let first = leaf_of(builder.pending().0, from, grain.unit_bytes).unwrap();
    assert_eq!(first.bytes.len(), grain.leaf_bytes);
}

/// Where the open leaf ends after each of 14 entries of 1 KiB.
fn tails(grain: Grain) -> Vec<usize> {
    let mut builder = TableBuilder::new(1, 10, grain);
    let add = |i: u64| {
        builder.add(&i.to_be_bytes(), Stamp::new(i + 1, EntryKind::Put), &[1; 1024]);
        builder.tail()
    };
    (0..14).map(add).collect()
}

#[test]
fn what_a_full_leaf_leaves_empty_is_no_bubble() {
    let tails = tails(Grain::default());
    // Seven fill a leaf of two units.
    assert!(tails[5] < 7000 && tails[6] == 8192 && tails[12] < 15_200 && tails[13] == 16_384, "{tails:?}");
}

#[test]
fn narrow_leaves_take_one_unit() {
    let tails = tails(Grain::default().narrow());
    assert_eq!([2, 5, 8, 11].map(|at| tails[at]), [4096, 8192, 12_288, 16_384]);
}

fn shape() -> impl Strategy<Value = (usize, usize, u8)> {
    (prop_oneof![Just(0usize), 0..40usize, 0..16_000usize], prop_oneof![0..200usize, 0..9000usize], 0..8u8)
}

/// Bytes that can be compressed, or cannot.
fn bytes(count: usize, seed: Option<u64>) -> Vec<u8> {
    let mut bytes = vec![7; count];
    if let Some(seed) = seed {
        SmallRng::seed_from_u64(seed).fill(&mut bytes[..]);
    }
    bytes
}

/// Key and value; some long keys differ early, some late, and some keys and some values can be compressed.
fn entry(number: u16, (more, value, how): (usize, usize, u8)) -> (Vec<u8>, Vec<u8>) {
    let (number, seed) = (number.to_be_bytes(), more as u64);
    let more = bytes(more, (how & 4 > 0).then_some(seed));
    let key = match how & 1 {
        0 => [&number[..], &more].concat(),
        _ => [&number[..1], &more, &number[1..]].concat(),
    };
    (key, bytes(value, (how & 2 > 0).then_some(!seed)))
}

/// How a table is built.
fn how() -> impl Strategy<Value = (Compression, Grain)> {
    let compression = vec![Compression::None, Compression::Lz4, Compression::Zstd(1)];
    let grains = vec![
        Grain::default(),
        Grain::of(64),
        Grain::of(4096),
        Grain::of(16 << 10),
        Grain::sharing(64),
        Grain::sharing(1024).narrow(),
    ];
    (prop::sample::select(compression), prop::sample::select(grains))
}

proptest! {
    /// However its entries come, and wherever leaves end.
    #[test]
    fn a_table_knows_how_many_older_versions_it_has(
        versions in prop::collection::vec((1..5u64, 0..2000usize, prop::bool::weighted(0.2)), 1..60),
        (compression, grain) in how(),
    ) {
        let mut builder = TableBuilder::new(1, 10, grain).packing(compression);
        let (mut entries, mut older) = (0, 0);
        for (n, (count, value, is_kept)) in (0u16..).zip(&versions) {
            let mut other = TableBuilder::new(2, 10, grain);
            let to = if *is_kept { &mut other } else { &mut builder };
            for seq in (1..=*count).rev() {
                to.add(&n.to_be_bytes(), Stamp::new(seq, EntryKind::Put), &vec![1; *value]);
            }
            let mut added = *count;
            if *is_kept {
                let leaf = leaf_of(&other.finish().tail, Stored { table: 2, offset: 0 }, grain.unit_bytes).unwrap();
                builder.keep(&leaf).unwrap();
                added = leaf.entries; // others may be in leaves behind it
            }
            (entries, older) = (entries + added, older + added - 1);
        }
        let meta = builder.finish().meta;
        prop_assert_eq!((meta.entries, meta.older), (entries, older));
    }

    /// Where a table takes a superblock, whoever wrote more would lose the merge.
    #[test]
    fn no_table_is_longer_than_was_said(
        begin in prop_oneof![Just(0usize), 0..200usize, 0..16_000usize],
        entries in prop::collection::btree_map(any::<u16>(), shape(), 1..60),
        again in prop_oneof![
            Just(vec![(1, 0); 60]),
            prop::collection::vec((prop_oneof![Just(1usize), 1..6usize], prop_oneof![Just(0usize), 0..4usize]), 60),
        ],
        seqs in prop::collection::vec(1..4u64, 60),
        kept in prop_oneof![Just(vec![false; 60]), prop::collection::vec(prop::bool::weighted(0.1), 60)],
        (compression, grain) in how(),
    ) {
        let entries: BTreeMap<Vec<u8>, Vec<u8>> = entries.into_iter().map(|(n, shape)| entry(n, shape)).collect();
        // Some have versions, and keys that begin with theirs.
        let each = entries.iter().zip(again).flat_map(|((key, value), (versions, longer))| {
            let longer = (1..=longer).map(|more| [&key[..], &vec![0; more]].concat());
            let versions = std::iter::repeat_n(key.clone(), versions);
            versions.chain(longer).map(move |key| (key, value))
        });
        let mut builder = TableBuilder::new(1, 10, grain).packing(compression);
        let mut promised = 0;
        for (((key, value), seq), is_kept) in each.zip(seqs.into_iter().cycle()).zip(kept.into_iter().cycle()) {
            let (key, stamp) = ([&vec![7; begin][..], &key].concat(), Stamp::new(seq, EntryKind::Put));
            if is_kept {
                let mut other = TableBuilder::new(2, 10, grain);
                other.add(&key, stamp, value);
                let leaf = leaf_of(&other.finish().tail, Stored { table: 2, offset: 0 }, grain.unit_bytes).unwrap();
                promised = builder.bytes_with_leaf(&leaf);
                builder.keep(&leaf).unwrap();
            } else {
                promised = builder.bytes_with(&key, value);
                builder.add(&key, stamp, value);
            }
        }
        let bytes = builder.finish().meta.bytes as usize;
        prop_assert!(bytes <= promised, "{bytes} bytes, {promised} were promised");
    }
}
