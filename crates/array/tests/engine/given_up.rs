//! Rows that nobody can tell, and that a rebuild gives up: what the cache has of them is not lost, and what is lost is
//! named. And rows that only staged deltas tell.

use super::degraded::{options, put_off, with_world, write};
use super::world::{DATA_START, DEFERRING, Model, PAGES, World, content};
use crate::harness::Kind;
use crate::rebuild::replace;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_array::Progress;
use vellum_array::cache::Scheme;
use vellum_array::cache::engine::{CacheOptions, CachedArray};
use vellum_base::sync::Mutex;
use vellum_base::{BlockDevice, Lba, Nanos, SECTOR_BYTES};
use vellum_media::RamDisk;

/// What a cache has of a sector that is given up is not lost, though nobody knows what its row's parity lacks.
#[test]
fn what_the_cache_has_is_not_given_up() {
    for (scheme, with_nvram) in [(Scheme::KddPaper, false), (Scheme::KddPaper, true), (Scheme::Kdd, false)] {
        with_world(Kind::all()[2], scheme, 7, |mut world| {
            world = if with_nvram { world.with_nvram() } else { world };
            let cached = world.attach(options());
            let shape = cached.array().status().shape;
            let mut model = Model::new(shape.sectors());
            let chunk = u64::from(shape.chunk_sectors);
            for lba in 0..chunk {
                write(&cached, &mut model, lba, 5, false);
            }
            cached.read(Lba(1), &mut [0; SECTOR_BYTES]).unwrap();
            // Past the cache: it does not know what parity lacks.
            cached.array().write_without_parity_update(Lba(chunk), &content(chunk, 2), true).unwrap();
            model.wrote(chunk, 2);
            let role = shape.member_of(0, 0);
            replace(&mut world.rig, cached.array(), role);
            let rebuilt = cached.rebuild(true, |_| true).unwrap();
            assert_eq!(rebuilt.lost, [], "{scheme:?}");
            model.assert_holds(&cached, &[], &format!("{scheme:?}, rebuilt"));
            cached.flush().unwrap();
            drop(cached);
            let world = world.after_cut(7);
            let cached = world.open(&[], options());
            model.assert_holds(&cached, &[], &format!("{scheme:?}, cut"));
            cached.clean_all(|_| true).unwrap();
            cached.close().unwrap();
            world.assert_parity(&mut model, &format!("{scheme:?}"));
        });
    }
}

/// Wherever the power goes while sectors are given up: what the cache had of them and could not be read does not come
/// back over zeros, though it can be read again.
#[test]
fn what_was_given_up_does_not_come_back_after_a_cut() {
    let mut given_up = 0;
    for cut_at in (1..).map(|at| at * 3) {
        let mut was_cut = true;
        with_world(Kind::all()[2], Scheme::KddPaper, 8, |world| {
            let (world, cached, mut model) = cached_chunk_of_a_stale_row(world.with_nvram());
            let chunk = u64::from(cached.array().status().shape.chunk_sectors);
            (DATA_START..DATA_START + PAGES).for_each(|page| world.ssd.make_unreadable(Lba(page)));
            world.rig.power.cut_at(cut_at);
            let rebuilt = cached.rebuild(true, |_| true);
            was_cut = world.rig.power.is_off();
            drop(cached);
            let world = world.after_cut(cut_at);
            (DATA_START..DATA_START + PAGES).for_each(|page| world.ssd.make_readable(Lba(page)));
            let cached = world.open(&[], options());
            if cached.array().lost_members() > 0 {
                cached.rebuild(true, |_| true).unwrap();
            }
            assert!(was_cut || rebuilt.is_ok_and(|rebuilt| !rebuilt.lost.is_empty()));
            let mut out = vec![0; SECTOR_BYTES];
            for lba in 0..chunk {
                cached.read(Lba(lba), &mut out).unwrap();
                given_up += u64::from(out == [0; SECTOR_BYTES]);
                model.wrote(lba, if out == [0; SECTOR_BYTES] { 0 } else { 5 });
            }
            // Deltas to what is cached are what parity lacks.
            (0..chunk).for_each(|lba| write(&cached, &mut model, lba, 10, false));
            cached.clean_all(|_| true).unwrap();
            cached.close().unwrap();
            world.assert_parity(&mut model, &format!("cut at call {cut_at}"));
        });
        if !was_cut {
            break;
        }
    }
    assert!(given_up > 20, "only {given_up} sectors were zeros");
}

