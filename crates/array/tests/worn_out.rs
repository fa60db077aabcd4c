//! Sectors that can neither be read nor written any more: what one costs, and that the array can be opened after it.

use crate::harness::{Hooked, Kind, Oracle, Rig, content};
use crate::rebuild::{assert_redundant, replace, take_in};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum_array::layout::Shape;
use vellum_array::{Array, Delta, Options, Repair, assemble};
use vellum_base::{BlockDevice, Env, Error, Kind as ErrorKind, Lba, SECTOR_BYTES};
use vellum_media::RamDisk;
use vellum_sim::Sim;

/// Where the sector is, at offset 1.
pub const ROW: u64 = 7;

/// In virtual time.
pub fn filled(kind: Kind, seed: u64, test: impl FnOnce(Rig, Array, Oracle, Shape)) {
    let sim = Sim::new(seed);
    sim.run(|| {
        let rig = Rig::new(kind, sim.env(), seed);
        let (array, oracle) = rig.filled();
        let shape = array.status().shape;
        test(rig, array, oracle, shape);
    });
}

/// A sector of data, and one of parity, that no member has that is replaced first.
fn kinds_and_columns() -> impl Iterator<Item = (Kind, usize)> {
    let columns = |kind: &Kind| [0, 1].map(|back| kind.members - kind.level.parities() - 1 + back);
    Kind::large().into_iter().flat_map(move |kind| columns(&kind).map(|column| (kind, column)))
}

pub fn wear_out(rig: &Rig, shape: &Shape, row: u64, column: usize) {
    rig.disks[shape.member_of(row, column)].wear_out(Lba(256 + shape.member_sector(row) + 1));
}

/// That sector, of the array.
pub fn sector_of(shape: &Shape, row: u64, column: usize) -> u64 {
    row * shape.row_sectors() + column as u64 * u64::from(shape.chunk_sectors) + 1
}

/// The array anew, where calls that reach the sector of this column fail while that is set.
pub fn with_a_bus(rig: &Rig, array: Array, column: usize) -> (Array, Arc<AtomicBool>) {
    let shape = array.status().shape;
    array.close().unwrap();
    let (role, trap) = (shape.member_of(ROW, column), 256 + shape.member_sector(ROW) + 1);
    let fails = Arc::new(AtomicBool::new(false));
    let hook = || {
        let fails = fails.clone();
        Box::new(move |sectors: &Range<u64>| match fails.load(Relaxed) && sectors.contains(&trap) {
            true => Err(Error::new(ErrorKind::Io, "the bus is reset")),
            false => Ok(()),
        })
    };
    let (mut devices, log) = (rig.devices(&[]), rig.log_device());
    let disk = rig.disks[role].clone();
    devices[role] = Arc::new(Hooked { disk, before_change: hook(), before_read: hook() });
    (assemble(&devices, log.as_ref(), rig.env.clone(), Options::default()).unwrap(), fails)
}

/// As many members as there is parity for are replaced, the first columns of the row.
fn replace_all(rig: &mut Rig, array: &Array) {
    let (shape, parities) = (array.status().shape, rig.kind.level.parities());
    let mut out: Vec<usize> = (0..parities).map(|column| shape.member_of(ROW, column)).collect();
    out.sort_unstable();
    out.iter().for_each(|role| array.fail(*role).unwrap());
    out.iter().for_each(|role| take_in(rig, array, *role));
}

/// The member is on another disk, as far as it could be read.
fn copy(rig: &mut Rig, role: usize) {
    let copy = RamDisk::new(rig.disks[role].info().sectors, &rig.power);
    let mut sector = vec![0; SECTOR_BYTES];
    for lba in (0..copy.info().sectors).map(Lba) {
        if rig.disks[role].read(lba, &mut sector).is_ok() {
            copy.write(lba, &sector, true).unwrap();
        }
    }
    rig.disks[role] = copy;
}

/// Of the sector's member and of these of its sectors it says what to do.
fn assert_told(why: &str, shape: &Shape, column: usize, offsets: Range<u64>) {
    let (role, first) = (shape.member_of(ROW, column), 256 + shape.member_sector(ROW));
    let sectors = format!("{}..{}", first + offsets.start, first + offsets.end);
    assert!(why.contains(&format!("member {role} takes no write at its sectors {sectors}")), "{why}");
    assert!(why.contains("ddrescue"), "{why}");
}

