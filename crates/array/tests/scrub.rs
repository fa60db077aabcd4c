//! Scrubs, in the shapes of mdadm's tests: 19raid6check (every layout, every column), 19raid6repair (every pair of
//! columns), 19repair-does-not-destroy.

use crate::harness::{Kind, Oracle, Rig, content, filled};
use vellum_array::{Array, Level, LogPlace, Repair, Scrubbed, Shape, WrongMember};
use vellum_base::{BlockDevice, Lba, SECTOR_BYTES};
use vellum_media::RamDisk;
use vellum_sim::Sim;

fn scrub(array: &Array, repair: Repair) -> Scrubbed {
    let report = array.scrub(0..u64::MAX, repair, |_| true).unwrap();
    assert!(report.complete);
    report
}

/// Rots a byte of a sector in a column of a row.
fn rot(rig: &Rig, shape: &Shape, row: u64, column: usize, offset: u64) {
    let sector = 256 + shape.member_sector(row) + offset;
    rig.disks[shape.member_of(row, column)].rot(Lba(sector), 77 + column, 0x21);
}

const SIX: Kind = Kind { level: Level::Raid6, members: 5, chunk_sectors: 4, log: LogPlace::Members };

fn with_six(test: impl FnOnce(&Rig, Array, Oracle)) {
    let sim = Sim::new(1);
    sim.run(|| {
        let rig = Rig::new(SIX, sim.env(), 1);
        let array = rig.assemble(&[]);
        let oracle = filled(&array);
        test(&rig, array, oracle);
    });
}

#[test]
fn nothing_is_found_on_a_healthy_array_and_nothing_is_written() {
    for kind in Kind::all() {
        let sim = Sim::new(1);
        sim.run(|| {
            let rig = Rig::new(kind, sim.env(), 1);
            let array = rig.assemble(&[]);
            let mut oracle = filled(&array);
            let before = rig.power.calls();
            let report = scrub(&array, Repair::Parity);
            assert_eq!((report.rows, report.mismatches), (array.status().shape.rows, 0), "{kind:?}");
            assert_eq!(rig.power.calls(), before);
            oracle.assert_reads_back(&array, "scrubbed");
        });
    }
}

/// 19raid6check: in every row of every layout one column is wrong; it is found, and found to be that one.
#[test]
fn a_single_wrong_column_is_found_and_corrected_in_raid_6() {
    for offset_of_column in 0..SIX.members {
        with_six(|rig, array, mut oracle| {
            let shape = array.status().shape;
            let columns = |row: u64| (row as usize + offset_of_column) % SIX.members;
            (0..shape.rows).for_each(|row| rot(rig, &shape, row, columns(row), row % 4));
            let found = scrub(&array, Repair::None);
            assert_eq!((found.mismatches, found.corrected, found.left()), (shape.rows, 0, shape.rows));
            assert_eq!(found.mismatched_rows, (0..shape.rows).collect::<Vec<_>>());
            let repaired = scrub(&array, Repair::Located);
            assert_eq!((repaired.corrected, repaired.left()), (shape.rows, 0));
            assert_eq!(scrub(&array, Repair::None).mismatches, 0);
            oracle.assert_reads_back(&array, "repaired");
        });
    }
}

/// 19raid6repair: two columns are wrong. No repair may guess.
#[test]
fn two_wrong_columns_are_reported_and_left_alone() {
    for x in 0..SIX.members {
        for y in x + 1..SIX.members {
            with_six(|rig, array, _| {
                let shape = array.status().shape;
                rot(rig, &shape, 3, x, 1);
                rot(rig, &shape, 3, y, 1);
                let calls = rig.power.calls();
                let report = scrub(&array, Repair::Located);
                assert_eq!((report.mismatches, report.left()), (1, 1), "columns {x} and {y}");
                assert_eq!(rig.power.calls(), calls, "nothing may be written");
                let anew = scrub(&array, Repair::Parity);
                assert_eq!((anew.parity_made_anew, anew.left()), (1, 0));
                assert_eq!(scrub(&array, Repair::None).mismatches, 0);
            });
        }
    }
}

/// 19raid6repair, its other half: any two members are wrong from end to end, and a rebuild of both gives every byte
/// back.
#[test]
fn two_wrong_members_are_rebuilt_byte_for_byte() {
    for members in [4, 5] {
        let kind = Kind { members, ..SIX };
        for (x, y) in (0..members).flat_map(|x| (x + 1..members).map(move |y| (x, y))) {
            let sim = Sim::new(1);
            sim.run(|| {
                let mut rig = Rig::new(kind, sim.env(), 1);
                let array = rig.assemble(&[]);
                let mut oracle = filled(&array);
                let sectors = array.status().shape.rows * 4;
                array.close().unwrap();
                let before = rig.fork(1);
                for role in [x, y] {
                    (0..sectors).for_each(|sector| rig.disks[role].rot(Lba(256 + sector), 5, 0x80));
                }
                let array = rig.assemble(&[x, y]);
                for role in [x, y] {
                    rig.disks[role] = RamDisk::new(rig.disks[role].info().sectors, &rig.power);
                    assert_eq!(array.add(rig.device(&rig.disks[role]), false).unwrap(), role);
                }
                assert!(array.rebuild(false, |_| true).unwrap().complete);
                oracle.assert_reads_back(&array, "rebuilt");
                let is_same = |role: usize| data(&rig, role, sectors) == data(&before, role, sectors);
                assert!((0..members).all(is_same), "{members} members, {x} and {y}");
            });
        }
    }
}