/// Wherever the power goes: what the cache can tell it tells again, until the new disk counts.
#[test]
fn what_the_cache_could_tell_is_not_lost_by_a_cut() {
    let mut again = 0;
    for cut_at in (1..).map(|at| at * 3) {
        let mut was_cut = true;
        with_world(Kind::all()[2], Scheme::KddPaper, 8, |world| {
            let (world, cached, mut model) = cached_chunk_of_a_stale_row(world.with_nvram());
            world.rig.power.cut_at(cut_at);
            let rebuilt = cached.rebuild(true, |_| true);
            was_cut = world.rig.power.is_off();
            assert!(was_cut || rebuilt.unwrap().lost.is_empty());
            drop(cached);
            let world = world.after_cut(cut_at);
            let cached = world.open(&[], options());
            if cached.array().lost_members() > 0 {
                assert_eq!(cached.rebuild(true, |_| true).unwrap().lost, [], "cut at call {cut_at}");
                again += 1;
            }
            model.assert_holds(&cached, &[], &format!("cut at call {cut_at}"));
            cached.clean_all(|_| true).unwrap();
            cached.close().unwrap();
            world.assert_parity(&mut model, &format!("cut at call {cut_at}"));
        });
        if !was_cut {
            break;
        }
    }
    assert!(again > 10, "rebuilt again only {again} times");
}

/// So it is if the new disk fails at the row that is given up, and another comes.
#[test]
fn what_the_cache_could_tell_is_not_lost_with_the_new_disk() {
    for with_nvram in [false, true] {
        with_world(Kind::all()[2], Scheme::KddPaper, 8, |world| {
            let world = if with_nvram { world.with_nvram() } else { world };
            let (mut world, cached, mut model) = cached_chunk_of_a_stale_row(world);
            let role = cached.array().status().shape.member_of(0, 0);
            let new = world.rig.disks[role].clone();
            let lose_it = |_| {
                new.lose();
                true
            };
            cached.rebuild(true, lose_it).unwrap_err();
            let mut out = vec![0; SECTOR_BYTES];
            cached.read(Lba(1), &mut out).unwrap();
            assert_eq!(out, content(1, 5), "the new disk failed");
            cached.array().remove(role).unwrap();
            world.rig.disks[role] = RamDisk::new(new.info().sectors, &world.rig.power);
            cached.array().add(world.rig.device(&world.rig.disks[role]), false).unwrap();
            assert_eq!(cached.rebuild(true, |_| true).unwrap().lost, []);
            model.assert_holds(&cached, &[], "rebuilt");
        });
    }
}

/// Nor is a sector that can neither be read nor written, and it ends no array.
#[test]
fn a_worn_out_sector_that_the_cache_has_is_not_lost() {
    with_world(Kind::all()[2], Scheme::KddPaper, 8, |mut world| {
        let cached = world.attach(options());
        let shape = cached.array().status().shape;
        let sectors = 2 * u64::from(shape.chunk_sectors);
        let mut model = Model::new(shape.sectors());
        (0..sectors).for_each(|lba| write(&cached, &mut model, lba, 5, false));
        (0..sectors).for_each(|lba| cached.read(Lba(lba), &mut [0; SECTOR_BYTES]).unwrap());
        cached.clean_all(|_| true).unwrap();
        world.rig.disks[shape.member_of(0, 1)].wear_out(Lba(DATA_START + 1));
        replace(&mut world.rig, cached.array(), shape.member_of(0, 0));
        let rebuilt = cached.rebuild(true, |_| true).unwrap();
        assert!(rebuilt.complete && rebuilt.lost.is_empty(), "{rebuilt:?}");
        model.assert_holds(&cached, &[], "rebuilt");
        (0..sectors).for_each(|lba| write(&cached, &mut model, lba, 6, false));
        cached.clean_all(|_| true).unwrap();
        model.assert_holds(&cached, &[], "written");
    });
}

/// The first chunk of row 0 is clean in the cache; nobody knows what parity of the row lacks, and the member of that
/// chunk is a new disk.
fn cached_chunk_of_a_stale_row(mut world: World) -> (World, CachedArray, Model) {
    let cached = world.attach(options());
    let shape = cached.array().status().shape;
    let chunk = u64::from(shape.chunk_sectors);
    let mut model = Model::new(shape.sectors());
    (0..chunk).for_each(|lba| write(&cached, &mut model, lba, 5, false));
    cached.array().write_without_parity_update(Lba(chunk), &content(chunk, 2), true).unwrap();
    model.wrote(chunk, 2);
    cached.flush().unwrap();
    replace(&mut world.rig, cached.array(), shape.member_of(0, 0));
    (world, cached, model)
}

