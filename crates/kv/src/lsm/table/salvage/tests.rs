use super::*;
use crate::key::EntryKind;
use crate::lsm::table::object::OBJECT_HEAD_BYTES;
use crate::lsm::table::{Grain, TableBuilder};
use proptest::prelude::*;
use vellum_base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_base::{Error, IoClass, Nanos, RealEnv};

const GRAINS: [Grain; 2] = [Grain::of(4096), Grain::sharing(64)];

/// A table in memory of which some bytes cannot be read.
struct Stored {
    bytes: Vec<u8>,
    unreadable: std::ops::Range<usize>,
    reads: AtomicU64,
}

impl TableReader for Stored {
    fn read(&self, offset: u64, out: &mut [u8], _class: IoClass) -> Result<Nanos> {
        let (from, to) = (offset as usize, offset as usize + out.len());
        self.reads.fetch_add(1, Relaxed);
        match from < self.unreadable.end && self.unreadable.start < to {
            true => Err(Error::corrupt("gone")),
            false => {
                out.copy_from_slice(&self.bytes[from..to]);
                Ok(Nanos::ZERO)
            }
        }
    }
    fn bytes(&self) -> Result<u64> {
        Ok(self.bytes.len() as u64)
    }
}

fn stored(bytes: &[u8]) -> Stored {
    Stored { bytes: bytes.to_vec(), unreadable: 0..0, reads: AtomicU64::new(0) }
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn table(entries: &Entries, grain: Grain) -> Vec<u8> {
    let mut builder = TableBuilder::new(1, 10, grain);
    for (entry, seq) in entries.iter().zip(1..) {
        builder.add(&entry.0, Stamp::new(seq, EntryKind::Put), &entry.1);
    }
    builder.finish().tail
}

fn entries(prefix: &str, count: usize, value: usize) -> Entries {
    (0..count).map(|n| (format!("{prefix}{n:05}").into_bytes(), vec![n as u8 | 1; value])).collect()
}

fn saved(stored: &Stored, unit_bytes: usize) -> (Entries, Salvaged) {
    let mut found = Entries::new();
    let lost = salvage(stored, &*RealEnv::new(), unit_bytes, |key, _, value| {
        found.push((key.to_vec(), value.to_vec()));
        Ok(())
    });
    (found, lost.unwrap())
}

/// Where objects of a kind are.
fn objects(bytes: &[u8], kind: ObjectKind, unit_bytes: usize) -> Vec<std::ops::Range<usize>> {
    let (mut at, mut found) = (0, Vec::new());
    while let Ok(head) = Head::parse(&bytes[at..]) {
        let end = at + head.length.next_multiple_of(unit_bytes);
        found.extend((head.kind == kind).then_some(at..end));
        at = end;
        if at == bytes.len() {
            break;
        }
    }
    found
}

/// A table in which one value has objects where units begin; its entries but those of that leaf; the leaf, damaged.
fn with_objects_in_a_value(inner: &[u8], grain: Grain) -> (Entries, Vec<u8>, std::ops::Range<usize>) {
    let (mut all, odd) = (entries("k", 6000, 300), 400);
    all[odd].1 = inner.to_vec();
    let find = |bytes: &[u8]| bytes.windows(200).position(|part| part == &inner[..200]).unwrap();
    let skipped = find(&table(&all, grain)) % grain.unit_bytes;
    all[odd].1 = [&vec![7; grain.unit_bytes - skipped], inner].concat();
    let mut bytes = table(&all, grain);
    let at = find(&bytes);
    assert!(at.is_multiple_of(grain.unit_bytes));
    let leaves = objects(&bytes, ObjectKind::Data, grain.unit_bytes);
    let leaf = leaves.into_iter().find(|leaf| leaf.contains(&at)).unwrap();
    let (lost, _) = saved(&stored(&bytes[leaf.clone()]), grain.unit_bytes);
    all.retain(|entry| !lost.contains(entry));
    bytes[leaf.start] ^= 1;
    (all, bytes, leaf)
}

#[test]
fn a_table_in_a_value_displaces_nothing() {
    for grain in GRAINS {
        // Among the keys of the others, and behind all of them.
        for prefix in ["k00500-", "z"] {
            let inner = entries(prefix, 300, 300);
            let (expected, bytes, _) = with_objects_in_a_value(&table(&inner, grain), grain);
            let (found, lost) = saved(&stored(&bytes), grain.unit_bytes);
            assert!(found == expected, "{grain:?}, {prefix}: {} found", found.len());
            assert_eq!(lost.stray_entries, inner.len() as u64, "{grain:?}, {prefix}");
            assert!(lost.lost_bytes >= (inner.len() * 300) as u64, "{grain:?}, {prefix}: {lost:?}");
        }
    }
}

/// Where the run's own index is lost as well, what lies between is what the next run leaves room for.
#[test]
fn without_the_index_of_its_run_a_table_in_a_value_displaces_nothing_of_others() {
    for grain in GRAINS {
        let inner = entries("z", 300, 300);
        let (expected, mut bytes, leaf) = with_objects_in_a_value(&table(&inner, grain), grain);
        let indexes = objects(&bytes, ObjectKind::Index, grain.unit_bytes);
        let own = indexes.iter().find(|index| index.start > leaf.start).unwrap();
        assert!(own.end < indexes.last().unwrap().start, "it is the last run");
        bytes[own.start] ^= 1;
        let (found, lost) = saved(&stored(&bytes), grain.unit_bytes);
        assert!(found == expected, "{grain:?}: {} found", found.len());
        assert_eq!(lost.stray_entries, inner.len() as u64, "{grain:?}");
    }
}

/// Nobody can tell what was there, but whatever is not handed out is counted.
#[test]
fn what_is_left_out_is_counted() {
    for grain in GRAINS {
        let inner = entries("z", 300, 300);
        let (expected, mut bytes, _) = with_objects_in_a_value(&table(&inner, grain), grain);
        for index in objects(&bytes, ObjectKind::Index, grain.unit_bytes) {
            bytes[index.start] ^= 1;
        }
        let (found, lost) = saved(&stored(&bytes), grain.unit_bytes);
        assert!(lost.stray_entries > 0);
        assert_eq!(found.len() + lost.stray_entries as usize, expected.len() + inner.len(), "{grain:?}");
        assert!(found.is_sorted());
    }
}

/// A write that went to another place: what is there now belongs elsewhere, where it is as well.
#[test]
fn a_leaf_in_the_place_of_another_displaces_no_more() {
    for grain in GRAINS {
        let mut all = entries("k", 2000, 300);
        let mut bytes = table(&all, grain);
        let leaves = objects(&bytes, ObjectKind::Data, grain.unit_bytes);
        let (there, here) = (leaves[30].clone(), leaves[10].clone());
        assert_eq!(there.len(), here.len());
        let (lost, _) = saved(&stored(&bytes[here.clone()]), grain.unit_bytes);
        bytes.copy_within(there, here.start);
        all.retain(|entry| !lost.contains(entry));
        let (found, left_out) = saved(&stored(&bytes), grain.unit_bytes);
        assert!(found == all, "{grain:?}: {} found", found.len());
        let (lost_bytes, stray_entries) = (here.len() as u64, lost.len() as u64);
        assert_eq!(left_out, Salvaged { lost_bytes, stray_entries, ..left_out }, "{grain:?}");
    }
}

#[test]
fn a_table_is_read_in_large_pieces_however_damaged_it_is() {
    for grain in GRAINS {
        let mut bytes = table(&entries("k", 8000, 300), grain);
        for leaf in objects(&bytes, ObjectKind::Data, grain.unit_bytes) {
            bytes[leaf.start] ^= 1;
        }
        let foot_at = bytes.len() - FOOT_BYTES;
        bytes[foot_at] ^= 1;
        let most = (bytes.len() as u64).div_ceil(256 << 10) + 1;
        let stored = stored(&bytes);
        assert_eq!(saved(&stored, grain.unit_bytes).0, []);
        let reads = stored.reads.swap(0, Relaxed);
        // Filters and indexes are whole, and those across the end of a window are read anew.
        assert!(reads <= 2 * most, "{grain:?}: {reads} reads of {} bytes", bytes.len());
        assert_eq!(foot_of(&stored, &*RealEnv::new(), grain.unit_bytes).unwrap(), None);
        assert!(stored.reads.load(Relaxed) <= most + 1, "{grain:?}: {:?}", stored.reads);
    }
}

#[test]
fn a_foot_is_found_before_the_end() {
    for grain in GRAINS {
        let whole = table(&entries("k", 100, 300), grain);
        for more in [0, grain.unit_bytes, 1 << 20] {
            let bytes = [&whole[..], &vec![0xAA; more]].concat();
            let (foot, end) = foot_of(&stored(&bytes), &*RealEnv::new(), grain.unit_bytes).unwrap().unwrap();
            assert_eq!((foot.entries, end), (100, whole.len() as u64), "{grain:?}, {more}");
        }
    }
}

/// Heads that claim much and do not check out are not all read as far as they claim.
#[test]
fn a_value_full_of_heads_does_not_take_for_ever() {
    let grain = GRAINS[1];
    let mut head = [0; 64];
    head[4..8].copy_from_slice(&(1u32 << 20).to_le_bytes());
    head[8..12].copy_from_slice(&((1u32 << 20) - OBJECT_HEAD_BYTES as u32).to_le_bytes());
    head[14] = ObjectKind::Data as u8;
    let (expected, bytes, _) = with_objects_in_a_value(&head.repeat(40_000), grain);
    let stored = stored(&bytes);
    assert!(saved(&stored, 64).0 == expected);
    assert!(stored.reads.load(Relaxed) < 100, "{:?}", stored.reads);
}

proptest! {
    #[test]
    fn what_the_damage_did_not_hit_is_saved(
        grain in prop::sample::select(&GRAINS[..]),
        sizes in prop::collection::vec(0usize..1500, 1..400),
        hits in prop::collection::vec((any::<prop::sample::Index>(), 1usize..3000, any::<bool>()), 0..4),
        lost in any::<prop::sample::Index>(),
        lost_units in 0usize..3,
    ) {
        let keys = entries("k", sizes.len(), 0).into_iter().map(|(key, _)| key);
        let all: Entries = keys.zip(sizes.into_iter().map(|size| vec![5; size])).collect();
        let mut bytes = table(&all, grain);
        let (whole, mut is_hit) = (bytes.clone(), vec![false; bytes.len()]);
        for (at, count, zero) in hits {
            let at = at.index(bytes.len());
            for (byte, hit) in bytes[at..].iter_mut().zip(&mut is_hit[at..]).take(count) {
                *byte = if zero { 0 } else { *byte ^ 0x55 };
                *hit = true;
            }
        }
        let first = lost.index(bytes.len() / grain.unit_bytes) * grain.unit_bytes;
        let unreadable = first..(first + lost_units * grain.unit_bytes).min(bytes.len());
        is_hit[unreadable.clone()].fill(true);
        let mut expected = Vec::new();
        for leaf in objects(&whole, ObjectKind::Data, grain.unit_bytes) {
            if !is_hit[leaf.clone()].contains(&true) {
                expected.extend(saved(&stored(&whole[leaf]), grain.unit_bytes).0);
            }
        }
        let (found, lost) = saved(&Stored { unreadable, ..stored(&bytes) }, grain.unit_bytes);
        // What was hit may be as it was.
        prop_assert!(expected.iter().all(|entry| found.contains(entry)));
        prop_assert!(found.iter().all(|entry| all.contains(entry)));
        prop_assert_eq!(lost.stray_entries, 0);
    }
}

/// A value that is full of objects of a few KiB, each 64 MiB long when it is unpacked, and damage before it.
#[test]
fn what_a_value_has_to_be_unpacked_is_bounded() {
    let grain = Grain::of(4096);
    let mut packed = TableBuilder::new(1, 10, grain).packing(crate::options::Compression::Zstd(1));
    packed.add(b"bomb", Stamp::new(1, EntryKind::Put), &vec![0; 64 << 20]);
    let packed = packed.finish().tail;
    let object = &packed[..Head::parse(&packed).unwrap().length.next_multiple_of(4096)];
    let bomb = object.repeat(40);
    let with_pad =
        |pad: usize| table(&vec![(b"tenant".to_vec(), [vec![7; pad], bomb.clone()].concat())], grain);
    // The first object begins where a unit does.
    let is_aligned = |bytes: &Vec<u8>| Head::parse(&bytes[4096..]).is_ok_and(|head| head.plain > 64 << 20);
    let mut bytes = (4000..4096).map(with_pad).find(is_aligned).unwrap();
    bytes[20] ^= 1;
    let stored = stored(&bytes);
    let env = RealEnv::new();
    let windows = Windows::new(&stored, &*env, 4096).unwrap();
    let (seen, run) = (Salvaged::default(), Run::new(windows.end()));
    let found = |_: &[u8], _: Stamp, _: &[u8]| Ok(());
    let mut salvage =
        Salvage { windows, unit_bytes: 4096, found, last: None, seen, run, unpacks: UNPACKED_MAX };
    salvage.walk().unwrap();
    assert!(salvage.unpacks < 64 << 20, "{} MiB were left to unpack", salvage.unpacks >> 20);
}
