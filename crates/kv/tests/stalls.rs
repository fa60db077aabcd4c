//! What writers waited for is told, whatever it was: in virtual time a put takes no other time that is worth a word.

use crate::harness::{flash, scattered, small};
use crate::in_flight::timing;
use std::sync::Arc;
use vellum_base::{Env, Nanos, Result};
use vellum_kv::{FlashMedia, Lifetime, Map, Store, log};
use vellum_media::timing::Timed;
use vellum_sim::Sim;

/// A put that takes no longer waited for nothing but the log.
const PROMPT: Nanos = Nanos::from_us(200);

/// Fills flash until puts are refused, deletes some, and puts again. What waited, and for how long in all; and how many
/// were refused.
fn filled_and_emptied(env: &Arc<dyn Env>, map: &dyn Map) -> (u64, Nanos, u64) {
    let (mut waited, mut total, mut refused) = (0, Nanos::ZERO, 0);
    let mut timed = |write: &dyn Fn() -> Result<()>| {
        let start = env.now();
        refused += u64::from(write().is_err());
        let took = env.now().saturating_sub(start);
        if took > PROMPT {
            waited += 1;
            total += took;
        }
    };
    for n in 0..9000u32 {
        timed(&|| map.put(&scattered(n), &[n as u8; 2000]));
    }
    for n in 0..4000u32 {
        timed(&|| map.delete(&scattered(2 * n)));
        timed(&|| map.put(&scattered(2 * n + 1), &[n as u8; 500]));
    }
    (waited, total, refused)
}

fn are_told((waited, total, refused): (u64, Nanos, u64), told: &Lifetime) {
    assert!(waited > 50 && refused > 100, "{waited} waited, {refused} were refused");
    let (stalls, stalled) = told.stalls();
    let told_ns = stalled + told.slowed_ns();
    assert!(told_ns >= total.0 / 20 * 19, "{told_ns} of {total:?} are told, in {stalls} of {waited}");
    assert!(told_ns <= total.0 + total.0 / 4, "{told_ns} of {total:?} are told");
}

fn in_virtual_time(act: impl FnOnce(&Arc<dyn Env>, Arc<FlashMedia>)) {
    let sim = Sim::new(7);
    let env: Arc<dyn Env> = sim.env();
    let timed = Arc::new(Timed::new(flash(7), timing(), sim.env()));
    sim.run(|| act(&env, FlashMedia::open(timed, env.clone()).unwrap()));
}

#[test]
fn an_ordered_store_tells_what_writers_waited_for() {
    in_virtual_time(|env, media| {
        let store = Store::open(media, env.clone(), small()).unwrap();
        let waited = filled_and_emptied(env, &store);
        are_told(waited, &store.stat().since_opened);
    });
}

#[test]
fn a_log_store_tells_what_writers_waited_for() {
    in_virtual_time(|env, media| {
        let options = log::Options { segment_bytes: 64 << 10, ..Default::default() };
        let store = log::Store::open(media, env.clone(), options).unwrap();
        let waited = filled_and_emptied(env, &store);
        are_told(waited, &store.stat().since_opened);
    });
}