/// What a member holds of rows.
fn data(rig: &Rig, role: usize, sectors: u64) -> Vec<u8> {
    let mut out = vec![0; sectors as usize * SECTOR_BYTES];
    rig.disks[role].read(Lba(256), &mut out).unwrap();
    out
}

/// 19repair-does-not-destroy: a whole disk is overwritten; the repair brings it back and touches no other.
#[test]
fn a_repair_does_not_destroy() {
    with_six(|rig, array, mut oracle| {
        let shape = array.status().shape;
        array.close().unwrap();
        let before = rig.fork(1);
        for sector in 0..shape.rows * 4 {
            rig.disks[2].rot(Lba(256 + sector), 5, 0x80);
        }
        let array = rig.assemble(&[]);
        let report = scrub(&array, Repair::Parity);
        assert_eq!((report.corrected, report.parity_made_anew, report.left()), (shape.rows * 4, 0, 0));
        oracle.assert_reads_back(&array, "repaired");
        let is_same = |role: usize| data(rig, role, shape.rows * 4) == data(&before, role, shape.rows * 4);
        assert!((0..SIX.members).all(is_same));
    });
}

#[test]
fn raid_5_takes_data_to_be_right_only_if_asked() {
    let kind = Kind { level: Level::Raid5, members: 4, ..SIX };
    let sim = Sim::new(1);
    sim.run(|| {
        let rig = Rig::new(kind, sim.env(), 1);
        let array = rig.assemble(&[]);
        let mut oracle = filled(&array);
        let shape = array.status().shape;
        rot(&rig, &shape, 4, 3, 0); // parity
        assert_eq!(scrub(&array, Repair::Located).left(), 1, "it is not known what is wrong");
        assert_eq!(scrub(&array, Repair::Parity).parity_made_anew, 1);
        assert_eq!(scrub(&array, Repair::None).mismatches, 0);
        oracle.assert_reads_back(&array, "parity was wrong");
    });
}

#[test]
fn stale_and_degraded_rows_are_passed_over_and_unreadable_sectors_healed() {
    with_six(|rig, array, mut oracle| {
        let shape = array.status().shape;
        array.write_without_parity_update(Lba(0), &content(70_000), true).unwrap();
        oracle.wrote(0, 70_000);
        rig.disks[3].make_unreadable(Lba(256 + shape.member_sector(5)));
        let report = scrub(&array, Repair::Parity);
        assert_eq!((report.stale_rows, report.rows, report.mismatches), (1, shape.rows - 1, 0));
        assert_eq!(array.status().healed_sectors, 1);
        array.fail(1).unwrap();
        array.fail(2).unwrap();
        assert_eq!(scrub(&array, Repair::Parity).degraded_rows, shape.rows - 1);
    });
}

/// RAID-6 without a member has one parity left: what does not agree is found in every row, whatever column that was and
/// whichever is wrong; nothing is written, for nobody can tell which it is.
#[test]
fn raid_6_that_lacks_a_member_is_compared_by_the_other_parity() {
    for wrong in 0..SIX.members - 1 {
        with_six(|rig, array, mut oracle| {
            let shape = array.status().shape;
            array.fail(1).unwrap();
            let healthy = scrub(&array, Repair::Parity);
            assert_eq!((healthy.rows, healthy.one_parity_rows), (shape.rows, shape.rows));
            assert_eq!((healthy.mismatches, healthy.degraded_rows), (0, 0));
            oracle.assert_reads_back(&array, "degraded");
            for row in 0..shape.rows {
                let there = (0..SIX.members).filter(|column| shape.member_of(row, *column) != 1);
                rot(rig, &shape, row, there.cycle().nth(wrong).unwrap(), row % 4);
            }
            let before = rig.power.calls();
            let found = scrub(&array, Repair::Parity);
            assert_eq!((found.mismatches, found.left()), (shape.rows, shape.rows));
            assert_eq!(found.mismatched_rows, (0..shape.rows).collect::<Vec<_>>());
            assert!(found.wrong_members.is_empty());
            assert_eq!(rig.power.calls(), before, "nothing is written");
        });
    }
}

/// Which member was wrong is said, and in which rows.
#[test]
fn a_member_that_was_wrong_is_named() {
    with_six(|rig, array, _| {
        let shape = array.status().shape;
        for (row, offset) in [(3, 0), (3, 1), (7, 2)] {
            rot(rig, &shape, row, shape.column_of(row, 2), offset);
        }
        rot(rig, &shape, 9, shape.column_of(9, 4), 3);
        for repair in [Repair::None, Repair::Located] {
            let found = scrub(&array, repair);
            let wrong = |sectors, rows: &[u64]| WrongMember { sectors, rows: rows.to_vec() };
            assert_eq!(found.wrong_members, [(2, wrong(3, &[3, 7])), (4, wrong(1, &[9]))].into());
        }
        assert!(scrub(&array, Repair::None).wrong_members.is_empty());
    });
}
