//! Sectors that took no write and that nobody can tell since, as parity of their row was put off, or as others cannot
//! be read: they are tried with what they are to hold, and cost no member that takes it.

use crate::harness::{Hooked, Kind, Rig, content};
use crate::rebuild::{assert_redundant, take_in};
use crate::worn_out::{ROW, filled, sector_of, wear_out, with_a_bus};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use vellum_array::layout::Shape;
use vellum_array::{Array, Options, Repair, assemble};
use vellum_base::{BlockDevice, Error, Kind as ErrorKind, Lba, SECTOR_BYTES};

/// Where a member has the sector.
fn member_sector(shape: &Shape) -> Lba {
    Lba(256 + shape.member_sector(ROW) + 1)
}

/// Parity's sector, whose row was put off since, so that nobody can tell what it holds.
#[test]
fn one_that_nobody_can_tell_costs_no_member_if_it_takes_a_write_by_now() {
    for kind in Kind::large() {
        filled(kind, 6, |rig, array, mut oracle, shape| {
            let role = shape.member_of(ROW, shape.data_columns());
            let (array, fails) = with_a_bus(&rig, array, shape.data_columns());
            // Another row that is stale, of which the member has data.
            let other = (0..shape.rows).find(|row| *row != ROW && shape.column_of(*row, role) == 1).unwrap();
            let mut put_off = |row, content_of| {
                let lba = sector_of(&shape, row, 0);
                array.write_without_parity_update(Lba(lba), &content(content_of), true).unwrap();
                oracle.wrote(lba, content_of);
            };
            put_off(other, 77);
            rig.disks[role].make_unreadable(Lba(256 + shape.member_sector(ROW) + 1));
            fails.store(true, Relaxed);
            array.scrub(ROW..ROW + 1, Repair::None, |_| true).unwrap();
            fails.store(false, Relaxed);
            put_off(ROW, 9);
            array.resync(ROW).unwrap();
            assert_eq!(array.lost_members(), 0, "{kind:?}");
            oracle.assert_reads_back(&array, &format!("{kind:?}"));
            array.resync(other).unwrap();
            array.close().unwrap();
            assert_redundant(&rig, &mut oracle, &format!("{kind:?}"));
        });
    }
}

#[test]
fn one_that_nobody_can_tell_is_written_if_it_takes_a_write_by_now() {
    for kind in [2, 3].map(|at| Kind::all()[at]) {
        filled(kind, 6, |rig, array, _, shape| {
            let (array, fails) = with_a_bus(&rig, array, 1);
            array.write_without_parity_update(Lba(2 * shape.row_sectors()), &content(77), true).unwrap();
            rig.disks[shape.member_of(ROW, 1)].make_unreadable(Lba(256 + shape.member_sector(ROW) + 1));
            fails.store(true, Relaxed);
            array.read(Lba(sector_of(&shape, ROW, 1)), &mut [0; SECTOR_BYTES]).unwrap();
            array.resync(2).unwrap();
            array.fail(shape.member_of(ROW, 0)).unwrap();
            let row = ROW * shape.row_sectors()..(ROW + 1) * shape.row_sectors();
            let data: Vec<u8> = row.clone().flat_map(|lba| content(lba as u32 + 900)).collect();
            let refused = array.write(Lba(row.start), &data, true).unwrap_err().to_string();
            assert!(refused.contains("takes no write"), "{refused}");
            fails.store(false, Relaxed);
            array.write(Lba(row.start), &data, true).unwrap();
            let mut found = vec![0; data.len()];
            array.read(Lba(row.start), &mut found).unwrap();
            assert!(found == data && array.status().ended.is_none(), "{kind:?}");
        });
    }
}

#[test]
fn two_that_are_known_at_one_offset_end_no_array_that_gives_up() {
    for kind in [6, 7].map(|at| Kind::all()[at]) {
        filled(kind, 6, |mut rig, array, _, shape| {
            array.write_without_parity_update(Lba(2 * shape.row_sectors()), &content(77), true).unwrap();
            for column in [1, 2] {
                wear_out(&rig, &shape, ROW, column);
                array.read(Lba(sector_of(&shape, ROW, column)), &mut [0; SECTOR_BYTES]).unwrap();
            }
            array.resync(2).unwrap();
            let role = shape.member_of(ROW, 0);
            array.fail(role).unwrap();
            take_in(&mut rig, &array, role);
            let failed = array.rebuild(true, |_| true).unwrap().failed.unwrap();
            assert!(failed.contains("takes no write"), "{failed}");
            assert_eq!(array.status().ended, None, "{kind:?}");
            drop(array);
            drop(rig.after_cut(3).assemble(&[]));
        });
    }
}

