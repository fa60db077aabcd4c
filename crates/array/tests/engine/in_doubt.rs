//! What nobody knows below a cache with an NVRAM after a cut: parity of rows whose records cannot be read, and pages
//! that were filled from data which were not durable.

use super::world::{Model, World, content};
use crate::harness::{Hooked, Kind, no_hook};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum_array::cache::Scheme;
use vellum_array::cache::engine::{CacheOptions, CachedArray};
use vellum_array::{Level, LogPlace, Options, assemble};
use vellum_base::{BlockDevice, Env, Lba, Nanos, SECTOR_BYTES};
use vellum_sim::Sim;

const KIND: Kind = Kind { level: Level::Raid5, members: 4, chunk_sectors: 4, log: LogPlace::Members };

fn with_world(seed: u64, test: impl FnOnce(World, Arc<dyn Env>)) {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| test(World::new(KIND, Scheme::KddPaper, env.clone(), seed).with_nvram(), env.clone()));
}

/// Sectors 1, 5 and 9 are one above the other in row 0. Of the first the cache has a delta, the second is written with
/// its parity when the power goes, and the record of that cannot be read. A parity update by the delta would make the
/// third wrong, which was flushed long ago.
#[test]
fn a_row_in_doubt_is_made_anew_whatever_deltas_the_cache_has_of_it() {
    let mut cuts = 0;
    for cut_at in 1..30 {
        with_world(cut_at, |world, _| {
            let cached = world.attach(CacheOptions::default());
            let mut model = Model::new(cached.info().sectors);
            let write = |cached: &CachedArray, model: &mut Model, lba, id| {
                model.wrote(lba, id);
                cached.write(Lba(lba), &content(lba, id), false)
            };
            for (lba, id) in [(1, 1), (9, 1), (1, 6)] {
                write(&cached, &mut model, lba, id).unwrap();
            }
            cached.flush().unwrap();
            (0..3).for_each(|task| model.flushed(task));
            assert_eq!((cached.status().stale_rows, cached.status().unknown_rows), (1, 0));
            let shape = cached.array().status().shape;
            world.rig.power.cut_at(cut_at);
            let was_cut = write(&cached, &mut model, 5, 4).is_err();
            drop(cached);
            cuts += u64::from(was_cut);
            // Then the power goes again, or not, in the opening that finds it so.
            let again = (20..80).step_by(2).map(Some).chain([None]);
            for (seed, call) in (0..6).flat_map(|seed| again.clone().map(move |call| (seed, call))) {
                if !was_cut || seed < 5 && call.is_some() {
                    continue;
                }
                let (world, mut model) = (world.after_cut(seed), model.clone());
                let p = &world.rig.disks[shape.member_of(0, shape.data_columns())];
                (5..21).for_each(|at| p.make_unreadable(Lba(at)));
                let context = format!("cut at call {cut_at}, seed {seed}, then at {call:?}");
                let world = call.map_or_else(|| world.again(), |call| cut_in_an_opening(&world, call));
                if call.is_some_and(|call| call % 4 == 0) {
                    // They can be read again: what was found is not forgotten.
                    let p = &world.rig.disks[shape.member_of(0, shape.data_columns())];
                    (5..21).for_each(|at| p.make_readable(Lba(at)));
                }
                let cached = world.open(&[], CacheOptions::default());
                let status = cached.status();
                assert_eq!(status.emptied, None, "{context}");
                let unknown = shape.rows.div_ceil(4);
                assert!(call.is_some() || status.unknown_rows == unknown, "{context}: rows of one parity");
                model.settle(&cached, &[], &context);
                cached.clean_all(|_| true).unwrap();
                cached.close().unwrap();
                world.assert_parity(&mut model, &context);
            }
        });
    }
    assert!(cuts >= 4, "only {cuts} calls of the write were cut");
}

fn cut_in_an_opening(world: &World, call: u64) -> World {
    world.rig.power.cut_at(call);
    drop(world.try_open(&[], CacheOptions::default()));
    world.after_cut(call)
}

