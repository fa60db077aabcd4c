//! While there is room memtables and level 0 are as large as was asked for; when it gets short they are small
//! (docs/decisions/0016).

use crate::doubtful::Doubtful;
use crate::harness::{Model, assert_same, flash, scattered as key, small};
use std::collections::VecDeque;
use std::sync::Arc;
use vellum_base::{Env, Kind, Nanos, RealEnv};
use vellum_kv::{Bounds, FlashMedia, Map, Options, Store};
use vellum_sim::Sim;

const VALUE: [u8; 900] = [7; 900];

fn asked() -> Options {
    Options { memtable_bytes: 192 << 10, level0_compact: 12, level1_bytes: 0, ..small() }
}

/// Puts keys until there is no room; says after each how many there are. Returns how many there are in the end.
fn fill_up(store: &Store, mut each: impl FnMut(u32)) -> u32 {
    for n in 0.. {
        match store.put(&key(n), &VALUE) {
            Ok(()) => each(n + 1),
            Err(e) if e.kind() == Kind::NoSpace => return n,
            Err(e) => panic!("{e}"),
        }
    }
    unreachable!("it must fill")
}

#[test]
fn memtables_are_large_while_there_is_room() {
    const DEVICE: u64 = 8 << 20; // a 128th of which is a third of what is asked for
    let sim = Sim::new(3);
    let (files, env): (_, Arc<dyn Env>) = (Doubtful::default(), sim.env());
    files.0.lock().room = Some(DEVICE);
    sim.run(|| {
        let store = Store::open(files.directory(), env.clone(), asked()).unwrap();
        // Of each memtable that was flushed, how many keys.
        let (mut flushed, mut begun, mut flushes) = (Vec::new(), 0, 0);
        let end = fill_up(&store, |keys| {
            assert!(files.0.lock().room_left() > 0, "it writes past the end of the device");
            let now = store.stat().since_opened.flushes() + store.stat().memtables_waiting as u64;
            if now > flushes {
                flushed.push(keys - begun);
                (begun, flushes) = (keys, now);
            }
        });
        assert!(flushed[0] > 180, "{flushed:?}");
        assert!(flushed[flushed.len() - 3..].iter().sum::<u32>() < 3 * 130, "{flushed:?}");
        assert!(u64::from(end) * 900 > DEVICE / 2, "only {end} keys");
        // Deletes win room back.
        (0..end).filter(|n| n % 2 == 0).for_each(|n| store.delete(&key(n)).unwrap());
        store.compact().unwrap();
        store.put(&key(0), &VALUE).unwrap();
        store.close().unwrap();
        let model: Model =
            (0..end).filter(|n| n % 2 == 1 || *n == 0).map(|n| (key(n).to_vec(), VALUE.to_vec())).collect();
        assert_same(&Store::open(files.directory(), env.clone(), asked()).unwrap(), &model, "opened again");
    });
}

#[test]
fn level_0_grows_while_there_is_room() {
    let sim = Sim::new(4);
    let env: Arc<dyn Env> = sim.env();
    let flash = flash(4);
    sim.run(|| {
        let media = FlashMedia::open(flash.clone(), env.clone()).unwrap();
        let store = Store::open(media, env.clone(), asked()).unwrap();
        let mut most = 0;
        fill_up(&store, |keys| {
            if (3300..5000).contains(&keys) {
                most = most.max(store.stat().levels[0].tables);
            }
        });
        // A sixteenth of the device is four tables.
        assert!((8..=12).contains(&most), "{most} tables of level 0 while there is room");
        let left = store.stat().levels[0].tables;
        assert!(left <= 4, "{left} tables of level 0 when there is none");
    });
}

/// What makes a merge due is that others took the room: no task of ours has done anything.
#[test]
fn room_that_others_take_while_a_store_sleeps_makes_it_merge() {
    let sim = Sim::new(5);
    let (files, env): (_, Arc<dyn Env>) = (Doubtful::default(), sim.env());
    files.0.lock().room = Some(16 << 20);
    sim.run(|| {
        let options = || Options { memtable_bytes: 128 << 10, ..asked() };
        let store = Store::open(files.directory(), env.clone(), options()).unwrap();
        let mut n = 0;
        while store.stat().levels[0].tables < 9 {
            store.put(&key(n % 200), &VALUE).unwrap();
            n += 1;
        }
        env.sleep_until(env.now() + Nanos::from_ms(1000));
        let before = store.stat().levels[0].tables;
        assert!((9..12).contains(&before), "{before} tables: not due while there is room");
        let mut state = files.0.lock();
        let taken = state.room_left() - 25 * (128 << 10);
        state.room = state.room.map(|room| room - taken);
        drop(state);
        for n in n..n + 400 {
            store.put(&key(n % 200), &VALUE).unwrap();
        }
        assert!(store.stat().levels[0].tables < before, "{:?}", store.stat().levels);
    });
}

