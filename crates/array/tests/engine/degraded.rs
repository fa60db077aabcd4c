//! A member is out: what is durable, and what a cut costs then. And what goes on beside rows that cannot be made whole.

use super::nvram::lost_sectors;
use super::world::{DATA_START, DEFERRING, Model, World, alone, content};
use crate::harness::{Hooked, Kind, Slow, no_hook};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_array::cache::Scheme;
use vellum_array::cache::engine::{CacheOptions, CachedArray};
use vellum_array::{Device, Options, assemble};
use vellum_base::{BlockDevice, Env, Error, Kind as ErrorKind, Lba, Nanos, SECTOR_BYTES, Task};
use vellum_media::RamDisk;
use vellum_sim::Sim;

/// No row is cleaned but when somebody needs it.
pub fn options() -> CacheOptions {
    CacheOptions { dirty_high: 0.9, idle_after: Nanos(1 << 60), ..CacheOptions::default() }
}

pub fn with_world(kind: Kind, scheme: Scheme, seed: u64, test: impl FnOnce(World)) {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| test(World::new(kind, scheme, env.clone(), seed)));
}

/// Writes a version of a sector.
pub fn write(cached: &CachedArray, model: &mut Model, lba: u64, id: u32, fua: bool) {
    model.wrote(lba, id);
    cached.write(Lba(lba), &content(lba, id), fua).unwrap();
}

/// A row whose parity was put off is made whole for a write, or a row of zeros, that is durable when it is answered.
#[test]
fn a_write_to_a_stale_row_that_is_to_be_durable_outlives_a_cut_without_a_member() {
    for (seed, kind) in (0..).zip(Kind::all()) {
        for (scheme, zeros) in DEFERRING.iter().flat_map(|scheme| [(*scheme, false), (*scheme, true)]) {
            with_world(kind, scheme, seed, |world| {
                let cached = world.attach(options());
                let shape = cached.array().status().shape;
                let mut model = Model::new(shape.sectors());
                [5, 10, 15].into_iter().for_each(|id| write(&cached, &mut model, 0, id, false));
                assert_eq!(cached.array().stale_rows(0, 10), [0], "{kind:?}, {scheme:?}");
                cached.flush().unwrap();
                let role = shape.member_of(0, 0);
                cached.array().fail(role).unwrap();
                if zeros {
                    (0..shape.row_sectors()).for_each(|lba| model.wrote(lba, 0));
                    cached.write_zeroes(Lba(0), shape.row_sectors(), true).unwrap();
                } else {
                    write(&cached, &mut model, 0, 20, true);
                }
                drop(cached);
                let cached = world.after_cut(seed).open(&[role], options());
                model.assert_holds(&cached, &[], &format!("{kind:?}, {scheme:?}, zeros: {zeros}"));
            });
        }
    }
}

/// A write of more than is asked for at once: a member goes when parity of the first rows was put off already, and the
/// power when it is answered.
#[test]
fn a_long_write_that_is_to_be_durable_outlives_a_member_that_goes_meanwhile_and_a_cut() {
    let went = (1..).map(|at| member_goes(272, Nanos(at * 100_000), Nanos(0)));
    let went = went.take_while(|(_, after)| *after).count();
    assert!(went > 20, "the member went {went} times");
}

/// The cleaner takes the row in the moment in which the member goes: who writes waits for it.
#[test]
fn a_write_that_is_to_be_durable_waits_for_who_cleans_its_row() {
    let went = (0..).map(|at| member_goes(1, Nanos(0), Nanos(at * 5_000)));
    let went = went.take_while(|(before, _)| !before).filter(|(_, after)| *after).count();
    assert!(went > 20, "the member went {went} times");
}

/// Whether a member had gone before and after a write; each began so late.
fn member_goes(sectors: u64, goes_after: Nanos, write_after: Nanos) -> (bool, bool) {
    let (mut before, mut after) = (false, false);
    with_world(Kind::all()[2], Scheme::KddPaper, 15, |world| {
        let world = world.with_pages(640);
        let cached = Arc::new(world.attach(options()));
        let shape = cached.array().status().shape;
        let mut model = Model::new(shape.sectors());
        let mut write = |id, fua| {
            (0..sectors).for_each(|lba| model.wrote(lba, id));
            let data: Vec<u8> = (0..sectors).flat_map(|lba| content(lba, id)).collect();
            cached.write(Lba(0), &data, fua).unwrap();
        };
        [5, 10].into_iter().for_each(|id| write(id, false));
        cached.flush().unwrap();
        let role = shape.member_of(0, 0);
        let (array, env) = (cached.clone(), cached.env());
        let goes = move || {
            array.env().sleep_until(array.env().now() + goes_after);
            let _ = array.array().fail(role);
        };
        let goes = env.clone().spawn("goes", Box::new(goes));
        env.sleep_until(env.now() + write_after);
        before = cached.array().lost_members() > 0;
        write(15, true);
        after = cached.array().lost_members() > 0;
        world.rig.power.cut_at(1);
        goes.join();
        drop(cached);
        if after {
            let cached = world.after_cut(15).open(&[role], options());
            model.assert_holds(&cached, &[], &format!("gone after {goes_after:?}, {write_after:?}"));
        }
    });
    (before, after)
}

