//! A budget of flash bytes a day is kept, and used, in virtual time; also over a clean stop, and over a cut.

use super::world::{DATA_START, PAGES, World, content};
use crate::harness::{Kind, rng};
use rand::Rng;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vellum_array::Device;
use vellum_array::cache::Scheme;
use vellum_array::cache::engine::{CacheFormat, CacheOptions, CachedArray, examine_cache};
use vellum_base::{BlockDevice, Env, Lba, Nanos, SECTOR_BYTES};
use vellum_sim::Sim;

const PAGE: u64 = SECTOR_BYTES as u64;
const DAY_MS: u64 = 24 * 3600 * 1000;
/// A page every tenth of a second.
const PAGES_A_DAY: u64 = 10 * 24 * 3600;

const OPTIONS: CacheOptions = CacheOptions {
    without_cache: false,
    staging_bytes: Some(8192),
    window: Some(8),
    dirty_high: 0.5,
    dirty_low: 0.45,
    stale_rows_max: 1000,
    idle_after: Nanos(1_000_000_000),
};

fn attach(world: &World, scheme: Scheme, budget: Option<u64>) -> vellum_base::Result<CachedArray> {
    let format = CacheFormat { ways: 16, segment_pages: Some(4), budget, ..CacheFormat::new(scheme) };
    CachedArray::attach(world.rig.assemble(&[]), world.device(), &format, OPTIONS)
}

/// Writes that would have many pages written, a hundred a second, for so long.
fn work(cached: &CachedArray, seed: u64, ms: u64) {
    let (mut rng, env) = (rng(seed), cached.env());
    let until = env.now() + Nanos::from_ms(ms);
    let mut id = seed as u32 * 100_000;
    while env.now() < until {
        id += rng.random_range(1..4);
        let lba = rng.random_range(0..90);
        cached.write(Lba(lba), &content(lba, id), false).unwrap();
        env.sleep_until(env.now() + Nanos::from_ms(10));
    }
}

/// All that was written to the SSD, this opening and before, in pages.
fn written(cached: &CachedArray) -> u64 {
    let status = cached.status();
    (status.written_before + status.ledger.programmed_total()) / PAGE
}

/// What time has brought since the cache was opened, in pages.
fn granted(cached: &CachedArray) -> u64 {
    cached.status().open_for.0 / 1_000_000 * PAGES_A_DAY / DAY_MS
}

#[test]
fn a_budget_is_kept_and_used() {
    let sim = Sim::new(8);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let world = |seed| World::new(Kind::all()[0], Scheme::Kdd, env.clone(), seed);
        let free = world(1);
        let cached = attach(&free, Scheme::Kdd, None).unwrap();
        work(&cached, 1, 30_000);
        assert!(written(&cached) > 2 * granted(&cached), "without a budget: {}", written(&cached));
        assert_eq!((cached.status().budget, cached.status().census.budget_left), (None, None));
        drop(cached);

        let kept = world(2);
        let cached = attach(&kept, Scheme::Kdd, Some(PAGES_A_DAY * PAGE)).unwrap();
        let mut before = 0;
        for seed in 0..10 {
            work(&cached, seed, 3_000);
            let (written, granted) = (written(&cached), granted(&cached));
            assert!(written <= granted + 2, "{written} pages were written, {granted} granted");
            assert!(written > granted * 3 / 4 && written > before, "{written} of {granted} pages were used");
            before = written;
        }
        kept.assert_ledger(&cached);
        let brought = granted(&cached);
        cached.close().unwrap();

        // What was left, or too much, is so after a clean stop.
        let cached = kept.open(&[], OPTIONS);
        assert_eq!(cached.status().budget, Some(PAGES_A_DAY * PAGE));
        assert!(written(&cached) >= before, "the count goes on");
        work(&cached, 11, 10_000);
        let (written, all) = (written(&cached), brought + granted(&cached));
        assert!(written <= all + 6, "{written} pages were written, {all} granted in two openings");
        assert!(written > all * 3 / 4, "{written} of {all}");
        drop(cached); // As in a power cut: nothing is granted for having been cut off.

        let cached = kept.open(&[], OPTIONS);
        assert!(cached.status().emptied.is_some());
        work(&cached, 12, 20_000);
        let (since, granted) = (cached.status().ledger.programmed_total() / PAGE, granted(&cached));
        assert!(since <= granted + 6, "{since} pages were written after the cut, {granted} granted");
        assert!(since > granted / 2, "what was counted ahead was paid for: {since} of {granted}");
    });
}

