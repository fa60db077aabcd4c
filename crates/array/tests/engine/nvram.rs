//! A cache with an NVRAM: after a cut at any call it is what it was, every sector is its newest version, parity is
//! right.

use super::world::{Model, World, alone, content, options, run};
use crate::harness::{Kind, Rig, rng};
use rand::Rng;
use rand::rngs::SmallRng;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_array::cache::Scheme;
use vellum_array::cache::engine::{CacheFormat, CacheOptions, CachedArray};
use vellum_array::{Device, LogPlace};
use vellum_base::sync::Mutex;
use vellum_base::{BlockDevice, Env, Lba, SECTOR_BYTES};
use vellum_media::RamDisk;
use vellum_sim::Sim;

const SCHEMES: [Scheme; 2] = [Scheme::KddPaper, Scheme::Kdd];

/// What a crash came to.
#[derive(Default)]
struct Seen {
    was_cut: bool,
    /// Pages that were there after the cut, and rows that went on being stale.
    kept: u64,
    known: u64,
    has_logged: bool,
    generation: u64,
}

/// What goes with the power, or while it is gone.
#[derive(Clone, Copy, PartialEq)]
enum Loss {
    None,
    Ssd,
    Disk,
    /// Sectors of a member's ring cannot be read, one after each cut.
    Ring,
}

impl Loss {
    /// What a cut left, and what went.
    fn after(self, world: World, rng: &mut SmallRng) -> World {
        let role = rng.random_range(0..world.rig.kind.members);
        if self == Loss::Ring && rng.random_bool(0.3) {
            let sectors = 3..world.rig.ring_end();
            world
                .rig
                .disks
                .iter()
                .for_each(|disk| sectors.clone().for_each(|at| disk.make_readable(Lba(at))));
        }
        if self == Loss::Ring && rng.random_bool(0.6) {
            world.rig.disks[role].make_unreadable(Lba(rng.random_range(3..world.rig.ring_end())));
        }
        world
    }
}

/// What is used, and how long until the power goes.
#[derive(Clone, Copy)]
struct Run {
    kind: Kind,
    scheme: Scheme,
    pages: u64,
    seed: u64,
    cut_at: u64,
    steps: usize,
}

impl Run {
    fn new(kind: Kind, scheme: Scheme, seed: u64, cut_at: u64, steps: usize) -> Run {
        Run { kind, scheme, pages: 48, seed, cut_at, steps }
    }
}

/// A cut, perhaps others while it is recovered from, and while the cache is used again.
fn crash(run: Run, loss: Loss) -> Seen {
    let Run { kind, scheme, pages, seed, cut_at, steps } = run;
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let mut rng = rng(seed ^ cut_at << 20);
        let options = CacheOptions { dirty_high: 0.7, ..options(&mut rng) };
        let context = format!("{kind:?}, {scheme:?}, cut at call {cut_at}");
        let world = World::new(kind, scheme, env.clone(), seed).with_pages(pages).with_nvram();
        let cached = Arc::new(world.attach(options));
        let model = Arc::new(Mutex::new(Model::new(cached.info().sectors)));
        world.rig.power.cut_at(cut_at);
        use_until_cut(&world, cached, &model, seed, steps, &context);
        let was_cut = world.rig.power.is_off();
        let mut world = loss.after(world.after_cut(seed + 1), &mut rng);
        let mut in_doubt = world.rows_being_cleaned();
        let (has_logged, generation) = (world.has_logged(), world.nvram_generation());
        for again in 2..4 {
            if rng.random_bool(0.4) {
                world.rig.power.cut_at(rng.random_range(1..80));
                if let Ok(cached) = world.try_open(&[], options) {
                    let _ = cached.clean_all(|_| true);
                }
                world = loss.after(world.after_cut(seed + again), &mut rng);
                in_doubt.append(&mut world.rows_being_cleaned());
            }
            if rng.random_bool(0.5) {
                let cached = Arc::new(world.open(&[], options));
                world.rig.power.cut_at(rng.random_range(1..150));
                let seed = seed + again * 301;
                model.lock().was_cut();
                use_until_cut(&world, cached, &model, seed, steps / 2, &context);
                world = loss.after(world.after_cut(seed), &mut rng);
                in_doubt.append(&mut world.rows_being_cleaned());
            }
        }
        let mut model = Arc::into_inner(model).unwrap().into_inner();
        if loss == Loss::Ssd {
            return without_ssd(&world, model, options, &context);
        }
        let without: Vec<usize> =
            if loss == Loss::Disk { vec![seed as usize % kind.members] } else { vec![] };
        let cached = world.open(&without, options);
        let status = cached.status();
        assert!(status.emptied.is_none() || loss == Loss::Ring, "{context}: {:?}", status.emptied);
        let lost = lost_sectors(&cached, &without, &in_doubt);
        model.settle(&cached, &lost, &context);
        let cleaned = cached.clean_all(|_| true);
        assert!(cleaned.is_ok() || !lost.is_empty(), "{context}: {cleaned:?}");
        model.assert_holds(&cached, &lost, &context);
        if without.is_empty() {
            assert_eq!(cached.status().stale_rows, 0, "{context}");
            cached.close().unwrap();
            world.assert_parity(&mut model, &context);
        }
        let kept = status.census.clean + status.census.old;
        Seen { was_cut, kept, known: status.stale_rows - status.unknown_rows, has_logged, generation }
    })
}

