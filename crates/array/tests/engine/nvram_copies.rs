//! What is opened together must have been left together: an SSD, an NVRAM or members of another time are refused.

use super::world::{Model, World, alone, content};
use crate::harness::Kind;
use std::sync::Arc;
use vellum_array::cache::Scheme;
use vellum_array::cache::engine::{CacheFormat, CacheOptions, CachedArray, examine_cache};
use vellum_array::{Device, Owner, Part, owner};
use vellum_base::{BlockDevice, Env, Lba, SECTOR_BYTES};
use vellum_media::RamDisk;
use vellum_sim::Sim;

/// The first sector of the half that counts.
fn newest_half(nvram: &RamDisk) -> u64 {
    let mut sector = vec![0; SECTOR_BYTES];
    let halves = [0, 64].into_iter().max_by_key(|at| {
        nvram.read(Lba(*at), &mut sector).unwrap();
        u64::from_le_bytes(sector[24..32].try_into().unwrap())
    });
    halves.unwrap()
}

/// A cache with an NVRAM that was closed with stale rows and staged deltas, and the model of it.
fn closed(test: impl FnOnce(&World, &mut Model)) {
    closed_with(128, test);
}

/// The same with an NVRAM of so many sectors.
fn closed_with(sectors: u64, test: impl FnOnce(&World, &mut Model)) {
    let sim = Sim::new(8);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let world = World::new(Kind::all()[2], Scheme::KddPaper, env, 8);
        let nvram = Some(RamDisk::new(sectors, &world.rig.power));
        let world = World { nvram, ..world };
        let cached = world.attach(CacheOptions { dirty_high: 0.8, ..CacheOptions::default() });
        let mut model = Model::new(cached.info().sectors);
        for id in [1, 2, 3, 8] {
            for lba in 0..12 {
                cached.write(Lba(lba), &content(lba, id), false).unwrap();
                model.wrote(lba, id);
            }
        }
        cached.close().unwrap();
        test(&world, &mut model);
    });
}

#[test]
fn a_clean_stop_keeps_everything_without_writing_the_log() {
    closed(|world, model| {
        let cached = world.open(&[], CacheOptions::default());
        let status = cached.status();
        assert_eq!((status.emptied, status.unknown_rows), (None, 0));
        assert!(status.stale_rows > 0 && status.census.old > 0 && status.census.staged_bytes > 0);
        model.assert_holds(&cached, &[], "closed");
        cached.clean_all(|_| true).unwrap();
        cached.close().unwrap();
        world.assert_parity(model, "closed");
    });
}

/// Refused with words, and by force a cache with nothing in it that goes on without an NVRAM, or with this one.
fn refused(world: &World, model: &mut Model, words: &str, nvram: Option<Device>) {
    let array = alone(world, &[]);
    let open = CachedArray::open_with_nvram;
    let error = open(array, Some(world.device()), nvram.clone(), CacheOptions::default()).err();
    let error = error.expect("it must be refused").to_string();
    assert!(error.contains(words), "{error}");
    assert!(error.contains("by force"), "{error}");
    let options = CacheOptions { without_cache: true, ..CacheOptions::default() };
    let cached = open(alone(world, &[]), Some(world.device()), nvram, options).unwrap();
    assert!(cached.status().emptied.unwrap().contains(words));
    model.assert_holds(&cached, &[], words);
    cached.clean_all(|_| true).unwrap();
    cached.close().unwrap();
    world.assert_parity(model, words);
}

#[test]
fn without_its_nvram_it_is_refused() {
    closed(|world, model| refused(world, model, "the cache's NVRAM: it is not named", None));
}

#[test]
fn with_a_blank_nvram_it_is_refused() {
    closed(|world, model| {
        refused(
            world,
            model,
            "the cache's NVRAM: it holds nothing",
            Some(RamDisk::new(128, &world.rig.power)),
        );
    });
}

/// The same on a device of another size, whichever half counts: what it has grown by is not used.
#[test]
fn with_an_nvram_that_grew_it_is_what_it_was() {
    for opened in 0..2 {
        closed(|world, model| {
            let open =
                |world: &World| world.open(&[], CacheOptions { dirty_high: 0.8, ..CacheOptions::default() });
            (0..opened).for_each(|_| open(world).close().unwrap());
            let its_own: Device = world.nvram.clone().unwrap();
            let world = World { nvram: Some(copied(world, 300)), ..world.again() };
            let grown: Device = world.nvram.clone().unwrap();
            assert_eq!(owner(&grown), owner(&its_own), "opened {opened} times");
            let cached = open(&world);
            assert_eq!(cached.status().emptied, None, "opened {opened} times");
            cached.write(Lba(3), &content(3, 13), false).unwrap();
            model.wrote(3, 13);
            cached.flush().unwrap();
            drop(cached);
            let world = world.after_cut(8);
            let cached = open(&world);
            assert_eq!((cached.status().emptied, cached.status().unknown_rows), (None, 0));
            model.assert_holds(&cached, &[], "cut");
            cached.clean_all(|_| true).unwrap();
            cached.close().unwrap();
            world.assert_parity(model, "grown");
        });
    }
}

