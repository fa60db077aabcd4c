//! SSD and disks that go, in any order, and pages that cannot be read: what is lost is what the table of 0023 says.

use super::world::{DATA_START, Model, SCHEMES, World, options, run, run_long};
use crate::harness::{Kind, filled, rng};
use crate::rebuild::replace;
use rand::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use vellum_array::LogPlace;
use vellum_array::cache::Scheme;
use vellum_array::cache::engine::{CacheOptions, CachedArray};
use vellum_base::sync::Mutex;
use vellum_base::{BlockDevice, Env, Lba, Nanos, SECTOR_BYTES};
use vellum_media::RamDisk;
use vellum_sim::Sim;

/// Runs tasks while `event` happens to the devices.
fn with_event(
    kind: Kind,
    scheme: Scheme,
    seed: u64,
    event: impl FnOnce(&World) -> Arc<dyn Fn(usize) + Send + Sync>,
    check: impl FnOnce(&World, CachedArray, Model, &str),
) {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let world = World::new(kind, scheme, env.clone(), seed);
        let cached = Arc::new(world.attach(options(&mut rng(seed))));
        let model = Arc::new(Mutex::new(Model::new(cached.info().sectors)));
        run(&cached, &env, &model, seed, 90, event(&world));
        let context = format!("{kind:?}, {scheme:?}");
        let mut model = Arc::into_inner(model).unwrap().into_inner();
        model.assert_holds(&*cached, &[], &context);
        check(&world, Arc::into_inner(cached).unwrap(), model, &context);
    });
}

/// The same, and nothing happens.
fn after_work(kind: Kind, scheme: Scheme, seed: u64, check: impl FnOnce(&World, CachedArray, Model, &str)) {
    with_event(kind, scheme, seed, |_| Arc::new(|_| ()), check);
}

/// All rows can be made whole, and then any disk may go.
fn assert_mended(world: &World, cached: CachedArray, model: &mut Model, context: &str) {
    cached.clean_all(|_| true).unwrap();
    assert_eq!(cached.status().stale_rows, 0, "{context}");
    cached.close().unwrap();
    world.assert_parity(model, context);
}

/// What was flushed is there after a cut from which the disk does not come back.
fn assert_outlives(world: &World, cached: CachedArray, model: &mut Model, role: usize, context: &str) {
    drop(cached);
    let cached = world.after_cut(role as u64).open(&[role], options(&mut rng(role as u64)));
    model.assert_holds(&cached, &[], &format!("{context}, cut, without {role}"));
}

fn at(when: usize, what: impl Fn() + Send + Sync + 'static) -> Arc<dyn Fn(usize) + Send + Sync> {
    Arc::new(move |step| {
        if step == when {
            what();
        }
    })
}

#[test]
fn an_ssd_that_goes_costs_nothing() {
    vellum_sim::check(0..60, |seed| {
        let when = rng(seed).random_range(1..90);
        let event = |world: &World| {
            let ssd = world.ssd.clone();
            at(when, move || if seed % 2 == 0 { ssd.lose() } else { ssd.fail_at(1 + seed % 5) })
        };
        let (kind, scheme) = (Kind::all()[seed as usize % 8], SCHEMES[seed as usize % 5]);
        with_event(kind, scheme, seed, event, |world, cached, mut model, context| {
            assert!(seed % 2 != 0 || when > 80 || cached.status().detached.is_some(), "{context}");
            assert_mended(world, cached, &mut model, context);
        });
    });
}