/// Rows of which the first sector is put off, none of them durable before `flush`.
pub fn put_off(cached: &CachedArray, model: &mut Model, rows: u64) {
    let row_sectors = cached.array().status().shape.row_sectors();
    for id in [5, 10, 15] {
        (0..rows).for_each(|row| write(cached, model, row * row_sectors, id, false));
    }
    assert_eq!(cached.status().stale_rows, rows);
}

/// Rows are cleaned one after the other, with a disk out or before it goes: wherever the power goes, of those that are
/// done the disk costs nothing, whether the members have heard of them or not.
#[test]
fn rows_that_were_cleaned_outlive_a_cut_that_takes_a_disk_with_an_nvram() {
    const ROWS: u64 = 12;
    let (mut done, mut lost_rows) = (0, 0);
    for (seed, kind) in [(0, Kind::all()[2]), (1, Kind::all()[7])] {
        for (cut_at, is_out) in (1..).flat_map(|at| [(at * 7, false), (at * 7, true)]) {
            let mut was_cut = true;
            with_world(kind, Scheme::KddPaper, seed, |world| {
                let world = world.with_nvram();
                let cached = world.attach(options());
                let shape = cached.array().status().shape;
                let mut model = Model::new(shape.sectors());
                put_off(&cached, &mut model, ROWS);
                cached.flush().unwrap();
                let role = shape.member_of(0, 0);
                world.rig.power.cut_at(cut_at);
                let _ = if is_out { cached.array().fail(role) } else { Ok(()) };
                let _ = cached.clean_all(|_| true);
                was_cut = world.rig.power.is_off();
                drop(cached);
                let world = world.after_cut(cut_at);
                let in_doubt = world.rows_being_cleaned();
                let cached = world.open(&[role], options());
                let status = cached.status();
                done += ROWS - status.stale_rows;
                lost_rows += status.unknown_rows;
                let lost = lost_sectors(&cached, &[role], &in_doubt);
                let context = format!("{kind:?}, cut at call {cut_at}, member out: {is_out}");
                model.settle(&cached, &lost, &context);
                let _ = cached.clean_all(|_| true);
                model.assert_holds(&cached, &lost, &context);
                drop(cached);
                // Once more: nothing that was known is forgotten.
                let cached = world.after_cut(cut_at).open(&[role], options());
                model.assert_holds(&cached, &lost, &format!("{context}, and again"));
            });
            if !was_cut {
                break;
            }
        }
    }
    assert!(done > 100 && lost_rows < done / 3, "{done} rows were done, {lost_rows} in doubt");
}

/// With a disk out the members hear of whole rows while there are more to be cleaned.
#[test]
fn members_hear_of_rows_that_are_cleaned_while_a_disk_is_out() {
    const ROWS: u64 = 22;
    with_world(Kind::all()[2], Scheme::KddPaper, 3, |world| {
        let cached = world.attach(options());
        let mut model = Model::new(cached.info().sectors);
        put_off(&cached, &mut model, ROWS);
        cached.array().fail(1).unwrap();
        let env = cached.env();
        while cached.status().stale_rows > 2 {
            env.sleep_until(env.now() + Nanos(10_000));
        }
        let left = cached.status().stale_rows;
        drop(cached);
        let marked = world.after_cut(3).foresee(&[1]).unwrap().stale_rows;
        assert!(left > 0 && marked <= left + 17, "{left} rows were stale, and the members say {marked}");
    });
}

