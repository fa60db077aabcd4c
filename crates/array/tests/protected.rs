//! Members that can be read and take no write, as a drive that has become read-only, beside other faults: what they
//! cost, and that the array can be opened once they are well.

use crate::harness::{Hooked, Kind, Oracle, Rig, content, no_hook};
use crate::rebuild::take_in;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use vellum_array::layout::Shape;
use vellum_array::{Array, Device, Options, assemble};
use vellum_base::{BlockDevice, Error, Kind as ErrorKind, Lba, SECTOR_BYTES};
use vellum_sim::Sim;

/// Of another member a sector at offset 1 of this row, in column 1, takes no write.
const ROW: u64 = 7;

/// The calls that fail.
const WRITES: u8 = 1;
const WRITES_AND_FLUSHES: u8 = 2;

fn filled(kind: Kind, test: impl FnOnce(Rig, Array, Oracle, Shape)) {
    let sim = Sim::new(6);
    sim.run(|| {
        let rig = Rig::new(kind, sim.env(), 6);
        let (array, oracle) = rig.filled();
        array.flush().unwrap();
        let shape = array.status().shape;
        test(rig, array, oracle, shape);
    });
}

fn protected(rig: &Rig, role: usize, fails: &Arc<AtomicU8>) -> Vec<Device> {
    let fails = fails.clone();
    let before_change =
        Box::new(move |sectors: &Range<u64>| match (fails.load(Relaxed), sectors.is_empty()) {
            (WRITES, false) | (WRITES_AND_FLUSHES, _) => Err(Error::new(ErrorKind::Io, "write protected")),
            _ => Ok(()),
        });
    let mut devices = rig.devices(&[]);
    let disk = rig.disks[role].clone();
    devices[role] = Arc::new(Hooked { disk, before_change, before_read: no_hook() });
    devices
}

fn open(rig: &Rig, devices: &[Device]) -> vellum_base::Result<Array> {
    assemble(devices, rig.log_device().as_ref(), rig.env.clone(), Options::default())
}

/// The array of five anew, with the member that takes no write while that is said, and another's sector worn out.
fn with_one(test: impl Fn(&Rig, &Array, &Shape, &dyn Fn())) {
    for (at, calls) in [2, 3].into_iter().flat_map(|at| [WRITES, WRITES_AND_FLUSHES].map(|calls| (at, calls)))
    {
        filled(Kind::all()[at], |rig, array, _, shape| {
            let (role, fails) = (shape.member_of(ROW, 3), Arc::new(AtomicU8::new(0)));
            array.close().unwrap();
            let array = open(&rig, &protected(&rig, role, &fails)).unwrap();
            rig.disks[shape.member_of(ROW, 1)].wear_out(Lba(256 + shape.member_sector(ROW) + 1));
            test(&rig, &array, &shape, &|| fails.store(calls, Relaxed));
            assert_eq!(array.status().ended, None, "{at}, {calls}");
            drop(array);
            drop(rig.after_cut(3).assemble(&[role]));
        });
    }
}

fn worn_sector(shape: &Shape) -> u64 {
    ROW * shape.row_sectors() + u64::from(shape.chunk_sectors) + 1
}

#[test]
fn a_read_of_a_sector_that_takes_no_write_ends_no_array() {
    with_one(|_, array, shape, protect| {
        protect();
        let (lba, mut found) = (worn_sector(shape), vec![0; SECTOR_BYTES]);
        array.read(Lba(lba), &mut found).unwrap();
        assert_eq!(found, content(lba as u32 + 1));
    });
}