/// Tables that are read from are not erased, though merges have replaced them: two iterators hold several times what
/// the store has.
#[test]
fn what_iterators_hold_is_room_that_merges_do_without() {
    const KEYS: u32 = 2000; // a tenth of the device
    let sim = Sim::new(6);
    let env: Arc<dyn Env> = sim.env();
    let flash = flash(6);
    sim.run(|| {
        let media = FlashMedia::open(flash.clone(), env.clone()).unwrap();
        let store = Store::open(media, env.clone(), asked()).unwrap();
        (0..KEYS).for_each(|n| store.put(&key(n), &VALUE).unwrap());
        let mut iterators = VecDeque::new();
        for n in 0..20 * KEYS {
            if n % 1500 == 0 {
                iterators.push_back(store.iter(Bounds::all()).unwrap());
                iterators.drain(..iterators.len().saturating_sub(2));
            }
            store.put(&key(n.wrapping_mul(7919) % KEYS), &VALUE).unwrap();
        }
        // Nobody reads any more: deletes win back what they take.
        drop(iterators);
        (0..KEYS).filter(|n| n % 2 == 0).for_each(|n| store.delete(&key(n)).unwrap());
        store.compact().unwrap();
        let model: Model =
            (0..KEYS).filter(|n| n % 2 == 1).map(|n| (key(n).to_vec(), VALUE.to_vec())).collect();
        assert_same(&store, &model, "half of it");
    });
}

/// The manifest has a slot of NVRAM, and names the first and last key of each table.
#[test]
fn long_keys_fill_the_manifest_before_the_flash_and_can_be_deleted() {
    for key_bytes in [400, 700, 1200, 2000, 4000] {
        let flash = flash(7);
        let open = || {
            let media = FlashMedia::open(flash.clone(), RealEnv::new()).unwrap();
            Store::open(media, RealEnv::new(), small()).unwrap()
        };
        let long = |n: u32| [&key(n)[..], &vec![1; key_bytes]].concat();
        let store = open();
        let put = |n: u32| store.put(&long(n), &VALUE);
        let (count, error) = (0..).find_map(|n| Some((n, put(n).err()?))).unwrap();
        assert_eq!(error.kind(), Kind::NoSpace, "{error}");
        store.close().unwrap();
        let store = open();
        for n in 0..count {
            // As the error says.
            if store.delete(&long(n)).is_err_and(|error| error.kind() == Kind::NoSpace) {
                store.compact().unwrap_or_else(|error| panic!("{key_bytes}, {n}: {error}"));
                store.delete(&long(n)).unwrap_or_else(|error| panic!("{key_bytes}, {n}: {error}"));
            }
        }
        store.compact().unwrap();
        (0..count / 2).for_each(|n| store.put(&long(n), &VALUE).unwrap());
        assert!(store.get(&long(0)).unwrap().is_some() && store.get(&long(count / 2)).unwrap().is_none());
    }
}

/// What is kept for the tables that it comes to is not kept for all that may come.
#[test]
fn one_long_key_among_short_ones_is_nothing_special() {
    let flash = flash(8);
    let media = FlashMedia::open(flash, RealEnv::new()).unwrap();
    let store = Store::open(media, RealEnv::new(), small()).unwrap();
    let put = |n: u32| store.put(&key(n), &VALUE).unwrap_or_else(|error| panic!("{n}: {error}"));
    (0..3000).for_each(put);
    store.put(&[7; 4000], &VALUE).unwrap();
    (3000..8000).for_each(put);
    store.flush().unwrap();
    (0..8000).step_by(2).for_each(|n| store.delete(&key(n)).unwrap());
    store.compact().unwrap();
    assert!(store.get(&[7; 4000]).unwrap().is_some());
}

/// A manifest in a file has whole keys, in each edit those of the tables that come.
#[test]
fn edits_take_little_of_a_small_file_system() {
    let files = Doubtful::default();
    files.0.lock().room = Some(4 << 20);
    let store = Store::open(files.directory(), RealEnv::new(), small()).unwrap();
    let mut most = 0;
    for n in 0..300 {
        store.put(&[&key(n % 7)[..], &[7; 4000]].concat(), b"v").unwrap();
        store.flush().unwrap();
        most = most.max(files.0.lock().bytes_ending_in(".manifest"));
    }
    assert!(most < 400 << 10, "manifests of {most} bytes");
}