/// A row that cannot be made anew, as a sector of it cannot be read, is zeroed: from then on it is known, and a disk
/// that goes with the power costs nothing of it.
#[test]
fn a_row_that_nobody_knows_is_known_when_it_is_zeroed() {
    for with_nvram in [false, true] {
        with_world(Kind::all()[2], Scheme::KddPaper, 14, |world| {
            let world = if with_nvram { world.with_nvram() } else { world };
            let cached = world.attach(options());
            let shape = cached.array().status().shape;
            let mut model = Model::new(shape.sectors());
            for row in 0..2 {
                let lba = row * shape.row_sectors();
                cached.array().write_without_parity_update(Lba(lba), &content(lba, 2), true).unwrap();
                model.wrote(lba, 2);
                let sector = Lba(DATA_START + shape.member_sector(row));
                world.rig.disks[shape.member_of(row, 1)].make_unreadable(sector);
            }
            assert!(cached.clean_all(|_| true).is_err());
            assert_eq!(cached.status().unknown_rows, 2);
            cached.trim(Lba(0), shape.row_sectors()).unwrap();
            model.wrote(0, 0);
            assert_eq!(cached.status().unknown_rows, 1, "with an NVRAM: {with_nvram}");
            if with_nvram {
                // Parity of it may be put off again.
                [5, 10, 15].into_iter().for_each(|id| write(&cached, &mut model, 1, id, false));
                assert!(cached.array().is_stale(0), "its parity was not put off");
                cached.flush().unwrap();
                drop(cached);
                let role = shape.member_of(0, 0);
                let cached = world.after_cut(14).open(&[role], options());
                let lost: Vec<u64> = (shape.row_sectors()..shape.row_sectors() * 2).collect();
                model.assert_holds(&cached, &lost, "cut");
            }
        });
    }
}

/// Two are at a row: one cannot make it anew, the other, who came before that was known, can, as errors pass, and the
/// cleaner is busy. The NVRAM knows the row again, too.
#[test]
fn a_row_that_is_whole_by_an_earlier_turn_is_known_again_to_the_nvram() {
    let mut seen = 0;
    for failing in 1..40 {
        with_world(Kind::all()[2], Scheme::KddPaper, 16, |world| {
            let world = world.with_nvram();
            let cached = world.attach(options());
            let shape = cached.array().status().shape;
            let put_off_at = |cached: &CachedArray, row: u64| {
                let lba = row * shape.row_sectors();
                cached.array().write_without_parity_update(Lba(lba), &content(lba, 2), true).unwrap();
            };
            put_off_at(&cached, 9);
            drop(cached);
            let world = world.after_cut(16);
            let left = Arc::new(AtomicU64::new(0));
            let (cached, env) = (Arc::new(open_failing(&world, &left)), world.rig.env.clone());
            put_off_at(&cached, 5);
            left.store(failing, Relaxed);
            let other = cached.clone();
            let other = env.clone().spawn("other", Box::new(move || drop(other.clean_all(|_| true))));
            let first = cached.clean_all(|_| true);
            other.join();
            env.sleep_until(env.now() + Nanos(50_000_000));
            if cached.status().stale_rows > 0 {
                return;
            }
            seen += u64::from(first.is_err());
            assert_eq!(cached.status().unknown_rows, 0, "{failing} reads failed");
            // With what this is told the NVRAM hears of all before.
            write(&cached, &mut Model::new(shape.sectors()), 20, 1, true);
            drop(cached);
            assert!(world.after_cut(16).rows_being_cleaned().is_empty(), "{failing} reads failed");
        });
    }
    assert!(seen > 0, "nobody failed");
}

/// A row that could not be made anew is zeroed, put off and lost track of again: that passes, and the cleaner tries it.
#[test]
fn a_row_that_was_known_meanwhile_is_tried_again() {
    let mut seen = 0;
    for failing in 1..20 {
        with_world(Kind::all()[2], Scheme::KddPaper, 17, |world| {
            let world = world.with_nvram();
            world.attach(options()).close().unwrap();
            let left = Arc::new(AtomicU64::new(u64::MAX));
            let (cached, env) = (open_failing(&world, &left), world.rig.env.clone());
            let shape = cached.array().status().shape;
            let lba = 5 * shape.row_sectors();
            cached.array().write_without_parity_update(Lba(lba), &content(lba, 2), true).unwrap();
            assert!(cached.clean_all(|_| true).is_err());
            env.sleep_until(env.now() + Nanos(50_000_000));
            cached.trim(Lba(lba), shape.row_sectors()).unwrap();
            let mut model = Model::new(shape.sectors());
            [5, 10, 15].into_iter().for_each(|id| write(&cached, &mut model, lba, id, false));
            assert_eq!((cached.status().unknown_rows, cached.array().is_stale(5)), (0, true));
            let parity = shape.member_of(5, shape.data_columns());
            world.rig.disks[parity].make_unreadable(Lba(DATA_START + shape.member_sector(5)));
            left.store(failing, Relaxed);
            let is_lost = cached.clean_all(|_| true).is_err();
            env.sleep_until(env.now() + Nanos(50_000_000));
            seen += u64::from(is_lost && cached.status().stale_rows == 0);
        });
    }
    assert!(seen > 0, "it was never tried again");
}