/// What is named instead of it by force is used as far as it goes.
#[test]
fn another_nvram_of_a_cache_that_begins_empty_is_used_whole() {
    closed(|world, model| {
        let larger: Device = RamDisk::new(300, &world.rig.power);
        refused(world, model, "the cache's NVRAM: it holds nothing", Some(larger));
        let superblock = examine_cache(&(world.ssd.clone() as Device)).unwrap();
        assert_eq!(superblock.nvram_half, 150);
    });
}

/// Then no half that began in the midst of it is left, and who lets go of it leaves nothing.
#[test]
fn an_nvram_that_grew_and_began_anew_is_nobody_s_after_its_cache_is_let_go() {
    closed(|world, _| {
        let world = World { nvram: Some(copied(world, 300)), ..world.again() };
        let grown: Device = world.nvram.clone().unwrap();
        // Without its cache the array goes on: what that has does not count any more.
        let options = || CacheOptions { without_cache: true, ..CacheOptions::default() };
        CachedArray::open(alone(&world, &[]), None, options()).unwrap().close().unwrap();
        let cached = world.open(&[], options());
        assert!(cached.status().emptied.is_some());
        assert!(cached.detach(|_| true).unwrap());
        cached.close().unwrap();
        assert_eq!(owner(&grown), None);
    });
}

/// Its last records may have been there: whichever half counts.
#[test]
fn with_an_nvram_that_was_cut_short_it_is_refused() {
    for opened in 0..2 {
        closed_with(200, |world, model| {
            (0..opened).for_each(|_| world.open(&[], CacheOptions::default()).close().unwrap());
            let words = "it was cut short: it has 512KiB, and 800KiB of it were used";
            refused(world, model, words, Some(copied(world, 128)));
        });
    }
}

/// What the NVRAM has on a device of another size.
fn copied(world: &World, sectors: u64) -> Arc<RamDisk> {
    let (from, to) = (world.nvram.as_ref().unwrap(), RamDisk::new(sectors, &world.rig.power));
    let mut sector = vec![0; SECTOR_BYTES];
    for at in (0..from.info().sectors.min(sectors)).map(Lba) {
        from.read(at, &mut sector).unwrap();
        to.write(at, &sector, true).unwrap();
    }
    to
}

#[test]
fn with_another_cache_s_nvram_it_is_refused() {
    closed(|world, model| {
        let other = World::new(Kind::all()[2], Scheme::KddPaper, world.rig.env.clone(), 9).with_nvram();
        other.attach(CacheOptions::default()).close().unwrap();
        refused(
            world,
            model,
            "the cache's NVRAM: it is another cache's",
            other.nvram.map(|nvram| nvram as Device),
        );
    });
}

#[test]
fn with_an_earlier_copy_of_its_nvram_it_is_refused() {
    closed(|world, model| {
        let copy = world.nvram.as_ref().unwrap().fork(&world.rig.power);
        for _ in 0..2 {
            world.open(&[], CacheOptions::default()).close().unwrap();
        }
        refused(world, model, "the cache's NVRAM: it is an earlier copy", Some(copy));
    });
}

#[test]
fn with_an_nvram_that_cannot_be_read_or_lacks_a_record_it_is_refused() {
    closed(|world, model| {
        let nvram = world.nvram.as_ref().unwrap();
        let torn = nvram.fork(&world.rig.power);
        torn.rot(Lba(newest_half(&torn) + 2), 100, 1);
        refused(world, model, "the cache's NVRAM: a record of the NVRAM is missing", Some(torn));
    });
    closed(|world, model| {
        let nvram = world.nvram.as_ref().unwrap().fork(&world.rig.power);
        (0..128).for_each(|sector| nvram.make_unreadable(Lba(sector)));
        let array = alone(world, &[]);
        let open = CachedArray::open_with_nvram;
        let error = open(array, Some(world.device()), Some(nvram), CacheOptions::default()).err();
        assert!(error.unwrap().to_string().contains("the cache's NVRAM"));
        let cached = world.open(&[], CacheOptions::default());
        assert_eq!(cached.status().emptied, None);
        model.assert_holds(&cached, &[], "refused");
    });
}