#[test]
fn a_write_of_one_is_refused_and_ends_no_array() {
    with_one(|_, array, shape, protect| {
        // While a row is stale no read takes a member out.
        let first = 2 * shape.row_sectors();
        array.write_without_parity_update(Lba(first), &content(first as u32 + 1), true).unwrap();
        array.read(Lba(worn_sector(shape)), &mut [0; SECTOR_BYTES]).unwrap();
        array.resync(2).unwrap();
        array.flush().unwrap();
        assert_eq!(array.lost_members(), 0);
        protect();
        let data: Vec<u8> = (0..shape.row_sectors() as u32).flat_map(|lba| content(lba + 900)).collect();
        let error = array.write(Lba(ROW * shape.row_sectors()), &data, true).unwrap_err();
        assert!(error.to_string().contains("ddrescue"), "{error}");
        assert_eq!(array.lost_members(), 1);
    });
}

/// The order is refused, and costs nothing: superblocks that miss both would say that neither counts, for good.
#[test]
fn nobody_is_taken_out_by_order_beside_who_died_unnoticed() {
    for kind in Kind::large() {
        filled(kind, |rig, array, mut oracle, _| {
            (1..kind.level.parities()).for_each(|role| array.fail(role).unwrap());
            rig.disks[3].lose();
            let error = array.fail(0).unwrap_err();
            assert!(error.to_string().contains("cannot do without member 0"), "{error}");
            assert_eq!(
                (array.lost_members(), array.status().ended),
                (kind.level.parities(), None),
                "{kind:?}"
            );
            drop(array);
            let array = rig.after_cut(3).assemble(&[3]);
            oracle.assert_reads_back(&array, &format!("{kind:?}"));
        });
    }
}

/// Each opening that fails would put a newer event on those who take it, and leave the one behind that does not.
#[test]
fn openings_that_fail_leave_an_array_that_can_be_opened() {
    for (kind, opened) in Kind::large().into_iter().flat_map(|kind| (0..4).map(move |opened| (kind, opened)))
    {
        let fails = Arc::new(AtomicU8::new(WRITES));
        let opens_well = |rig: &Rig, oracle: &mut Oracle| {
            let array = rig.try_assemble(&[]).unwrap_or_else(|e| panic!("{kind:?}, {opened} openings: {e}"));
            oracle.assert_reads_back(&array, "well again");
        };
        let refused = |rig: &Rig, devices: &[Device]| {
            let error = open(rig, devices).map(drop).unwrap_err().to_string();
            assert!(error.contains("3 (takes no write: ") && error.contains("ddrescue"), "{error}");
        };
        filled(kind, |rig, array, mut oracle, _| {
            (0..kind.level.parities()).for_each(|role| array.fail(role).unwrap());
            array.close().unwrap();
            (0..opened).for_each(|_| refused(&rig, &protected(&rig, 3, &fails)));
            opens_well(&rig, &mut oracle);
        });
        // The same with members that are there again afterwards, and were never out.
        filled(kind, |rig, array, mut oracle, _| {
            array.close().unwrap();
            (0..opened).for_each(|_| {
                let devices = protected(&rig, 3, &fails).split_off(kind.level.parities());
                refused(&rig, &devices);
            });
            opens_well(&rig, &mut oracle);
        });
    }
}

/// A member is being rebuilt, and its device takes neither writes nor flushes; another takes no write.
#[test]
fn so_they_do_while_one_is_rebuilt() {
    for (at, opened) in [2, 3].into_iter().flat_map(|at| (0..3).map(move |opened| (at, opened))) {
        filled(Kind::all()[at], |mut rig, array, mut oracle, _| {
            array.fail(0).unwrap();
            take_in(&mut rig, &array, 0);
            assert!(!array.rebuild(false, |at| at.rows < 5).unwrap().complete);
            array.close().unwrap();
            for _ in 0..opened {
                let mut devices = protected(&rig, 3, &Arc::new(AtomicU8::new(WRITES)));
                devices[0] = protected(&rig, 0, &Arc::new(AtomicU8::new(WRITES_AND_FLUSHES))).swap_remove(0);
                open(&rig, &devices).map(drop).unwrap_err();
            }
            let array = rig.try_assemble(&[]).unwrap_or_else(|e| panic!("{at}, {opened} openings: {e}"));
            oracle.assert_reads_back(&array, "well again");
        });
    }
}
