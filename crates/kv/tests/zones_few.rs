//! The least that a store works with: few zones, and few that may be open at a time.

use crate::doubtful::Doubtful;
use crate::harness::{scattered as key, small};
use crate::log::harness as logs;
use std::sync::Arc;
use vellum_base::{Kind, RealEnv, Result, ZonesShape};
use vellum_kv::{Map, Options, Store, Tables, ZoneMedia, log};
use vellum_media::zones::{RamZones, RamZonesParams};

/// A formatted device of which so many zones may be open at a time.
fn formatted(zones: u32, open_max: u32) -> Result<Arc<ZoneMedia>> {
    let shape = ZonesShape { zones, zone_bytes: 256 << 10, unit_bytes: 4096, open_max: Some(open_max) };
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