/// Clients until the power goes, or they are done, and the cache is closed.
fn use_until_cut(
    world: &World,
    cached: Arc<CachedArray>,
    model: &Arc<Mutex<Model>>,
    seed: u64,
    steps: usize,
    context: &str,
) {
    run(&cached, &world.rig.env, model, seed, steps, Arc::new(|_| ()));
    let closed = Arc::into_inner(cached).unwrap().close();
    assert!(world.rig.power.is_off() || closed.is_ok(), "{context}: {closed:?}");
}

/// Chunks on a lost disk of rows that were being cleaned when the power went.
pub(super) fn lost_sectors(cached: &CachedArray, without: &[usize], in_doubt: &BTreeSet<u64>) -> Vec<u64> {
    let shape = cached.array().status().shape;
    let stale = cached.array().stale_rows(0, usize::MAX);
    let is_on = |lba: &u64| {
        let piece = shape.pieces(Lba(*lba), 1).next().unwrap();
        stale.contains(&piece.row)
            && in_doubt.contains(&piece.row)
            && without.contains(&shape.member_of(piece.row, piece.column))
    };
    (0..shape.sectors()).filter(is_on).collect()
}

/// The SSD did not come back: the array goes on by force, and stale rows are made anew from data.
fn without_ssd(world: &World, mut model: Model, options: CacheOptions, context: &str) -> Seen {
    let options = CacheOptions { without_cache: true, ..options };
    let cached = CachedArray::open(alone(world, &[]), None, options).unwrap();
    model.settle(&cached, &[], context);
    cached.clean_all(|_| true).unwrap();
    cached.close().unwrap();
    world.assert_parity(&mut model, context);
    // What it has does not count any more.
    let cached = world.open(&[], CacheOptions::default());
    assert!(cached.status().emptied.is_some());
    model.assert_holds(&cached, &[], context);
    Seen::default()
}

#[test]
fn a_cut_at_every_call_of_a_short_run_keeps_the_cache() {
    for (scheme, kind) in [(SCHEMES[0], Kind::all()[2]), (SCHEMES[1], Kind::all()[5])] {
        for cut_at in 1.. {
            if !crash(Run::new(kind, scheme, 5, cut_at, 8), Loss::None).was_cut {
                assert!(cut_at > 20, "{kind:?}: only {cut_at} calls");
                break;
            }
        }
    }
}

#[test]
fn cuts_at_random_calls_of_long_runs_keep_the_cache_warm() {
    let kinds = Kind::all();
    let (kept, known) = (AtomicU64::new(0), AtomicU64::new(0));
    vellum_sim::check(0..200, |seed| {
        let cut_at = rng(seed).random_range(1..1500);
        let seen = crash(
            Run::new(kinds[seed as usize % 8], SCHEMES[seed as usize % 2], seed, cut_at, 80),
            Loss::None,
        );
        kept.fetch_add(seen.kept, Relaxed);
        known.fetch_add(seen.known, Relaxed);
    });
    let (kept, known) = (kept.into_inner(), known.into_inner());
    assert!(kept > 1000 && known > 100, "{kept} pages and {known} rows were there after 200 cuts");
}