/// One member more than can be spared has one, each in another row.
#[test]
fn those_of_several_members_can_be_read_at_once() {
    for (seed, kind) in (0..20).flat_map(|seed| Kind::large().into_iter().map(move |kind| (seed, kind))) {
        let sim = Sim::new(seed);
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            let rig = Rig::new(kind, env.clone(), seed);
            let (array, shape) = (Arc::new(rig.filled().0), rig.assemble(&[]).status().shape);
            let read = |column: usize| {
                let row = 3 + (kind.members * column) as u64;
                wear_out(&rig, &shape, row, column);
                let (array, lba) = (array.clone(), Lba(sector_of(&shape, row, column)));
                // It may be lost by then: with members that are out.
                let read = move || drop(array.read(lba, &mut [0; SECTOR_BYTES]));
                env.clone().spawn("reader", Box::new(read))
            };
            let tasks: Vec<_> = (0..=kind.level.parities()).map(read).collect();
            tasks.into_iter().for_each(|task| task.join());
            assert_eq!(
                (array.status().ended, array.lost_members()),
                (None, kind.level.parities()),
                "{kind:?}"
            );
        });
    }
}

/// A row is stale: nobody else could tell what the member has of it.
#[test]
fn reading_one_takes_nobody_out_whom_a_stale_row_needs() {
    for kind in Kind::large() {
        filled(kind, 6, |rig, array, mut oracle, shape| {
            let first = 2 * shape.row_sectors();
            array.write_without_parity_update(Lba(first), &content(first as u32 + 1), true).unwrap();
            wear_out(&rig, &shape, ROW, 1);
            oracle.assert_reads_back(&array, "stale");
            assert_eq!(array.lost_members(), 0, "{kind:?}");
            array.resync(2).unwrap();
            oracle.assert_reads_back(&array, "whole");
            assert_eq!(array.lost_members(), 1, "{kind:?}");
        });
    }
}

/// One of a row that is rebuilt already is computed, and its member is out when that can be done without, not before.
/// Until then what would go there is refused before anything says that it is to.
#[test]
fn one_that_wears_out_while_members_are_rebuilt_ends_no_array() {
    for (kind, column) in kinds_and_columns() {
        filled(kind, 5, |mut rig, array, mut oracle, shape| {
            let context = format!("{kind:?}, {column}");
            replace_all(&mut rig, &array);
            let (lba, mut is_first) = (sector_of(&shape, ROW, shape.data_columns() - 1), true);
            let rebuilt = array.rebuild(false, |at| {
                if at.rows == ROW + 2 && std::mem::take(&mut is_first) {
                    wear_out(&rig, &shape, ROW, column);
                    oracle.assert_reads_back(&array, &context);
                    let why = array.write(Lba(lba), &content(9), true).unwrap_err().to_string();
                    assert_told(&why, &shape, column, 1..2);
                    if column < shape.data_columns() {
                        array.write_without_parity_update(Lba(lba), &content(9), true).unwrap_err();
                    }
                    assert_eq!(array.status().ended, None, "{context}");
                    let scrubbed = array.scrub(ROW..ROW + 1, Repair::Parity, |_| true).unwrap();
                    assert!(scrubbed.complete && scrubbed.mismatches == 0, "{context}: {scrubbed:?}");
                    drop(rig.fork(2).assemble(&[]));
                }
                true
            });
            assert!(rebuilt.unwrap().complete && array.lost_members() == 0, "{context}");
            array.write(Lba(lba), &content(9), true).unwrap();
            oracle.wrote(lba, 9);
            oracle.assert_reads_back(&array, &context);
            assert_eq!(array.lost_members(), 1, "{context}");
        });
    }
}