/// Without a cache, and under load: when the last row in doubt is whole again the members hear of it, or a member that
/// is lost with the power would cost a chunk of each.
#[test]
fn marks_of_rows_in_doubt_go_under_load() {
    let sim = Sim::new(4);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let world = World::new(KIND, Scheme::KddPaper, env.clone(), 4);
        let array = world.rig.assemble(&[]);
        (0..24).for_each(|lba| array.write(Lba(lba), &content(lba, 1), false).unwrap());
        drop(array);
        let world = world.after_cut(4);
        world.rig.disks[0].make_unreadable(Lba(5));
        let options = CacheOptions { idle_after: Nanos::from_secs_f64(1e6), ..CacheOptions::default() };
        let cached = CachedArray::open(world.rig.assemble(&[]), None, options).unwrap();
        assert!(cached.status().stale_rows > 0);
        let mut writes = 0;
        while cached.status().stale_rows > 0 || writes < 100 {
            cached.write(Lba(writes % 24), &content(writes % 24, 2), false).unwrap();
            writes += 1;
        }
        let mut bitmap = vec![0; SECTOR_BYTES];
        for disk in &world.rig.disks {
            disk.read(Lba(2), &mut bitmap).unwrap();
            assert!(bitmap.starts_with(b"VLMBITMP") && bitmap[32..].iter().all(|byte| *byte == 0));
        }
    });
}

/// A row is to be cleaned, so its old page is dropped. Before its data are flushed, one of its sectors is read into the
/// cache again, and then the power goes: the disk may go back to what it had before, and the page must not be newer.
#[test]
fn a_page_that_was_filled_from_data_that_were_not_durable_goes_with_the_power() {
    with_world(620, |world, env| {
        // Flushes of the disk that has the sector wait while they are held.
        let (is_held, has_come) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (held, come, waits) = (is_held.clone(), has_come.clone(), env.clone());
        let before_change = move |sectors: &Range<u64>| {
            while sectors.is_empty() && held.load(Relaxed) {
                come.store(true, Relaxed);
                waits.sleep_until(Nanos(waits.now().0 + 1000));
            }
            Ok(())
        };
        let mut devices = world.rig.devices(&[1]);
        devices.push(Arc::new(Hooked {
            disk: world.rig.disks[1].clone(),
            before_change: Box::new(before_change),
            before_read: no_hook(),
        }));
        let array = assemble(&devices, None, env.clone(), Options::default()).unwrap();
        assert_eq!(array.status().shape.member_of(0, 1), 1, "it has sector 5");
        let cached = Arc::new(world.attach_to(array, CacheOptions::default()));
        let mut model = Model::new(cached.info().sectors);
        model.wrote(5, 1);
        cached.write(Lba(5), &content(5, 1), false).unwrap();
        cached.flush().unwrap();
        model.flushed(5 % super::world::TASKS);
        model.wrote(5, 6);
        cached.write(Lba(5), &content(5, 6), false).unwrap();
        assert_eq!((cached.status().census.old, cached.status().stale_rows), (1, 1));

        is_held.store(true, Relaxed);
        let cleaner = cached.clone();
        let cleans = move || drop(cleaner.clean_all(|_| true).unwrap_err());
        let cleans = env.clone().spawn("cleans", Box::new(cleans));
        let pause = || env.sleep_until(Nanos(env.now().0 + 2_000_000));
        pause();
        assert!(has_come.load(Relaxed), "the data of the row are being flushed");
        let mut found = vec![0; SECTOR_BYTES];
        cached.read(Lba(5), &mut found).unwrap();
        assert!(found == content(5, 6));
        pause();
        assert_eq!((cached.status().census.old, cached.status().census.clean), (0, 1));
        // With what this is told the NVRAM hears that the page was filled.
        model.wrote(60, 1);
        cached.write(Lba(60), &content(60, 1), false).unwrap();
        world.rig.power.cut_at(1);
        is_held.store(false, Relaxed);
        cleans.join();
        drop(cached);
        let mut left = [0, 0];
        for seed in 0..12 {
            let (world, mut model) = (world.after_cut(seed), model.clone());
            let cached = world.open(&[], CacheOptions::default());
            assert_eq!(cached.status().emptied, None);
            model.settle(&cached, &[], "cut");
            left[usize::from(model.last(5) == 6)] += 1;
            cached.clean_all(|_| true).unwrap();
            cached.close().unwrap();
            world.assert_parity(&mut model, &format!("seed {seed}"));
        }
        assert!(left.iter().all(|count| *count > 0), "the disk went back, or did not: {left:?}");
    });
}
