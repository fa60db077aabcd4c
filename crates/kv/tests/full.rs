//! A full medium whose keys came in order: a delete of many keys overlaps with all there is, and is merged in pieces.

use crate::harness::{Model, assert_same, flash, open_flash};
use std::sync::Arc;
use vellum_base::{Env, Kind};
use vellum_kv::{Map, Store};
use vellum_sim::Sim;

fn key(n: u32) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

/// Writes keys in order until the medium is full.
fn fill_up(store: &Store, model: &mut Model, from: u32) -> u32 {
    for n in from.. {
        match store.put(&key(n), &[n as u8; 900]) {
            Ok(()) => drop(model.insert(key(n), vec![n as u8; 900])),
            Err(e) if e.kind() == Kind::NoSpace => return n,
            Err(e) => panic!("{e}"),
        }
    }
    unreachable!("it must fill")
}

/// Deletes what `wanted` says, compacts, and fills up again; the power goes `cut` programs and erases into the first
/// compaction.
fn deleted(wanted: impl Fn(u32, u32) -> bool, cut: Option<u64>) {
    let context = format!("cut {cut:?}");
    let sim = Sim::new(7);
    let env: Arc<dyn Env> = sim.env();
    let flash = flash(4);
    sim.run(|| {
        let mut model = Model::new();
        let mut store = open_flash(&flash, env.clone()).unwrap();
        let mut end = fill_up(&store, &mut model, 0);
        for round in 0..3 {
            let context = format!("{context}, round {round}");
            let gone = (0..end).filter(|n| wanted(*n, end) && model.contains_key(&key(*n)));
            let gone: Vec<u32> = gone.collect();
            for n in &gone {
                store.delete(&key(*n)).unwrap_or_else(|e| panic!("{context}: delete: {e}"));
                model.remove(&key(*n));
            }
            if let Some(nth) = cut.filter(|_| round == 0) {
                flash.power_cut_at(nth);
                let _ = store.compact();
                drop(store);
                flash.power_on();
                store = open_flash(&flash, env.clone()).unwrap_or_else(|e| panic!("{context}: {e}"));
                assert_same(&store, &model, &context);
            }
            store.compact().unwrap_or_else(|e| panic!("{context}: {e}"));
            assert_same(&store, &model, &context);
            let before = model.len();
            end = fill_up(&store, &mut model, end);
            let won = model.len() - before;
            assert!(won > gone.len() * 3 / 4, "{context}: {} deleted, {won} written", gone.len());
        }
        store.close().unwrap();
        assert_same(&open_flash(&flash, env.clone()).unwrap(), &model, &context);
    });
}

#[test]
fn every_second_key_is_deleted() {
    deleted(|n, _| n % 2 == 0, None);
}

#[test]
fn the_newer_three_quarters_are_deleted() {
    deleted(|n, end| n >= end / 4, None);
}

#[test]
fn the_older_three_quarters_are_deleted() {
    deleted(|n, end| n < end / 4 * 3, None);
}

#[test]
fn the_power_goes_between_two_pieces() {
    for nth in [3, 90, 200, 420, 700] {
        deleted(|n, _| n % 2 == 0, Some(nth));
    }
}