/// It is written before anything else of its row, so that nothing has changed when that fails.
#[test]
fn a_rebuild_that_would_give_one_up_is_refused_and_the_array_is_as_it_was() {
    for (kind, column) in kinds_and_columns() {
        filled(kind, 4, |mut rig, array, mut oracle, shape| {
            let context = format!("{kind:?}, {column}");
            replace_all(&mut rig, &array);
            wear_out(&rig, &shape, ROW, column);
            let mut lost = Vec::new();
            for _ in 0..2 {
                let rebuilt = array.rebuild(true, |_| true).unwrap();
                assert_told(&rebuilt.failed.unwrap(), &shape, column, 1..2);
                lost = rebuilt.lost.into_iter().flatten().collect();
                assert_eq!(array.status().ended, None, "{context}");
            }
            let beside = sector_of(&shape, ROW, 0) + 1;
            array.write(Lba(beside), &content(9), true).unwrap();
            oracle.wrote(beside, 9);
            array.flush().unwrap();
            drop(array);
            let rig = rig.after_cut(5);
            drop(rig.assemble(&[]));
            assert_mended(rig, column, lost, &mut oracle, &context);
        });
    }
}

/// Where the power goes behind the record it is replayed once a copy takes it.
#[test]
fn so_it_is_wherever_the_power_goes_meanwhile() {
    for kind in [2, 6].map(|at| Kind::all()[at]) {
        let (mut opened, mut told, mut was_cut) = (0, 0, false);
        for cut_at in 1.. {
            filled(kind, 4, |mut rig, array, mut oracle, shape| {
                let context = format!("{kind:?}, cut at {cut_at}");
                let column = shape.data_columns() - 1;
                array.flush().unwrap();
                oracle.flushed(|_| true);
                replace_all(&mut rig, &array);
                wear_out(&rig, &shape, ROW, column);
                rig.power.cut_at(cut_at);
                let rebuilt = array.rebuild(true, |_| true);
                was_cut = rig.power.is_off();
                assert!(was_cut || rebuilt.is_ok_and(|rebuilt| rebuilt.failed.is_some()), "{context}");
                drop(array);
                let rig = rig.after_cut(cut_at);
                match rig.try_assemble(&[]) {
                    Ok(_) => opened += 1,
                    Err(error) => {
                        assert_told(&error.to_string(), &shape, column, 1..2);
                        told += 1;
                    }
                }
                let lost = (0..kind.level.parities()).chain([column]);
                let lost = lost.map(|column| sector_of(&shape, ROW, column)).collect();
                assert_mended(rig, column, lost, &mut oracle, &context);
            });
            if !was_cut {
                break;
            }
        }
        assert!(0 < told && told < opened, "{kind:?}: {opened} were opened, {told} were not");
    }
}

/// With a copy of the sector's member the rebuild gets through. What was named as lost is written anew: it may be
/// anything.
fn assert_mended(mut rig: Rig, column: usize, lost: Vec<u64>, oracle: &mut Oracle, context: &str) {
    let shape = vellum_array::examine(&rig.device(&rig.disks[0])).unwrap().shape;
    copy(&mut rig, shape.member_of(ROW, column));
    let array = rig.assemble(&[]);
    let rebuilt = array.rebuild(true, |_| true).unwrap();
    assert!(rebuilt.complete && rebuilt.lost.is_empty(), "{context}: {rebuilt:?}");
    for lba in lost {
        array.write(Lba(lba), &content(0), false).unwrap();
        oracle.wrote(lba, 0);
    }
    oracle.assert_reads_back(&array, context);
    array.close().unwrap();
    assert_redundant(&rig, oracle, context);
}

