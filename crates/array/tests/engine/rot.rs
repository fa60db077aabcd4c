//! Pages of the SSD that are not what was written there, which the SSD does not say: whatever it is, the array's data
//! are read, and parity is right. An opening that has sectors to write again may not find what it foresaw: it foresees
//! without reading pages.

use super::world::{DATA_START, DEFERRING, Model, PAGES, SCHEMES, World, content, lazy, options, run};
use crate::harness::{Kind, rng};
use rand::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_array::Repair;
use vellum_array::cache::Scheme;
use vellum_array::cache::engine::CachedArray;
use vellum_base::sync::Mutex;
use vellum_base::{BlockDevice, Env, Lba, Nanos, SECTOR_BYTES};
use vellum_sim::Sim;

/// All schemes, and with an NVRAM those that keep one.
const CACHES: [(Scheme, bool); 8] = [
    (SCHEMES[0], false),
    (SCHEMES[1], false),
    (SCHEMES[2], false),
    (SCHEMES[3], false),
    (SCHEMES[4], false),
    (SCHEMES[5], false),
    (SCHEMES[0], true),
    (SCHEMES[1], true),
];

fn with_world(kind: Kind, (scheme, has_nvram): (Scheme, bool), seed: u64, test: impl FnOnce(World)) {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let world = World::new(kind, scheme, env.clone(), seed);
        test(if has_nvram { world.with_nvram() } else { world });
    });
}

/// A cache of clean pages and old ones, with deltas in pages and staged.
fn filled(world: &World) -> (CachedArray, Model) {
    let cached = world.attach(lazy());
    let mut model = Model::new(cached.info().sectors);
    let lbas = || (0..cached.info().sectors).step_by(5).take(PAGES as usize / 2);
    for (round, lba) in (1..6).flat_map(|round| lbas().map(move |lba| (round, lba))) {
        cached.read(Lba(lba), &mut [0; SECTOR_BYTES]).unwrap();
        if round == 1 || round % 2 == 1 && lba % 2 == 0 {
            model.wrote(lba, round * 5 + 1);
            cached.write(Lba(lba), &content(lba, round * 5 + 1), false).unwrap();
        }
    }
    (0..3).for_each(|task| model.flushed(task));
    cached.flush().unwrap();
    cached.env().sleep_until(cached.env().now() + Nanos(1_000_000));
    (cached, model)
}

/// Changes something in each page.
fn rot_all(world: &World) {
    (0..PAGES).for_each(|page| world.ssd.rot(Lba(DATA_START + page), page as usize * 85, 1 << (page % 8)));
}

/// Every sector is read right, twice; rows are cleaned and parity is right.
fn assert_well(world: &World, cached: CachedArray, model: &mut Model, context: &str) -> u64 {
    (0..2).for_each(|_| model.assert_holds(&cached, &[], context));
    cached.clean_all(|_| true).unwrap();
    let scrubbed = cached.scrub(Repair::None, |_| true).unwrap();
    assert_eq!((scrubbed.mismatches, scrubbed.stale_rows), (0, 0), "{context}");
    let wrong = cached.status().wrong_pages;
    cached.close().unwrap();
    world.assert_parity(model, context);
    wrong
}

#[test]
fn what_rots_while_a_cache_is_open_is_read_from_the_array() {
    for (kind, cache) in Kind::all().into_iter().flat_map(|kind| CACHES.map(|cache| (kind, cache))) {
        with_world(kind, cache, 1, |world| {
            let (cached, mut model) = filled(&world);
            rot_all(&world);
            let wrong = assert_well(&world, cached, &mut model, &format!("{kind:?}, {cache:?}"));
            assert!(wrong > 0, "{kind:?}, {cache:?}");
        });
    }
}

/// Rows are cleaned before anything is read: deltas that cannot be read are made again from what is sound, or parity
/// from data.
#[test]
fn what_rots_does_not_go_into_parity() {
    for (kind, cache) in Kind::all().into_iter().flat_map(|kind| CACHES.map(|cache| (kind, cache))) {
        with_world(kind, cache, 2, |world| {
            let (cached, mut model) = filled(&world);
            let context = format!("{kind:?}, {cache:?}");
            let stale = cached.status().stale_rows;
            assert_eq!(stale > 2, DEFERRING.contains(&cache.0), "{context}: {stale}");
            rot_all(&world);
            cached.clean_all(|_| true).unwrap();
            assert_well(&world, cached, &mut model, &context);
        });
    }
}