/// Opened on a member whose sector of row 5 cannot be read as often as is left, and where that of row 9 takes long.
fn open_failing(world: &World, left: &Arc<AtomicU64>) -> CachedArray {
    let shape = alone(world, &[]).status().shape;
    let role = shape.member_of(5, 1);
    let [failing, slow] = [5, 9].map(|row| DATA_START + shape.member_sector(row));
    let (left, env) = (left.clone(), world.rig.env.clone());
    let before_read = move |sectors: &Range<u64>| {
        if sectors.contains(&slow) {
            env.sleep_until(env.now() + Nanos(20_000_000));
        }
        let take = |left: u64| left.checked_sub(1);
        match sectors.contains(&failing) && left.fetch_update(Relaxed, Relaxed, take).is_ok() {
            true => Err(Error::new(ErrorKind::Io, "it cannot be read")),
            false => Ok(()),
        }
    };
    let disk = world.rig.disks[role].clone();
    let hooked = Hooked { disk, before_change: no_hook(), before_read: Box::new(before_read) };
    let mut devices = world.rig.devices(&[role]);
    devices.push(Slow::over(Arc::new(hooked), &world.rig.env) as Device);
    let array = assemble(&devices, None, world.rig.env.clone(), Options::default()).unwrap();
    let nvram = world.nvram.clone().map(|nvram| nvram as Device);
    CachedArray::open_with_nvram(array, Some(world.device()), nvram, options()).unwrap()
}

/// Rows that nobody knows cannot be made anew while a disk is out: no record of each try stays in the NVRAM.
#[test]
fn rows_that_cannot_be_made_anew_take_no_room_in_the_nvram() {
    with_world(Kind::all()[2], Scheme::KddPaper, 4, |world| {
        let world = world.with_nvram();
        let cached = world.attach(options());
        let row_sectors = cached.array().status().shape.row_sectors();
        for row in 0..10 {
            let lba = row * row_sectors;
            cached.array().write_without_parity_update(Lba(lba), &content(lba, 2), true).unwrap();
        }
        drop(cached);
        let world = world.after_cut(4);
        let cached = world.open(&[1], options());
        assert!(cached.clean_all(|_| true).is_err());
        write(&cached, &mut Model::new(cached.info().sectors), 20 * row_sectors, 1, true);
        let stuck = cached.status().unknown_rows;
        drop(cached);
        let records = world.after_cut(5).rows_being_cleaned();
        assert!(
            stuck > 4 && records.is_empty(),
            "{stuck} rows are stuck, and there are records of {records:?}"
        );
    });
}

/// Rows whose parity lacks what nobody knows are not waited for by who closes the array: the members know them.
#[test]
fn a_close_does_not_wait_for_rows_that_nobody_knows() {
    with_world(Kind::all()[2], Scheme::KddPaper, 5, |world| {
        let cached = world.attach(options());
        let mut model = Model::new(cached.info().sectors);
        put_off(&cached, &mut model, 20);
        cached.flush().unwrap();
        drop(cached);
        let world = world.after_cut(5);
        let cached = world.open(&[], options());
        let unknown = cached.status().unknown_rows;
        cached.close().unwrap();
        let left = world.foresee(&[]).unwrap().stale_rows;
        assert!(left > 15, "{unknown} rows were unknown, and {left} are left");
        let cached = world.open(&[], options());
        cached.clean_all(|_| true).unwrap();
        cached.close().unwrap();
        world.assert_parity(&mut model, "made anew");
    });
}

/// Rows are to be cleaned so that fewer are stale, and cannot be: writes to another row go on.
#[test]
fn a_write_does_not_fail_for_the_trouble_of_other_rows() {
    const ROWS: u64 = 20;
    with_world(Kind::all()[2], Scheme::KddPaper, 6, |world| {
        let cached = Arc::new(world.attach(CacheOptions { stale_rows_max: 15, ..options() }));
        let (shape, env) = (cached.array().status().shape, cached.env());
        let mut model = Model::new(shape.sectors());
        (0..ROWS).for_each(|row| write(&cached, &mut model, row * shape.row_sectors(), 5, false));
        for (row, column) in (0..ROWS).flat_map(|row| [(row, 1), (row, shape.data_columns())]) {
            let sector = Lba(DATA_START + shape.member_sector(row));
            world.rig.disks[shape.member_of(row, column)].make_unreadable(sector);
        }
        let per_row = shape.row_sectors();
        let put_off = move |cached: &CachedArray, row: u64| {
            let lba = row * per_row;
            cached.write(Lba(lba), &content(lba, 10), false).unwrap();
        };
        (0..7).for_each(|row| put_off(&cached, row));
        let tasks = (7..ROWS).map(|row| {
            let cached = cached.clone();
            let run = move || {
                put_off(&cached, row);
                (0..8).for_each(|_| cached.write(Lba(22 * per_row), &content(0, 1), false).unwrap());
            };
            env.clone().spawn("writer", Box::new(run))
        });
        tasks.collect::<Vec<_>>().into_iter().for_each(Task::join);
        assert!(cached.status().unknown_rows > 5, "rows could be cleaned: nothing is tested");
    });
}