/// One is known; at its offset other members cannot be read since.
#[test]
fn a_put_off_write_that_is_not_done_leaves_no_stale_row() {
    for kind in Kind::large() {
        filled(kind, 6, |rig, array, _, shape| {
            array.write_without_parity_update(Lba(2 * shape.row_sectors()), &content(77), true).unwrap();
            wear_out(&rig, &shape, ROW, 1);
            let lba = sector_of(&shape, ROW, 1);
            array.read(Lba(lba), &mut [0; SECTOR_BYTES]).unwrap();
            array.resync(2).unwrap();
            (2..2 + kind.level.parities()).for_each(|column| {
                rig.disks[shape.member_of(ROW, column)].make_unreadable(member_sector(&shape));
            });
            array.write_without_parity_update(Lba(lba), &content(9), true).unwrap_err();
            // The sector before it, of the same chunk: all that it takes can be read.
            let mut found = vec![0; SECTOR_BYTES];
            array.read(Lba(lba - 1), &mut found).unwrap();
            assert_eq!((array.status().stale_rows, found), (0, content(lba as u32).to_vec()), "{kind:?}");
        });
    }
}

/// One member is rebuilt; of two others a sector cannot be read, and one of these failed one write.
#[test]
fn giving_up_costs_no_member_whose_sector_takes_a_write_by_now() {
    for kind in [6, 7].map(|at| Kind::all()[at]) {
        filled(kind, 6, |mut rig, array, _, shape| {
            let (array, fails) = with_a_bus(&rig, array, 2);
            let (role, bus) = (shape.member_of(ROW, 0), shape.member_of(ROW, 2));
            // A row that stays stale, of which the one has data and the other parity.
            let is_data = |row: u64, role| shape.column_of(row, role) < shape.data_columns();
            let other = (ROW + 1..shape.rows).find(|row| !is_data(*row, role) && is_data(*row, bus)).unwrap();
            let column = shape.column_of(other, bus);
            let put_off = sector_of(&shape, other, (column + 1) % shape.data_columns());
            array.write_without_parity_update(Lba(put_off), &content(77), true).unwrap();
            rig.disks[bus].make_unreadable(member_sector(&shape));
            fails.store(true, Relaxed);
            array.read(Lba(sector_of(&shape, ROW, 2)), &mut [0; SECTOR_BYTES]).unwrap();
            fails.store(false, Relaxed);
            rig.disks[shape.member_of(ROW, 1)].make_unreadable(member_sector(&shape));
            array.fail(role).unwrap();
            take_in(&mut rig, &array, role);
            assert!(array.rebuild(true, |_| true).unwrap().complete, "{kind:?}");
            let (lba, mut found) = (sector_of(&shape, other, column), vec![0; SECTOR_BYTES]);
            array.read(Lba(lba), &mut found).unwrap();
            assert_eq!((array.lost_members(), found), (0, content(lba as u32 + 1).to_vec()), "{kind:?}");
        });
    }
}

/// What a write of the sector comes to: it fails.
const FAILS: u8 = 1;
/// And is done.
const IS_DONE: u8 = 2;
/// And is done, and cannot be read yet.
const IS_DONE_UNREAD: u8 = 3;
/// It fails, and then the log device does.
const FAILS_WITH_THE_LOG: u8 = 4;

/// A row that was stale meanwhile, and is so for the next opening.
const STALE: u64 = 2;

/// What the row's sectors become, if it is written.
fn new(lba: u64) -> Vec<u8> {
    content(lba as u32 + 900).to_vec()
}

fn row_of(shape: &Shape) -> Range<u64> {
    ROW * shape.row_sectors()..(ROW + 1) * shape.row_sectors()
}

/// The member of column 1, where writes of the sector come to that.
fn moody(rig: &Rig, shape: &Shape, how: &Arc<AtomicU8>) -> Hooked {
    let (trap, lba) = (member_sector(shape), sector_of(shape, ROW, 1));
    let (disk, log) = (rig.disks[shape.member_of(ROW, 1)].clone(), rig.log.clone());
    let (inner, writes) = (disk.clone(), how.clone());
    let before_change = Box::new(move |sectors: &Range<u64>| {
        let how = if sectors.contains(&trap.0) { writes.load(Relaxed) } else { 0 };
        match how {
            0 => return Ok(()),
            IS_DONE | IS_DONE_UNREAD => disk.write(trap, &new(lba), true)?,
            FAILS_WITH_THE_LOG => log.iter().for_each(|log| log.fail_at(1)),
            _ => {}
        }
        Err(Error::new(ErrorKind::Io, "it fails"))
    });
    let reads = how.clone();
    let before_read = Box::new(move |sectors: &Range<u64>| {
        match sectors.contains(&trap.0) && reads.load(Relaxed) == IS_DONE_UNREAD {
            true => Err(Error::new(ErrorKind::Io, "it cannot be read yet")),
            false => Ok(()),
        }
    });
    Hooked { disk: inner, before_change, before_read }
}

