//! Flash that says that a page was programmed, and it was not, or its bytes are on another one: what is read is right,
//! or an error that says so.

use crate::harness::{Model, flash, media_of_seed, of_seed, open_of_seed};
use crate::lives::end_at_every_call;
use crate::log as logs;
use crate::rot::{self, pair};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::cell::Cell;
use std::sync::Arc;
use vellum_base::{BlockAddr, Env, Flash, Kind, PageAddr, Result};
use vellum_kv::{Map, Options, Store, log};
use vellum_media::nand::{Fault, Nand};
use vellum_sim::Sim;

/// Writes until the store meets damage, which ends it.
fn write(store: &impl Map, model: &mut Model, numbers: std::ops::Range<u32>, context: &str) {
    for n in numbers {
        let (key, value) = pair(n);
        let result = match n % 9 {
            0 => store.delete(&key),
            _ => store.put(&key, &value),
        };
        match result {
            Ok(()) if n % 9 == 0 => drop(model.remove(&key)),
            Ok(()) => drop(model.insert(key, value)),
            Err(error) => return assert_told(Err(error), context),
        }
    }
    assert_told(store.flush(), context);
}

fn assert_told(result: Result<()>, context: &str) {
    assert!(
        result.as_ref().map_or_else(|error| error.kind() == Kind::Corrupt, |()| true),
        "{context}: {result:?}"
    );
}

/// A page that was programmed.
fn written_page(flash: &Nand, rng: &mut SmallRng) -> PageAddr {
    let written = |block| flash.report(BlockAddr(block)).pages_written;
    let blocks: Vec<_> = (0..flash.geometry().blocks()).filter(|block| written(*block) > 0).collect();
    let block = blocks[rng.random_range(0..blocks.len())];
    BlockAddr(block).page(rng.random_range(0..written(block)))
}

type Noticed = fn(u64, &Arc<Nand>, &Arc<dyn Env>, &Model, &str) -> bool;

/// What differs between the engines.
struct Engine<M> {
    open: fn(u64, Arc<Nand>, Arc<dyn Env>) -> Result<M>,
    read: fn(&M, &Model, &str) -> Result<()>,
    /// Opens the store of a seed, and reads it in every way; a log store is written then, too. True if it noticed.
    noticed: Noticed,
}

const ORDERED: Engine<Store> = Engine {
    open: |seed, flash, env| open_of_seed(seed, flash, env),
    read: rot::read,
    noticed: |seed, flash, env, model, context| {
        // Merges do not take away meanwhile what is damaged.
        let options = Options { read_only: true, ..of_seed(seed) };
        let open = || Store::open(media_of_seed(seed, flash.clone(), env.clone())?, env.clone(), options);
        rot::noticed(open, model, context)
    },
};

const LOG: Engine<log::Store> = Engine {
    open: open_log,
    read: logs::rot::read,
    noticed: |seed, flash, env, model, context| {
        logs::rot::noticed(|| open_log(seed, flash.clone(), env.clone()), model, context)
    },
};

fn open_log(seed: u64, flash: Arc<Nand>, env: Arc<dyn Env>) -> Result<log::Store> {
    log::Store::open(media_of_seed(seed, flash, env.clone())?, env, logs::harness::of_seed(seed))
}

/// A life in which the `nth` program is a lie. True if it was told; how often that was noticed goes to `seen`.
fn life<M: Map>(
    engine: &Engine<M>,
    (seed, nth): (u64, u64),
    fault: fn(PageAddr) -> Fault,
    seen: &Cell<u32>,
) -> bool {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    let (flash, mut model) = (flash(seed), Model::new());
    let mut rng = SmallRng::seed_from_u64(seed ^ nth << 32);
    let open = || (engine.open)(seed, flash.clone(), env.clone());
    sim.run(|| {
        let store = open().unwrap();
        write(&store, &mut model, 0..1200, "no lie yet");
        let fault = fault(written_page(&flash, &mut rng));
        let context = format!("seed {seed}, {fault:?} at program {nth}");
        flash.arm(nth, fault);
        write(&store, &mut model, 1200..2400, &context);
        let was_told = !flash.is_armed();
        flash.disarm();
        assert_told((engine.read)(&store, &model, &context), &context);
        drop(store);
        assert_told(open().and_then(|store| (engine.read)(&store, &model, &context)), &context);
        seen.set(seen.get() + u32::from((engine.noticed)(seed, &flash, &env, &model, &context)));
        was_told
    })
}

fn at_every_program(fault: fn(PageAddr) -> Fault) {
    // Stores that relink, some on flash behind queues, are among these seeds.
    let seen = [Cell::new(0), Cell::new(0)];
    end_at_every_call(3..6, 10, |seed, nth| life(&ORDERED, (seed, nth), fault, &seen[0]));
    end_at_every_call(3..6, 10, |seed, nth| life(&LOG, (seed, nth), fault, &seen[1]));
    assert!(seen.iter().all(|seen| seen.get() > 30), "{seen:?} noticed");
}

#[test]
fn each_program_lost_in_turn() {
    at_every_program(|_| Fault::ProgramLost);
}

#[test]
fn each_program_misdirected_in_turn() {
    at_every_program(|to| Fault::ProgramMisdirected { to });
}