/// Stale rows are cleaned from deltas, the disk is rebuilt; nothing is lost, whenever it goes.
#[test]
fn a_disk_that_goes_costs_nothing() {
    vellum_sim::check(0..60, |seed| {
        let when = rng(seed).random_range(1..90);
        let kind = Kind::all()[seed as usize % 8];
        let role = seed as usize % kind.members;
        let event = |world: &World| {
            let disk = world.rig.disks[role].clone();
            at(when, move || match seed % 3 {
                0 => disk.fail_at(1 + seed % 7),
                1 => disk.fail_from(1 + seed % 5),
                _ => disk.lose(),
            })
        };
        with_event(kind, SCHEMES[seed as usize % 3], seed, event, |world, cached, mut model, context| {
            cached.flush().unwrap(); // Reads alone cost no disk while rows are stale.
            if cached.array().lost_members() == 0 {
                return assert_mended(world, cached, &mut model, context);
            }
            let new = RamDisk::new(world.ssd.info().sectors + 2000, &world.rig.power);
            let device = world.rig.device(&new);
            let role = cached.array().add(device, false).unwrap();
            let rebuilt = cached.rebuild(false, |_| true).unwrap();
            assert!(rebuilt.complete && rebuilt.lost.is_empty(), "{context}");
            model.assert_holds(&cached, &[], context);
            cached.close().unwrap();
            let mut disks = world.rig.disks.clone();
            disks[role] = new;
            let fork = crate::harness::Rig { disks, log: world.rig.log.clone(), ..world.rig.fork(1) };
            let without = if role == 0 { 1 } else { 0 };
            let array = fork.assemble(&[without]);
            model.assert_holds(&array, &[], &format!("{context}, then without {without}"));
        });
    });
}

/// Its file system is full: nothing is written any more, and with room again the disk is as it was.
#[test]
fn a_disk_without_room_costs_nothing() {
    let full_some = AtomicUsize::new(0);
    vellum_sim::check(0..60, |seed| {
        let kind = Kind::all()[seed as usize % 8];
        let sim = Sim::new(seed);
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            let scheme = SCHEMES[seed as usize % 5];
            let world = World::new(kind, scheme, env.clone(), seed);
            let keeps = matches!(scheme, Scheme::Kdd | Scheme::KddPaper);
            let world = if keeps && seed % 2 == 0 { world.with_nvram() } else { world };
            let cached = Arc::new(world.attach(options(&mut rng(seed))));
            let model = Arc::new(Mutex::new(Model::new(cached.info().sectors)));
            world.rig.disks[seed as usize % kind.members].limit_room(rng(seed).random_range(0..60));
            run(&cached, &env, &model, seed, 90, Arc::new(|_| ()));
            let context = format!("{kind:?}, {scheme:?}");
            let mut model = Arc::into_inner(model).unwrap().into_inner();
            let is_full = cached.array().status().ended.is_some();
            assert_eq!(cached.array().lost_members(), 0, "{context}");
            drop(cached);
            full_some.fetch_add(usize::from(is_full), Relaxed);
            let world = world.after_cut(seed);
            let cached = world.open(&[], options(&mut rng(seed)));
            assert_eq!(cached.array().lost_members(), 0, "{context}");
            model.settle(&cached, &[], &context);
            assert_mended(&world, cached, &mut model, &context);
        });
    });
    assert!(full_some.into_inner() > 30, "hardly a disk was full");
}

/// Sectors on `role` of rows that are stale.
fn stale_sectors(cached: &CachedArray, role: usize) -> Vec<u64> {
    let shape = cached.array().status().shape;
    let stale = cached.array().stale_rows(0, usize::MAX);
    let is_lost = |l: &u64| {
        let piece = shape.pieces(Lba(*l), 1).next().unwrap();
        stale.contains(&piece.row) && shape.member_of(piece.row, piece.column) == role
    };
    (0..shape.sectors()).filter(is_lost).collect()
}

/// What only the cache knows is put to use before the cache is let go of, by force, too.
#[test]
fn an_ssd_that_is_detached_by_force_from_a_degraded_array_costs_nothing() {
    let mut stale_some = 0;
    for seed in 0..20u64 {
        let kind = Kind::all()[seed as usize % 8];
        let role = seed as usize % kind.members;
        after_work(kind, Scheme::KddPaper, seed, |_, cached, mut model, context| {
            cached.array().fail(role).unwrap();
            stale_some += usize::from(cached.status().stale_rows > 0);
            cached.detach_by_force(|_| true).unwrap();
            assert_eq!(cached.status().stale_rows, 0, "{context}");
            model.assert_holds(&cached, &[], context);
            drop(cached);
        });
    }
    assert!(stale_some > 5, "only {stale_some} had stale rows");
}

