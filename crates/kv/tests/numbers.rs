//! A number that a log once had is not given again: in NVRAM what was in the slot is still there, and checks out in a
//! log of that number.

use crate::harness::{flash, small};
use std::sync::Arc;
use vellum_base::{Flash, RealEnv, Result};
use vellum_kv::{Batch, Durability, FlashMedia, Map, Store, log};
use vellum_media::nand::Nand;

/// Batches of a life.
const BATCHES: u32 = 30;

/// All records of all lives are as long.
fn key(i: u32) -> Vec<u8> {
    format!("key{i:03}").into_bytes()
}

fn write(store: &impl Map, numbers: std::ops::Range<u32>, value: &[u8]) {
    for i in numbers {
        let mut batch = Batch::new();
        batch.put(&key(i), value).unwrap();
        store.write(&batch, Durability::Buffered).unwrap();
    }
}

/// How many keys there are, from the first on, and what the last has.
fn found(store: &impl Map) -> (u32, Option<Vec<u8>>) {
    let all: Vec<Option<Vec<u8>>> = (0..9 * BATCHES).map(|i| store.get(&key(i)).unwrap()).collect();
    let count = all.iter().filter(|value| value.is_some()).count();
    assert!(all[..count].iter().all(|value| value.is_some()), "keys are missing");
    (count as u32, all[..count].last().cloned().flatten())
}

fn lsm(flash: &Arc<Nand>) -> Result<Store> {
    Store::open(FlashMedia::open(flash.clone(), RealEnv::new())?, RealEnv::new(), small())
}

fn log_store(flash: &Arc<Nand>) -> Result<log::Store> {
    log::Store::open(
        FlashMedia::open(flash.clone(), RealEnv::new())?,
        RealEnv::new(),
        log::Options::default(),
    )
}

/// The flash as a killed process leaves it.
fn killed(flash: &Nand) -> Arc<Nand> {
    Arc::new(flash.fork().unwrap())
}

/// A bit of the record of this key in NVRAM rots.
fn rot(flash: &Nand, key: &[u8]) {
    let nvram = flash.nvram().unwrap();
    let mut bytes = vec![0; nvram.bytes()];
    nvram.read(0, &mut bytes).unwrap();
    let at = bytes.windows(key.len()).position(|window| window == key).unwrap();
    nvram.write(at, &[bytes[at] ^ 1]).unwrap();
}

/// Rot in the first log drops the second, whose number and slot a later life gets, if nobody takes care.
fn a_dropped_log_stays_dropped<S: Map>(open: impl Fn(&Arc<Nand>) -> Result<S>) {
    let first = flash(3);
    let store_of_first = open(&first).unwrap();
    write(&store_of_first, 0..BATCHES, b"first");
    let second = killed(&first);
    let store_of_second = open(&second).unwrap();
    write(&store_of_second, BATCHES..3 * BATCHES, b"secnd");
    let third = killed(&second);
    rot(&third, &key(9));
    let store_of_third = open(&third).unwrap();
    assert_eq!(found(&store_of_third), (9, Some(b"first".to_vec())));
    let fourth = killed(&third);
    let store = open(&fourth).unwrap();
    write(&store, 9..BATCHES + 5, b"forth");
    let store = open(&killed(&fourth)).unwrap_or_else(|error| panic!("the fifth life: {error}"));
    assert_eq!(found(&store), (BATCHES + 5, Some(b"forth".to_vec())));
}

#[test]
fn a_number_of_a_log_that_was_dropped_does_not_come_again() {
    a_dropped_log_stays_dropped(lsm);
}

#[test]
fn nor_in_a_log_store() {
    a_dropped_log_stays_dropped(log_store);
}

/// Nor does what was there before flash was formatted, though numbers begin anew.
#[test]
fn a_formatted_store_has_nothing_of_the_one_before() {
    let first = flash(4);
    let store = lsm(&first).unwrap();
    write(&store, 0..BATCHES, b"first");
    let second = killed(&first);
    FlashMedia::format(&*second).unwrap();
    let store = lsm(&second).unwrap();
    write(&store, 0..9, b"secnd");
    assert_eq!(found(&lsm(&killed(&second)).unwrap()), (9, Some(b"secnd".to_vec())));
}
