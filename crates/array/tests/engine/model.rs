//! Nothing fails: every policy, requests of all sizes, a clean stop that keeps the cache.

use super::world::{Model, SCHEMES, World, alone, options, run, run_long};
use crate::harness::{Kind, rng};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use vellum_array::cache::Scheme;
use vellum_base::sync::Mutex;
use vellum_base::{BlockDevice, Env, Lba, Nanos, SECTOR_BYTES};
use vellum_sim::Sim;

/// Requests of three tasks, then long ones, a clean stop in between; returns what identifies the run.
fn whole_run(kind: Kind, scheme: Scheme, seed: u64, steps: usize) -> (u64, (u64, usize)) {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    let kept = sim.run(|| {
        let world = World::new(kind, scheme, env.clone(), seed);
        let options = options(&mut rng(seed));
        let context = format!("{kind:?}, {scheme:?}");
        let cached = Arc::new(world.attach(options));
        let model = Arc::new(Mutex::new(Model::new(cached.info().sectors)));
        run(&cached, &env, &model, seed, steps, Arc::new(|_| ()));
        model.lock().assert_holds(&*cached, &[], &context);
        let status = cached.status();
        assert!(status.stale_rows <= options.stale_rows_max + 3 * 12, "{status:?}");
        assert_eq!((status.unknown_rows, &status.detached), (0, &None), "{context}");
        let stale = cached.array().stale_rows(0, usize::MAX);
        Arc::into_inner(cached).unwrap().close().unwrap();

        let cached = world.open(&[], options);
        let kept = cached.status();
        assert_eq!((&kept.emptied, kept.unknown_rows), (&None, 0), "{context}");
        let left = cached.array().stale_rows(0, usize::MAX);
        let defers = matches!(scheme, Scheme::Kdd | Scheme::KddPaper);
        assert!(defers || left.is_empty(), "{context}: only KDD leaves rows stale");
        assert!(left.iter().all(|row| stale.contains(row)), "{context}: {left:?} of {stale:?}");
        let mut model = Arc::into_inner(model).unwrap().into_inner();
        run_long(&cached, &mut model, seed, steps / 2).unwrap();
        model.assert_holds(&cached, &[], &context);
        cached.clean_all(|_| true).unwrap();
        assert_eq!(cached.status().stale_rows, 0, "{context}");
        world.assert_ledger(&cached);
        let was = (kept.census.clean + kept.census.old, left.len());
        cached.close().unwrap();
        world.assert_parity(&mut model, &context);
        was
    });
    (sim.log_hash(), kept)
}

#[test]
fn every_policy_holds_what_was_written() {
    let kinds = Kind::all();
    let stale_left = AtomicUsize::new(0);
    vellum_sim::check(0..60, |seed| {
        let scheme = SCHEMES[seed as usize % SCHEMES.len()];
        let (_, (kept, stale)) = whole_run(kinds[seed as usize % kinds.len()], scheme, seed, 120);
        let keeps = scheme != Scheme::Kdd;
        assert!(!keeps || kept > 10, "only {kept} pages were kept over a clean stop");
        stale_left.fetch_add(stale, Relaxed);
    });
    let stale_left = stale_left.into_inner();
    assert!(stale_left > 10, "only {stale_left} rows were stale over a clean stop");
}

#[test]
fn the_same_seed_gives_the_same_events() {
    for (seed, scheme) in (7..).zip(SCHEMES) {
        let kind = Kind::all()[seed as usize % 8];
        assert_eq!(whole_run(kind, scheme, seed, 60), whole_run(kind, scheme, seed, 60));
    }
}

