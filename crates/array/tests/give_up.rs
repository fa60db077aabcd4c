//! What a rebuild gives up: only what nobody can tell, named whatever happens then, and zeros for everybody from then
//! on.

use crate::harness::{Kind, Oracle, Rig, content, filled};
use crate::rebuild::{assert_redundant, replace, take_in};
use vellum_array::{Array, LogPlace};
use vellum_base::{BlockDevice, Lba};
use vellum_sim::Sim;

/// Where a sector cannot be read.
const ROW: u64 = 7;

/// What was made zeros is named, also if the rebuild cannot go on after that.
#[test]
fn what_was_given_up_is_named_if_the_rebuild_fails_later() {
    let kind = Kind { log: LogPlace::Members, ..Kind::all()[2] };
    let sim = Sim::new(8);
    sim.run(|| {
        let mut rig = Rig::new(kind, sim.env(), 8);
        let array = rig.assemble(&[]);
        filled(&array);
        let shape = array.status().shape;
        let (row, chunk) = (5, u64::from(kind.chunk_sectors));
        let first = row * shape.row_sectors();
        array.write_without_parity_update(Lba(first), &content(999), false).unwrap();
        replace(&mut rig, &array, shape.member_of(row, 1));
        let new = rig.disks[shape.member_of(row, 1)].clone();
        let lose_it = |at: vellum_array::Progress| {
            if at.rows == row + 2 {
                new.lose();
            }
            true
        };
        let rebuilt = array.rebuild(true, lose_it).unwrap();
        assert!(!rebuilt.complete);
        assert_eq!(rebuilt.lost, std::slice::from_ref(&(first + chunk..first + 2 * chunk)));
        assert!(rebuilt.failed.as_ref().is_some_and(|why| why.contains("add another device")), "{rebuilt:?}");
    });
}

/// As many disks are out as there is parity for, and a sector of another cannot be read: what is at its offset in its
/// row is zeros, and nothing else is lost, whichever members it is, and whether one disk comes or all.
#[test]
fn of_a_row_only_what_is_beside_a_sector_that_cannot_be_read_is_given_up() {
    for (kind, at_once) in
        [0, 3, 4, 4, 7].map(|at| Kind::all()[at]).into_iter().zip([false, true, false, true, true])
    {
        for_each_loss(kind, |bad, out| {
            beside_a_sector(kind, bad, out, |mut rig, array, mut oracle, expected| {
                let context = format!("{kind:?}, {bad} beside {out:?}, {at_once}");
                let mut lost: Vec<u64> = Vec::new();
                for some in out.chunks(if at_once { out.len() } else { 1 }) {
                    some.iter().for_each(|role| take_in(&mut rig, &array, *role));
                    assert_eq!(array.rebuild(false, |_| true).is_err(), lost.is_empty(), "{context}");
                    if lost.is_empty() {
                        let rebuilt = array.rebuild(true, |_| true).unwrap();
                        lost = rebuilt.lost.into_iter().flatten().collect();
                        lost.sort_unstable();
                        assert!(rebuilt.complete && lost == expected, "{context}: {lost:?} of {expected:?}");
                        lost.iter().for_each(|lba| oracle.wrote(*lba, 0));
                    }
                    oracle.assert_reads_back(&array, &context);
                    assert_eq!(array.status().stale_rows, 0);
                }
                array.close().unwrap();
                assert_redundant(&rig, &mut oracle, &context);
            });
        });
    }
}

/// A member that goes meanwhile is not taken for one with sector after sector that cannot be read: nothing that only it
/// has is given up.
#[test]
fn a_member_that_goes_while_sectors_are_given_up_loses_nothing_else() {
    for kind in Kind::large() {
        let out: Vec<usize> = (0..kind.level.parities()).collect();
        beside_a_sector(kind, 2, &out, |mut rig, array, mut oracle, expected| {
            out.iter().for_each(|role| take_in(&mut rig, &array, *role));
            let goes = rig.disks[3].clone();
            let rebuilt = array.rebuild(true, |at| {
                if at.rows == ROW + 2 {
                    goes.lose();
                }
                true
            });
            let rebuilt = rebuilt.unwrap();
            assert!(!rebuilt.complete, "{kind:?}");
            let mut named: Vec<u64> = rebuilt.lost.into_iter().flatten().collect();
            named.sort_unstable();
            assert_eq!(named, expected, "{kind:?}");
            drop(array);
            rig.disks[3] = rig.disks[3].fork(&rig.power);
            let array = rig.assemble(&[]);
            let again = array.rebuild(true, |_| true).unwrap();
            assert!(again.complete);
            for lba in named.into_iter().chain(again.lost.into_iter().flatten()) {
                oracle.wrote(lba, 0);
            }
            oracle.settle(&array, &format!("{kind:?}"));
            array.close().unwrap();
            assert_redundant(&rig, &mut oracle, &format!("{kind:?}"));
        });
    }
}