/// One of the rows that a close cleans cannot be: the others are found as they were.
#[test]
fn a_close_keeps_the_cache_though_a_row_cannot_be_cleaned() {
    for (scheme, is_out) in [Scheme::Kdd, Scheme::Leavo].into_iter().flat_map(|of| [(of, false), (of, true)])
    {
        with_world(Kind::all()[2], scheme, 9, |world| {
            let cached = world.attach(options());
            let shape = cached.array().status().shape;
            let mut model = Model::new(shape.sectors());
            put_off(&cached, &mut model, 3);
            assert_eq!(cached.array().stale_rows(0, 10), [0, 1, 2], "{scheme:?}");
            for column in [1, shape.data_columns()] {
                let sector = Lba(DATA_START + shape.member_sector(0));
                world.rig.disks[shape.member_of(0, column)].make_unreadable(sector);
            }
            let role = shape.member_of(0, 2);
            let gone = is_out.then(|| cached.array().fail(role).unwrap());
            cached.close().unwrap();
            let cached = world.open(gone.map(|()| role).as_slice(), options());
            assert_eq!(cached.status().emptied, None, "{scheme:?}");
            let chunk = u64::from(shape.chunk_sectors);
            let lost: Vec<u64> = if is_out { (chunk..3 * chunk).collect() } else { vec![chunk] };
            model.assert_holds(&cached, &lost, &format!("{scheme:?}, a member out: {is_out}"));
            assert_eq!(cached.array().stale_rows(0, 10), [0], "{scheme:?}");
        });
    }
}

/// The head of a half that cannot be read is like one that is damaged: the other counts, if there is one.
#[test]
fn a_head_of_the_nvram_that_cannot_be_read_costs_nothing_beside_the_other() {
    let mut refused = 0;
    for half in [0, 64] {
        closed_with_nvram(|world, model, nvram| {
            let is_blank = !head_at(nvram, half).starts_with(b"VLMCNVRM");
            nvram.make_unreadable(Lba(half));
            if !is_blank {
                refused += 1;
                assert!(
                    world.try_open(&[], options()).is_err(),
                    "all that the NVRAM has is behind that head"
                );
                return;
            }
            let cached = world.open(&[], options());
            assert_eq!(cached.status().emptied, None);
            model.assert_holds(&cached, &[], "nothing is lost");
        });
    }
    assert_eq!(refused, 1, "of the two heads one is there");
}

/// The power goes when the head of the other half is there, and the one before is not zeroed yet.
#[test]
fn of_two_heads_of_the_nvram_the_newer_counts() {
    closed_with_nvram(|world, model, nvram| {
        for half in [64, 0] {
            let before = head_at(nvram, half);
            world.open(&[], options()).close().unwrap();
            assert!(before.starts_with(b"VLMCNVRM") && !head_at(nvram, half).starts_with(b"VLMCNVRM"));
            nvram.write(Lba(half), &before, true).unwrap();
        }
        let cached = world.open(&[], options());
        assert_eq!(cached.status().emptied, None);
        model.assert_holds(&cached, &[], "nothing is lost");
    });
}

/// A cache with an NVRAM that has what parity lacks.
fn closed_with_nvram(test: impl FnOnce(&World, &mut Model, &RamDisk)) {
    with_world(Kind::all()[2], Scheme::KddPaper, 13, |world| {
        let world = world.with_nvram();
        let cached = world.attach(options());
        let mut model = Model::new(cached.info().sectors);
        put_off(&cached, &mut model, 8);
        cached.close().unwrap();
        test(&world, &mut model, world.nvram.as_ref().unwrap());
    });
}

fn head_at(nvram: &RamDisk, half: u64) -> Vec<u8> {
    let mut head = vec![0; SECTOR_BYTES];
    nvram.read(Lba(half), &mut head).unwrap();
    head
}