/// A write that hits takes one read of the SSD and one write of a member; flash is written when deltas fill a page.
#[test]
fn small_writes_to_what_is_cached_write_one_member_and_hardly_any_flash() {
    let sim = Sim::new(3);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let world = World::new(Kind::all()[2], Scheme::KddPaper, env.clone(), 3);
        let mut options = options(&mut rng(3));
        (options.stale_rows_max, options.dirty_high, options.idle_after) = (1000, 0.9, Nanos(1 << 60));
        let cached = world.attach(options);
        // Ids that are multiples of five differ in their first bytes only.
        let write = |lba: u64, id| cached.write(Lba(lba), &super::world::content(lba, id), false).unwrap();
        (0..8).for_each(|lba| write(lba * 5, 5));
        // Each row is marked stale once.
        (0..8).for_each(|lba| write(lba * 5, 10));
        let (calls, flash) = (world.rig.power.calls(), cached.status().ledger.programmed_total());
        (2..32).for_each(|round| (0..8).for_each(|lba| write(lba * 5, round * 5)));
        let calls = world.rig.power.calls() - calls;
        let pages = (cached.status().ledger.programmed_total() - flash) / SECTOR_BYTES as u64;
        assert!((240..=250).contains(&calls), "{calls} calls that write for 240 writes");
        assert!(pages <= 6, "{pages} pages of flash for 240 writes");
        assert_eq!((cached.status().write_hits, cached.status().write_misses), (248, 8));
        cached.close().unwrap();
    });
}

/// The array was used without its cache: nothing of the cache counts, and nothing is lost.
#[test]
fn a_cache_that_was_away_is_empty_and_another_arrays_is_refused() {
    let sim = Sim::new(4);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let world = World::new(Kind::all()[0], Scheme::KddPaper, env.clone(), 4);
        let options = options(&mut rng(4));
        let cached = world.attach(options);
        let mut model = Model::new(cached.info().sectors);
        run_long(&cached, &mut model, 4, 40).unwrap();
        cached.close().unwrap();
        let array = alone(&world, &[]);
        array.write(Lba(3), &super::world::content(3, 777), false).unwrap();
        model.wrote(3, 777);
        array.close().unwrap();
        let cached = world.open(&[], options);
        assert!(cached.status().emptied.unwrap().contains("without its cache"));
        model.assert_holds(&cached, &[], "away");
        cached.clean_all(|_| true).unwrap();
        cached.close().unwrap();
        world.assert_parity(&mut model, "away");

        let other = World::new(Kind::all()[0], Scheme::KddPaper, env.clone(), 5);
        let open = vellum_array::cache::engine::CachedArray::open;
        let error = open(alone(&other, &[]), Some(world.device()), options).err().unwrap();
        assert!(error.to_string().contains("the cache of array"), "{error}");
        let format = vellum_array::cache::engine::CacheFormat::new(Scheme::Kdd);
        let attach = vellum_array::cache::engine::CachedArray::attach;
        let error = attach(alone(&other, &[]), world.device(), &format, options).err().unwrap();
        assert!(error.to_string().contains("force"), "{error}");
        // Nothing counts that a blank one could have held.
        let cached = open(alone(&other, &[]), Some(other.device()), options).unwrap();
        assert!(cached.status().emptied.unwrap().contains("no superblock"));
        cached.close().unwrap();
    });
}

/// Detached by its owner: everything is on the array, parity too, and the SSD is nobody's cache.
#[test]
fn a_cache_that_is_detached_leaves_nothing_behind() {
    let sim = Sim::new(6);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let world = World::new(Kind::all()[0], Scheme::KddPaper, env.clone(), 6);
        let options = options(&mut rng(6));
        let cached = world.attach(options);
        let mut model = Model::new(cached.info().sectors);
        run_long(&cached, &mut model, 6, 40).unwrap();
        cached.detach(|_| true).unwrap();
        run_long(&cached, &mut model, 7, 20).unwrap();
        assert_eq!(cached.status().stale_rows, 0);
        cached.close().unwrap();
        world.assert_parity(&mut model, "detached");
        let device: vellum_array::Device = world.device();
        assert!(vellum_array::cache::engine::examine_cache(&device).is_err());
    });
}