/// The same wherever the power goes meanwhile.
#[test]
fn a_cut_while_a_sector_is_given_up_costs_nothing_beside_it() {
    let kinds = [2, 3, 4].map(|at| Kind::all()[at]);
    let cases = kinds.into_iter().flat_map(|kind| [(kind, 2, false), (kind, 2, true), (kind, 3, true)]);
    for (kind, bad, is_back) in cases {
        let mut was_cut = true;
        for cut_at in (1..).map(|at| at * if is_back { 1 } else { 3 }) {
            let out: Vec<usize> = (0..kind.level.parities()).collect();
            beside_a_sector(kind, bad, &out, |mut rig, array, mut oracle, expected| {
                let context = format!("{kind:?}, {bad}, cut at {cut_at}, {is_back}");
                let shape = array.status().shape;
                array.flush().unwrap();
                oracle.flushed(|_| true);
                out.iter().for_each(|role| take_in(&mut rig, &array, *role));
                rig.power.cut_at(cut_at);
                let rebuilt = array.rebuild(true, |_| true);
                was_cut = rig.power.is_off();
                assert!(was_cut || rebuilt.is_ok_and(|rebuilt| rebuilt.complete));
                drop(array);
                let rig = rig.after_cut(cut_at);
                if is_back {
                    // A drive may read tomorrow what it could not read today.
                    rig.disks[bad].make_readable(Lba(256 + shape.member_sector(ROW) + 1));
                }
                let array = rig.assemble(&[]);
                if array.status().is_degraded() {
                    let lost = array.rebuild(true, |_| true).unwrap().lost;
                    assert!(lost.iter().cloned().flatten().all(|lba| expected.contains(&lba)), "{context}");
                }
                expected.iter().for_each(|lba| oracle.wrote(*lba, 0));
                oracle.settle(&array, &context);
                array.close().unwrap();
                assert_redundant(&rig, &mut oracle, &context);
            });
            if !was_cut {
                break;
            }
        }
    }
}

/// A member, and as many others as there is parity for.
fn for_each_loss(kind: Kind, mut each: impl FnMut(usize, &[usize])) {
    let roles = 0..kind.members;
    for (bad, first, last) in roles.clone().flat_map(|bad| {
        let pairs = roles.clone().flat_map(move |first| (first..kind.members).map(move |last| (first, last)));
        pairs.map(move |(first, last)| (bad, first, last))
    }) {
        let mut out = vec![first, last];
        out.dedup();
        if out.len() == kind.level.parities() && !out.contains(&bad) {
            each(bad, &out);
        }
    }
}

/// Those are out, and a sector of `bad` cannot be read; with the data sectors that are lost by that.
fn beside_a_sector(kind: Kind, bad: usize, out: &[usize], test: impl FnOnce(Rig, Array, Oracle, Vec<u64>)) {
    let sim = Sim::new(3);
    sim.run(|| {
        let rig = Rig::new(kind, sim.env(), 3);
        let (array, oracle) = rig.filled();
        let shape = array.status().shape;
        let (row, offset) = (ROW, 1);
        out.iter().for_each(|role| array.fail(*role).unwrap());
        rig.disks[bad].make_unreadable(Lba(256 + shape.member_sector(row) + offset));
        let columns = out.iter().chain([&bad]).map(|role| shape.column_of(row, *role));
        let data = columns.filter(|column| *column < shape.data_columns());
        let sector =
            |column| row * shape.row_sectors() + column as u64 * u64::from(shape.chunk_sectors) + offset;
        let mut expected: Vec<u64> = data.map(sector).collect();
        expected.sort_unstable();
        test(rig, array, oracle, expected);
    });
}
