//! A store in a directory whose power goes at every call, at random ones of long lives, and again during recovery.

use crate::doubtful::Doubtful;
use crate::harness::{of_seed, small};
use crate::history::Style;
use crate::lives::{end_at_every_call, life_in_directory};
use std::sync::Arc;
use vellum_base::{Env, Result};
use vellum_kv::Store;

const STYLE: Style = Style { keys: 400, value_bytes: 900 };

pub(crate) fn open(files: &Doubtful, env: &Arc<dyn Env>) -> Result<Store> {
    Store::open(files.directory(), env.clone(), small())
}

fn life(seed: u64, steps: usize, nth: u64) -> bool {
    life_in_directory((seed, steps, nth), &STYLE, |media, env| Store::open(media, env, of_seed(seed)))
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
