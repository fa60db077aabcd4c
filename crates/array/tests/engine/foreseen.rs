//! What `detail` foresees of an array that nobody has open is what an opening then finds: after any cut, with a member
//! missing, with a log that cannot be read.

use super::world::{Model, World, found, options, run};
use crate::harness::{Kind, rng};
use rand::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_array::LogPlace;
use vellum_array::cache::Scheme;
use vellum_array::cache::engine::Foreseen;
use vellum_base::sync::Mutex;
use vellum_base::{BlockDevice, Env, Lba};
use vellum_sim::Sim;

/// Of one cut: what was foreseen, and whether rows were in doubt.
fn foreseen(seed: u64) -> (Foreseen, bool) {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let (kind, mut rng) = (Kind::all()[seed as usize % 8], rng(seed));
        let scheme = [Scheme::KddPaper, Scheme::Kdd][rng.random_range(0..2)];
        let has_nvram = rng.random_bool(0.8);
        let world = World::new(kind, scheme, env.clone(), seed);
        let world = if has_nvram { world.with_nvram() } else { world };
        let options = options(&mut rng);
        let cached = Arc::new(world.attach(options));
        let model = Arc::new(Mutex::new(Model::new(cached.info().sectors)));
        world.rig.power.cut_at(rng.random_range(1..1200));
        run(&cached, &env, &model, seed, 60, Arc::new(|_| ()));
        drop(Arc::into_inner(cached).unwrap().close());
        let world = world.after_cut(seed + 1);
        let role = rng.random_range(0..kind.members);
        let is_unread = kind.log == LogPlace::Members && rng.random_bool(0.3);
        if is_unread {
            world.rig.disks[role].make_unreadable(Lba(rng.random_range(5..10)));
        }
        let without = if rng.random_bool(0.4) { vec![(role + 1) % kind.members] } else { vec![] };
        let foreseen = world.foresee(&without).unwrap();
        let cached = world.try_open(&without, options).unwrap();
        assert_eq!(found(&cached), foreseen, "{kind:?}, {scheme:?}, without {without:?}");
        (foreseen, is_unread)
    })
}

#[test]
fn what_is_foreseen_is_found() {
    let [known, unknown, emptied, doubted] = [const { AtomicU64::new(0) }; 4];
    vellum_sim::check(0..300, |seed| {
        let (foreseen, is_unread) = foreseen(seed);
        known.fetch_add(foreseen.known_rows, Relaxed);
        unknown.fetch_add(foreseen.stale_rows - foreseen.known_rows, Relaxed);
        emptied.fetch_add(u64::from(foreseen.emptied.is_some()), Relaxed);
        doubted.fetch_add(u64::from(is_unread && foreseen.known_rows > 0), Relaxed);
    });
    let seen = [known, unknown, emptied, doubted].map(AtomicU64::into_inner);
    assert!(seen[0] > 300 && seen[1] > 150 && seen[2] > 20 && seen[3] > 10, "seen: {seen:?}");
}