/// A write of the row that comes to that, where the member of column 0 is out and the sector of column 1 cannot be
/// read, and took no write before; then all is as it was.
fn refused(kind: Kind, then: u8, test: impl FnOnce(Rig, Array, Shape)) {
    filled(kind, 6, |rig, array, _, shape| {
        array.close().unwrap();
        let (role, trap, lba) = (shape.member_of(ROW, 1), member_sector(&shape), sector_of(&shape, ROW, 1));
        let how = Arc::new(AtomicU8::new(0));
        let (mut devices, log) = (rig.devices(&[]), rig.log_device());
        devices[role] = Arc::new(moody(&rig, &shape, &how));
        let array = assemble(&devices, log.as_ref(), rig.env.clone(), Options::default()).unwrap();
        array.write_without_parity_update(Lba(STALE * shape.row_sectors()), &content(77), true).unwrap();
        rig.disks[role].make_unreadable(trap);
        how.store(FAILS, Relaxed);
        array.read(Lba(lba), &mut [0; SECTOR_BYTES]).unwrap();
        array.resync(STALE).unwrap();
        array.fail(shape.member_of(ROW, 0)).unwrap();
        how.store(then, Relaxed);
        let data: Vec<u8> = row_of(&shape).flat_map(new).collect();
        array.write(Lba(row_of(&shape).start), &data, true).unwrap_err();
        how.store(0, Relaxed);
        drop(devices);
        test(rig, array, shape);
    });
}

/// Every sector but these is as it was, or new if it may be.
fn assert_old(array: &Array, shape: &Shape, but: &[u64], or_new: bool, context: &str) {
    let mut found = vec![0; SECTOR_BYTES];
    let lbas = (0..shape.sectors()).filter(|lba| lba / shape.row_sectors() != STALE && !but.contains(lba));
    for lba in lbas {
        array.read(Lba(lba), &mut found).unwrap();
        let is_new = or_new && row_of(shape).contains(&lba) && found == new(lba);
        assert!(is_new || found == content(lba as u32 + 1), "{context}: {lba} is neither");
    }
}

/// As behind a cache of the kernel's: a write fails, and what it wrote is read all the same.
#[test]
fn one_that_has_what_failed_leaves_no_parity_that_does_not_know_it() {
    for kind in [2, 3].map(|at| Kind::all()[at]) {
        refused(kind, IS_DONE, |rig, array, shape| {
            drop(array);
            assert_old(&rig.assemble(&[]), &shape, &[], true, &format!("{kind:?}"));
        });
    }
}

/// It can be read only later: what is computed wrong then was to be written by the same request, and is right once that
/// is made again.
#[test]
fn one_that_has_what_failed_and_shows_it_later_costs_no_other_sector() {
    for kind in [2, 3].map(|at| Kind::all()[at]) {
        refused(kind, IS_DONE_UNREAD, |_, array, shape| {
            let (written, lost) = (sector_of(&shape, ROW, 1), sector_of(&shape, ROW, 0));
            let mut found = vec![0; SECTOR_BYTES];
            array.read(Lba(written), &mut found).unwrap();
            assert!(array.status().ended.is_none() && found == new(written), "{kind:?}");
            let mut data: Vec<u8> = row_of(&shape).flat_map(new).collect();
            assert_old(&array, &shape, &[written, lost], false, &format!("{kind:?}"));
            array.write(Lba(row_of(&shape).start), &data, true).unwrap();
            let again = data.clone();
            array.read(Lba(row_of(&shape).start), &mut data).unwrap();
            assert!(data == again, "{kind:?}");
        });
    }
}

/// Nothing of the row has changed in place, so it is computed as before; the next opening replays the record.
#[test]
fn a_refusal_that_ends_the_array_leaves_the_row_as_it_was() {
    refused(Kind::all()[3], FAILS_WITH_THE_LOG, |rig, array, shape| {
        assert!(array.status().ended.is_some());
        let (lba, mut found) = (sector_of(&shape, ROW, 0), vec![0; SECTOR_BYTES]);
        array.read(Lba(lba), &mut found).unwrap_err();
        rig.disks[shape.member_of(ROW, 1)].make_readable(member_sector(&shape));
        assert_old(&array, &shape, &[], false, "ended");
        drop(array);
        let array = rig.assemble(&[]);
        array.read(Lba(lba), &mut found).unwrap();
        assert!(array.status().replayed_records > 0 && found == new(lba));
        assert_old(&array, &shape, &[], true, "opened anew");
    });
}