/// Nobody knew of it before the record was durable.
#[test]
fn an_assembly_that_cannot_replay_a_record_says_what_to_do() {
    for (kind, column) in kinds_and_columns() {
        filled(kind, 5, |mut rig, array, mut oracle, shape| {
            let context = format!("{kind:?}, {column}");
            array.flush().unwrap();
            oracle.flushed(|_| true);
            replace_all(&mut rig, &array);
            let sectors = ROW * shape.row_sectors()..(ROW + 1) * shape.row_sectors();
            let ended = array.rebuild(false, |at| {
                if at.rows == ROW + 2 {
                    wear_out(&rig, &shape, ROW, column);
                    let data: Vec<u8> = sectors.clone().flat_map(|lba| content(lba as u32 + 500)).collect();
                    array.write(Lba(sectors.start), &data, true).unwrap_err();
                }
                true
            });
            assert!(ended.is_err(), "{context}");
            drop(array);
            let mut rig = rig.after_cut(5);
            let why = rig.try_assemble(&[]).map(drop).unwrap_err().to_string();
            assert_told(&why, &shape, column, 0..u64::from(kind.chunk_sectors));
            copy(&mut rig, shape.member_of(ROW, column));
            let array = rig.assemble(&[]);
            assert!(array.rebuild(false, |_| true).unwrap().complete, "{context}");
            sectors.for_each(|lba| oracle.wrote(lba, lba as u32 + 500));
            oracle.assert_reads_back(&array, &context);
            array.close().unwrap();
            assert_redundant(&rig, &mut oracle, &context);
        });
    }
}

/// A row of which parity was put off is not touched: with the member that has it other stale rows would lose more.
#[test]
fn a_stale_row_with_one_is_not_given_up() {
    for kind in Kind::large() {
        filled(kind, 6, |mut rig, array, mut oracle, shape| {
            let context = format!("{kind:?}");
            for row in [ROW, ROW + 1] {
                let put_off = sector_of(&shape, row, 2);
                array.write_without_parity_update(Lba(put_off), &content(9), true).unwrap();
                oracle.wrote(put_off, 9);
            }
            replace(&mut rig, &array, shape.member_of(ROW, 0));
            wear_out(&rig, &shape, ROW, 1);
            let rebuilt = array.rebuild(true, |_| true).unwrap();
            let bad = sector_of(&shape, ROW, 1);
            assert_told(&rebuilt.failed.unwrap(), &shape, 1, 1..2);
            assert_eq!(rebuilt.lost, std::slice::from_ref(&(bad..bad + 1)), "{context}");
            let status = array.status();
            assert_eq!((status.ended, status.stale_rows, array.lost_members()), (None, 2, 1), "{context}");
            drop(array);
            copy(&mut rig, shape.member_of(ROW, 1));
            let array = rig.assemble(&[]);
            let rebuilt = array.rebuild(true, |_| true).unwrap();
            assert_eq!((rebuilt.complete, array.status().stale_rows), (true, 0), "{context}");
            let chunk = |row: u64| {
                let column = shape.column_of(row, shape.member_of(ROW, 0));
                let first = row * shape.row_sectors() + column as u64 * u64::from(kind.chunk_sectors);
                (column < shape.data_columns()).then_some(first..first + u64::from(kind.chunk_sectors))
            };
            let named: Vec<u64> = rebuilt.lost.into_iter().flatten().collect();
            assert_eq!(named, [ROW, ROW + 1].into_iter().filter_map(chunk).flatten().collect::<Vec<_>>());
            named.into_iter().chain([bad]).for_each(|lba| oracle.wrote(lba, 0));
            oracle.assert_reads_back(&array, &context);
        });
    }
}

/// Those of two members, in two rows, are known; either could be spared, and both not.
#[test]
fn a_write_over_those_of_two_members_has_no_record_that_cannot_be_replayed() {
    for kind in [2, 3].map(|at| Kind::all()[at]) {
        filled(kind, 6, |rig, array, _, shape| {
            // While a row is stale no read takes a member out.
            array.write_without_parity_update(Lba(2 * shape.row_sectors()), &content(77), true).unwrap();
            for row in [ROW, ROW + 1] {
                wear_out(&rig, &shape, row, 1);
                array.read(Lba(sector_of(&shape, row, 1)), &mut [0; SECTOR_BYTES]).unwrap();
            }
            assert_eq!(array.lost_members(), 0);
            let data: Vec<u8> =
                (0..2 * shape.row_sectors() as u32).flat_map(|lba| content(lba + 900)).collect();
            array.write(Lba(ROW * shape.row_sectors()), &data, true).unwrap_err();
            assert_eq!((array.status().ended, array.lost_members()), (None, 1), "{kind:?}");
            drop(array);
            drop(rig.after_cut(3).assemble(&[]));
        });
    }
}

