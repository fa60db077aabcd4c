//! Media that get full, by puts, flushes and lives: deletes and collecting win room back. That is so however often they
//! were filled.

use super::harness::open_with;
use crate::doubtful::Doubtful;
use crate::harness::{flash, geometry};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;
use std::sync::Arc;
use vellum_base::{Flash, Geometry, Kind, RealEnv};
use vellum_kv::log::{Options, Store};
use vellum_kv::{Directory, DirectoryOptions, FlashMedia, Map, Reuse};
use vellum_media::nand::{Nand, NandParams};

fn key(n: u32) -> Vec<u8> {
    format!("key{:08}", n.wrapping_mul(2_654_435_761) % 100_000_000).into_bytes()
}

fn options(reuse: Reuse) -> Options {
    Options { segment_bytes: 1 << 20, reuse: reuse.into(), ..Options::default() }
}

/// Opens one store again and again, on flash or in a small directory.
fn each_medium(value_bytes: &[usize], show: impl Fn(&dyn Fn() -> Store, usize, &str)) {
    for reuse in [Reuse::Off, Reuse::Relink] {
        // What relinking notes of each table takes the room of many small records.
        for value in value_bytes.iter().filter(|value| reuse == Reuse::Off || **value >= 100) {
            let flash = flash(3);
            let open = || {
                open_with(FlashMedia::open(flash.clone(), RealEnv::new()).unwrap(), options(reuse)).unwrap()
            };
            show(&open, *value, &format!("flash, {reuse:?}, {value} bytes"));
        }
    }
    for value in value_bytes {
        let files = Doubtful::default();
        files.0.lock().room = Some(16 << 20);
        let open = || {
            let how = DirectoryOptions { table_bytes: 1 << 20 };
            let media = Directory::on(Arc::new(files.clone()), how);
            Store::open(media, RealEnv::new(), options(Reuse::Off)).unwrap()
        };
        show(&open, *value, &format!("a directory, {value} bytes"));
    }
}

/// Puts keys from `next` on until one is refused.
fn fill(store: &Store, next: &mut u32, value: usize) {
    while let Ok(()) = store.put(&key(*next), &vec![*next as u8; value]) {
        *next += 1;
    }
}

/// Deletes; where that is refused after a compaction nothing else helps.
fn delete(store: &Store, n: u32, context: &str) {
    let again = || {
        store.compact().unwrap_or_else(|error| panic!("{context}: {error}"));
        store.delete(&key(n))
    };
    store.delete(&key(n)).or_else(|_| again()).unwrap_or_else(|error| panic!("{context}: key {n}: {error}"));
}

#[test]
fn puts_do_not_take_the_room_of_deletes() {
    each_medium(&[900, 20], |open, value, context| {
        let (store, mut next) = (open(), 0);
        for gone in 0..60 {
            fill(&store, &mut next, value);
            delete(&store, gone, context);
        }
        (60..next).step_by(3).for_each(|n| delete(&store, n, context));
    });
}

#[test]
fn flushes_do_not_take_the_room_of_deletes() {
    each_medium(&[900, 0], |open, value, context| {
        let (mut store, mut next) = (open(), 0);
        for _ in 0..2 {
            fill(&store, &mut next, value);
            if let Err(error) = store.flush() {
                assert_eq!(error.kind(), Kind::NoSpace, "{context}");
            }
        }
        store.close().unwrap();
        store = open();
        (0..next).step_by(2).for_each(|n| delete(&store, n, context));
    });
}

/// In an order that leaves a little garbage everywhere.
fn delete_all_at_random(open: &dyn Fn() -> Store, value: usize, life: u32, context: &str) {
    let (mut store, mut next) = (open(), 0);
    fill(&store, &mut next, value);
    let mut order: Vec<u32> = (0..next).collect();
    order.sort_by_key(|n| n.wrapping_mul(0x85EB_CA6B) ^ 0x1234_5678);
    for (gone, n) in order.into_iter().enumerate() {
        if gone as u32 % life == life - 1 {
            store.close().unwrap();
            store = open();
        }
        delete(&store, n, &format!("{context}: {gone} of {next} gone"));
    }
    assert_eq!(store.stat().keys, 0);
}

#[test]
fn lives_do_not_take_the_room_of_collecting() {
    each_medium(&[100], |open, value, context| delete_all_at_random(open, value, 3000, context));
}

#[test]
fn a_little_garbage_everywhere_is_collected() {
    let nand = Nand::ram(
        Geometry { blocks_per_die: 200, ..geometry() },
        NandParams { seed: 1, nvram_bytes: 1 << 20, ..NandParams::default() },
    );
    let flash = Arc::new(nand.unwrap());
    FlashMedia::format(&*flash).unwrap();
    let open =
        || open_with(FlashMedia::open(flash.clone(), RealEnv::new()).unwrap(), Options::default()).unwrap();
    delete_all_at_random(&open, 100, u32::MAX, "many superblocks");
}

