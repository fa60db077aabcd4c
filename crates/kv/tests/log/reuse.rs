//! Units that collecting does not change are kept as they are: what the medium is told is true, caps hold, what is
//! kept is what was said to be kept, and answers are the same.

use super::harness::{assert_same, open_with, small};
use crate::harness::{Model, Op, apply, batch_of, directory, flash};
use crate::reuse::{Seen, Spy};
use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use vellum_base::{Avoided, Cause, Env, Nanos, RealEnv};
use vellum_kv::log::{Options, Store, StoreStat};
use vellum_kv::{Caps, FlashMedia, Map, Media, Reuse, ReuseOptions};
use vellum_media::nand::Nand;
use vellum_sim::Sim;

/// A store that is made, overwritten a little in runs, and collected.
fn collected(seed: u64, value_bytes: usize, run: usize, share: f64, options: Options) -> (StoreStat, Seen) {
    let dir = tempfile::tempdir().unwrap();
    let spy = Spy::on(directory(dir.path()));
    let (seen, media): (_, Arc<dyn Media>) = (spy.seen.clone(), Arc::new(spy));
    let store =
        open_with(media, Options { garbage_share: 1.1, segment_bytes: 256 << 10, ..options }).unwrap();
    let (mut rng, mut model) = (SmallRng::seed_from_u64(seed), Model::new());
    let count = (2 << 20) / value_bytes;
    let mut write = |keys: Vec<usize>, rng: &mut SmallRng| {
        for key in keys {
            let op = match rng.random_range(0..10) {
                0 => Op::Delete(format!("key{key:06}").into_bytes()),
                _ => Op::Put(format!("key{key:06}").into_bytes(), vec![rng.random(); value_bytes]),
            };
            apply(&mut model, std::slice::from_ref(&op));
            store.write(&batch_of(&[op]), Default::default()).unwrap();
        }
    };
    write((0..count).collect(), &mut rng);
    for _ in 0..2 {
        for _ in 0..((count as f64 * share) as usize / run).max(1) {
            let start = rng.random_range(0..count);
            write((start..start + run).collect(), &mut rng);
        }
        store.compact().unwrap();
    }
    assert_same(&store, &model, "at the end");
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    let stat = at_rest(&store);
    store.close().unwrap();
    let seen = *seen.lock();
    (stat, seen)
}

