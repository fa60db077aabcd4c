//! Rows of which nobody knows what their parity lacks, and of which something cannot be read. All members there: what
//! is lost is as good as new once it is written. One goes: a write is answered as what it came to.

use super::degraded::{options, with_world, write};
use super::world::{DATA_START, DEFERRING, Model, World, content};
use crate::harness::Kind;
use std::sync::Arc;
use vellum_array::cache::Scheme;
use vellum_array::cache::engine::{CacheOptions, CachedArray};
use vellum_array::{Repair, Shape};
use vellum_base::{BlockDevice, Lba, Nanos, SECTOR_BYTES};
use vellum_media::RamDisk;

/// Sectors of row 0 are written one by one; the cleaner, or whoever cleans, makes the row whole after the last of them.
#[test]
fn a_lost_sector_of_a_row_that_nobody_knows_can_be_written() {
    for (scheme, with_ssd) in DEFERRING.into_iter().flat_map(|scheme| [(scheme, true), (scheme, false)]) {
        with_unread_data(scheme, with_ssd, |world, cached, mut model, lost| {
            cached.clean_all(|_| true).unwrap_err();
            let scrubbed = cached.scrub(Repair::None, |_| true).unwrap();
            let named: Vec<u64> = scrubbed.lost.into_iter().flatten().collect();
            assert_eq!((scrubbed.stale_rows, scrubbed.lost_sectors, &*named), (1, 2, lost));
            for lba in lost {
                cached.read(Lba(*lba), &mut [0; SECTOR_BYTES]).unwrap_err();
                write(&cached, &mut model, *lba, 7, false);
            }
            assert_whole(world, cached, &mut model, &format!("{scheme:?}, {with_ssd}"));
        });
    }
}

/// So can the whole row.
#[test]
fn a_row_that_nobody_knows_can_be_written_whole() {
    for (scheme, with_ssd) in DEFERRING.into_iter().flat_map(|scheme| [(scheme, true), (scheme, false)]) {
        with_unread_data(scheme, with_ssd, |world, cached, mut model, _| {
            let sectors = cached.array().status().shape.row_sectors();
            (0..sectors).for_each(|lba| model.wrote(lba, 7));
            let data: Vec<u8> = (0..sectors).flat_map(|lba| content(lba, 7)).collect();
            cached.write(Lba(0), &data, true).unwrap();
            assert_whole(world, cached, &mut model, &format!("{scheme:?}, {with_ssd}"));
        });
    }
}

/// Of a row that the cache knows such a sector is not lost: it can be computed once the row is clean.
#[test]
fn a_scrub_cleans_a_row_that_the_cache_knows_before_it_calls_its_sectors_lost() {
    for scheme in DEFERRING {
        with_world(Kind::all()[2], scheme, 12, |world| {
            let cached = world.attach(options());
            let shape = cached.array().status().shape;
            let mut model = Model::new(shape.sectors());
            (0..shape.row_sectors()).for_each(|lba| write(&cached, &mut model, lba, 5, false));
            [10, 15].into_iter().for_each(|id| write(&cached, &mut model, 0, id, false));
            assert_eq!(cached.array().stale_rows(0, 10), [0]);
            world.rig.disks[shape.member_of(0, 1)].make_unreadable(Lba(DATA_START + 1));
            let scrubbed = cached.scrub(Repair::None, |_| true).unwrap();
            assert_eq!((scrubbed.stale_rows, scrubbed.lost), (0, Vec::new()), "{scheme:?}");
            assert_whole(&world, cached, &mut model, &format!("{scheme:?}"));
        });
    }
}

/// Nor is one that the cache has: it is put back where it cannot be read.
#[test]
fn a_scrub_puts_back_what_the_cache_has_of_a_row_that_nobody_knows() {
    with_unread_data(Scheme::KddPaper, true, |world, cached, mut model, lost| {
        write(&cached, &mut model, lost[0], 7, false);
        cached.read(Lba(lost[0]), &mut [0; SECTOR_BYTES]).unwrap();
        let (disk, at) = place(world, &cached.array().status().shape, lost[0]);
        disk.make_unreadable(at);
        let scrubbed = cached.scrub(Repair::None, |_| true).unwrap();
        let named: Vec<u64> = scrubbed.lost.into_iter().flatten().collect();
        assert_eq!((scrubbed.stale_rows, scrubbed.lost_sectors, &*named), (1, 1, &lost[1..]));
        write(&cached, &mut model, lost[1], 7, false);
        assert_whole(world, cached, &mut model, "put back");
    });
}

/// A disk that cannot write it, either, is in nobody's way: the cache has it.
#[test]
fn a_scrub_takes_nobody_out_for_what_cannot_be_put_back() {
    with_unread_data(Scheme::KddPaper, true, |world, cached, mut model, lost| {
        write(&cached, &mut model, lost[0], 7, false);
        cached.read(Lba(lost[0]), &mut [0; SECTOR_BYTES]).unwrap();
        let (disk, at) = place(world, &cached.array().status().shape, lost[0]);
        disk.wear_out(at);
        cached.scrub(Repair::None, |_| true).unwrap();
        assert_eq!(cached.array().lost_members(), 0);
        let mut sector = vec![0; SECTOR_BYTES];
        cached.read(Lba(lost[0]), &mut sector).unwrap();
        assert_eq!(sector, content(lost[0], 7));
    });
}