/// Two losses before rows are whole again: errors that name them are the chunks on that disk of rows that were stale,
/// but for rows whose deltas were all staged still.
#[test]
fn a_disk_and_the_ssd_lose_stale_chunks_of_that_disk_and_nothing_else() {
    let mut lost_some = 0;
    for seed in 0..40u64 {
        let kind = Kind::all()[seed as usize % 8];
        let role = seed as usize % kind.members;
        after_work(kind, Scheme::KddPaper, seed, |world, cached, mut model, context| {
            let lost = stale_sectors(&cached, role);
            // Both at once, before anybody notices; which is noticed first depends on the seed.
            world.ssd.lose();
            world.rig.disks[role].lose();
            if seed % 2 == 0 {
                cached.array().fail(role).unwrap();
            }
            model.settle(&cached, &lost, context);
            let env = cached.env();
            env.sleep_until(env.now() + Nanos(500_000_000));
            let mut out = vec![0; SECTOR_BYTES];
            let row_sectors = cached.array().status().shape.row_sectors();
            let stale = cached.array().stale_rows(0, usize::MAX);
            for l in &lost {
                let row = l / row_sectors;
                let result = cached.read(Lba(*l), &mut out);
                assert_eq!(result.is_err(), stale.contains(&row), "{context}: sector {l}");
                if let Err(error) = result {
                    let named = format!("sectors {l}..{}:", l + 1);
                    assert!(error.to_string().contains(&named), "{context}: {error}");
                    lost_some += 1;
                }
            }
            model.settle(&cached, &lost, context);
            drop(cached);
        });
    }
    assert!(lost_some > 40, "only {lost_some} sectors were at stake");
}

/// Pages of data and deltas that cannot be read, and deltas that have rotted.
#[test]
fn latent_errors_of_the_ssd_cost_nothing() {
    let (mut unreadable, mut recomputed) = (0, 0);
    for seed in 0..60u64 {
        let scheme = SCHEMES[seed as usize % 3];
        let event = |world: &World| -> Arc<dyn Fn(usize) + Send + Sync> {
            let ssd = world.ssd.clone();
            let rng = Mutex::new(rng(seed));
            Arc::new(move |_| {
                let mut rng = rng.lock();
                let sector = Lba(DATA_START + rng.random_range(0..48));
                let mut page = vec![0; SECTOR_BYTES];
                let is_deltas = ssd.read(sector, &mut page).is_ok() && page.starts_with(b"VLMDELTA");
                match rng.random_range(0..4) {
                    0 if is_deltas => ssd.rot(sector, rng.random_range(0..SECTOR_BYTES), 3),
                    1 | 2 => ssd.make_unreadable(sector),
                    _ => {}
                }
            })
        };
        let kind = Kind::all()[seed as usize % 8];
        with_event(kind, scheme, seed, event, |world, cached, mut model, context| {
            cached.clean_all(|_| true).unwrap();
            let status = cached.status();
            assert!(status.detached.is_none(), "{context}");
            (unreadable, recomputed) =
                (unreadable + status.unreadable_pages, recomputed + status.deltas_recomputed);
            cached.close().unwrap();
            // Pages that could not be filled hold what was there before: they do not come back with the cache.
            let cached = world.open(&[], options(&mut rng(seed)));
            model.assert_holds(&cached, &[], context);
            assert_mended(world, cached, &mut model, context);
        });
    }
    assert!(unreadable > 100 && recomputed > 5, "{unreadable} {recomputed}");
}

