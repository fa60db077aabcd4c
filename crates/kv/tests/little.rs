//! Little by little: tables that are far from full, each a superblock, a zone or a file; and what is left over.

use crate::doubtful::Doubtful;
use crate::harness::{flash, open_flash, scattered, small};
use crate::zones;
use std::ops::Range;
use std::sync::Arc;
use vellum_base::{Env, Kind, Nanos, RealEnv, ZonesShape};
use vellum_kv::{Bounds, Directory, DirectoryOptions, Map, Options, Store, ZoneMedia};
use vellum_media::zones::{RamZones, RamZonesParams};

fn ascending(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

fn tables(store: &Store) -> usize {
    store.stat().levels.iter().map(|level| level.tables).sum()
}

/// On flash of 60 superblocks, and on 60 zones.
fn on_each(test: impl Fn(Store, &str)) {
    let env: Arc<dyn Env> = RealEnv::new();
    test(open_flash(&flash(3), env.clone()).unwrap(), "flash");
    let (files, device) = zones::formatted(true, 4);
    test(Store::open(zones::media(&files, &device).unwrap(), env, small()).unwrap(), "zones");
}

/// However little there is in each table: 300 of them, where there is room for 60.
#[test]
fn flushes_of_a_few_keys_never_take_the_room_to_merge_them() {
    for key in [ascending, scattered] {
        on_each(|store, medium| {
            for n in 0..300 {
                store.put(&key(n), &[7; 100]).unwrap();
                store.flush().unwrap_or_else(|error| panic!("{medium}, {n}: {error}"));
            }
            store.compact().unwrap();
            assert!(tables(&store) <= 2, "{medium}: {:?}", store.stat().levels);
            assert!((0..300).all(|n| store.get(&key(n)).unwrap().is_some()), "{medium}");
        });
    }
}

#[test]
fn ingests_of_a_few_keys_do_not_fill_a_medium() {
    on_each(|store, medium| {
        for n in 0..300 {
            let mut ingest = store.ingest().unwrap();
            ingest.put(&ascending(n), &[7; 100]).unwrap();
            ingest.finish().unwrap_or_else(|error| panic!("{medium}, {n}: {error}"));
        }
        assert!((0..300).all(|n| store.get(&ascending(n)).unwrap().is_some()), "{medium}");
    });
}

/// What is full stays of use: with each flush as much as there is room for, then everything deleted.
#[test]
fn flushes_until_the_medium_is_full_can_be_deleted_again() {
    on_each(|store, medium| {
        let puts = |n: u32| {
            store.put(&scattered(n), &[7; 900])?;
            if n.is_multiple_of(20) { store.flush() } else { Ok(()) }
        };
        let (count, error) = (0..).find_map(|n| Some((n, puts(n).err()?))).unwrap();
        assert_eq!(error.kind(), Kind::NoSpace, "{medium}: {error}");
        assert!(count > 3000, "{medium}: {count} of 900 bytes");
        let mut asked = 0;
        for n in 0..=count {
            if store.delete(&scattered(n)).is_err_and(|error| error.kind() == Kind::NoSpace) {
                store.compact().unwrap_or_else(|error| panic!("{medium}, {n}: {error}"));
                store.delete(&scattered(n)).unwrap();
                asked += 1;
            }
        }
        store.compact().unwrap();
        assert!(tables(&store) == 0 && asked < 50, "{medium}: {:?}, {asked} times", store.stat().levels);
    });
}

/// Whatever the fewest are that a store takes.
#[test]
fn devices_of_few_zones_can_be_filled_and_emptied_again_and_again() {
    for (zones, zone_kib) in [(8, 256), (9, 256), (11, 256), (16, 256), (24, 256), (64, 256), (16, 1024)] {
        let shape = ZonesShape { zones, zone_bytes: zone_kib << 10, unit_bytes: 4096, open_max: None };
        let device = Arc::new(RamZones::new(RamZonesParams { shape, keeps_pointers: false, seed: 1 }));
        let files = Doubtful::default();
        ZoneMedia::format(&files.directory(), &*device, "double", [7; 16], false).unwrap();
        let media = ZoneMedia::open(files.directory(), device).unwrap();
        let store = Store::open(media, RealEnv::new(), Options::default()).unwrap();
        for round in 0..3u8 {
            // What compresses in one round does not in another.
            let value = |n: u32| -> Vec<u8> {
                let noise = |at: u32| (n ^ at).wrapping_mul(0x9E37_79B1) >> 24;
                (0..500).map(|at| if round == 1 { noise(at) as u8 } else { round }).collect()
            };
            let said = |what: &str, n: u32, error| panic!("{zones} zones, {round}: {what} {n}: {error}");
            let count = (0..).find(|n| store.put(&scattered(*n), &value(*n)).is_err()).unwrap();
            assert!(count > 100, "{zones} zones, {round}: {count}");
            for n in 0..count {
                if store.delete(&scattered(n)).is_err() {
                    store.compact().unwrap_or_else(|error| said("compact at", n, error));
                    store.delete(&scattered(n)).unwrap_or_else(|error| said("delete", n, error));
                }
            }
            store.compact().unwrap_or_else(|error| said("compact after", count, error));
            assert_eq!(tables(&store), 0, "{zones} zones, {round}");
        }
    }
}

/// Whatever gathering of a level's tables, asked for by another caller, is under way.
#[test]
fn compaction_empties_levels_whose_tables_are_being_gathered() {
    on_each(|store, medium| {
        let put = |keys: Range<u32>| keys.for_each(|n| store.put(&ascending(n), &[7; 600]).unwrap());
        let from = |n: u32| Bounds::from(&ascending(n));
        let upper = || store.stat().levels[..2].iter().map(|level| level.tables).sum::<usize>();
        let env = RealEnv::new();
        // More than level 1 may have.
        put(0..3000);
        let is_moved = |_| {
            env.sleep_until(env.now() + Nanos::from_ms(1));
            store.stat().levels[2..].iter().any(|level| level.tables > 0)
        };
        assert!((0..20_000).any(is_moved), "{medium}");
        for round in 0..50 {
            store.compact().unwrap();
            assert_eq!(upper(), 0, "{medium}, {round}");
            let begin = 5000 + 100 * round;
            for first in [begin, begin + 50] {
                put(first..first + 50);
                store.compact_range(from(first)).unwrap();
            }
            assert_eq!(upper(), 2, "{medium}, {round}");
            std::thread::scope(|scope| {
                scope.spawn(|| store.compact_range(from(begin)).unwrap());
                env.sleep_until(env.now() + Nanos::from_us((40 * round).into()));
                store.compact().unwrap();
                assert_eq!(upper(), 0, "{medium}, {round}, gathering");
            });
        }
    });
}

#[test]
fn small_tables_of_a_directory_become_few() {
    let dir = tempfile::tempdir().unwrap();
    let media = Directory::open(dir.path(), DirectoryOptions::default()).unwrap();
    let store = Store::open(media, RealEnv::new(), Options::default()).unwrap();
    let before = store.stat().ledger.programmed_total();
    for n in 0..400 {
        store.put(&ascending(n), &[7; 100]).unwrap();
        store.flush().unwrap();
    }
    store.compact().unwrap();
    assert_eq!(tables(&store), 1);
    let written = store.stat().ledger.programmed_total() - before;
    // A table of one entry has 8 KiB; each of them is gathered a few times.
    assert!(written < 400 * (8 << 10) * 4, "{} KiB", written >> 10);
    let before = store.stat().ledger.programmed_total();
    store.compact().unwrap();
    assert_eq!(store.stat().ledger.programmed_total(), before, "nothing was left to do");
    assert!((0..400).all(|n| store.get(&ascending(n)).unwrap().is_some()));
}

#[test]
fn compaction_leaves_no_deletes_behind() {
    on_each(|store, medium| {
        (0..100).for_each(|n| store.put(&ascending(n), &[7; 100]).unwrap());
        store.compact().unwrap();
        (200..210).for_each(|n| store.delete(&ascending(n)).unwrap());
        store.compact().unwrap();
        let deletes: u64 = store.stat().levels.iter().map(|level| level.deletes).sum();
        assert_eq!(deletes, 0, "{medium}: they name what was never there");
        // A snapshot may need one.
        let snapshot = store.snapshot();
        store.delete(&ascending(7)).unwrap();
        store.compact().unwrap();
        assert!(
            snapshot.get(&ascending(7)).unwrap().is_some() && store.get(&ascending(7)).unwrap().is_none()
        );
        drop(snapshot);
        store.compact().unwrap();
        assert_eq!(store.stat().levels.iter().map(|level| level.entries).sum::<u64>(), 99, "{medium}");
    });
}

/// A table from the first keyspace to the last has the numbers of all that were dropped between them in its range.
#[test]
fn numbers_of_keyspaces_come_again_once_nothing_has_them() {
    let store = open_flash(&flash(5), RealEnv::new()).unwrap();
    store.put(b"first", b"1").unwrap();
    let make = |name: String| {
        let space = store.create_keyspace(&name).unwrap_or_else(|error| panic!("{name}: {error}"));
        space.put(b"key", name.as_bytes()).unwrap();
        name
    };
    for n in 0..253 {
        store.drop_keyspace(&make(format!("temporary {n}"))).unwrap();
    }
    make("orders".into());
    // All that was dropped is in logs, which are flushed for the next.
    for n in 0..300 {
        let name = make(format!("later {n}"));
        let space = store.keyspace(&name).unwrap();
        let mut iter = space.iter(Bounds::all()).unwrap();
        iter.seek_to_first().unwrap();
        assert_eq!(iter.value(), name.as_bytes(), "of a keyspace that had its number before");
        iter.next().unwrap();
        assert!(!iter.is_valid());
        drop(iter);
        store.drop_keyspace(&name).unwrap();
        if n % 100 == 99 {
            store.flush().unwrap();
        }
    }
    assert_eq!(store.get(b"first").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(store.keyspace("orders").unwrap().get(b"key").unwrap().as_deref(), Some(&b"orders"[..]));
}

#[test]
fn numbers_of_keyspaces_that_never_held_anything_come_again() {
    let store = open_flash(&flash(6), RealEnv::new()).unwrap();
    for n in 0..600 {
        let name = format!("temporary {n}");
        store.create_keyspace(&name).unwrap_or_else(|error| panic!("{name}: {error}"));
        store.drop_keyspace(&name).unwrap();
    }
}

/// Values that tables of before had room for.
#[test]
fn a_store_goes_on_with_smaller_tables_than_its_values() {
    let dir = tempfile::tempdir().unwrap();
    let open = |table_bytes| {
        let media = Directory::open(dir.path(), DirectoryOptions { table_bytes }).unwrap();
        Store::open(media, RealEnv::new(), Options::default()).unwrap()
    };
    let value = vec![7; 2 << 20];
    let store = open(64 << 20);
    store.put(b"b", &value).unwrap();
    store.close().unwrap();
    let store = open(1 << 20);
    assert_eq!(store.put(b"c", &value).unwrap_err().kind(), Kind::Invalid);
    store.put(b"a", b"1").unwrap();
    store.flush().unwrap();
    store.put(b"z", b"2").unwrap();
    store.compact().unwrap();
    assert!(store.get(b"b").unwrap().is_some_and(|found| found == value));
    store.close().unwrap();
    assert!(open(64 << 20).get(b"b").unwrap().is_some_and(|found| found == value));
}