/// Pages of the log are written, and halves of the NVRAM become full.
#[test]
fn cuts_of_runs_that_fill_pages_of_the_log_and_halves_keep_the_cache() {
    let kinds = Kind::all();
    let (logged, switched) = (AtomicU64::new(0), AtomicU64::new(0));
    vellum_sim::check(0..40, |seed| {
        let cut_at = rng(seed).random_range(1500..9000);
        let run = Run::new(kinds[[2, 6][seed as usize % 2]], SCHEMES[0], seed, cut_at, 500);
        let seen = crash(Run { pages: 640, ..run }, Loss::None);
        logged.fetch_add(u64::from(seen.has_logged), Relaxed);
        switched.fetch_add(u64::from(seen.generation > 1), Relaxed);
    });
    let (logged, switched) = (logged.into_inner(), switched.into_inner());
    assert!(logged > 10 && switched > 10, "{logged} of 40 runs filled pages of the log, {switched} a half");
}

/// Rows in doubt are made anew from data, whatever the cache has of them, also if the power goes again before that.
#[test]
fn a_log_that_cannot_be_read_costs_nothing_below_a_cache() {
    let kinds: Vec<Kind> = Kind::all().into_iter().filter(|kind| kind.log == LogPlace::Members).collect();
    vellum_sim::check(0..200, |seed| {
        let (scheme, cut_at) = (SCHEMES[seed as usize / 4 % 2], rng(seed).random_range(1..1000));
        crash(Run::new(kinds[seed as usize % kinds.len()], scheme, seed, cut_at, 60), Loss::Ring);
    });
}

#[test]
fn an_ssd_that_does_not_come_back_after_a_cut_costs_nothing() {
    let kinds = Kind::all();
    vellum_sim::check(0..60, |seed| {
        let cut_at = rng(seed).random_range(1..1000);
        crash(Run::new(kinds[seed as usize % 8], SCHEMES[0], seed, cut_at, 60), Loss::Ssd);
    });
}

/// Stale rows are cleaned from deltas: but for rows that were being cleaned, a disk that does not come back costs
/// nothing.
#[test]
fn a_disk_that_does_not_come_back_after_a_cut_costs_nothing_that_the_cache_knows() {
    let kinds = Kind::all();
    vellum_sim::check(0..60, |seed| {
        let cut_at = rng(seed).random_range(1..1000);
        crash(Run::new(kinds[seed as usize % 8], SCHEMES[0], seed, cut_at, 60), Loss::Disk);
    });
}

/// An NVRAM that goes while the cache is in use: the cache is let go, and nothing is lost.
#[test]
fn an_nvram_that_fails_costs_the_cache_and_no_data() {
    vellum_sim::check(0..20, |seed| {
        let sim = Sim::new(seed);
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            let kind = Kind::all()[seed as usize % 8];
            let world = World::new(kind, Scheme::KddPaper, env.clone(), seed).with_nvram();
            let cached = Arc::new(world.attach(options(&mut rng(seed))));
            let model = Arc::new(Mutex::new(Model::new(cached.info().sectors)));
            let nvram = world.nvram.clone().unwrap();
            let event = move |step| {
                if step == 5 + seed as usize % 50 {
                    nvram.lose();
                }
            };
            run(&cached, &env, &model, seed, 60, Arc::new(event));
            let mut model = Arc::into_inner(model).unwrap().into_inner();
            model.assert_holds(&*cached, &[], "failed");
            assert!(cached.status().detached.unwrap().contains("NVRAM"));
            cached.clean_all(|_| true).unwrap();
            Arc::into_inner(cached).unwrap().close().unwrap();
            world.assert_parity(&mut model, "failed");
            let array = alone(&world, &[]);
            let cached = CachedArray::open(array, Some(world.device()), CacheOptions::default()).unwrap();
            assert!(cached.status().emptied.is_some());
        });
    });
}