/// A page of the log that is gone: the cache is empty, stale rows are made anew.
#[test]
fn a_log_that_cannot_be_read_empties_the_cache() {
    for seed in 0..20u64 {
        let kind = Kind::all()[seed as usize % 8];
        after_work(kind, Scheme::KddPaper, seed, |world, cached, mut model, context| {
            cached.close().unwrap();
            match seed % 2 {
                0 => world.ssd.rot(Lba(1), 40, 1),
                _ => world.ssd.make_unreadable(Lba(1)),
            }
            let cached = world.open(&[], options(&mut rng(seed)));
            assert!(cached.status().emptied.unwrap().contains("log"), "{context}");
            model.assert_holds(&cached, &[], context);
            assert_mended(world, cached, &mut model, context);
        });
    }
}

/// An SSD that is not there any more when the array is opened: everything goes on, and no row stays stale.
#[test]
fn an_array_opens_without_its_ssd() {
    for seed in 0..20u64 {
        let kind = Kind::all()[seed as usize % 8];
        after_work(kind, Scheme::KddPaper, seed, |world, cached, mut model, context| {
            cached.close().unwrap();
            let ssd: Option<vellum_array::Device> = match seed % 2 {
                0 => None,
                _ => {
                    world.ssd.lose();
                    Some(world.device())
                }
            };
            let array = world.rig.assemble(&[]);
            let options = CacheOptions { without_cache: true, ..options(&mut rng(seed)) };
            let cached = CachedArray::open(array, ssd, options).unwrap();
            model.assert_holds(&cached, &[], context);
            assert_mended(world, cached, &mut model, context);
        });
    }
}

/// RAID-5, a disk to rebuild, and a sector of another cannot be read: both are zeros, whoever cleans beside it.
#[test]
fn what_is_given_up_is_not_computed_from() {
    let kind = Kind { log: LogPlace::Members, ..Kind::all()[2] };
    for with_ssd in [false, true] {
        let sim = Sim::new(3);
        sim.run(|| {
            let mut world = World::new(kind, Scheme::KddPaper, sim.env(), 3);
            let array = world.rig.assemble(&[]);
            filled(&array);
            let shape = array.status().shape;
            let (row, offset) = (7, 2);
            let (lost, bad) = (shape.member_of(row, 0), shape.member_of(row, 1));
            let cached = match with_ssd {
                true => {
                    array.close().unwrap();
                    world.attach(options(&mut rng(3)))
                }
                false => CachedArray::open(array, None, options(&mut rng(3))).unwrap(),
            };
            let first = row * shape.row_sectors();
            let unreadable = Lba(first + u64::from(kind.chunk_sectors) + offset);
            replace(&mut world.rig, cached.array(), lost);
            world.rig.disks[bad].make_unreadable(Lba(256 + shape.member_sector(row) + offset));
            cached.rebuild(false, |_| true).unwrap_err();
            let rebuilt = cached.rebuild(true, |_| true).unwrap();
            assert_eq!(rebuilt.lost, [first + offset, unreadable.0].map(|lba| lba..lba + 1));
            let mut out = vec![0; SECTOR_BYTES];
            for _ in 0..3 {
                cached.env().sleep_until(cached.env().now() + Nanos(500_000_000));
                cached.read(unreadable, &mut out).unwrap();
                assert!(out == [0; SECTOR_BYTES], "it must not be computed from zeros");
            }
            assert_eq!(cached.array().status().stale_rows, 0);
        });
    }
}