/// A member that is rebuilt has parity of a row, and a sector of data there cannot be read: that is named.
#[test]
fn a_sector_that_only_the_rebuilt_parity_would_tell_is_named() {
    with_world(Kind::all()[2], Scheme::KddPaper, 9, |mut world| {
        let (array, mut oracle) = world.rig.filled();
        let shape = array.status().shape;
        let (row, offset) = (4, 1);
        replace(&mut world.rig, &array, shape.member_of(row, shape.data_columns()));
        let sector = Lba(DATA_START + shape.member_sector(row) + offset);
        world.rig.disks[shape.member_of(row, 2)].make_unreadable(sector);
        let lost = row * shape.row_sectors() + 2 * u64::from(shape.chunk_sectors) + offset;
        let rebuilt = array.rebuild(true, |_| true).unwrap();
        assert_eq!(rebuilt.lost, std::slice::from_ref(&(lost..lost + 1)));
        oracle.wrote(lost, 0);
        oracle.assert_reads_back(&array, "rebuilt");
    });
}

/// So it is in a row whose parity was put off, and that the cache does not know, and is made whole.
#[test]
fn a_sector_of_a_stale_row_that_only_the_rebuilt_parity_would_tell_is_named() {
    in_a_stale_row(Kind::all()[2], false);
}

/// So it is where the other parity is lost, too, and does not come back.
#[test]
fn a_sector_of_a_stale_row_that_lacks_another_parity_is_named() {
    in_a_stale_row(Kind::all()[6], true);
}

fn in_a_stale_row(kind: Kind, without_q: bool) {
    with_world(kind, Scheme::KddPaper, 9, |mut world| {
        let cached = world.attach(options());
        let shape = cached.array().status().shape;
        let mut model = Model::new(shape.sectors());
        (0..shape.row_sectors()).for_each(|lba| write(&cached, &mut model, lba, 5, false));
        cached.array().write_without_parity_update(Lba(0), &content(0, 2), true).unwrap();
        model.wrote(0, 2);
        // What the cache has of the row is gone.
        (0..PAGES).for_each(|page| world.ssd.make_unreadable(Lba(DATA_START + page)));
        let chunk = u64::from(shape.chunk_sectors);
        let lost = 2 * chunk + 1;
        world.rig.disks[shape.member_of(0, 2)].make_unreadable(Lba(DATA_START + 1));
        let q = shape.member_of(0, shape.members - 1);
        // What comes is P, or a chunk of data, which is lost with its row's parity.
        let rebuilt = if without_q { 0 } else { shape.data_columns() };
        replace(&mut world.rig, cached.array(), shape.member_of(0, rebuilt));
        if without_q {
            cached.array().fail(q).unwrap();
            (0..chunk).for_each(|lba| model.wrote(lba, 0));
        }
        let rebuilt = cached.rebuild(true, |_| true).unwrap();
        let mut named: Vec<u64> = rebuilt.lost.into_iter().flatten().collect();
        named.sort_unstable();
        let chunk = if without_q { 0..chunk } else { 0..0 };
        assert_eq!(named, chunk.chain([lost]).collect::<Vec<_>>());
        model.wrote(lost, 0);
        assert_eq!(cached.array().status().stale_rows, 0);
        model.assert_holds(&cached, &[], "rebuilt");
        cached.close().unwrap();
        if without_q {
            model.assert_holds(&world.rig.fork(1).assemble(&[q, shape.member_of(0, 1)]), &[], "without two");
        } else {
            world.assert_parity(&mut model, "rebuilt");
        }
    });
}

/// What is given up can be computed with a sector that only the cache has: it is put back where it was.
#[test]
fn what_the_cache_has_of_another_member_is_put_back() {
    for (scheme, is_parity) in DEFERRING.iter().flat_map(|scheme| [(*scheme, false), (*scheme, true)]) {
        with_world(Kind::all()[2], scheme, 10, |mut world| {
            let cached = world.attach(options());
            let shape = cached.array().status().shape;
            let mut model = Model::new(shape.sectors());
            let (chunk, role) = (u64::from(shape.chunk_sectors), shape.member_of(0, 1));
            (0..shape.row_sectors()).for_each(|lba| write(&cached, &mut model, lba, 5, true));
            (0..3).for_each(|_| cached.read(Lba(chunk), &mut [0; SECTOR_BYTES]).unwrap());
            cached.clean_all(|_| true).unwrap();
            world.rig.disks[role].make_unreadable(Lba(DATA_START));
            let column = if is_parity { shape.data_columns() } else { 0 };
            replace(&mut world.rig, cached.array(), shape.member_of(0, column));
            assert!(cached.rebuild(false, |_| true).is_err());
            assert_eq!(cached.rebuild(true, |_| true).unwrap().lost, [], "{scheme:?}");
            model.assert_holds(&cached, &[], &format!("{scheme:?}"));
            cached.clean_all(|_| true).unwrap();
            cached.close().unwrap();
            world.assert_parity(&mut model, &format!("{scheme:?}"));
        });
    }
}

