//! A store in a directory whose power goes at every call, at random ones of long lives, and again during recovery.

use crate::doubtful::Doubtful;
use crate::harness::{of_seed, small};
use crate::history::{History, Style};
use crate::lives::{Power, end_at_every_call, live_on, write};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::sync::Arc;
use vellum_base::{Env, Result};
use vellum_kv::{Directory, DirectoryOptions, Options, Store};
use vellum_sim::Sim;

const STYLE: Style = Style { keys: 400, value_bytes: 900 };

pub(crate) fn open(files: &Doubtful, env: &Arc<dyn Env>) -> Result<Store> {
    open_with(files, env, small())
}

fn open_with(files: &Doubtful, env: &Arc<dyn Env>, options: Options) -> Result<Store> {
    let directory = DirectoryOptions { table_bytes: 256 << 10 };
    Store::open(Directory::on(Arc::new(files.clone()), directory), env.clone(), options)
}

/// A life whose power goes at the `nth` call, in which it was `steps` long at most; some of the recoveries are cut,
/// too. True if the power went.
fn life(seed: u64, steps: usize, nth: u64) -> bool {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    let (files, mut history) = (Doubtful::default(), History::default());
    let mut rng = SmallRng::seed_from_u64(seed ^ nth << 32);
    let context = format!("seed {seed}, cut at call {nth}");
    let open = || open_with(&files, &env, of_seed(seed));
    sim.run(|| {
        files.0.lock().left = Some(nth);
        if let Ok(store) = open() {
            write(&store, &mut history, &mut rng, steps, &STYLE);
        }
        let cut = files.is_off();
        live_on(&files, open, &mut history, &mut rng, &STYLE, &context);
        cut
    })
}

#[test]
fn a_cut_at_every_call() {
    // In life 11 a recovery that was cut had dropped two logs, and left the later one.
    end_at_every_call(10..12, 300, |seed, nth| life(seed, 500, nth));
}

#[test]
fn cuts_at_random_calls_of_long_lives() {
    vellum_sim::check(50..250, |seed| {
        life(seed, 3000, 1 + seed * 7919 % 3000);
    });
}