/// A disk goes. What is flushed then is there after a cut, though the cache is empty, and after a cut of the rebuild.
#[test]
fn what_is_flushed_without_a_disk_outlives_a_cut() {
    vellum_sim::check(0..60, |seed| {
        let when = rng(seed).random_range(1..90);
        let kind = Kind::all()[seed as usize % 8];
        let role = seed as usize % kind.members;
        let event = |world: &World| {
            let disk = world.rig.disks[role].clone();
            at(when, move || disk.lose())
        };
        with_event(kind, SCHEMES[seed as usize % 3], seed, event, |world, cached, mut model, context| {
            if cached.array().lost_members() == 0 {
                cached.array().fail(role).unwrap();
            }
            cached.flush().unwrap();
            drop(cached);
            let options = options(&mut rng(seed));
            let mut world = world.after_cut(seed);
            let cached = world.open(&[role], options);
            model.assert_holds(&cached, &[], &format!("{context}, cut without {role}"));

            replace(&mut world.rig, cached.array(), role);
            let stopped = cached.rebuild(false, |progress| progress.rows < progress.of / 2).unwrap();
            assert!(!stopped.complete && stopped.lost.is_empty(), "{context}");
            run_long(&cached, &mut model, seed, 20).unwrap();
            cached.flush().unwrap();
            drop(cached);
            let world = world.after_cut(seed + 1);
            let cached = world.open(&[], options);
            model.assert_holds(&cached, &[], &format!("{context}, cut while {role} was rebuilt"));
            let rebuilt = cached.rebuild(false, |_| true).unwrap();
            assert!(rebuilt.complete && rebuilt.lost.is_empty(), "{context}");
            cached.close().unwrap();
            world.assert_parity(&mut model, context);
        });
    });
}

/// Nobody but the flush finds that a disk has gone, or it is failed by hand, perhaps after a cut that emptied the
/// cache: what was flushed is there after another cut.
#[test]
fn a_flush_that_finds_a_disk_gone_and_who_fails_one_leave_nothing_put_off() {
    let stale_some = AtomicUsize::new(0);
    vellum_sim::check(0..90, |seed| {
        let kind = Kind::all()[seed as usize % 8];
        let role = seed as usize % kind.members;
        let scheme = SCHEMES[seed as usize / 3 % 3];
        after_work(kind, scheme, seed, |world, mut cached, mut model, context| {
            let mut world = world.again();
            if seed % 3 != 0 {
                cached.flush().unwrap();
            }
            if seed % 3 == 2 {
                drop(cached);
                world = world.after_cut(!seed);
                cached = world.open(&[], options(&mut rng(seed)));
            }
            stale_some.fetch_add(usize::from(cached.status().stale_rows > 0), Relaxed);
            if seed % 3 == 0 {
                world.rig.disks[role].lose();
                cached.flush().unwrap();
            } else {
                assert!(!cached.fail(role, |_| false).unwrap());
                assert!(cached.fail(role, |_| true).unwrap());
            }
            assert_eq!((cached.array().lost_members(), cached.status().stale_rows), (1, 0), "{context}");
            assert_outlives(&world, cached, &mut model, role, context);
        });
    });
    assert!(stale_some.into_inner() > 3, "hardly a row was stale");
}

/// Rows are cleaned, and the members know at once: a disk that does not come back after a cut costs none of them.
#[test]
fn what_was_cleaned_outlives_a_cut_that_takes_a_disk() {
    vellum_sim::check(0..40, |seed| {
        let kind = Kind::all()[seed as usize % 8];
        after_work(kind, SCHEMES[seed as usize % 3], seed, |world, cached, mut model, context| {
            cached.flush().unwrap();
            cached.clean_all(|_| true).unwrap();
            assert_outlives(world, cached, &mut model, seed as usize % kind.members, context);
        });
    });
}

/// Parity of a row that is put off cannot be read, and a disk is out. RAID-5: that row's chunk there is lost, and
/// nothing else. RAID-6: nothing, for the other parity is enough.
#[test]
fn parity_that_cannot_be_read_costs_no_more_than_its_row() {
    for (seed, kind) in (0..).zip(Kind::all()) {
        (0..2).for_each(|column| parity_that_cannot_be_read(seed, kind, column));
    }
}

