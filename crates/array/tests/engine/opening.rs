//! An array that was closed with a cache is not opened without it but by force; what is refused changes nothing.

use super::world::{World, alone, content};
use crate::harness::Kind;
use std::sync::Arc;
use vellum_array::Device;
use vellum_array::cache::Scheme;
use vellum_array::cache::engine::{CacheFormat, CacheOptions, CachedArray, examine_cache};
use vellum_base::{BlockDevice, Env, Kind as ErrorKind, Lba};
use vellum_media::RamDisk;
use vellum_sim::Sim;

/// An array whose cache was closed with pages in it, and how many.
fn closed(test: impl FnOnce(&World, u64)) {
    let sim = Sim::new(8);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let world = World::new(Kind::all()[2], Scheme::KddPaper, env, 8);
        let cached = world.attach(CacheOptions::default());
        (0..12).for_each(|lba| cached.write(Lba(lba), &content(lba, 5), false).unwrap());
        let kept = cached.status().census.clean;
        assert_eq!(kept, 12);
        cached.close().unwrap();
        test(&world, kept);
    });
}

fn refusal(world: &World, ssd: Option<Device>) -> String {
    let error = CachedArray::open(alone(world, &[]), ssd, CacheOptions::default()).err();
    let error = error.expect("it must be refused");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    error.to_string()
}

/// The cache has what it had.
fn assert_kept(world: &World, kept: u64) {
    let cached = world.open(&[], CacheOptions::default());
    assert_eq!((cached.status().emptied, cached.status().census.clean), (None, kept));
    cached.close().unwrap();
}

#[test]
fn without_its_ssd_it_is_refused_and_the_cache_stays_as_it_was() {
    closed(|world, kept| {
        let text = refusal(world, None);
        assert!(text.contains("no SSD is named") && text.contains("by force"), "{text}");
        let gone = RamDisk::new(500, &world.rig.power);
        gone.lose();
        let text = refusal(world, Some(gone));
        assert!(text.contains("cannot be read") && text.contains("by force"), "{text}");
        assert_kept(world, kept);
    });
}

#[test]
fn with_another_array_s_ssd_it_is_refused_and_the_cache_stays_as_it_was() {
    closed(|world, kept| {
        let other = World::new(Kind::all()[2], Scheme::KddPaper, world.rig.env.clone(), 9);
        other.attach(CacheOptions::default()).close().unwrap();
        let text = refusal(world, Some(other.device()));
        assert!(text.contains("the cache of array"), "{text}");
        assert_kept(world, kept);
        assert_kept(&other, 0);
    });
}

#[test]
fn with_an_earlier_copy_of_its_ssd_it_is_refused() {
    closed(|world, kept| {
        let copy = world.ssd.fork(&world.rig.power);
        assert_kept(world, kept);
        let text = refusal(world, Some(copy));
        assert!(text.contains("an earlier state"), "{text}");
        assert_kept(world, kept);
    });
}

#[test]
fn a_second_cache_is_refused() {
    closed(|world, kept| {
        let new = RamDisk::new(500, &world.rig.power);
        let format = CacheFormat::new(Scheme::Kdd);
        let error = CachedArray::attach(alone(world, &[]), new, &format, CacheOptions::default()).err();
        assert!(error.unwrap().to_string().contains("has a cache already"));
        assert_kept(world, kept);
    });
}

#[test]
fn an_array_that_was_only_looked_at_keeps_its_cache_and_one_that_was_changed_does_not() {
    closed(|world, kept| {
        let array = alone(world, &[]);
        array.read(Lba(0), &mut [0; 4096]).unwrap();
        array.close().unwrap();
        assert_kept(world, kept);
        let array = alone(world, &[]);
        array.write(Lba(3), &content(3, 6), false).unwrap();
        drop(array);
        let cached = world.open(&[], CacheOptions::default());
        assert!(cached.status().emptied.unwrap().contains("without its cache"));
        let mut out = vec![0; 4096];
        cached.read(Lba(3), &mut out).unwrap();
        assert!(out == content(3, 6));
    });
}

#[test]
fn by_force_it_goes_on_without_it_and_the_cache_does_not_count_any_more() {
    closed(|world, _| {
        let options = CacheOptions { without_cache: true, ..CacheOptions::default() };
        let cached = CachedArray::open(alone(world, &[]), None, options).unwrap();
        cached.close().unwrap();
        let cached = world.open(&[], CacheOptions::default());
        assert!(cached.status().emptied.unwrap().contains("without its cache"));
    });
}

/// A file that was emptied, beside members that no cache has anything of: nothing is lost by going on.
#[test]
fn an_ssd_without_a_sector_is_gone_on_without_if_nothing_counts_that_it_held() {
    closed(|world, _| {
        let empty: Device = RamDisk::new(0, &world.rig.power);
        let text = refusal(world, Some(empty.clone()));
        assert!(text.contains("it has no sectors") && text.contains("by force"), "{text}");
        drop(world.open(&[], CacheOptions::default())); // Members name no cache while it is open.
        let cached = CachedArray::open(alone(world, &[]), Some(empty), CacheOptions::default()).unwrap();
        assert!(cached.status().emptied.unwrap().contains("it has no sectors"));
        let mut found = vec![0; 4096];
        cached.read(Lba(3), &mut found).unwrap();
        assert!(found == content(3, 5));
        cached.close().unwrap();
    });
}