/// The store's counts once nobody collects any more: a task beside us puts small segments together.
fn at_rest(store: &Store) -> StoreStat {
    let env = RealEnv::new();
    loop {
        let before = store.stat().since_opened.compactions();
        store.compact().unwrap();
        env.sleep_until(env.now() + Nanos::from_ms(20));
        let stat = store.stat();
        if stat.since_opened.compactions() == before {
            return stat;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn what_collecting_keeps_is_stored_and_caps_hold(
        seed in any::<u64>(),
        value_bytes in 60usize..3000,
        run in 1usize..30,
        paper in any::<bool>(),
        bubble in 0.0f64..1.0,
        global in 0.0f64..0.3,
        unit_bytes in prop::sample::select(vec![4096u64, 8192, 16384]),
    ) {
        let mode = if paper { Reuse::Bubbles } else { Reuse::Relink };
        let caps = Caps { bubble, global };
        let reuse = ReuseOptions { caps, unit_bytes: Some(unit_bytes), ..mode.into() };
        let options = Options { reuse, ..small() };
        let (stat, seen) = collected(seed, value_bytes, run, 0.04, options);
        prop_assert!(seen.bits.is_multiple_of(unit_bytes), "{:x} is not whole units", seen.bits);
        let told = if paper { 0 } else { stat.since_opened.reuse().kept_bytes };
        prop_assert_eq!((told, stat.since_opened.reuse().bubble_bytes), (seen.stored, seen.bubbles));
        prop_assert_eq!(stat.since_opened.reuse().relinked_bytes, seen.stored);
        prop_assert!(seen.share_max <= global, "{} is bubbles", seen.share_max);
        prop_assert!(stat.bubble_bytes as f64 <= global * stat.segment_bytes as f64);
        // Emitted is what was written and what was not. The spy writes everything.
        let written = stat.ledger.programmed_by(Cause::Gc) + stat.ledger.programmed_by(Cause::Bubble);
        prop_assert_eq!(written + stat.ledger.avoided_by(Avoided::Remap), stat.copied_bytes);
    }
}

#[test]
fn a_few_overwrites_leave_most_as_it_is() {
    let at = |reuse: Reuse| {
        let (stat, _) = collected(7, 500, 20, 0.04, Options { reuse: reuse.into(), ..small() });
        (stat.copied_bytes, stat.copied_bytes - stat.since_opened.reuse().kept_bytes)
    };
    let ((off, all), (_, paper), (_, ours)) = (at(Reuse::Off), at(Reuse::Bubbles), at(Reuse::Relink));
    assert_eq!(off, all);
    assert!(paper * 3 < off, "{paper} of {off} with bubbles");
    assert!(ours * 3 < off, "{ours} of {off}");
}

/// A store on flash whose tables share superblocks, closed `left` puts before its newest segment is full. The table of
/// that was begun when there was nothing yet that tables have to list.
fn almost_full(flash: &Arc<Nand>, left: usize, model: &mut Model) {
    let sim = Sim::new(1);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let media = FlashMedia::open(flash.clone(), env.clone()).unwrap();
        let store = Store::open(media, env.clone(), on_flash()).unwrap();
        let mut put = |key: String| {
            store.put(key.as_bytes(), &[7; 300]).unwrap();
            model.insert(key.into_bytes(), vec![7; 300]);
        };
        (0..6500).for_each(|n| put(format!("key{n:06}")));
        let gone = (0..6500).filter(|n| n % 33 < 13).map(|n| format!("key{n:06}").into_bytes());
        gone.clone().for_each(|key| store.delete(&key).unwrap());
        // Who begins a segment wakes who collects.
        let segments = store.stat().segments;
        (0..).take_while(|_| store.stat().segments == segments).for_each(|n| put(format!("between{n:06}")));
        env.sleep_until(env.now() + Nanos::from_ms(1000));
        let stat = store.stat();
        assert!(stat.placement.unwrap().pinned > 0 && stat.segments_waiting == 0, "{stat:?}");
        (0..FILLING - left).for_each(|n| put(format!("more{n:06}")));
        assert_eq!(store.stat().segments, stat.segments, "{}", store.stat().open_bytes);
        store.close().unwrap();
        gone.for_each(|key| drop(model.remove(&key)));
    });
}

/// Puts that a segment has room for.
const FILLING: usize = 764;

fn on_flash() -> Options {
    Options { segment_bytes: 256 << 10, garbage_share: 0.2, reuse: Reuse::Relink.into(), ..small() }
}

/// A table has less room than it had when its segment was begun, once others list what is gone.
#[test]
fn what_logs_hold_becomes_tables_though_these_have_to_list_others() {
    for left in [0, 1, 5, 12, 30] {
        let (flash, mut model) = (flash(1), Model::new());
        almost_full(&flash, left, &mut model);
        for round in 0..2 {
            let context = format!("{left} puts from being full, opened {round} times before");
            let media = FlashMedia::open(flash.clone(), RealEnv::new()).unwrap();
            let store = open_with(media, on_flash()).unwrap();
            assert_same(&store, &model, &context);
            for n in 0..40 {
                let key = format!("then{round}{n:06}").into_bytes();
                store.put(&key, &[8; 300]).unwrap_or_else(|e| panic!("{context}: {e}"));
                model.insert(key, vec![8; 300]);
            }
            store.flush().unwrap_or_else(|e| panic!("{context}: {e}"));
            assert_same(&store, &model, &context);
            assert_eq!(store.verify().unwrap().problems, Vec::<String>::new(), "{context}");
            store.close().unwrap();
        }
    }
}
