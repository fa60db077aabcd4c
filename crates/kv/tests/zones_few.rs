//! The least that a store works with: few zones, and few that may be open at a time.

use crate::doubtful::Doubtful;
use crate::harness::{scattered as key, small};
use crate::log::harness as logs;
use std::sync::Arc;
use vellum_base::{Kind, RealEnv, Result, ZonesShape};
use vellum_kv::media::Tables;
use vellum_kv::{Map, Options, Store, ZoneMedia, log};
use vellum_media::zones::{RamZones, RamZonesParams};

/// A formatted device of which so many zones may be open at a time.
fn formatted(zones: u32, open_max: u32) -> Result<Arc<ZoneMedia>> {
    on_zones(ZonesShape { zones, zone_bytes: 256 << 10, unit_bytes: 4096, open_max: Some(open_max) })
}

fn on_zones(shape: ZonesShape) -> Result<Arc<ZoneMedia>> {
    let device = Arc::new(RamZones::new(RamZonesParams { shape, keeps_pointers: true, seed: 1 }));
    let files = Doubtful::default();
    ZoneMedia::format(&files.directory(), &*device, "double", [7; 16], false)?;
    ZoneMedia::open(files.directory(), device)
}

/// Fills the store until it refuses, and empties it, a few times. Puts are refused when so many zones are free at most:
/// what is kept to win more.
fn fill_and_empty(store: &impl Map, free: impl Fn() -> u64, kept_free: u64, context: &str) {
    for round in 0..3u8 {
        let said = |what: &str, n: u32, error| panic!("{context}, round {round}: {what} {n}: {error}");
        // What compresses in one round does not in another.
        let value = |n: u32| -> Vec<u8> {
            let noise = |at: u32| (n ^ at).wrapping_mul(0x9E37_79B1) >> 24;
            (0..500).map(|at| if round == 1 { noise(at) as u8 } else { round }).collect()
        };
        // What is put again is merged, or collected, meanwhile.
        let put = |n: u32| [n, n / 2].into_iter().try_for_each(|n| store.put(&key(n), &value(n)));
        let (count, error) = (0..).find_map(|n| Some((n, put(n).err()?))).unwrap();
        assert!(error.kind() == Kind::NoSpace && count > 100, "{context}, round {round}: {count}: {error}");
        assert!(free() <= kept_free, "{context}, round {round}: {} zones are free: {error}", free());
        for n in 0..count {
            if store.delete(&key(n)).is_err() {
                store.compact().unwrap_or_else(|error| said("compact at", n, error));
                store.delete(&key(n)).unwrap_or_else(|error| said("delete", n, error));
            }
            if n % 7 == 0 && n + 1 < count {
                assert_eq!(store.get(&key(n + 1)).unwrap(), Some(value(n + 1)), "{context}");
            }
        }
        store.compact().unwrap_or_else(|error| said("compact after", count, error));
        assert!((0..count).all(|n| store.get(&key(n)).unwrap().is_none()), "{context}, round {round}");
    }
}

const OPEN_MIN: u32 = 3;

/// However many tasks merge, each with a table that it writes.
#[test]
fn ordered_stores_work_on_zones_of_which_few_may_be_open() {
    let many = Options { compaction_tasks: 4, ..small() };
    for (zones, options) in [(8, Options::default()), (24, small()), (60, many)] {
        let media = formatted(zones, OPEN_MIN).unwrap();
        let store = Store::open(media.clone(), RealEnv::new(), options).unwrap();
        fill_and_empty(&store, || media.tables_free(), 20, &format!("{zones} zones"));
        store.close().unwrap();
    }
}

#[test]
fn log_stores_work_on_zones_of_which_few_may_be_open() {
    for (zones, options) in [(8, log::Options::default()), (24, logs::of_seed(8)), (60, logs::small())] {
        let media = formatted(zones, OPEN_MIN).unwrap();
        let store = log::Store::open(media.clone(), RealEnv::new(), options).unwrap();
        fill_and_empty(&store, || media.tables_free(), 4, &format!("{zones} zones"));
        store.close().unwrap();
    }
}

#[test]
fn devices_of_which_fewer_zones_may_be_open_are_refused() {
    for open_max in 1..OPEN_MIN {
        let error = formatted(60, open_max).map(drop).unwrap_err();
        let said = format!("double takes writes to {open_max} zones at a time: a store needs {OPEN_MIN}");
        assert!(error.kind() == Kind::Invalid && error.to_string().contains(&said), "{error}");
    }
}

/// Each entry is one that the store says it takes.
fn holds_its_largest(store: &impl Map, key_bytes: usize, context: &str) {
    let noise = |seed: u32| (0u32..).map(move |at| ((seed ^ at).wrapping_mul(0x9E37_79B1) >> 23) as u8);
    // As near one another as keys can be: what tells their leaves apart is as long as they are.
    let key = |n: u32| [noise(7).take(key_bytes - 4).collect(), n.to_be_bytes().to_vec()].concat();
    let value = |n: u32| noise(n).take(store.value_bytes_max()).collect::<Vec<_>>();
    for n in 0..30 {
        store.put(&key(n), &value(n)).unwrap_or_else(|error| panic!("{context}: {n}: {error}"));
        store.put(&n.to_be_bytes(), b"short").unwrap();
    }
    store.compact().unwrap_or_else(|error| panic!("{context}: {error}"));
    (0..30).for_each(|n| assert_eq!(store.get(&key(n)).unwrap(), Some(value(n)), "{context}"));
}

const LEAST: u64 = 128 << 10;

#[test]
fn zones_that_are_too_short_for_the_largest_entries_are_refused() {
    let of = |zone_bytes| ZonesShape { zones: 200, zone_bytes, unit_bytes: 4096, open_max: None };
    for zone_bytes in [4096, 16 << 10, 32 << 10, 64 << 10, LEAST - 4096] {
        let error = on_zones(of(zone_bytes)).map(drop).unwrap_err();
        let said = format!("double has zones of {zone_bytes} bytes: a store needs {LEAST}, as");
        assert!(error.kind() == Kind::Invalid && error.to_string().contains(&said), "{error}");
    }
    for zone_bytes in (LEAST..400 << 10).step_by(20 << 10) {
        let context = format!("{zone_bytes} bytes");
        let (media, table_bytes) = (on_zones(of(zone_bytes)).unwrap(), zone_bytes as usize - 4096);
        let store = Store::open(media, RealEnv::new(), Options::default()).unwrap();
        holds_its_largest(&store, table_bytes / 16, &context);
        store.close().unwrap();
        let store =
            log::Store::open(on_zones(of(zone_bytes)).unwrap(), RealEnv::new(), log::Options::default());
        holds_its_largest(&store.unwrap(), table_bytes / 16, &context);
    }
}

#[test]
fn stores_work_on_the_least_zones() {
    for zones in [8, 24] {
        let shape = ZonesShape { zones, zone_bytes: LEAST, unit_bytes: 4096, open_max: None };
        let media = on_zones(shape).unwrap();
        let store = Store::open(media.clone(), RealEnv::new(), Options::default()).unwrap();
        fill_and_empty(&store, || media.tables_free(), 20, &format!("{zones} of the least"));
        let media = on_zones(shape).unwrap();
        let store = log::Store::open(media.clone(), RealEnv::new(), log::Options::default()).unwrap();
        fill_and_empty(&store, || media.tables_free(), 4, &format!("{zones} of the least, log"));
    }
}
