//! Older versions of keys, which outlive the snapshots that they were kept for.

use crate::harness::{flash, open_flash, scattered as key, small};
use std::sync::Arc;
use vellum_base::{Kind, RealEnv};
use vellum_kv::{Directory, DirectoryOptions, LevelStat, Map, Media, Options, Reuse, Snapshot, Store};

const KEYS: u32 = 1000;

/// Writes this version of every `step`-th key.
fn write(store: &Store, version: u8, step: usize) {
    (0..KEYS).step_by(step).for_each(|n| store.put(&key(n), &[version; 100]).unwrap());
}

fn sum(store: &Store, of: fn(&LevelStat) -> u64) -> u64 {
    store.stat().levels.iter().map(of).sum()
}

fn older(store: &Store) -> u64 {
    sum(store, |level| level.older)
}

fn programmed(store: &Store) -> u64 {
    store.stat().ledger.programmed_total()
}

fn assert_sound(store: &Store, snapshots: &[(&Snapshot, u8)]) {
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    assert!((0..KEYS).all(|n| store.get(&key(n)).unwrap().is_some()));
    for (snapshot, version) in snapshots {
        assert_eq!(snapshot.get(&key(0)).unwrap(), Some(vec![*version; 100]));
    }
}

/// On flash and in a directory, with leaves rewritten and kept.
fn on_each(test: impl Fn(&dyn Fn() -> Store)) {
    for reuse in [Reuse::Off, Reuse::Bubbles] {
        let options = || Options { reuse: reuse.into(), ..small() };
        let dir = tempfile::tempdir().unwrap();
        test(&|| {
            let media = Directory::open(dir.path(), DirectoryOptions::default()).unwrap();
            Store::open(media, RealEnv::new(), options()).unwrap()
        });
        let device = flash(3);
        test(&|| {
            let media = vellum_kv::FlashMedia::open(device.clone(), RealEnv::new()).unwrap();
            Store::open(media as Arc<dyn Media>, RealEnv::new(), options()).unwrap()
        });
    }
}

#[test]
fn compaction_removes_what_only_dropped_snapshots_saw() {
    on_each(|open| {
        let store = open();
        write(&store, 0, 1);
        let snapshot = store.snapshot();
        write(&store, 1, 4);
        store.compact().unwrap();
        assert_eq!((older(&store), sum(&store, |level| level.entries)), (250, 1250));
        assert_sound(&store, &[(&snapshot, 0)]);
        // It is seen: nothing is written for nothing.
        let before = programmed(&store);
        store.compact().unwrap();
        assert_eq!(programmed(&store), before);
        // It is not forgotten.
        drop(snapshot);
        store.close().unwrap();
        let store = open();
        assert_eq!(older(&store), 250);
        store.compact().unwrap();
        assert_eq!((older(&store), sum(&store, |level| level.entries)), (0, KEYS.into()));
        assert_sound(&store, &[]);
        let before = programmed(&store);
        store.compact().unwrap();
        assert_eq!(programmed(&store), before, "once is enough");
        store.close().unwrap();
    });
}

#[test]
fn what_an_older_snapshot_may_see_stays() {
    on_each(|open| {
        let store = open();
        write(&store, 0, 1);
        let first = store.snapshot();
        write(&store, 1, 1);
        let second = store.snapshot();
        write(&store, 2, 1);
        store.compact().unwrap();
        assert_sound(&store, &[(&first, 0), (&second, 1)]);
        drop(second);
        store.compact().unwrap();
        assert_sound(&store, &[(&first, 0)]);
        drop(first);
        store.compact().unwrap();
        assert_eq!(older(&store), 0);
        assert_eq!(sum(&store, |level| level.entries), KEYS.into());
        assert_sound(&store, &[]);
        store.close().unwrap();
    });
}

/// A full store says that snapshots are to be dropped, and then there is room.
#[test]
fn a_full_store_has_room_again_once_its_snapshots_are_dropped() {
    // What is refused last touches few tables, or nearly all.
    for place in [u32::to_be_bytes, key] {
        has_room_again(place);
    }
}

fn has_room_again(place: fn(u32) -> [u8; 4]) {
    let store = open_flash(&flash(7), RealEnv::new()).unwrap();
    let put = |n: u32, version: u8| store.put(&place(n), &[version; 1000]);
    let count = 2500;
    (0..count).for_each(|n| put(n, 0).unwrap());
    let mut snapshots = Vec::new();
    let mut overwrite = |n: u32| {
        if n.is_multiple_of(100) {
            store.compact()?;
            snapshots.push(store.snapshot());
        }
        put(n % count, 1)
    };
    let refused = (0..).find_map(|n| Some((n, overwrite(n).err()?.kind())));
    assert!(refused.is_some_and(|(n, kind)| n > 2 * count && kind == Kind::NoSpace), "{refused:?}");
    drop(snapshots);
    store.compact().unwrap();
    assert_eq!(older(&store), 0);
    (0..count).for_each(|n| put(n, 2).unwrap_or_else(|error| panic!("{n}: {error}")));
    assert!((0..count).all(|n| store.get(&place(n)).unwrap() == Some(vec![2; 1000])));
}
