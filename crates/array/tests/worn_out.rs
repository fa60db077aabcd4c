//! Sectors that can neither be read nor written any more: what one costs, and that the array can be opened after it.

use crate::harness::{Kind, Oracle, Rig, content};
use crate::rebuild::{assert_redundant, replace, take_in};
use std::ops::Range;
use std::sync::Arc;
use vellum_array::layout::Shape;
use vellum_array::{Array, Level, Repair};
use vellum_base::{BlockDevice, Env, Lba, SECTOR_BYTES};
use vellum_media::RamDisk;
use vellum_sim::Sim;

/// Where the sector is, at offset 1.
const ROW: u64 = 7;

/// Five members, and six: with the log on them and on a device.
fn kinds() -> impl Iterator<Item = Kind> {
    [2, 3, 6, 7].into_iter().map(|at| Kind::all()[at])
}

/// A sector of data, and one of parity, that no member has that is replaced first.
fn kinds_and_columns() -> impl Iterator<Item = (Kind, usize)> {
    let columns = |kind: &Kind| [0, 1].map(|back| kind.members - kind.level.parities() - 1 + back);
    kinds().flat_map(move |kind| columns(&kind).map(|column| (kind, column)))
}

fn wear_out(rig: &Rig, shape: &Shape, row: u64, column: usize) {
    rig.disks[shape.member_of(row, column)].wear_out(Lba(256 + shape.member_sector(row) + 1));
}

/// That sector, of the array.
fn sector_of(shape: &Shape, row: u64, column: usize) -> u64 {
    row * shape.row_sectors() + column as u64 * u64::from(shape.chunk_sectors) + 1
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
    for (seed, kind) in (0..20).flat_map(|seed| kinds().map(move |kind| (seed, kind))) {
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
    for kind in kinds() {
        let sim = Sim::new(6);
        sim.run(|| {
            let rig = Rig::new(kind, sim.env(), 6);
            let (array, mut oracle) = rig.filled();
            let shape = array.status().shape;
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
        let sim = Sim::new(5);
        sim.run(|| {
            let context = format!("{kind:?}, {column}");
            let mut rig = Rig::new(kind, sim.env(), 5);
            let (array, mut oracle) = rig.filled();
            let shape = array.status().shape;
            replace_all(&mut rig, &array);
            let (lba, mut is_first) = (sector_of(&shape, ROW, shape.data_columns() - 1), true);
            let rebuilt = array.rebuild(false, |at| {
                if at.rows == ROW + 2 && std::mem::take(&mut is_first) {
                    wear_out(&rig, &shape, ROW, column);
                    oracle.assert_reads_back(&array, &context);
                    let why = array.write(Lba(lba), &content(9), true).unwrap_err().to_string();
                    assert!(
                        why.contains("takes no write") && why.contains("rebuild what is lost first"),
                        "{why}"
                    );
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
        let sim = Sim::new(4);
        sim.run(|| {
            let context = format!("{kind:?}, {column}");
            let mut rig = Rig::new(kind, sim.env(), 4);
            let (array, mut oracle) = rig.filled();
            let shape = array.status().shape;
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
            let sim = Sim::new(4);
            sim.run(|| {
                let context = format!("{kind:?}, cut at {cut_at}");
                let mut rig = Rig::new(kind, sim.env(), 4);
                let (array, mut oracle) = rig.filled();
                let shape = array.status().shape;
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
        let sim = Sim::new(5);
        sim.run(|| {
            let context = format!("{kind:?}, {column}");
            let mut rig = Rig::new(kind, sim.env(), 5);
            let (array, mut oracle) = rig.filled();
            let shape = array.status().shape;
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

/// Beside it a row is given up of which parity was put off. A member that can be spared is out once the row is whole,
/// and nothing but the sector is lost by it; with one that cannot the row is not touched.
#[test]
fn one_of_a_stale_row_that_is_given_up_costs_no_more_than_itself() {
    for kind in kinds() {
        let sim = Sim::new(6);
        sim.run(|| {
            let context = format!("{kind:?}");
            let mut rig = Rig::new(kind, sim.env(), 6);
            let (mut array, mut oracle) = rig.filled();
            let shape = array.status().shape;
            let put_off = sector_of(&shape, ROW, 2);
            array.write_without_parity_update(Lba(put_off), &content(9), true).unwrap();
            oracle.wrote(put_off, 9);
            replace(&mut rig, &array, shape.member_of(ROW, 0));
            wear_out(&rig, &shape, ROW, 1);
            let mut rebuilt = array.rebuild(true, |_| true).unwrap();
            let bad = sector_of(&shape, ROW, 1);
            if kind.level == Level::Raid5 {
                assert_told(&rebuilt.failed.unwrap(), &shape, 1, 1..2);
                assert_eq!(rebuilt.lost, std::slice::from_ref(&(bad..bad + 1)));
                assert_eq!(array.status().stale_rows, 1);
                drop(array);
                copy(&mut rig, shape.member_of(ROW, 1));
                array = rig.assemble(&[]);
                rebuilt = array.rebuild(true, |_| true).unwrap();
                rebuilt.lost.push(bad..bad + 1);
            }
            let status = array.status();
            assert_eq!((rebuilt.complete, rebuilt.failed, status.stale_rows), (true, None, 0), "{context}");
            let chunk = ROW * shape.row_sectors()..ROW * shape.row_sectors() + u64::from(kind.chunk_sectors);
            let mut lost: Vec<u64> = rebuilt.lost.into_iter().flatten().collect();
            lost.sort_unstable();
            assert_eq!(lost, chunk.chain([bad]).collect::<Vec<_>>(), "{context}");
            lost.into_iter().for_each(|lba| oracle.wrote(lba, 0));
            assert_eq!(array.lost_members(), kind.level.parities() - 1, "{context}");
            oracle.assert_reads_back(&array, &context);
        });
    }
}