#[test]
fn an_nvram_that_cannot_be_one_is_refused() {
    closed(|world, _| {
        let other = World::new(Kind::all()[2], Scheme::KddPaper, world.rig.env.clone(), 9);
        let attach = |scheme, nvram: Arc<RamDisk>| {
            let format = CacheFormat { ways: 16, ..CacheFormat::new(scheme) };
            let options = CacheOptions::default();
            let array = alone(&other, &[]);
            let result = CachedArray::attach_with_nvram(array, other.device(), Some(nvram), &format, options);
            result.err().expect("it must be refused").to_string()
        };
        let power = &other.rig.power;
        assert!(attach(Scheme::KddPaper, RamDisk::new(127, power)).contains("512 KiB or more"));
        assert!(attach(Scheme::Leavo, RamDisk::new(128, power)).contains("only kdd"));
        let bare = Kind { log: vellum_array::LogPlace::None, ..Kind::all()[2] };
        let bare = World::new(bare, Scheme::KddPaper, world.rig.env.clone(), 9).with_nvram();
        let format = CacheFormat::new(Scheme::KddPaper);
        let nvram = bare.nvram.clone().map(|nvram| nvram as Device);
        let options = CacheOptions::default();
        let error = CachedArray::attach_with_nvram(alone(&bare, &[]), bare.device(), nvram, &format, options);
        assert!(error.err().unwrap().to_string().contains("without a log"));
        let used = world.nvram.as_ref().unwrap().fork(power);
        assert!(attach(Scheme::KddPaper, used).contains("is a cache's already"));
    });
}

/// One more session, which writes everything anew and ends in good order, or by a cut.
fn use_once_more(world: &World, model: &mut Model, in_order: bool) -> Option<World> {
    let cached = world.open(&[], CacheOptions { dirty_high: 0.8, ..CacheOptions::default() });
    for lba in 0..12 {
        cached.write(Lba(lba), &content(lba, 16), false).unwrap();
        model.wrote(lba, 16);
    }
    cached.flush().unwrap();
    if in_order {
        cached.close().unwrap();
        return None;
    }
    drop(cached);
    Some(world.after_cut(9))
}

/// The SSD was put back to what it was one session before: pages that were written since are missing.
#[test]
fn with_an_ssd_of_one_session_before_it_is_refused() {
    for in_order in [true, false] {
        closed(|world, model| {
            let copy = world.ssd.fork(&world.rig.power);
            let after = use_once_more(world, model, in_order);
            let world = World { ssd: copy, ..after.unwrap_or_else(|| world.again()) };
            refused(&world, model, "the SSD has an earlier state", world.nvram.clone().map(|n| n as Device));
        });
    }
}

/// All members were put back to what they were one session before: the deltas of the cache are not theirs.
#[test]
fn with_members_of_one_session_before_it_is_refused() {
    for in_order in [true, false] {
        closed(|world, model| {
            let rig = world.rig.fork(3);
            let after = use_once_more(world, model, in_order);
            let world = World { rig, ..after.unwrap_or_else(|| world.again()) };
            let mut before = Model::new(model.sectors());
            (0..12).for_each(|lba| before.wrote(lba, 8));
            let nvram = world.nvram.clone().map(|nvram| nvram as Device);
            refused(&world, &mut before, "the members have an earlier state", nvram);
        });
    }
}

/// Neither the array nor its cache is touched by what was refused.
#[test]
fn what_is_left_together_counts_after_copies_of_it_were_refused() {
    closed(|world, model| {
        let copy = world.ssd.fork(&world.rig.power);
        use_once_more(world, model, true);
        for _ in 0..3 {
            let open = CachedArray::open_with_nvram;
            let nvram = world.nvram.clone().map(|nvram| nvram as Device);
            assert!(open(alone(world, &[]), Some(copy.clone()), nvram, CacheOptions::default()).is_err());
        }
        let cached = world.open(&[], CacheOptions::default());
        assert_eq!(cached.status().emptied, None);
        model.assert_holds(&cached, &[], "refused");
        cached.clean_all(|_| true).unwrap();
        cached.close().unwrap();
        world.assert_parity(model, "refused");
    });
}

/// The head that counts is rotten: what it would have said is not guessed, and the region is not a blank one.
#[test]
fn an_nvram_whose_head_is_damaged_is_refused_and_is_not_blank() {
    closed(|world, model| {
        let rotten = world.nvram.as_ref().unwrap().fork(&world.rig.power);
        rotten.rot(Lba(newest_half(&rotten)), 40, 1);
        let other = World::new(Kind::all()[2], Scheme::KddPaper, world.rig.env.clone(), 9);
        let format = CacheFormat { ways: 16, ..CacheFormat::new(Scheme::KddPaper) };
        let attach = CachedArray::attach_with_nvram;
        let nvram: Option<Device> = Some(rotten.clone());
        let error =
            attach(alone(&other, &[]), other.device(), nvram.clone(), &format, CacheOptions::default()).err();
        let error = error.expect("it must be refused").to_string();
        assert!(error.contains("damaged") && error.contains("force"), "{error}");
        refused(world, model, "the cache's NVRAM: its head is damaged", nvram);
    });
}