/// What is trimmed at once has more entries than the NVRAM has room for.
#[test]
fn a_large_trim_does_not_cost_the_cache() {
    let sim = Sim::new(3);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let kind = Kind { chunk_sectors: 64, ..Kind::all()[2] };
        let rig = Rig::of_sectors(1536 + 64 * 64 + 1, kind, env.clone(), 3);
        let (ssd, nvram) = (RamDisk::new(60_000, &rig.power), RamDisk::new(128, &rig.power));
        let ssd: Device = ssd;
        let format = CacheFormat::new(Scheme::KddPaper);
        let attach = CachedArray::attach_with_nvram;
        let nvram = Some(nvram as Device);
        let cached =
            attach(rig.assemble(&[]), ssd.clone(), nvram.clone(), &format, CacheOptions::default()).unwrap();
        let sectors = cached.info().sectors;
        let mut some = vec![0; 256 * SECTOR_BYTES];
        (0..sectors / 256).for_each(|at| cached.read(Lba(at * 256), &mut some).unwrap());
        (0..sectors).step_by(97).for_each(|lba| cached.write(Lba(lba), &content(lba, 1), false).unwrap());
        assert!(cached.status().census.clean + cached.status().census.old > 12_000, "{:?}", cached.status());
        cached.trim(Lba(3), sectors - 7).unwrap();
        assert_eq!(cached.status().detached, None);
        // What is left: but for sector 0, whose page went when its row was cleaned.
        assert_eq!(cached.status().census.clean + cached.status().census.old, 6);
        let out = |cached: &CachedArray, lba| {
            let mut out = vec![1; SECTOR_BYTES];
            cached.read(Lba(lba), &mut out).map(|()| out).unwrap()
        };
        assert!(out(&cached, 0) == content(0, 1) && out(&cached, 97) == [0; SECTOR_BYTES]);
        cached.close().unwrap();
        let open = CachedArray::open_with_nvram;
        let cached = open(rig.assemble(&[]), Some(ssd), nvram, CacheOptions::default()).unwrap();
        assert_eq!(cached.status().emptied, None);
        assert!(out(&cached, 0) == content(0, 1) && out(&cached, 97) == [0; SECTOR_BYTES]);
    });
}

/// A row is cleaned, and one of its sectors read into the cache again, before its data are durable: no disk may go
/// back
/// to what was there before while the cache has what is newer.
#[test]
fn what_is_cached_after_a_row_was_cleaned_is_not_lost_below_the_cache() {
    for seed in 0..24 {
        let sim = Sim::new(seed);
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            let world = World::new(Kind::all()[2], Scheme::KddPaper, env.clone(), seed).with_nvram();
            let cached = world.attach(CacheOptions::default());
            let mut model = Model::new(cached.info().sectors);
            let mut write = |lba, id| {
                model.wrote(lba, id);
                cached.write(Lba(lba), &content(lba, id), false).unwrap();
            };
            write(3, 5);
            cached.flush().unwrap();
            write(3, 10);
            cached.clean_all(|_| true).unwrap();
            cached.read(Lba(3), &mut [0; SECTOR_BYTES]).unwrap();
            env.sleep_until(vellum_base::Nanos(env.now().0 + 1_000_000));
            write(60, 5);
            drop(cached);
            let world = world.after_cut(seed + 1);
            let cached = world.open(&[], CacheOptions::default());
            model.settle(&cached, &[], "cut");
            cached.clean_all(|_| true).unwrap();
            cached.close().unwrap();
            world.assert_parity(&mut model, &format!("seed {seed}"));
        });
    }
}

/// A write that a full disk refused may come back with the array's log: what was read after it is no copy of that.
#[test]
fn what_is_read_of_an_array_that_has_ended_is_not_in_its_cache() {
    for (kind, role) in
        Kind::all().into_iter().flat_map(|kind| (0..kind.members).map(move |role| (kind, role)))
    {
        let sim = Sim::new(1);
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            let world = World::new(kind, SCHEMES[0], env.clone(), 1).with_nvram();
            let cached = world.attach(CacheOptions::default());
            world.rig.disks[role].limit_room(0);
            let write = |lba| cached.write(Lba(lba), &content(lba, 3), false);
            let refused = (0..24).filter(|lba| write(*lba).is_err()).count();
            assert!(refused > 0, "{kind:?}: the disk had room");
            let mut found = vec![0; SECTOR_BYTES];
            (0..24).for_each(|lba| drop(cached.read(Lba(lba), &mut found)));
            env.sleep_until(env.now() + vellum_base::Nanos(1_000_000));
            drop(cached);
            let world = world.after_cut(2);
            let cached = world.open(&[], CacheOptions::default());
            let array = world.rig.fork(3).assemble(&[]);
            let mut below = vec![0; SECTOR_BYTES];
            for lba in (0..24).map(Lba) {
                cached.read(lba, &mut found).unwrap();
                array.read(lba, &mut below).unwrap();
                assert!(found == below, "{kind:?}, disk {role}, sector {lba:?}");
            }
        });
    }
}