/// An SSD that is another's, cut short or garbage is refused, and by force not touched.
#[test]
fn by_force_it_goes_on_whatever_the_ssd_is() {
    for what in ["another array", "cut short", "neither"] {
        closed(|world, _| {
            let other: Device = match what {
                "another array" => {
                    let other = World::new(Kind::all()[0], Scheme::Kdd, world.rig.env.clone(), 77);
                    other.attach(CacheOptions::default()).close().unwrap();
                    other.ssd
                }
                "cut short" => {
                    let short = RamDisk::new(world.ssd.info().sectors - 1, &world.rig.power);
                    let mut first = vec![0; 4096];
                    world.ssd.read(Lba(0), &mut first).unwrap();
                    short.write(Lba(0), &first, true).unwrap();
                    short
                }
                _ => RamDisk::new(64, &world.rig.power),
            };
            let mut before = vec![0; other.info().bytes() as usize];
            other.read(Lba(0), &mut before).unwrap();
            let open = |without_cache| {
                let options = CacheOptions { without_cache, ..CacheOptions::default() };
                CachedArray::open(alone(world, &[]), Some(other.clone()), options)
            };
            assert!(open(false).is_err(), "{what}");
            let cached = open(true).unwrap();
            cached.write(Lba(1), &content(1, 9), false).unwrap();
            assert!(cached.status().emptied.is_some(), "{what}");
            cached.close().unwrap();
            let mut after = vec![0; before.len()];
            other.read(Lba(0), &mut after).unwrap();
            assert!(before == after, "{what} was written to");
        });
    }
}

/// What is clean is read from the SSD after a clean stop, whatever the policy; after a cut nothing is.
#[test]
fn every_policy_keeps_its_cache_over_a_clean_stop_and_none_over_a_cut() {
    let sim = Sim::new(8);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        for scheme in
            [Scheme::WriteAround, Scheme::WriteThrough, Scheme::Larc, Scheme::Leavo, Scheme::KddPaper]
        {
            let world = World::new(Kind::all()[2], scheme, env.clone(), 8);
            let cached = world.attach(CacheOptions::default());
            // Twice, so that LeavO has old versions and new ones.
            for id in [1, 6] {
                for lba in 0..12 {
                    cached.write(Lba(lba), &content(lba, id), false).unwrap();
                }
            }
            let mut all = vec![0; 12 * 4096];
            cached.read(Lba(0), &mut all).unwrap();
            cached.close().unwrap();
            let read_hits = |cached: &CachedArray, all: &[u8]| {
                let mut found = vec![0; 12 * 4096];
                cached.read(Lba(0), &mut found).unwrap();
                assert!(found == all, "{scheme:?}");
                cached.status().read_hits
            };
            let cached = world.open(&[], CacheOptions::default());
            assert_eq!((cached.status().emptied, read_hits(&cached, &all)), (None, 12), "{scheme:?}");
            cached.write(Lba(3), &content(3, 7), false).unwrap();
            all[3 * 4096..4 * 4096].copy_from_slice(&content(3, 7));
            cached.flush().unwrap();
            drop(cached);
            let world = world.after_cut(9);
            let cached = world.open(&[], CacheOptions::default());
            assert!(cached.status().emptied.is_some());
            assert_eq!(read_hits(&cached, &all), 0, "{scheme:?}");
            cached.clean_all(|_| true).unwrap();
        }
    });
}

/// A log with what the policy cannot have: the cache is empty, and nothing is wrong.
#[test]
fn a_log_of_another_policy_makes_the_cache_empty() {
    closed(|world, _| {
        let ssd = world.ssd.fork(&world.rig.power);
        let device: Device = ssd.clone();
        let mut superblock = examine_cache(&device).unwrap();
        superblock.plot.ways = 8;
        for sector in [0, superblock.plot.ssd_sectors - 1] {
            ssd.write(Lba(sector), &superblock.encode(), true).unwrap();
        }
        let cached = CachedArray::open(alone(world, &[]), Some(ssd), CacheOptions::default()).unwrap();
        assert!(cached.status().emptied.unwrap().contains("another set"));
        let mut found = vec![0; 4096];
        cached.read(Lba(3), &mut found).unwrap();
        assert!(found == content(3, 5));
    });
}

/// The last writes of a detach fail: the array has no cache any more, and its owner hears what the SSD still says.
#[test]
fn an_ssd_that_cannot_be_told_that_it_was_detached_is_reported() {
    for failing in 1..=3 {
        closed(|world, _| {
            let cached = world.open(&[], CacheOptions::default());
            world.ssd.fail_at(failing);
            let error = cached.detach(|_| true).unwrap_err();
            assert!(error.to_string().contains("wipe it"), "{error}");
            assert!(
                cached.status().detached.is_some() && cached.status().scheme.is_none(),
                "it is let go of"
            );
            cached.detach(|_| true).unwrap();
            cached.close().unwrap();
            let device: Device = world.device();
            assert!(examine_cache(&device).is_ok_and(|found| !found.clean) || failing > 1);
            CachedArray::open(alone(world, &[]), None, CacheOptions::default()).unwrap();
        });
    }
}