/// Only KDD says all that it knows to an NVRAM: with another policy it would say what was so once.
#[test]
fn a_cache_of_another_policy_is_not_opened_with_an_nvram() {
    let sim = Sim::new(8);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        for scheme in [Scheme::WriteAround, Scheme::WriteThrough, Scheme::Leavo] {
            let world = World::new(Kind::all()[2], scheme, env.clone(), 8);
            world.attach(CacheOptions::default()).close().unwrap();
            let world = world.with_nvram();
            let error = world.try_open(&[], CacheOptions::default()).err().expect("it must be refused");
            assert!(error.to_string().contains("only kdd"), "{error}");
        }
    });
}

/// The cache counts no more, and what is named as its NVRAM is something else: it is not written over unasked.
#[test]
fn what_is_no_nvram_is_not_made_one_unasked_when_the_cache_is_empty_anyway() {
    closed(|world, _| {
        let array = alone(world, &[]);
        array.write(Lba(0), &content(0, 3), true).unwrap();
        array.close().unwrap();
        let other = RamDisk::new(128, &world.rig.power);
        other.write(Lba(0), &content(0, 9), true).unwrap();
        let open = CachedArray::open_with_nvram;
        let error =
            open(alone(world, &[]), Some(world.device()), Some(other.clone()), CacheOptions::default()).err();
        assert!(error.expect("it must be refused").to_string().contains("by force"));
        let mut found = vec![0; SECTOR_BYTES];
        other.read(Lba(0), &mut found).unwrap();
        assert!(found == content(0, 9));
        let cached = world.open(&[], CacheOptions::default());
        assert!(cached.status().emptied.unwrap().contains("without its cache"));
    });
}

/// Of a cache that was detached nothing says any more that it is an array's.
#[test]
fn a_cache_that_was_detached_leaves_ssd_and_nvram_to_others() {
    closed(|world, model| {
        let nvram: Device = world.nvram.clone().unwrap();
        assert_eq!(owner(&nvram).unwrap().part, Part::Nvram);
        let rotten = world.nvram.as_ref().unwrap().fork(&world.rig.power);
        rotten.rot(Lba(newest_half(&rotten)), 40, 1);
        let rotten: Device = rotten;
        assert_eq!(owner(&rotten), Some(Owner { array: None, part: Part::Nvram }));
        let cached = world.open(&[], CacheOptions::default());
        cached.detach(|_| true).unwrap();
        cached.write(Lba(0), &content(0, 3), false).unwrap();
        model.wrote(0, 3);
        cached.close().unwrap();
        let ssd: Device = world.ssd.clone();
        assert_eq!((owner(&nvram), owner(&ssd)), (None, None));
        world.assert_parity(model, "detached");
    });
}

/// A cache that is to have an NVRAM from now on, or is empty, does not take another cache's in.
#[test]
fn another_cache_s_nvram_is_not_taken_in_by_one_that_is_empty() {
    closed(|world, _| {
        let other = World::new(Kind::all()[2], Scheme::KddPaper, world.rig.env.clone(), 9);
        other.attach(CacheOptions::default()).close().unwrap();
        let taken = world.nvram.clone().map(|nvram| nvram as Device);
        let open = CachedArray::open_with_nvram;
        let error = open(alone(&other, &[]), Some(other.device()), taken, CacheOptions::default()).err();
        let error = error.expect("it must be refused").to_string();
        assert!(error.contains("another cache's") && error.contains("by force"), "{error}");
        let cached = world.open(&[], CacheOptions::default());
        assert_eq!(cached.status().emptied, None);
    });
}

/// Nor does one whose halves are not as long take it for blank.
#[test]
fn another_cache_s_nvram_is_known_by_one_with_smaller_halves() {
    closed(|world, _| {
        let other = World::new(Kind::all()[2], Scheme::KddPaper, world.rig.env.clone(), 9);
        let other = World { nvram: Some(RamDisk::new(300, &other.rig.power)), ..other };
        other.attach(CacheOptions::default()).close().unwrap();
        let taken = other.nvram.clone().unwrap();
        taken.write(Lba(0), &[0; SECTOR_BYTES], true).unwrap(); // as it is before the first half was used
        let theirs: Device = taken.clone();
        assert_eq!(owner(&theirs).unwrap().part, Part::Nvram);
        let forced = CacheOptions { without_cache: true, ..CacheOptions::default() };
        CachedArray::open(alone(world, &[]), None, forced).unwrap().close().unwrap();
        let open = CachedArray::open_with_nvram;
        let taken = Some(taken as Device);
        let error = open(alone(world, &[]), Some(world.device()), taken, CacheOptions::default()).err();
        let error = error.expect("it must be refused").to_string();
        assert!(error.contains("another cache's") && error.contains("by force"), "{error}");
    });
}