/// What a write finds is no base, and nothing comes of it.
#[test]
fn what_rots_is_nobodys_base() {
    for cache in CACHES {
        with_world(Kind::all()[1], cache, 3, |world| {
            let (cached, mut model) = filled(&world);
            rot_all(&world);
            for lba in (0..cached.info().sectors).step_by(5).take(PAGES as usize / 2) {
                model.wrote(lba, 31);
                cached.write(Lba(lba), &content(lba, 31), false).unwrap();
            }
            assert_well(&world, cached, &mut model, &format!("{cache:?}"));
        });
    }
}

/// What the log, the NVRAM and the heads of deltas say of pages is what they held. Odd rounds write to sectors whose
/// pages were found old, before anything else reads them.
#[test]
fn what_rots_while_a_cache_is_closed_or_off_is_read_from_the_array() {
    for (cache, round) in CACHES.into_iter().flat_map(|cache| (0..4).map(move |round| (cache, round))) {
        with_world(Kind::all()[round % 2], cache, 4, |world| {
            let context = format!("{cache:?}, {round}");
            let (cached, mut model) = filled(&world);
            let is_cut = cache.1 && round >= 2;
            if is_cut {
                drop(cached)
            } else {
                cached.close().unwrap()
            }
            let world = if is_cut { world.after_cut(9) } else { world };
            rot_all(&world);
            let cached = world.try_open(&[], lazy()).unwrap();
            assert_eq!(cached.status().emptied, None, "{context}");
            let census = cached.status().census;
            assert!(census.clean + census.old >= 10, "{context}: {census:?}");
            if round % 2 == 1 {
                for lba in (0..cached.info().sectors).step_by(10).take(PAGES as usize / 4) {
                    model.wrote(lba, 32);
                    cached.write(Lba(lba), &content(lba, 32), false).unwrap();
                }
            }
            let wrong = assert_well(&world, cached, &mut model, &context);
            assert!(wrong > 0, "{context}");
        });
    }
}

/// Nothing rots: all of it is in the cache after a close and after a cut, and is found to be what it was.
#[test]
fn what_is_sound_is_found_so_after_a_close_and_after_a_cut() {
    for (cache, is_cut) in CACHES.into_iter().flat_map(|cache| [(cache, false), (cache, cache.1)]) {
        with_world(Kind::all()[1], cache, 5, |world| {
            let (cached, mut model) = filled(&world);
            if is_cut {
                drop(cached)
            } else {
                cached.close().unwrap()
            }
            let world = if is_cut { world.after_cut(9) } else { world };
            let cached = world.open(&[], lazy());
            for lba in (0..cached.info().sectors).step_by(5).take(PAGES as usize / 2) {
                cached.read(Lba(lba), &mut [0; SECTOR_BYTES]).unwrap();
            }
            let status = cached.status();
            assert_eq!((status.wrong_pages, status.unreadable_pages), (0, 0), "{cache:?}, {is_cut}");
            assert!(status.read_hits >= 10, "{cache:?}, {is_cut}: {status:?}");
            assert_eq!(assert_well(&world, cached, &mut model, "found"), 0);
        });
    }
}

/// A write that the SSD calls done and does not do: the page has an earlier content, which was right once.
#[test]
fn a_write_that_was_lost_is_found_out() {
    with_world(Kind::all()[1], (Scheme::WriteThrough, false), 6, |world| {
        let cached = world.attach(lazy());
        let mut model = Model::new(cached.info().sectors);
        let write = |model: &mut Model, id| {
            (0..10).for_each(|lba| {
                model.wrote(lba, id);
                cached.write(Lba(lba), &content(lba, id), false).unwrap();
            });
            cached.env().sleep_until(cached.env().now() + Nanos(1_000_000));
        };
        write(&mut model, 1);
        let before = world.ssd.fork(&world.rig.power);
        write(&mut model, 2);
        let mut sector = [0; SECTOR_BYTES];
        for at in (DATA_START..DATA_START + PAGES).map(Lba) {
            before.read(at, &mut sector).unwrap();
            world.ssd.write(at, &sector, true).unwrap();
        }
        assert!(assert_well(&world, cached, &mut model, "lost writes") >= 10);
    });
}

