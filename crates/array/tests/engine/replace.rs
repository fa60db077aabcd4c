//! A member's device replaced below a cache, which puts parity off meanwhile.

use super::degraded::with_world;
use super::world::{DATA_START, Model, World, content, options, run};
use crate::harness::{Kind, rng};
use std::sync::Arc;
use vellum_array::cache::Scheme;
use vellum_array::cache::engine::CacheOptions;
use vellum_base::sync::Mutex;
use vellum_base::{BlockDevice, Env, Lba, Nanos};
use vellum_media::RamDisk;
use vellum_sim::Sim;

fn spare(world: &World) -> Arc<RamDisk> {
    RamDisk::new(world.rig.disks[0].info().sectors, &world.rig.power)
}

#[test]
fn a_member_below_a_cache_is_replaced_under_load() {
    vellum_sim::check(0..32, |seed| {
        let kind = Kind::all()[seed as usize % 8];
        let sim = Sim::new(seed);
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            let mut world = World::new(kind, Scheme::Kdd, env.clone(), seed);
            let cached = Arc::new(world.attach(options(&mut rng(seed))));
            let model = Arc::new(Mutex::new(Model::new(cached.info().sectors)));
            let (role, disk) = (seed as usize % kind.members, spare(&world));
            let (copied, new) = (cached.clone(), world.rig.device(&disk));
            let copy = move || assert!(copied.replace(role, new, false, |_| true).unwrap());
            let task = env.clone().spawn("copy", Box::new(copy));
            run(&cached, &env, &model, seed, 90, Arc::new(|_| ()));
            task.join();
            let mut model = Arc::into_inner(model).unwrap().into_inner();
            let context = format!("{kind:?}");
            model.assert_holds(&*cached, &[], &context);
            let cached = Arc::into_inner(cached).unwrap();
            cached.clean_all(|_| true).unwrap();
            cached.close().unwrap();
            world.rig.disks[role] = disk;
            world.assert_parity(&mut model, &context);
        });
    });
}

/// A sector that cannot be read, in a row whose parity was put off: the cache knows what parity lacks.
#[test]
fn a_stale_row_with_a_sector_that_cannot_be_read_is_cleaned_and_copied() {
    for (seed, kind) in (0..).zip(Kind::all()) {
        let sim = Sim::new(seed);
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            let mut world = World::new(kind, Scheme::KddPaper, env.clone(), seed);
            let options = CacheOptions {
                staging_bytes: Some(4096),
                dirty_high: 0.8,
                stale_rows_max: 1000,
                idle_after: Nanos::from_ms(3_600_000),
                ..CacheOptions::default()
            };
            let cached = world.attach(options);
            let mut model = Model::new(cached.info().sectors);
            for (lba, id) in [(7, 1), (7, 6), (8, 1)] {
                cached.write(Lba(lba), &content(lba, id), false).unwrap();
                model.wrote(lba, id);
            }
            cached.flush().unwrap();
            let shape = cached.array().status().shape;
            let piece = shape.pieces(Lba(7), 1).next().unwrap();
            assert!(cached.array().is_stale(piece.row), "{kind:?}");
            let role = shape.member_of(piece.row, piece.column);
            let start =
                vellum_array::examine(&world.rig.device(&world.rig.disks[role])).unwrap().plot.data_start;
            let sector = start + shape.member_sector(piece.row) + u64::from(piece.offset);
            world.rig.disks[role].make_unreadable(Lba(sector));
            let disk = spare(&world);
            assert!(cached.replace(role, world.rig.device(&disk), false, |_| true).unwrap(), "{kind:?}");
            let context = format!("{kind:?}");
            model.assert_holds(&cached, &[], &context);
            cached.clean_all(|_| true).unwrap();
            cached.close().unwrap();
            world.rig.disks[role] = disk;
            world.assert_parity(&mut model, &context);
        });
    }
}

/// So is one of which the cache knows nothing: its parity, a sector of which cannot be read, is made anew.
#[test]
fn a_stale_row_that_the_cache_does_not_know_is_made_anew_and_copied() {
    for (seed, kind) in (0..).zip(Kind::all()) {
        with_world(kind, Scheme::KddPaper, seed, |mut world| {
            let cached = world.attach(super::degraded::options());
            let shape = cached.array().status().shape;
            let mut model = Model::new(shape.sectors());
            cached.array().write_without_parity_update(Lba(0), &content(0, 5), true).unwrap();
            model.wrote(0, 5);
            let role = shape.member_of(0, shape.data_columns());
            world.rig.disks[role].make_unreadable(Lba(DATA_START));
            let disk = spare(&world);
            assert!(cached.replace(role, world.rig.device(&disk), false, |_| true).unwrap(), "{kind:?}");
            cached.clean_all(|_| true).unwrap();
            cached.close().unwrap();
            world.rig.disks[role] = disk;
            world.assert_parity(&mut model, &format!("{kind:?}"));
        });
    }
}