/// A member that is gone is out; its sectors are no findings.
#[test]
fn a_scrub_of_stale_rows_takes_out_who_is_gone() {
    with_unread_data(Scheme::KddPaper, true, |world, cached, _, lost| {
        let shape = cached.array().status().shape;
        let other = (0..shape.data_columns())
            .find(|column| lost.iter().all(|lba| lba / u64::from(shape.chunk_sectors) != *column as u64));
        world.rig.disks[shape.member_of(0, other.unwrap())].lose();
        let scrubbed = cached.scrub(Repair::None, |_| true).unwrap();
        assert_eq!(cached.array().lost_members(), 1);
        let named: Vec<u64> = scrubbed.lost.into_iter().flatten().collect();
        assert_eq!(named, lost);
    });
}

/// What is written to such a row has no record and no intent: it is durable at once.
#[test]
fn what_is_written_to_a_row_that_nobody_knows_outlives_a_cut() {
    for scheme in DEFERRING {
        with_unread_data(scheme, true, |world, cached, mut model, lost| {
            lost.iter().for_each(|lba| write(&cached, &mut model, *lba, 7, false));
            drop(cached);
            let world = world.after_cut(13);
            let cached = world.open(&[], options());
            for lba in lost {
                let mut sector = vec![0; SECTOR_BYTES];
                cached.read(Lba(*lba), &mut sector).unwrap();
                assert_eq!(sector, content(*lba, 7), "{scheme:?}, {lba}");
            }
        });
    }
}

/// After a cut without an NVRAM, which leaves row 0 stale; two of its sectors cannot be read.
fn with_unread_data(scheme: Scheme, with_ssd: bool, test: impl FnOnce(&World, CachedArray, Model, &[u64])) {
    with_world(Kind::all()[2], scheme, 12, |world| {
        let cached = world.attach(options());
        let shape = cached.array().status().shape;
        let mut model = Model::new(shape.sectors());
        (0..shape.row_sectors()).for_each(|lba| write(&cached, &mut model, lba, 5, false));
        [10, 15].into_iter().for_each(|id| write(&cached, &mut model, 0, id, false));
        cached.flush().unwrap();
        assert_eq!(cached.array().stale_rows(0, 10), [0]);
        drop(cached);
        let world = world.after_cut(12);
        let chunk = u64::from(shape.chunk_sectors);
        let lost = [chunk + 1, 2 * chunk + 2];
        for lba in lost {
            let (disk, at) = place(&world, &shape, lba);
            disk.make_unreadable(at);
        }
        let cached = match with_ssd {
            true => world.open(&[], options()),
            false => {
                let options = CacheOptions { without_cache: true, ..options() };
                CachedArray::open(world.rig.assemble(&[]), None, options).unwrap()
            }
        };
        // The cleaner tries it.
        cached.env().sleep_until(cached.env().now() + Nanos(1_000_000_000));
        test(&world, cached, model, &lost);
    });
}

/// Where a sector of row 0 is.
fn place<'a>(world: &'a World, shape: &Shape, lba: u64) -> (&'a RamDisk, Lba) {
    let chunk = u64::from(shape.chunk_sectors);
    (&world.rig.disks[shape.member_of(0, (lba / chunk) as usize)], Lba(DATA_START + lba % chunk))
}

fn assert_whole(world: &World, cached: CachedArray, model: &mut Model, context: &str) {
    cached.env().sleep_until(cached.env().now() + Nanos(1_000_000_000));
    assert_eq!(cached.array().status().stale_rows, 0, "{context}");
    model.assert_holds(&cached, &[], context);
    cached.close().unwrap();
    world.assert_parity(model, context);
}

/// A disk goes with the write that finds it gone, and parity that was put off cannot be brought up to date: what was to
/// be written there is refused, also if the cleaner has the row first.
#[test]
fn a_write_to_a_member_that_goes_is_refused_if_nobody_can_tell_it() {
    for seed in 0..100 {
        parity_cannot_be_read(seed, |cached, disk| {
            disk.lose();
            let written = cached.write(Lba(0), &content(0, 15), seed % 2 == 0);
            assert_eq!(cached.array().lost_members(), 1);
            cached.env().sleep_until(cached.env().now() + Nanos(1_000_000_000));
            let is_there = cached.read(Lba(0), &mut [0; SECTOR_BYTES]).is_ok();
            assert_eq!(written.is_ok(), is_there, "seed {seed}");
        });
    }
}

/// What is written beside it is no concern of that: it is on its member.
#[test]
fn a_write_beside_a_member_that_goes_is_acknowledged_though_its_row_cannot_be_whole() {
    for seed in 0..200 {
        parity_cannot_be_read(seed, |cached, _| {
            let (array, env) = (cached.clone(), cached.env());
            let role = array.array().status().shape.member_of(0, 0);
            let goes = env.clone().spawn("goes", Box::new(move || array.array().fail(role).unwrap()));
            env.sleep_until(env.now() + Nanos(seed * 1_000));
            cached.write(Lba(9), &content(9, 15), true).unwrap();
            goes.join();
        });
    }
}

/// Parity of the first offset of row 0 was put off, and cannot be read, nor a sector of data that it is computed from.
/// With the disk that has column 0.
fn parity_cannot_be_read(seed: u64, test: impl FnOnce(&Arc<CachedArray>, &RamDisk)) {
    with_world(Kind::all()[2], Scheme::KddPaper, seed, |world| {
        let cached = Arc::new(world.attach(options()));
        let shape = cached.array().status().shape;
        let mut model = Model::new(shape.sectors());
        (0..shape.row_sectors()).for_each(|lba| write(&cached, &mut model, lba, 5, false));
        [0, 4].into_iter().for_each(|lba| write(&cached, &mut model, lba, 10, false));
        cached.flush().unwrap();
        for column in [2, shape.data_columns()] {
            world.rig.disks[shape.member_of(0, column)].make_unreadable(Lba(DATA_START));
        }
        test(&cached, &world.rig.disks[shape.member_of(0, 0)]);
    });
}