/// More superblocks than the manifest's slot in the NVRAM can tell of.
#[test]
fn a_slot_of_the_nvram_is_room_too() {
    let geometry = Geometry { blocks_per_die: 3000, pages_per_block: 6, ..geometry() };
    let nand = Nand::ram(geometry, NandParams { seed: 1, nvram_bytes: 256 << 10, ..NandParams::default() });
    let flash = Arc::new(nand.unwrap());
    FlashMedia::format(&*flash).unwrap();
    let open =
        || open_with(FlashMedia::open(flash.clone(), RealEnv::new()).unwrap(), Options::default()).unwrap();
    let (store, mut next) = (open(), 0);
    fill(&store, &mut next, 500);
    assert!(next > 5000, "{next}");
    (0..next).for_each(|n| delete(&store, n, "a small NVRAM"));
}

fn relinking_on(geometry: Geometry, segment_bytes: u64) -> (Arc<Nand>, impl Fn() -> Store) {
    let nand = Nand::ram(geometry, NandParams { seed: 1, nvram_bytes: 1 << 20, ..NandParams::default() });
    let flash = Arc::new(nand.unwrap());
    FlashMedia::format(&*flash).unwrap();
    let (of_store, reuse) = (flash.clone(), Reuse::Relink);
    let open = move || {
        let media = FlashMedia::open(of_store.clone(), RealEnv::new()).unwrap();
        open_with(media, Options { segment_bytes, reuse: reuse.into(), ..Options::default() }).unwrap()
    };
    (flash, open)
}

/// Puts and deletes keys at random, and reopens now and then; then deletes all that is there.
fn live_and_delete_all(open: &dyn Fn() -> Store, keys: u32, life: u32, seed: u64) {
    let (mut store, mut there) = (open(), BTreeSet::new());
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut value = vec![0; 2500];
    for step in 1..=24_000 {
        if step % life == 0 {
            store.close().map_err(|error| assert_eq!(error.kind(), Kind::NoSpace)).ok();
            store = open();
        }
        let (n, deletes) = (rng.random_range(0..keys), if step / 3000 % 4 == 3 { 70 } else { 10 });
        if rng.random_range(0..100) < deletes {
            let _ = store.delete(&key(n)).map(|()| there.remove(&n));
        } else {
            let value = &mut value[..rng.random_range(0..2500)];
            rng.fill(value);
            let _ = store.put(&key(n), value).map(|()| there.insert(n));
        }
    }
    there.iter().for_each(|n| delete(&store, *n, "at the end"));
    store.compact().unwrap();
    assert_eq!(store.stat().segments, 1);
}

/// Collecting keeps room for a list in what it makes, and a segment that was filled without would not fit.
#[test]
fn what_lives_filled_fits_what_collecting_makes() {
    let geometry = Geometry { channels: 1, dies_per_channel: 1, blocks_per_die: 24, ..geometry() };
    let (_, open) = relinking_on(Geometry { pages_per_block: 18, ..geometry }, 128 << 10);
    live_and_delete_all(&open, 20_000, 2500, 1);
}

/// Where tables share, and bubbles take what was won, the same might be collected for ever.
#[test]
fn collecting_what_is_relinked_comes_to_an_end() {
    let geometry = Geometry { channels: 4, dies_per_channel: 1, blocks_per_die: 60, ..geometry() };
    let (_, open) = relinking_on(Geometry { pages_per_block: 18, ..geometry }, 64 << 10);
    live_and_delete_all(&open, 20_000, u32::MAX, 0);
}

/// Collecting programs tables before it finds that they are too few: not again for each put that is refused.
#[test]
fn puts_that_are_refused_wear_little() {
    let geometry = Geometry { channels: 1, dies_per_channel: 1, blocks_per_die: 60, ..geometry() };
    let (flash, open) = relinking_on(Geometry { pages_per_block: 18, ..geometry }, 128 << 10);
    let (store, mut next) = (open(), 0);
    fill(&store, &mut next, 1900);
    let (mut refused, before) = (0, flash.counters().pages_programmed);
    for n in 0..6000u32 {
        let key = key(n.wrapping_mul(0x85EB_CA6B) % next);
        match n % 40 {
            0 => drop(store.delete(&key)),
            _ => refused += u64::from(store.put(&key, &vec![n as u8; (n as usize * 7) % 2500]).is_err()),
        }
    }
    let programmed = flash.counters().pages_programmed - before;
    assert!(refused > 3000 && programmed < 2 * refused, "{refused} refused, {programmed} pages programmed");
}

#[test]
fn an_nvram_too_small_for_segments_is_refused() {
    let nand = Nand::ram(geometry(), NandParams { seed: 1, nvram_bytes: 64 << 10, ..NandParams::default() });
    let flash = Arc::new(nand.unwrap());
    FlashMedia::format(&*flash).unwrap();
    let media = FlashMedia::open(flash, RealEnv::new()).unwrap();
    assert_eq!(open_with(media, Options::default()).map(drop).unwrap_err().kind(), Kind::Unsupported);
}