/// A row is zeroed, and so whole, while it is given up, or a sector of what is given up is written: whoever comes
/// first, what was acknowledged is there, also after a cut, and parity has it.
#[test]
fn what_is_written_beside_is_not_given_up() {
    for (with_nvram, is_zeroed) in [(false, false), (false, true), (true, false), (true, true)] {
        let runs = (0..).map_while(|at| written_beside(with_nvram, is_zeroed, Nanos(at * 40_000)));
        let seen = runs.fold([0, 0], |[yes, no], first| if first { [yes + 1, no] } else { [yes, no + 1] });
        assert!(
            seen.iter().all(|count| *count > 5),
            "{with_nvram}, {is_zeroed}: who came first was {seen:?}"
        );
    }
}

/// Whether that, which comes so late, came before the row was given up; None: the row had been rebuilt.
fn written_beside(with_nvram: bool, is_zeroed: bool, after: Nanos) -> Option<bool> {
    const ROW: u64 = 3;
    let (mut was_first, context) = (None, format!("{with_nvram}, {is_zeroed}, after {after:?}"));
    with_world(Kind::all()[2], Scheme::KddPaper, 11, |mut world| {
        world = if with_nvram { world.with_nvram() } else { world };
        let cached = Arc::new(world.attach(options()));
        let shape = cached.array().status().shape;
        let (first, mut model) = (ROW * shape.row_sectors(), Model::new(shape.sectors()));
        let all = first..first + shape.row_sectors();
        all.clone().for_each(|lba| write(&cached, &mut model, lba, 5, false));
        // Past the cache, whose pages cannot be read.
        cached.array().write_without_parity_update(Lba(first), &content(first, 2), true).unwrap();
        model.wrote(first, 2);
        (0..PAGES).for_each(|page| world.ssd.make_unreadable(Lba(DATA_START + page)));
        replace(&mut world.rig, cached.array(), shape.member_of(ROW, 0));
        let (rows, lost) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (other, at_row, named) = (cached.clone(), rows.clone(), lost.clone());
        let rebuild = move || {
            let go_on = |at: Progress| {
                at_row.store(at.rows, Relaxed);
                true
            };
            *named.lock() = other.rebuild(true, go_on).unwrap().lost;
        };
        let env = cached.env();
        let rebuild = env.clone().spawn("rebuild", Box::new(rebuild));
        env.sleep_until(env.now() + after);
        let is_late = rows.load(Relaxed) > ROW;
        let result = match is_zeroed {
            true => cached.write_zeroes(Lba(first), shape.row_sectors(), false),
            false => cached.write(Lba(first), &content(first, 10), false),
        };
        let is_early = rows.load(Relaxed) <= ROW;
        rebuild.join();
        let lost = lost.lock().clone();
        assert!(!(is_early && is_zeroed) || lost.is_empty(), "{context}: {lost:?} were not lost");
        lost.iter().cloned().flatten().for_each(|lba| model.wrote(lba, 0));
        match (&result, is_zeroed) {
            (Ok(()), true) => all.for_each(|lba| model.wrote(lba, 0)),
            (Ok(()), false) => model.wrote(first, 10),
            (Err(error), _) => assert!(!is_zeroed, "{context}: {error}"),
        }
        // Nobody can take a sector that nobody knows, before it is given up.
        was_first = (!is_late).then_some(if is_zeroed { lost.is_empty() } else { result.is_err() });
        model.assert_holds(&*cached, &[], &context);
        cached.flush().unwrap();
        drop(cached);
        let world = world.after_cut(11);
        (0..PAGES).for_each(|page| world.ssd.make_readable(Lba(DATA_START + page)));
        let cached = world.open(&[], options());
        model.assert_holds(&cached, &[], &format!("{context}, cut"));
        cached.clean_all(|_| true).unwrap();
        cached.close().unwrap();
        world.assert_parity(&mut model, &context);
    });
    was_first
}

/// The SSD goes, and then a disk, before what was put off is brought to parity: deltas that are staged still count, for
/// who comes before the cleaner, too.
#[test]
fn what_is_staged_counts_when_the_ssd_and_then_a_disk_go() {
    with_world(Kind::all()[2], Scheme::KddPaper, 18, |world| {
        let cached = world.attach(CacheOptions { staging_bytes: Some(64 << 10), ..options() });
        let shape = cached.array().status().shape;
        let mut model = Model::new(shape.sectors());
        put_off(&cached, &mut model, 12);
        world.ssd.lose();
        cached.array().fail(shape.member_of(0, 0)).unwrap();
        for row in (0..12).rev() {
            let lba = row * shape.row_sectors();
            cached.read(Lba(lba), &mut [0; SECTOR_BYTES]).unwrap();
            write(&cached, &mut model, lba + 1, 1, false);
        }
        model.assert_holds(&cached, &[], "degraded");
    });
}
