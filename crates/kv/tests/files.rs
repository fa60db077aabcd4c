//! A store in a directory whose power goes at every call, at random ones of long lives, and again during recovery.

use crate::doubtful::Doubtful;
use crate::harness::{of_seed, small};
use crate::history::Style;
use crate::lives::{end_at_every_call, life_in_directory};
use std::sync::Arc;
use vellum_base::{Cause, Env, Result};
use vellum_kv::media::{AreaKind, Areas, Files};
use vellum_kv::{Batch, Durability, Map, Media, Store};
use vellum_sim::Sim;

const STYLE: Style = Style { keys: 400, value_bytes: 900 };

/// A directory that no file can be linked into.
pub(crate) fn in_memory() -> Arc<dyn Media> {
    Doubtful::default().directory()
}

pub(crate) fn open(files: &Doubtful, env: &Arc<dyn Env>) -> Result<Store> {
    Store::open(files.directory(), env.clone(), small())
}

fn log_bytes(files: &Doubtful) -> u64 {
    let names = files.names().unwrap().into_iter().filter(|name| name.ends_with(".log"));
    names.map(|name| files.open(&name).unwrap().len().unwrap()).sum()
}

fn life(seed: u64, steps: usize, nth: u64) -> bool {
    life_in_directory((seed, steps, nth), &STYLE, |media, env| Store::open(media, env, of_seed(seed)))
}

#[test]
fn a_cut_at_every_call() {
    // In life 11 a recovery that was cut had dropped two logs, and left the later one.
    end_at_every_call(10..13, 300, |seed, nth| life(seed, 500, nth));
}

#[test]
fn cuts_at_random_calls_of_long_lives() {
    vellum_sim::check(50..250, |seed| {
        life(seed, 3000, 1 + seed * 7919 % 3000);
    });
}

#[test]
fn mapped_logs_are_held_in_memory_and_end_where_their_records_do() {
    const VALUE: [u8; 100] = [7; 100];
    let run = |no_memory, durability| {
        let sim = Sim::new(7);
        let (files, env): (_, Arc<dyn Env>) = (Doubtful::default(), sim.env());
        files.0.lock().no_memory = no_memory;
        sim.run(|| {
            let store = open(&files, &env).unwrap();
            for n in 0..400u32 {
                let mut batch = Batch::new();
                batch.put(&n.to_be_bytes(), &VALUE).unwrap();
                store.write(&batch, durability).unwrap();
            }
            let (open, puts) = (log_bytes(&files), files.0.lock().puts);
            let written = store.stat().ledger.programmed_by(Cause::Log);
            store.close().unwrap();
            assert_eq!(log_bytes(&files), written);
            (puts, written as i64 - open as i64)
        })
    };
    let (puts, held) = run(false, Durability::Buffered);
    assert!(puts > 500 && held > 0, "{puts} in memory, {held} bytes held");
    assert_eq!(run(true, Durability::Buffered), (0, 0));
    let (puts, held) = run(false, Durability::Sync);
    assert!(puts == 0 && held < 0, "who syncs waits for the device, not for the call, and has zeros ahead");
}

/// Of the log that was open when the process ended, in which nothing was synced.
#[test]
fn what_was_held_is_there_at_the_next_opening() {
    for synced in [0, 100u32] {
        let sim = Sim::new(7);
        let (files, env): (_, Arc<dyn Env>) = (Doubtful::default(), sim.env());
        sim.run(|| {
            let store = open(&files, &env).unwrap();
            for n in 0..200u32 {
                store.put(&n.to_be_bytes(), &[7; 100]).unwrap();
                if n + 1 == synced {
                    store.sync().unwrap();
                }
            }
            let written = store.stat().ledger.programmed_by(Cause::Log);
            files.0.lock().off = true;
            drop(store);
            files.0.lock().crash(|_| true, |_, bytes| bytes);
            assert!(log_bytes(&files) < written);
            let read = || {
                let store = open(&files, &env).unwrap();
                assert!((0..200u32).all(|n| store.get(&n.to_be_bytes()).unwrap() == Some(vec![7; 100])));
                store
            };
            drop(read());
            read().compact().unwrap();
            drop(read());
        });
    }
}

/// Who opens a store for one write at a time, as a shell does, gets a table only when there is something for it.
#[test]
fn short_lives_share_a_memtable() {
    const LIVES: u32 = 300;
    const LOGS_OF_MEMTABLE: usize = 64;
    let sim = Sim::new(7);
    let (files, env): (_, Arc<dyn Env>) = (Doubtful::default(), sim.env());
    let logs = || {
        let areas = files.directory().areas().unwrap();
        areas.into_iter().filter(|area| area.kind == AreaKind::Log).count()
    };
    sim.run(|| {
        for life in 0..LIVES {
            let store = open(&files, &env).unwrap();
            assert!(store.stat().levels[0].tables <= life as usize / LOGS_OF_MEMTABLE);
            store.put(&life.to_le_bytes(), &life.to_be_bytes()).unwrap();
            store.close().unwrap();
            // Two memtables may wait to become tables.
            assert!(logs() <= 3 * LOGS_OF_MEMTABLE + 2, "{} logs after life {life}", logs());
        }
        let store = open(&files, &env).unwrap();
        for life in 0..LIVES {
            assert_eq!(store.get(&life.to_le_bytes()).unwrap().as_deref(), Some(&life.to_be_bytes()[..]));
        }
        store.flush().unwrap();
        store.close().unwrap();
        assert!(logs() <= 1);
        let store = open(&files, &env).unwrap();
        assert_eq!(store.stat().levels.iter().map(|level| level.entries).sum::<u64>(), u64::from(LIVES));
    });
}