/// Entries of the log that call a page clean: those that say what it holds, and those that do not
/// (docs/formats/array.md).
pub fn logged_sums(world: &World) -> (u64, u64) {
    let (mut sector, mut with, mut without) = ([0; SECTOR_BYTES], 0, 0);
    for at in 1..DATA_START {
        world.ssd.read(Lba(at), &mut sector).unwrap();
        let entries = if sector.starts_with(b"VLMCLOGP") { usize::from(sector[12]) } else { 0 };
        for entry in sector[48..].chunks(16).take(entries).filter(|entry| entry[8] >> 6 == 1) {
            *if entry[12..] == [0xFF; 4] { &mut without } else { &mut with } += 1;
        }
    }
    (with, without)
}

/// Anything rots at any time, while the power goes or the cache is closed, or after that; returns what its log had then
/// (`logged_sums`).
fn rots(kind: Kind, cache: (Scheme, bool), seed: u64, pages: u64, steps: usize, cut_at: u64) -> (u64, u64) {
    let mut logged = (0, 0);
    with_world(kind, cache, seed, |world| {
        let (world, mut random) = (world.with_pages(pages), rng(seed));
        let context = format!("{kind:?}, {cache:?}, cut at call {cut_at}");
        let options = options(&mut random);
        let cached = Arc::new(world.attach(options));
        let model = Arc::new(Mutex::new(Model::new(cached.info().sectors)));
        world.rig.power.cut_at(cut_at);
        let (ssd, rotting) = (world.ssd.clone(), Mutex::new(rng(seed + 1)));
        let rots = move |_| {
            let mut rng = rotting.lock();
            if rng.random_bool(0.4) {
                let page = Lba(DATA_START + rng.random_range(0..pages));
                ssd.rot(page, rng.random_range(0..SECTOR_BYTES), 1 << rng.random_range(0..8));
            }
        };
        run(&cached, &world.rig.env.clone(), &model, seed, steps, Arc::new(rots));
        let closed = Arc::into_inner(cached).unwrap().close();
        assert!(world.rig.power.is_off() || closed.is_ok(), "{context}: {closed:?}");
        let world = world.after_cut(seed + 2);
        logged = logged_sums(&world);
        if random.random_bool(0.5) {
            rot_all(&world);
        }
        let cached = world.try_open(&[], options).unwrap();
        let mut model = Arc::into_inner(model).unwrap().into_inner();
        model.settle(&cached, &[], &context);
        assert_well(&world, cached, &mut model, &context);
    });
    logged
}

#[test]
fn rot_at_random_moments_is_never_read_nor_in_parity() {
    let kinds = Kind::all();
    vellum_sim::check(0..256, |seed| {
        let cut_at = if seed / 64 % 2 == 0 { u64::MAX / 2 } else { rng(seed).random_range(50..900) };
        rots(kinds[seed as usize / 8 % kinds.len()], CACHES[seed as usize % 8], seed, PAGES, 60, cut_at);
    });
}

/// Pages of the log are written while pages that they are of are being filled. Only what was given up meanwhile has no
/// checksum there.
#[test]
fn what_rots_is_found_out_by_pages_of_the_log() {
    let (kinds, cache) = (Kind::all(), (Scheme::KddPaper, true));
    let (with, without) = (AtomicU64::new(0), AtomicU64::new(0));
    vellum_sim::check(0..24, |seed| {
        let cut_at = rng(seed).random_range(1500..9000);
        let logged = rots(kinds[[2, 6][seed as usize % 2]], cache, seed, 640, 500, cut_at);
        with.fetch_add(logged.0, Relaxed);
        without.fetch_add(logged.1, Relaxed);
    });
    let (with, without) = (with.into_inner(), without.into_inner());
    assert!(with > 50 && without * 500 < with, "{with} pages had a checksum in the log, {without} had none");
}