/// Parity can be read at all offsets but one, where the cache has the missing member's sector: nothing is lost. In
/// RAID-6 the parities cannot be read at different offsets.
#[test]
fn a_parity_sector_that_cannot_be_read_costs_no_others() {
    for (seed, kind) in (0..).zip(Kind::all()) {
        let sim = Sim::new(seed);
        sim.run(|| {
            let idle_after = Nanos(1 << 60);
            let world = World::new(kind, Scheme::KddPaper, sim.env(), seed);
            let options =
                CacheOptions { stale_rows_max: 1000, idle_after, dirty_high: 0.9, ..options(&mut rng(seed)) };
            let cached = world.attach(options);
            let mut model = Model::new(cached.info().sectors);
            let (shape, chunk) = (cached.array().status().shape, u64::from(kind.chunk_sectors));
            for (id, lba) in [5, 10].into_iter().flat_map(|id| [0, chunk, chunk + 1].map(|lba| (id, lba))) {
                model.wrote(lba, id);
                cached.write(Lba(lba), &super::world::content(lba, id), false).unwrap();
            }
            for (offset, column) in (0..).zip(shape.data_columns()..shape.members) {
                world.rig.disks[shape.member_of(0, column)].make_unreadable(Lba(DATA_START + offset));
            }
            cached.array().fail(shape.member_of(0, 0)).unwrap();
            cached.clean_all(|_| true).unwrap();
            model.assert_holds(&cached, &[], &format!("{kind:?}"));
            assert_eq!(cached.array().stale_rows(0, 10), [], "{kind:?}");
        });
    }
}

/// Parity of the first two sectors of a column of row 0 was put off, the disk of column 0 goes, and parity of the row
/// cannot be read. What the cache has of column 0 is known; if it has nothing the column is lost in RAID-5.
fn parity_that_cannot_be_read(seed: u64, kind: Kind, column: u64) {
    let idle_after = Nanos(1 << 60);
    let sim = Sim::new(seed);
    sim.run(|| {
        let world = World::new(kind, Scheme::KddPaper, sim.env(), seed);
        let options =
            CacheOptions { stale_rows_max: 1000, idle_after, dirty_high: 0.9, ..options(&mut rng(seed)) };
        let cached = world.attach(options);
        let mut model = Model::new(cached.info().sectors);
        let (shape, chunk) = (cached.array().status().shape, u64::from(kind.chunk_sectors));
        let (first, row_1) = (column * chunk, shape.row_sectors());
        for (id, lba) in [(5, first), (5, first + 1), (10, first), (10, first + 1), (5, row_1), (10, row_1)] {
            model.wrote(lba, id);
            cached.write(Lba(lba), &super::world::content(lba, id), false).unwrap();
        }
        assert_eq!(cached.array().stale_rows(0, 10), [0, 1]);
        let (role, parity) = (shape.member_of(0, 0), shape.member_of(0, shape.data_columns()));
        (0..chunk).for_each(|offset| world.rig.disks[parity].make_unreadable(Lba(DATA_START + offset)));
        cached.array().fail(role).unwrap();
        let env = cached.env();
        env.sleep_until(env.now() + Nanos(500_000_000));
        let cleaned = cached.clean_all(|_| true);
        let is_raid6 = shape.members - shape.data_columns() == 2;
        assert_eq!(cleaned.is_ok(), is_raid6 || column == 0, "{kind:?}, {column}: {cleaned:?}");
        let known = if column == 0 { 2 } else { 0 };
        let lost: Vec<u64> = if is_raid6 { Vec::new() } else { (known..chunk).collect() };
        model.assert_holds(&cached, &lost, &format!("{kind:?}, {column}"));
        let mut out = vec![0; SECTOR_BYTES];
        for sector in 0..chunk {
            let is_there = cached.read(Lba(sector), &mut out).is_ok();
            assert_eq!(is_there, !lost.contains(&sector), "{kind:?}, {column}, sector {sector}");
        }
        cached.write(Lba(row_1), &super::world::content(9, 9), false).unwrap();
    });
}