/// However long nothing was written: a cache's worth is all that may be written at once. After a cut there is what was
/// left before, less what the superblock had counted ahead.
#[test]
fn what_was_not_used_is_kept_up_to_the_cache_s_size() {
    let sim = Sim::new(10);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let world = World::new(Kind::all()[0], Scheme::Kdd, env.clone(), 10);
        let cached = attach(&world, Scheme::Kdd, Some(PAGES_A_DAY * PAGE)).unwrap();
        let left = |cached: &CachedArray| cached.status().census.budget_left.unwrap();
        env.sleep_until(env.now() + Nanos::from_ms(60_000));
        work(&cached, 1, 100);
        let (left_now, most) = (left(&cached), (PAGES * PAGE) as i64);
        assert!(granted(&cached) > 10 * PAGES, "much more was granted");
        assert!(left_now <= most && left_now > most / 2, "{left_now} of {most}");
        cached.close().unwrap();

        let cached = world.open(&[], OPTIONS);
        assert!(left(&cached) > most / 2, "after a clean stop it is so still");
        work(&cached, 2, 100);
        let before = left(&cached);
        drop(cached); // As in a power cut.
        let cached = world.open(&[], OPTIONS);
        assert!(cached.status().emptied.is_some());
        let step = ((DATA_START + PAGES + 1) * PAGE / 8) as i64;
        let after = left(&cached);
        assert!(after <= before && after >= before - step - 8 * PAGE as i64, "{before}, then {after}");
    });
}

/// The superblock counts what was written whenever the power goes, and at most a step more for each time, with what was
/// under way: both copies of two superblocks, a segment, pages of the log. The budget is less by as much.
#[test]
fn a_cut_forgets_nothing_that_was_written() {
    let step = (DATA_START + PAGES + 1) * PAGE / 8;
    vellum_sim::check(0..60, |seed| {
        let sim = Sim::new(seed);
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            let mut rng = rng(seed);
            let (scheme, budget) = match seed % 4 {
                0 => (Scheme::Kdd, Some(1000 * PAGES_A_DAY * PAGE)),
                1 => (Scheme::Kdd, None),
                2 => (Scheme::WriteThrough, None),
                _ => (Scheme::KddPaper, None),
            };
            let mut world = World::new(Kind::all()[seed as usize % 8], scheme, env.clone(), seed);
            if seed % 8 == 3 {
                world = world.with_nvram();
            }
            let (mut written, mut brought, mut cuts) = (0, 0, 0);
            for session in 0..4 {
                let cached = match session {
                    0 => attach_to(&world, scheme, budget),
                    _ => world.open(&[], OPTIONS),
                };
                let was_cut = rng.random_bool(0.7);
                if was_cut {
                    world.rig.power.cut_at(rng.random_range(1..1500));
                }
                work_until_a_cut(&cached, seed * 10 + session);
                let rate = u128::from(1000 * PAGES_A_DAY * PAGE);
                let open_for = u128::from(cached.status().open_for.0);
                brought += (open_for * rate / u128::from(DAY_MS * 1_000_000)) as i64;
                if was_cut {
                    drop(cached)
                } else {
                    cached.close().unwrap()
                }
                written += world.seen.lock().as_ref().unwrap().written.load(Relaxed) * PAGE;
                cuts += u64::from(was_cut);
                world = world.after_cut(seed + session);
                let device: Device = world.ssd.clone();
                let says = examine_cache(&device).unwrap();
                let most = written + cuts * (step + 12 * PAGE);
                assert!((written..=most).contains(&says.written), "{written}..{most}: {}", says.written);
                assert!(
                    budget.is_none() || says.budget_left <= brought - written as i64,
                    "{says:?}, {brought}"
                );
            }
        });
    });
}

fn attach_to(world: &World, scheme: Scheme, budget: Option<u64>) -> CachedArray {
    let format = CacheFormat { ways: 16, segment_pages: Some(4), budget, ..CacheFormat::new(scheme) };
    let nvram = world.nvram.as_ref().map(|nvram| world.rig.device(nvram));
    CachedArray::attach_with_nvram(world.rig.assemble(&[]), world.device(), nvram, &format, OPTIONS).unwrap()
}

/// Requests until they are done or the power goes.
fn work_until_a_cut(cached: &CachedArray, seed: u64) {
    let (mut rng, env) = (rng(seed), cached.env());
    let mut out = [0; SECTOR_BYTES];
    for id in 1..300 {
        let lba = Lba(rng.random_range(0..90));
        let done = match rng.random_bool(0.7) {
            true => cached.write(lba, &content(lba.0, id), false),
            false => cached.read(lba, &mut out),
        };
        if done.is_err() {
            return;
        }
        env.sleep_until(env.now() + Nanos::from_ms(1));
    }
}

#[test]
fn a_budget_that_lets_nothing_in_or_that_nobody_keeps_is_refused() {
    let sim = Sim::new(9);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let world = World::new(Kind::all()[0], Scheme::Kdd, env.clone(), 9);
        let refused = |scheme, budget| attach(&world, scheme, Some(budget)).err().unwrap().to_string();
        assert!(refused(Scheme::Kdd, 0).contains("never written"));
        assert!(refused(Scheme::Kdd, PAGE - 1).contains("never written"));
        assert!(refused(Scheme::WriteThrough, 1 << 30).contains("keeps no budget"));
        attach(&world, Scheme::Kdd, Some(PAGE)).unwrap().close().unwrap();
    });
}
