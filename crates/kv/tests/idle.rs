//! A store that nobody uses asks nothing of its medium: not a write, a sync or an erase, and of flash not even a read.

use crate::doubtful::Doubtful;
use crate::failing::{Board, EIO, Failing, Open, Zoned};
use crate::harness::{flash, small};
use crate::log::harness as logs;
use crate::zones;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::sync::Arc;
use vellum_base::{Env, Nanos};
use vellum_kv::{Map, Store, log};
use vellum_media::nand::Fault;
use vellum_sim::Sim;

/// An hour on media whose next call would fail; the first of them has the others beside it.
fn rests<M: Map>(name: &str, media: &[&dyn Failing], open: Open<M>) {
    let sim = Sim::new(2);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let store = open(media[0].open(&env).unwrap(), env.clone()).unwrap();
        for n in 0..3000u32 {
            let key = format!("key{:05}", n * 7919 % 2000).into_bytes();
            store.put(&key, &vec![n as u8; 100 + n as usize % 200]).unwrap();
        }
        env.sleep_until(env.now() + Nanos::from_ms(1000));
        media.iter().for_each(|medium| medium.arm(1));
        env.sleep_until(env.now() + Nanos::from_ms(3_600_000));
        assert!(media.iter().all(|medium| !medium.has_failed()), "{name}: the store is not idle");
        // It would have failed.
        store.put(b"k", b"v").and_then(|()| store.flush()).unwrap_err();
        assert!(media.iter().any(|medium| medium.has_failed()), "{name}");
        media.iter().for_each(|medium| medium.mend(&mut SmallRng::seed_from_u64(2)));
    });
}

fn rests_on_every_medium<M: Map>(open: Open<M>) {
    let fault = Fault::Host { errno: EIO };
    rests("flash", &[&Board { nand: flash(2), seed: 0, fault }], open);
    rests("flash behind queues", &[&Board { nand: flash(2), seed: 1, fault }], open);
    rests("a directory", &[&Doubtful::default()], open);
    for keeps_pointers in [true, false] {
        let (files, zones) = zones::formatted(keeps_pointers, 2);
        rests("zones", &[&Zoned { files: files.clone(), zones, is_pulled: false }, &files], open);
    }
}

#[test]
fn an_idle_store_leaves_its_medium_alone() {
    rests_on_every_medium(|media, env| Store::open(media, env, small()));
}

#[test]
fn so_does_an_idle_log_store() {
    rests_on_every_medium(|media, env| log::Store::open(media, env, logs::small()));
}
