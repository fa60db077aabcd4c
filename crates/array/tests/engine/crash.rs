//! Power cuts at any call: every sector old or new, the cache empty, and parity right when stale rows have been made
//! anew.

use super::world::{Model, SCHEMES, World, options, run};
use crate::harness::{Kind, rng};
use rand::Rng;
use std::sync::Arc;
use vellum_array::cache::Scheme;
use vellum_base::sync::Mutex;
use vellum_base::{BlockDevice, Env};
use vellum_sim::Sim;

/// A cut, perhaps another while it is repaired; false if the run was over before.
fn crash(kind: Kind, scheme: Scheme, seed: u64, cut_at: u64, steps: usize) -> bool {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let mut rng = rng(seed ^ cut_at << 20);
        let options = options(&mut rng);
        let context = format!("{kind:?}, {scheme:?}, cut at call {cut_at}");
        let world = World::new(kind, scheme, env.clone(), seed);
        let cached = Arc::new(world.attach(options));
        let model = Arc::new(Mutex::new(Model::new(cached.info().sectors)));
        world.rig.power.cut_at(cut_at);
        run(&cached, &env, &model, seed, steps, Arc::new(|_| ()));
        // Some are cut while they are closed.
        let closed = Arc::into_inner(cached).unwrap().close();
        let was_cut = world.rig.power.is_off();
        assert!(was_cut || closed.is_ok(), "{context}: {closed:?}");
        let mut world = world.after_cut(seed + 1);
        if rng.random_bool(0.3) {
            world.rig.power.cut_at(rng.random_range(1..60));
            if let Ok(array) = world.rig.try_assemble(&[])
                && let Ok(cached) =
                    vellum_array::cache::engine::CachedArray::open(array, Some(world.device()), options)
            {
                let _ = cached.clean_all(|_| true);
            }
            world = world.after_cut(seed + 2);
        }
        let cached = world.open(&[], options);
        let mut model = Arc::into_inner(model).unwrap().into_inner();
        model.settle(&cached, &[], &context);
        cached.clean_all(|_| true).unwrap();
        model.assert_holds(&cached, &[], &context);
        assert_eq!(cached.status().stale_rows, 0, "{context}");
        cached.close().unwrap();
        world.assert_parity(&mut model, &context);
        was_cut
    })
}

#[test]
fn a_cut_at_every_call_of_a_short_run_leaves_old_or_new() {
    for (scheme, kind) in SCHEMES.into_iter().zip(Kind::all()) {
        for cut_at in 1.. {
            if !crash(kind, scheme, 5, cut_at, 8) {
                assert!(cut_at > 20, "{kind:?}: only {cut_at} calls");
                break;
            }
        }
    }
}

#[test]
fn cuts_at_random_calls_of_long_runs_leave_old_or_new() {
    let kinds = Kind::all();
    vellum_sim::check(0..150, |seed| {
        let cut_at = rng(seed).random_range(1..900);
        crash(kinds[seed as usize % 8], SCHEMES[seed as usize % 5], seed, cut_at, 60);
    });
}
