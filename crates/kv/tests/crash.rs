//! Power cuts on modelled flash, in virtual time: at every program, erase and NVRAM write of short lives, at random
//! ones of long lives, and again during recovery.

use crate::harness::{batch_of, flash, geometry, media_of_seed, of_seed, open_flash, open_of_seed};
use crate::history::{History, Style};
use crate::lives::end_at_every_call;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use vellum_base::{Env, Flash, Kind, Result};
use vellum_kv::{Durability, Map, Options, Rules, Store};
use vellum_media::nand::{Fault, Nand};
use vellum_sim::Sim;

const STYLE: Style = Style { keys: 600, value_bytes: 700 };

/// Writes until the power goes or the steps are done. True if it went.
pub(crate) fn write(store: &Store, history: &mut History, rng: &mut SmallRng, steps: usize) -> bool {
    for _ in 0..steps {
        let count = rng.random_range(1..4);
        let ops = history.next(rng, count, &STYLE);
        let durability = match rng.random_range(0..8) {
            0 => Durability::Sync,
            1..5 => Durability::Buffered,
            _ => Durability::None,
        };
        let mut result = store.write(&batch_of(&ops), durability);
        if result.is_ok() && durability != Durability::None {
            history.promise(); // the NVRAM has it
        }
        if result.is_ok() && rng.random_range(0..400) == 0 {
            result = store.flush();
        }
        match result {
            Ok(()) => {}
            Err(e) if e.kind() == Kind::PowerLost => return true,
            Err(e) => panic!("{e}"),
        }
    }
    false
}

/// Opens the store after a crash, and may be cut again meanwhile.
fn recover(flash: &Nand, open: impl Fn() -> Result<Store>, rng: &mut SmallRng, context: &str) -> Store {
    loop {
        flash.power_on();
        match rng.random_range(0..3) {
            0 => flash.power_cut_at(rng.random_range(1..30)),
            1 => flash.arm(rng.random_range(1..6), Fault::PowerCutInNvram),
            _ => {}
        }
        match open() {
            Ok(store) => {
                flash.disarm();
                if !flash.is_off() {
                    return store;
                }
            }
            Err(e) if e.kind() == Kind::PowerLost => {}
            Err(e) => panic!("{context}: {e}"),
        }
    }
}

/// A life that ends with `fault` at the `nth` operation; then recovery, more life, and a clean close. True if the fault
/// came to pass.
fn life(seed: u64, steps: usize, nth: u64, fault: Fault) -> bool {
    let context = format!("seed {seed}, {fault:?} at {nth}");
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    let flash = flash(seed);
    let (mut rng, mut history) = (SmallRng::seed_from_u64(seed), History::default());
    let open = || open_flash(&flash, env.clone());
    sim.run(|| {
        let store = open().unwrap();
        flash.arm(nth, fault);
        let cut = write(&store, &mut history, &mut rng, steps) || flash.is_off();
        drop(store);
        let cut = cut || flash.is_off();
        let store = recover(&flash, open, &mut rng, &context);
        history.settle(&store, &context);
        write(&store, &mut history, &mut rng, 40);
        history.promise();
        store.close().unwrap_or_else(|e| panic!("{context}: {e}"));
        let store = open().unwrap_or_else(|e| panic!("{context}: again: {e}"));
        history.settle(&store, &format!("{context}: again"));
        cut
    })
}

#[test]
fn a_cut_at_every_program_and_erase() {
    end_at_every_call(0..2, 100, |seed, nth| life(seed, 700, nth, Fault::PowerCut));
}

#[test]
fn a_cut_at_every_nvram_write() {
    end_at_every_call(10..11, 150, |seed, nth| life(seed, 300, nth, Fault::PowerCutInNvram));
}

/// A life of several openings on one flash.
fn long_life(seed: u64, open: impl Fn(Arc<Nand>, Arc<dyn Env>) -> Result<Store>) {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    let flash = flash(seed);
    let (mut rng, mut history) = (SmallRng::seed_from_u64(seed), History::default());
    sim.run(|| {
        for round in 0..6 {
            let context = format!("seed {seed} round {round}");
            let store = recover(&flash, || open(flash.clone(), env.clone()), &mut rng, &context);
            history.settle(&store, &context);
            match rng.random() {
                true => flash.power_cut_at(rng.random_range(1..900)),
                false => flash.arm(rng.random_range(1..2000), Fault::PowerCutInNvram),
            }
            write(&store, &mut history, &mut rng, 2000);
            drop(store);
        }
    });
}

#[test]
fn cuts_at_random_moments_of_long_lives() {
    vellum_sim::check(100..140, |seed| long_life(seed, |flash, env| open_of_seed(seed, flash, env)));
}

#[test]
fn so_it_is_in_long_lives_by_the_rules_of_leveldb() {
    vellum_sim::check(200..220, |seed| {
        long_life(seed, |flash, env| {
            let options = Options { rules: Rules::LevelDb, memtables_max: 1, ..of_seed(seed) };
            Store::open(media_of_seed(seed, flash, env.clone())?, env, options)
        });
    });
}

/// One life, and all that can be told of it.
fn trace(seed: u64) -> (u64, u64, Vec<u8>) {
    let sim = Sim::new(seed);
    let env = sim.env();
    let flash = flash(seed);
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut history = History::default();
    sim.run(|| {
        let store = open_flash(&flash, env.clone()).unwrap();
        write(&store, &mut history, &mut rng, 3000);
        env.note_number(store.stat().since_opened.compactions());
        store.close().unwrap();
    });
    let mut page = vec![0; 4096];
    let mut all = Vec::new();
    for block in 0..geometry().blocks() {
        let at = vellum_base::BlockAddr(block).page(1);
        flash.read(vellum_base::IoClass::Foreground, at, 0, &mut page, &mut []).unwrap();
        all.extend_from_slice(&page[..16]);
    }
    (sim.log_hash(), flash.counters().pages_programmed, all)
}

#[test]
fn the_same_seed_gives_the_same_life() {
    assert_eq!(trace(5), trace(5));
    assert_ne!(trace(5).0, trace(6).0);
}