/// A bus was reset: a read failed, and the write after it. Then parity of the row is put off, and a member goes.
#[test]
fn one_that_is_well_again_is_written() {
    for kind in [2, 3].map(|at| Kind::all()[at]) {
        filled(kind, 6, |rig, array, _, shape| {
            let (array, fails) = with_a_bus(&rig, array, shape.data_columns());
            array.write_without_parity_update(Lba(2 * shape.row_sectors()), &content(77), true).unwrap();
            fails.store(true, Relaxed);
            array.scrub(ROW..ROW + 1, Repair::None, |_| true).unwrap();
            fails.store(false, Relaxed);
            assert_eq!(array.lost_members(), 0);
            let lba = Lba(sector_of(&shape, ROW, 0));
            let bytes: Vec<u8> =
                content(lba.0 as u32 + 1).iter().zip(content(9)).map(|(old, new)| old ^ new).collect();
            array.write_without_parity_update(lba, &content(9), true).unwrap();
            array.resync(2).unwrap();
            array.fail(shape.member_of(ROW, 1)).unwrap();
            array.parity_update(ROW, &[Delta { lba, bytes: &bytes }]).unwrap();
            let (gone, mut found) = (sector_of(&shape, ROW, 1), vec![0; SECTOR_BYTES]);
            array.read(Lba(gone), &mut found).unwrap();
            assert_eq!(found, content(gone as u32 + 1), "{kind:?}");
        });
    }
}

/// One is known, of a member that could be spared if another had not died unnoticed: with parity, with data, with none
/// of what is written.
#[test]
fn one_that_is_known_takes_nobody_out_beside_who_died_unnoticed() {
    for (kind, column) in [2, 3].into_iter().flat_map(|at| [0, 2, 4].map(|column| (Kind::all()[at], column)))
    {
        filled(kind, 6, |rig, array, _, shape| {
            let context = format!("{kind:?}, {column}");
            let first = 2 * shape.row_sectors();
            array.write_without_parity_update(Lba(first), &content(first as u32 + 1), true).unwrap();
            wear_out(&rig, &shape, ROW, 1);
            array.read(Lba(sector_of(&shape, ROW, 1)), &mut [0; SECTOR_BYTES]).unwrap();
            array.resync(2).unwrap();
            array.flush().unwrap();
            assert_eq!(array.lost_members(), 0, "{context}");
            let dead = shape.member_of(ROW, column);
            rig.disks[dead].fail_from(1);
            let data: Vec<u8> = (0..shape.row_sectors() as u32).flat_map(|lba| content(lba + 900)).collect();
            let why = array.write(Lba(ROW * shape.row_sectors()), &data, true).unwrap_err().to_string();
            assert_told(&why, &shape, 1, 1..2);
            assert_eq!((array.status().ended, array.lost_members()), (None, 1), "{context}");
            drop(array);
            drop(rig.after_cut(3).assemble(&[dead]));
        });
    }
}

/// It can be read again once it is written, and its first write failed.
#[test]
fn one_that_takes_a_write_by_now_costs_no_member() {
    for kind in Kind::large() {
        filled(kind, 6, |rig, array, mut oracle, shape| {
            let (array, fails) = with_a_bus(&rig, array, 1);
            let first = 2 * shape.row_sectors();
            array.write_without_parity_update(Lba(first), &content(first as u32 + 1), true).unwrap();
            rig.disks[shape.member_of(ROW, 1)].make_unreadable(Lba(256 + shape.member_sector(ROW) + 1));
            fails.store(true, Relaxed);
            array.read(Lba(sector_of(&shape, ROW, 1)), &mut [0; SECTOR_BYTES]).unwrap();
            fails.store(false, Relaxed);
            let row = ROW * shape.row_sectors()..(ROW + 1) * shape.row_sectors();
            let data: Vec<u8> = row.clone().flat_map(|lba| content(lba as u32 + 900)).collect();
            array.write(Lba(row.start), &data, true).unwrap();
            row.for_each(|lba| oracle.wrote(lba, lba as u32 + 900));
            oracle.assert_reads_back(&array, &format!("{kind:?}"));
            assert_eq!(array.lost_members(), 0, "{kind:?}");
        });
    }
}
